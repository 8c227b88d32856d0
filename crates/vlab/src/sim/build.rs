// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a step of a scenario to a simulation.

use experiment::scenario::ArmKind;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use experiment::scenario::Others;
use experiment::scenario::Part;
use experiment::scenario::Pattern;
use experiment::scenario::Scenario;
use experiment::scenario::SimSpec;
use policy::guest::wakeup::Mode;
use policy::guest::xballoon;
use sim::device::Delay;
use sim::device::Device;
use sim::device::Path;
use sim::device::Served;
use sim::device::ServedSettings;
use sim::device::Ssd;
use sim::device::SsdSettings;
use sim::engine::Sim;
use sim::guest::Class;
use sim::guest::DaemonCosts;
use sim::guest::Guest;
use sim::guest::Migrater;
use sim::guest::MigraterSettings;
use sim::guest::NewTask;
use sim::hypervisor::Fixed;
use sim::hypervisor::FixedSettings;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::Sharing;
use sim::ids::DeviceId;
use sim::ids::Vcpu;
use sim::ids::VmId;
use sim::machine::Machine;
use sim::machine::NORMAL_WEIGHT;
use sim::program::Compute;
use sim::program::Phases;
use sim::program::Reader;
use sim::program::ReaderSettings;
use sim::queue::QueueKind;
use units::CpuId;
use units::CpuSet;
use units::Ns;
use units::Permille;
use units::VcpuId;

use super::host;
use super::host::Chosen;
use super::platform;
use super::platform::Platform;
use crate::reproduce::platforms;
use crate::reproduce::vms;
use crate::reproduce::vms::InGuest;
use crate::run::Unusable;
use crate::run::schedule::Step;

/// Group of compute tasks: the number of the vCPU to which they are pinned is
/// added.
pub(super) const COMPUTE: u32 = 1000;
/// Group of I/O tasks.
pub(super) const IO: u32 = 1;
/// Group of loads beside the measured one: the load's place in its VM is added.
pub(super) const LOADS: u32 = 1 << 20;
/// A warm-up has at least so many periods, as in a measurement.
const WARMUP_PERIODS: u64 = 10;
/// A work unit of the compute tasks.
pub(super) const UNIT: Ns = Ns::from_us(500);
/// Weight of nice -20 in Linux.
const NICE_MINUS_20: u32 = 88_761;

/// Builds the simulation of one step with this seed.
pub(super) fn simulation(scenario: &Scenario, step: &Step<'_>, seed: u64) -> anyhow::Result<Sim> {
    let spec = scenario.sim.clone().unwrap_or_default();
    let cpus = scenario.topology.cpus;
    let mut platform = platform::of(&spec, cpus)?;
    if is_pulse(step.load) {
        // Its completions are timers.
        platform.kernel.completion = None;
    }
    let vms = step.vms_per_pcpu;
    let sharing = Sharing {
        vms_per_pcpu: vms,
        slice: scenario.sharing.slice,
        sweep_permille: scenario.sharing.sweep_permille,
    };
    let chosen = host::chosen(scenario, step)?;
    if !scenario.vms.is_empty() {
        return own_vms(scenario, step, &chosen, seed);
    }
    let host = chosen.name.as_str();
    let tuning = platforms::tuning_of(&spec.platform)?;
    let mut policy = chosen.policy(&sharing, &tuning)?;
    let simulated = if spec.others == Others::Phantom {
        // Phantoms have no vCPUs that another policy could choose between.
        if host != "fixed" && vms > 1 {
            return Err(Unusable(format!(
                "sim.others is \"phantom\" and the host policy is \"{host}\": slices of VMs that are not simulated pass by under \"fixed\" only; write sim.others = \"same\" or \"compute\""
            ))
            .into());
        }
        if host == "fixed" {
            policy = freezer(&sharing);
        }
        1
    } else {
        vms
    };
    let mut machine = Machine::new(
        cpus,
        spec.threads_per_core == 2,
        platform.costs,
        platform.smt,
    );
    let pin = |n| {
        if chosen.chooses_cores() {
            Vec::new()
        } else {
            vec![CpuId(n)]
        }
    };
    let pins: Vec<Vec<CpuId>> = (0..cpus).map(pin).collect();
    for n in 0..simulated {
        machine.add_vm(&format!("vm{n}"), chosen.weight(n as usize), &pins);
    }
    chosen.tell(&mut machine.vms);
    let path = match spec.completion_vcpu {
        Some(vcpu)
            if matches!(
                step.load.map(|load| &load.kind),
                Some(LoadKind::Disk { .. })
            ) =>
        {
            Path::Fixed(VcpuId(vcpu))
        }
        _ => Path::Submitter,
    };
    let mut guests = Vec::new();
    for n in 0..simulated {
        let first = Vcpu(machine.vms[n as usize].vcpus.start);
        let mut guest = Guest::new(VmId(n), first, cpus, platform.kernel, seed);
        if step.compute {
            for vcpu in 0..cpus {
                for _ in 0..scenario.compute.threads_per_cpu {
                    guest.add(compute(vcpu));
                }
            }
        }
        if n == 0 || spec.others == Others::Same {
            if let Some(load) = step.load {
                add_load(&mut guest, load, step, &spec, &platform, cpus)?;
            }
            let fixed = match path {
                Path::Fixed(vcpu) => Some(vcpu),
                Path::Submitter => None,
            };
            start_daemon(&mut guest, step, &platform, cpus, fixed)?;
        }
        guests.push(guest);
    }
    let mut sim = Sim::new(machine, policy, QueueKind::default(), seed);
    if host != "fixed" {
        // Slots begin at different instants by themselves.
        sim.spread_starts(sharing.slice * u64::from(vms));
    }
    for guest in guests {
        sim.add_guest(guest);
    }
    sim.add_device(device(step.load, &spec, &platform), path);
    Ok(sim)
}

/// Slots for one VM beside phantoms, as the freezer makes them: by the clock.
fn freezer(sharing: &Sharing) -> Box<dyn Hypervisor> {
    Box::new(Fixed::new(FixedSettings {
        slots: sharing.vms_per_pcpu,
        slice: sharing.slice,
        sweep_permille: sharing.sweep_permille,
        keeps_idle: true,
    }))
}

/// The same, where the scenario says which VMs there are.
fn own_vms(
    scenario: &Scenario,
    step: &Step<'_>,
    chosen: &Chosen,
    seed: u64,
) -> anyhow::Result<Sim> {
    let spec = scenario.sim.clone().unwrap_or_default();
    let platform = |cpus| platform::of(&spec, cpus);
    let costs = platform(scenario.vcpus())?.daemon;
    let kind = step.arm.map(|arm| &arm.kind);
    let arm = InGuest {
        fifo: step.fifo || matches!(kind, Some(ArmKind::Fifo)),
        weight: matches!(kind, Some(ArmKind::Nice)).then_some(NICE_MINUS_20),
        balloon: xballoon(step, costs)?,
        migrater: daemon(step, costs)?,
    };
    vms::build(&vms::Request {
        scenario,
        load: step.load,
        compute: step.compute,
        alone: step.arm.is_none(),
        arm,
        host: chosen,
        opens: opens(scenario, step),
        groups: vms::Groups {
            io: IO,
            compute: COMPUTE,
            loads: LOADS,
        },
        seed,
        platform: &platform,
    })
}

/// How long after the beginning the window opens. Rounds begin at different phases of
/// the host's slices.
pub(super) fn opens(scenario: &Scenario, step: &Step<'_>) -> Ns {
    let slice = scenario.sharing.slice;
    let mut warmup = scenario.measure.warmup;
    if step.vms_per_pcpu > 1 {
        warmup = warmup.max(slice * u64::from(step.vms_per_pcpu) * WARMUP_PERIODS);
    }
    warmup + slice.scaled(u64::from(step.round) * 37 % 100, 31)
}

fn compute(vcpu: u32) -> NewTask {
    NewTask {
        name: format!("compute-{vcpu}"),
        group: COMPUTE + vcpu,
        class: Class::Fair(NORMAL_WEIGHT),
        mask: CpuSet::only(VcpuId(vcpu)),
        vcpu: VcpuId(vcpu),
        program: Box::new(Compute::new(UNIT)),
    }
}

/// The I/O tasks of a load.
fn add_load(
    guest: &mut Guest,
    load: &Load,
    step: &Step<'_>,
    spec: &SimSpec,
    platform: &Platform,
    cpus: u32,
) -> anyhow::Result<()> {
    let class = match step.arm.map(|arm| &arm.kind) {
        Some(ArmKind::Fifo) => Class::Fifo,
        Some(ArmKind::Nice) => Class::Fair(NICE_MINUS_20),
        _ if step.fifo => Class::Fifo,
        _ => Class::Fair(NORMAL_WEIGHT),
    };
    let mut reader = ReaderSettings {
        device: DeviceId(0),
        depth: 1,
        bytes: 0,
        start: 0,
        span: 1 << 30,
        sequential: false,
        submit: spec.submit.unwrap_or(platform.submit),
        process: spec.process.unwrap_or(platform.process),
        process_spread: platform.process_spread,
        further: spec.further.or(platform.further),
        write: false,
        phases: None,
    };
    let turn = spec.begins_at(step.round, cpus);
    let threads = match &load.kind {
        LoadKind::Idle => 0,
        LoadKind::Pulse {
            queue_depth,
            threads,
            cpu,
            arrivals,
            device: _,
        } => {
            if !arrivals.is_empty() {
                return Err(Unusable(format!(
                    "load {}: the simulator has no threads that come later",
                    load.name
                ))
                .into());
            }
            reader.depth = *queue_depth;
            reader.process += *cpu;
            reader.further = reader.further.map(|further| further + *cpu);
            *threads
        }
        LoadKind::Disk {
            pattern,
            queue_depth,
            block_kib,
            file_mib,
            threads,
            burst,
        } => {
            reader.depth = *queue_depth;
            reader.bytes = block_kib * 1024;
            reader.span = u64::from(*file_mib) << 20;
            reader.sequential = *pattern == Pattern::SequentialRead;
            reader.phases = burst.map(|burst| Phases {
                on: burst.on,
                off: burst.off,
            });
            *threads
        }
        LoadKind::Fsync { .. } => {
            return Err(Unusable(format!("load {}: the simulator has no fsync", load.name)).into());
        }
        LoadKind::Simulated { .. } => {
            let text = format!("load {}: needs [[vm]] tables", load.name);
            return Err(Unusable(text).into());
        }
        LoadKind::Profile { profile } => {
            return super::profile::add(guest, profile, class, platform, cpus, turn);
        }
    };
    for n in 0..threads {
        guest.add(NewTask {
            name: format!("io-{n}"),
            group: IO,
            class,
            mask: CpuSet::first(cpus),
            vcpu: VcpuId(cpus - 1 - (n + turn) % cpus),
            program: Box::new(Reader::new(reader)),
        });
    }
    Ok(())
}

fn is_pulse(load: Option<&Load>) -> bool {
    load.is_some_and(|load| matches!(load.kind, LoadKind::Pulse { .. }))
}

fn device(load: Option<&Load>, spec: &SimSpec, platform: &Platform) -> Box<dyn Device> {
    match load.map(|load| &load.kind) {
        // A timer on the submitting CPU.
        Some(LoadKind::Pulse { device, .. }) => {
            Box::new(Delay::new(*device + platform.timer_late, 0))
        }
        _ => disk(spec, platform),
    }
}

fn disk(spec: &SimSpec, platform: &Platform) -> Box<dyn Device> {
    let latency = spec.disk_latency.unwrap_or(platform.disk_latency);
    let spread_permille = platform.disk_spread;
    match spec.disk_begin {
        Some(begin) => Box::new(Served::new(ServedSettings {
            begin,
            latency,
            spread_permille,
        })),
        None => Box::new(Ssd::new(SsdSettings {
            latency,
            spread_permille,
            channels: platform.disk_channels,
            rate: platform.disk_rate,
            turn: Ns::ZERO,
        })),
    }
}

/// Gives a guest what its arm runs in it. `fixed`: the vCPU on which all its
/// completions arrive.
fn start_daemon(
    guest: &mut Guest,
    step: &Step<'_>,
    platform: &Platform,
    cpus: u32,
    fixed: Option<VcpuId>,
) -> anyhow::Result<()> {
    if let Some(settings) = xballoon(step, platform.daemon)? {
        guest.set_xballoon(xballoon::Settings::default(), settings);
    } else if let Some(settings) = daemon(step, platform.daemon)? {
        guest.set_migrater(Migrater::new(settings, cpus, fixed));
    }
    Ok(())
}

/// The daemon in mode xballoon, as an arm wants it.
fn xballoon(step: &Step<'_>, costs: DaemonCosts) -> anyhow::Result<Option<MigraterSettings>> {
    match step.arm.map(|arm| (&arm.name, &arm.kind)) {
        Some((name, ArmKind::Xballoon { config: Some(_) })) => Err(reads_no_configuration(name)),
        Some((_, ArmKind::Xballoon { config: None })) => Ok(Some(MigraterSettings {
            costs,
            ..MigraterSettings::default()
        })),
        _ => Ok(None),
    }
}

fn reads_no_configuration(arm: &str) -> anyhow::Error {
    Unusable(format!(
        "arm {arm}: the simulator has no dry run and reads no configuration file of the daemon"
    ))
    .into()
}

/// vMigrater as an arm wants it.
fn daemon(step: &Step<'_>, costs: DaemonCosts) -> anyhow::Result<Option<MigraterSettings>> {
    let Some(arm) = step.arm else {
        return Ok(None);
    };
    let (dry_run, profile, without, config) = match &arm.kind {
        ArmKind::Vmigrater {
            dry_run,
            profile,
            without,
            config,
        } => (dry_run, profile, without, config),
        ArmKind::Vanilla
        | ArmKind::Fifo
        | ArmKind::Nice
        | ArmKind::Host { .. }
        | ArmKind::Xballoon { .. } => return Ok(None),
        ArmKind::Command { .. } => {
            return Err(Unusable(format!(
                "arm {}: the simulator runs no commands; kind = \"command\" is for `vlab run`",
                arm.name
            ))
            .into());
        }
    };
    if *dry_run {
        return Err(reads_no_configuration(&arm.name));
    }
    let mut settings = match profile.as_deref() {
        None => MigraterSettings::default(),
        Some("published") => MigraterSettings::published(),
        Some(other) => {
            return Err(Unusable(format!(
                "arm {}: the simulator has no profile \"{other}\" of the daemon; it has \"published\"",
                arm.name
            ))
            .into());
        }
    };
    for part in without {
        match part {
            Part::Push => settings.placement.push = false,
            Part::Pull => settings.placement.pull = false,
            Part::SoonActive => settings.placement.soon_active = false,
            Part::WakeupLever => settings.wakeup.mode = Mode::Off,
            Part::CompletionPath => settings.placement.completion = false,
            Part::Trial => settings.trial.enabled = false,
        }
    }
    if let Some(config) = config {
        configure(&arm.name, config, &mut settings)?;
    }
    settings.costs = costs;
    Ok(Some(settings))
}

/// What an arm writes into the daemon's configuration: the model has the times and the
/// thresholds of the Task Detector.
fn configure(arm: &str, config: &str, settings: &mut MigraterSettings) -> anyhow::Result<()> {
    let unusable = |what: String| {
        Unusable(format!(
            "arm {arm}: {what}; of the daemon's configuration the simulator reads iobound.window, iobound.idle, iobound.stay, iobound.enter, iobound.leave, placement.soon_below, placement.pull_unless_back_within and placement.back_overdue_after"
        ))
    };
    let table: toml::Table = config.parse().map_err(|e| unusable(format!("{e}")))?;
    for (section, keys) in &table {
        let Some(keys) = keys.as_table() else {
            return Err(unusable(format!("it sets {section}")).into());
        };
        for (key, value) in keys {
            let time = || {
                let time = value.as_str().and_then(as_time);
                time.ok_or_else(|| unusable(format!("{section}.{key} is no time: {value}")))
            };
            let part = |least: Permille| {
                let part = value.as_str().and_then(as_part);
                part.filter(|part| *part >= least).ok_or_else(|| {
                    let expected = format!("no percentage from \"{least}\" to \"100 %\"");
                    unusable(format!("{section}.{key} is {expected}: {value}"))
                })
            };
            let (iobound, placement) = (&mut settings.iobound, &mut settings.placement);
            match (section.as_str(), key.as_str()) {
                ("iobound", "window") => iobound.window = time()?,
                ("iobound", "idle") => iobound.idle = time()?,
                ("iobound", "stay") => iobound.stay = time()?,
                ("iobound", "enter") => iobound.enter = part(Permille::new(1))?,
                ("iobound", "leave") => iobound.leave = part(Permille::ZERO)?,
                ("placement", "soon_below") => placement.soon_below = time()?,
                ("placement", "pull_unless_back_within") => {
                    placement.pull_unless_back_within = time()?;
                }
                ("placement", "back_overdue_after") => {
                    let never = value.as_str() == Some("never");
                    placement.back_overdue_after = (!never).then(time).transpose()?;
                }
                _ => return Err(unusable(format!("it sets {section}.{key}")).into()),
            }
        }
    }
    let iobound = &settings.iobound;
    if iobound.leave > iobound.enter {
        let (leave, enter) = (iobound.leave, iobound.enter);
        let what = format!("iobound.leave is {leave}, above iobound.enter, {enter}");
        return Err(unusable(what).into());
    }
    Ok(())
}

fn as_time(text: &str) -> Option<Ns> {
    let time = humantime::parse_duration(text).ok()?;
    u64::try_from(time.as_nanos()).ok().map(Ns)
}

/// "30 %", from 0 to 100.
fn as_part(text: &str) -> Option<Permille> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    let permille = (percent * 10.0).round();
    (0.0..=1000.0)
        .contains(&permille)
        .then(|| Permille::new(permille as u16))
}
