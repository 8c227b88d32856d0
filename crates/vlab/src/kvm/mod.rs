// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab run --backend kvm`: a scenario on real virtual machines.
//!
//! # Problem
//! Steal time, interrupts and host schedulers exist on real KVM hosts only, and
//! the machine at hand may have no KVM that boots a stock kernel, or a kernel
//! without sched_ext.
//!
//! # Approach
//! Where this machine can be the host, it is. Else QEMU emulates an AMD machine
//! whose kernel is a KVM host with sched_ext, and the guests run inside that:
//! everything is real but the speed, so all times are multiplied by 20. Three
//! copies of this program work together (see `protocol`); the same code runs
//! on both kinds of hosts.
//!
//! # Layout
//! `images` what is booted, `machine` the host, [`host`] what runs on it, [`agent`] what runs in a guest.
//!
//! # Limits
//! x86-64. An emulated host loses a guest now and then: its phases are measured
//! again, and every loss is counted in the result.

pub mod agent;
pub mod host;

mod images;
mod machine;
pub(crate) mod protocol;

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap::ValueEnum;
use experiment::lab::Lab;
use experiment::result::FORMAT;
use experiment::result::RunResult;
use experiment::scenario::LoadKind;
use experiment::scenario::Scenario;
use scx_vcpu::policy::Policy;
use units::Ns;

use self::images::Programs;
use self::machine::Machine;
use self::protocol::FromHost;
use self::protocol::Setup;
use self::protocol::ToHost;
use crate::run::Interrupted;
use crate::run::Unusable;
use crate::run::in_guest;
use crate::run::interrupt::Interrupt;
use crate::vm::Image;
use crate::vm::Kernel;
use crate::vm::Store;
use crate::vm::userland;
use crate::vm::userland::Packages;
use crate::vm::userland::Userland;

/// The series of the emulated host's kernel: it has sched_ext.
const HOST_SERIES: &str = "7.3";

/// What runs on the emulated host and in the guests.
const PACKAGES: Packages = Packages {
    name: "lab",
    packages: &["qemu-system-x86", "fio", "stress-ng", "sysbench"],
};

/// Memory of a guest; its root file system is in it.
const GUEST_MIB: u32 = 512;

/// Memory of the emulated host beside its guests'.
const HOST_MIB: u32 = 1536;

/// More guests than this make an emulated host too slow to be of use.
const MAX_NESTED: u32 = 4;

/// How long a lab may take until all guests are up.
const BOOT: Ns = Ns::from_secs(300);

/// Added to the length of a step: loads start and end, guests answer.
const STEP_GRACE: Ns = Ns::from_secs(240);

/// Labs that may be lost before the run gives up.
const MAX_LOST: usize = 5;

/// Options of the backend `kvm`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of --backend kvm")]
pub struct KvmArgs {
    /// Kernel of the guests: 6.1, 6.12 or 7.3.
    #[arg(long, value_name = "SERIES", default_value = "6.12")]
    pub guest_kernel: String,
    /// Multiply all times of the scenario by this [default: 20 nested, 1 direct].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub dilation: Option<u32>,
    /// Time that the guests' disk takes for a request, before dilation.
    #[arg(long, value_name = "TIME", default_value = "150us", value_parser = humantime::parse_duration)]
    pub disk_latency: std::time::Duration,
    /// Host scheduler of the VMs: fixed, with the scenario's slices, or a policy of
    /// `scx_vcpu run --policy`, with its own times (dilated like all others).
    #[arg(long, value_enum, default_value_t = Policy::Fixed)]
    pub host_policy: Policy,
    /// That policy's file (`scx_vcpu run --config`); VM number N, from 0, is matched by
    /// `-name vlabN,`.
    #[arg(long, value_name = "FILE")]
    pub host_config: Option<PathBuf>,
    /// Emulate the host even where this machine could be it.
    #[arg(long)]
    pub nested: bool,
    /// `-cpu` of the emulated host.
    #[arg(long, value_name = "MODEL", default_value = "max", hide = true)]
    pub host_cpu: String,
    /// `-accel` of the emulated host.
    #[arg(
        long,
        value_name = "ACCEL",
        default_value = "tcg,thread=multi",
        hide = true
    )]
    pub host_accel: String,
    /// `-cpu` of the guests.
    #[arg(long, value_name = "MODEL", default_value = "host", hide = true)]
    pub guest_cpu: String,
    /// Added to the emulated host's kernel command line.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide = true,
        allow_hyphen_values = true
    )]
    pub host_append: String,
    /// Added to the guests' kernel command line.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide = true,
        allow_hyphen_values = true
    )]
    pub guest_append: String,
    /// Release of Debian that QEMU and the loads come from.
    #[arg(long, value_name = "SUITE", default_value = userland::RELEASE, hide = true)]
    pub packages: String,
    /// Where kernels and packages are kept.
    #[arg(long, value_name = "DIR", default_value = "target/vm")]
    pub cache: PathBuf,
}

/// Everything that is booted.
struct Parts {
    qemu: Vec<String>,
    guest: Image,
    host: Option<Image>,
    programs: Programs,
    lab: Lab,
    guests: u32,
    /// Text of the host scheduler's file.
    policy_file: String,
    /// Length of each arm's timeline, dilated; zero: none.
    timeline: Ns,
}

/// Measures a scenario on real VMs.
///
/// # Errors
/// [`Unusable`] if the scenario does not fit, [`Interrupted`] after a signal, a
/// package that is not there, or more lost labs than are worth another try.
pub(crate) fn run(
    mut scenario: Scenario,
    args: &KvmArgs,
    vmigrater: PathBuf,
    timeline: Ns,
) -> anyhow::Result<RunResult> {
    let interrupt = Interrupt::catch().context("cannot catch signals")?;
    // What is certain now is said before anything is fetched.
    let sure = if args.nested {
        Some("as asked".to_owned())
    } else {
        machine::why_surely_not_direct()
    };
    if sure.is_some() {
        check_nested(&scenario)?;
    }
    let guests = check(&scenario)?;
    let mut parts = prepare(&scenario, args, vmigrater, guests, sure)?;
    if interrupt.is_set() {
        return Err(Interrupted.into());
    }
    let dilation = args
        .dilation
        .unwrap_or(if parts.host.is_some() { 20 } else { 1 });
    parts.lab.dilation = dilation;
    parts.timeline = timeline * u64::from(dilation);
    dilate(&mut scenario, u64::from(dilation));
    match &parts.host {
        Some(_) => eprintln!(
            "KVM inside an emulated host ({}); all times are multiplied by {dilation}",
            parts.lab.why
        ),
        None => eprintln!("KVM of this machine; times are multiplied by {dilation}"),
    }

    let mut environment = crate::run::environment(&parts.programs.vmigrater);
    let steps = in_guest::steps(&scenario);
    let mut phases = Vec::new();
    let mut warnings = vec![format!(
        "real VMs: all times are dilated by {dilation}; a nested host's numbers scatter by a quarter"
    )];
    while phases.len() < steps {
        parts.lab.boots += 1;
        let mut machine = boot(&parts, &scenario, args)?;
        let measured = measure(
            &mut machine,
            &mut parts,
            &scenario,
            args,
            &interrupt,
            &mut phases,
            steps,
        );
        let Err(error) = measured else {
            continue;
        };
        if interrupt.is_set() || error.is::<Interrupted>() {
            return Err(Interrupted.into());
        }
        let kept = machine.keep(&args.cache.join("logs"));
        let kept = kept.map_or(String::new(), |dir| format!("; logs in {}", dir.display()));
        let lost = format!("after {} of {steps} phases: {error:#}{kept}", phases.len());
        eprintln!("lab lost {lost}");
        parts.lab.lost.push(lost);
        if parts.lab.lost.len() > MAX_LOST {
            return Err(error.context(format!("{} labs were lost; the last one", MAX_LOST + 1)));
        }
    }
    if !parts.lab.lost.is_empty() {
        warnings.push(format!(
            "{} of {} labs were lost; their open phases were measured again",
            parts.lab.lost.len(),
            parts.lab.boots
        ));
    }
    environment.kernel.clone_from(&parts.lab.guest_kernel);
    Ok(RunResult {
        format: FORMAT,
        backend: "kvm".to_owned(),
        scenario,
        environment,
        phases,
        warnings,
        lab: Some(parts.lab),
    })
}

/// Steps until all are measured or the lab is lost.
fn measure(
    machine: &mut Machine,
    parts: &mut Parts,
    scenario: &Scenario,
    args: &KvmArgs,
    interrupt: &Interrupt,
    phases: &mut Vec<experiment::result::Phase>,
    steps: usize,
) -> anyhow::Result<()> {
    let setup = setup(parts, scenario, args, machine);
    machine.tell(&ToHost::Setup(Box::new(setup)))?;
    loop {
        match machine.hear(interrupt, BOOT)? {
            FromHost::Says(what) => eprintln!("  {what}"),
            FromHost::Ready {
                kernel,
                guest_kernel,
                qemu,
            } => {
                parts.lab.host_kernel = kernel;
                parts.lab.guest_kernel = guest_kernel;
                parts.lab.qemu = qemu;
                break;
            }
            other => anyhow::bail!("the host says {other:?}"),
        }
    }
    while phases.len() < steps {
        let step = phases.len();
        eprintln!(
            "  {}/{steps} {}",
            step + 1,
            in_guest::describe(scenario, step)
        );
        let length = in_guest::outline(scenario, step)?.length;
        machine.tell(&ToHost::Measure(step))?;
        match machine.hear(interrupt, length + STEP_GRACE)? {
            FromHost::Measured(measured) => {
                let (phase, lab) = *measured;
                if phase.vms_per_pcpu > 1 {
                    parts.lab.phases.push(lab);
                }
                phases.push(phase);
            }
            other => anyhow::bail!("the host says {other:?}"),
        }
    }
    machine.tell(&ToHost::Quit)
}

fn boot(parts: &Parts, scenario: &Scenario, args: &KvmArgs) -> anyhow::Result<Machine> {
    match &parts.host {
        Some(image) => Machine::nested(
            &parts.qemu,
            image,
            scenario.topology.cpus,
            HOST_MIB + parts.guests * GUEST_MIB,
            &args.host_cpu,
            &args.host_append,
            &args.host_accel,
        ),
        None => Machine::direct(&parts.programs.vlab),
    }
}

fn setup(parts: &Parts, scenario: &Scenario, args: &KvmArgs, machine: &Machine) -> Setup {
    let path = |path: &Path| path.display().to_string();
    let nested = parts.host.is_some();
    Setup {
        scenario: scenario.clone(),
        guests: parts.guests,
        memory_mib: GUEST_MIB,
        kernel: if nested {
            images::GUEST_KERNEL.to_owned()
        } else {
            path(&parts.guest.kernel().vmlinuz())
        },
        initramfs: if nested {
            images::GUEST_INITRAMFS.to_owned()
        } else {
            path(&parts.guest.initramfs())
        },
        qemu: if nested {
            Userland::qemu_inside()
        } else {
            parts.qemu.clone()
        },
        scx_vcpu: if nested {
            "/bin/scx_vcpu".to_owned()
        } else {
            path(&parts.programs.scx_vcpu)
        },
        policy: parts.lab.policy.clone(),
        policy_file: parts.policy_file.clone(),
        disk_latency: Ns(u64::try_from(args.disk_latency.as_nanos()).unwrap_or(u64::MAX))
            * u64::from(parts.lab.dilation),
        append: args.guest_append.clone(),
        cpu: args.guest_cpu.clone(),
        boot: BOOT,
        dilation: parts.lab.dilation,
        timeline: parts.timeline,
        dir: if nested {
            "/tmp/lab".to_owned()
        } else {
            path(&machine.dir().join("lab"))
        },
    }
}

fn prepare(
    scenario: &Scenario,
    args: &KvmArgs,
    vmigrater: PathBuf,
    guests: u32,
    sure: Option<String>,
) -> anyhow::Result<Parts> {
    let vlab = std::env::current_exe().context("cannot find our own program")?;
    let scx_vcpu = vlab.with_file_name("scx_vcpu");
    if !scx_vcpu.is_file() {
        return Err(Unusable::new(format!(
            "there is no host scheduler at {}; build it with `cargo build --release -p scx_vcpu`",
            scx_vcpu.display()
        ))
        .into());
    }
    let policy_file = args.host_config.as_deref().map(policy_file).transpose()?;
    let programs = Programs {
        vlab,
        vmigrater,
        scx_vcpu,
    };
    let store =
        Store::open(&args.cache).with_context(|| format!("cannot use {}", args.cache.display()))?;
    // First: a series that does not exist is told at once.
    let kernel = Kernel::debian(&store, &args.guest_kernel)?;
    let userland = Userland::open(&store, &args.packages, PACKAGES)?;
    let qemu = userland.qemu_here();
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let guest = images::guest(
        &kernel,
        &userland,
        &programs,
        &images::wanted(scenario),
        scratch.path(),
    )?;
    let why = sure.or_else(|| machine::why_not_direct(&qemu, &guest));
    let host = match &why {
        None => None,
        Some(_) => {
            check_nested(scenario)?;
            let kernel = Kernel::debian(&store, HOST_SERIES)?;
            Some(images::host(&kernel, &userland, &programs, &guest)?)
        }
    };
    Ok(Parts {
        qemu,
        guest,
        lab: Lab {
            host: if host.is_some() { "nested" } else { "direct" }.to_owned(),
            why: why.unwrap_or_default(),
            policy: name_of(args.host_policy),
            ..Lab::default()
        },
        host,
        programs,
        guests,
        policy_file: policy_file.unwrap_or_default(),
        timeline: Ns::ZERO,
    })
}

/// As `scx_vcpu run --policy` calls it.
fn name_of(policy: Policy) -> String {
    policy
        .to_possible_value()
        .map_or(String::new(), |value| value.get_name().to_owned())
}

/// The text of a policy file that the host will not refuse.
fn policy_file(path: &Path) -> anyhow::Result<String> {
    scx_vcpu::config::Config::load(path).map_err(|error| Unusable::new(error.to_string()))?;
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// How many guests a scenario needs, if this machine can have them.
fn check(scenario: &Scenario) -> anyhow::Result<u32> {
    let online = freezer::online_cpus()?.len();
    if scenario.topology.cpus > online {
        return Err(Unusable::new(format!(
            "topology.cpus = {}, and this machine has {online} CPUs: set topology.cpus to at most {online}",
            scenario.topology.cpus
        ))
        .into());
    }
    let guests = scenario
        .sharing
        .vms_per_pcpu
        .iter()
        .copied()
        .max()
        .unwrap_or(1);
    let (wanted, have) = (guests * GUEST_MIB + HOST_MIB, available_mib());
    if wanted > have {
        return Err(Unusable::new(format!(
            "sharing.vms_per_pcpu asks for {guests} VMs, which need {wanted} MiB, and this machine has {have} MiB free: use at most {}",
            have.saturating_sub(HOST_MIB) / GUEST_MIB
        ))
        .into());
    }
    if scenario
        .loads
        .iter()
        .any(|load| matches!(load.kind, LoadKind::Fsync { .. }))
    {
        return Err(Unusable::new(
            "a load of kind fsync needs a file system, and the guests' disks have none: leave it out with --loads".to_owned(),
        )
        .into());
    }
    Ok(guests)
}

fn check_nested(scenario: &Scenario) -> anyhow::Result<()> {
    let most = scenario.sharing.vms_per_pcpu.iter().max();
    if most.is_some_and(|most| *most > MAX_NESTED) {
        return Err(Unusable::new(format!(
            "sharing.vms_per_pcpu = {:?}: an emulated host runs at most {MAX_NESTED} VMs; leave the larger numbers out with --vms",
            scenario.sharing.vms_per_pcpu
        ))
        .into());
    }
    Ok(())
}

/// `MemAvailable` in MiB.
fn available_mib() -> u32 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    u32::try_from(kib / 1024).unwrap_or(u32::MAX)
}

/// Multiplies every time of a scenario.
fn dilate(scenario: &mut Scenario, by: u64) {
    scenario.sharing.slice = scenario.sharing.slice * by;
    scenario.measure.warmup = scenario.measure.warmup * by;
    scenario.measure.window = scenario.measure.window * by;
    for load in &mut scenario.loads {
        match &mut load.kind {
            LoadKind::Disk {
                burst: Some(burst), ..
            } => {
                burst.on = burst.on * by;
                burst.off = burst.off * by;
            }
            LoadKind::Pulse {
                device,
                cpu,
                arrivals,
                ..
            } => {
                *device = *device * by;
                *cpu = *cpu * by;
                for arrival in arrivals {
                    arrival.at = arrival.at * by;
                }
            }
            LoadKind::Disk { .. }
            | LoadKind::Fsync { .. }
            | LoadKind::Profile { .. }
            | LoadKind::Idle => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(vms: u32) -> Scenario {
        let text = format!(
            r#"
            name = "s"
            title = "s"
            topology = {{ cpus = 1 }}
            sharing = {{ vms_per_pcpu = [{vms}], slice = "11 ms" }}
            measure = {{ rounds = 1, warmup = "100 ms", window = "300 ms" }}
            load = [{{ name = "a", kind = "pulse", device = "100 us" }}]
            arm = [{{ name = "vanilla" }}]
            "#
        );
        Scenario::parse(&text, "s.toml").unwrap()
    }

    #[test]
    fn dilation_reaches_every_time() {
        let mut scenario = scenario(2);
        dilate(&mut scenario, 20);
        assert_eq!(scenario.sharing.slice, Ns::from_ms(220));
        assert_eq!(scenario.measure.window, Ns::from_secs(6));
        assert_eq!(scenario.measure.warmup, Ns::from_secs(2));
        assert!(
            matches!(&scenario.loads[0].kind, LoadKind::Pulse { device, .. } if *device == Ns::from_ms(2))
        );
    }

    #[test]
    fn too_many_vms_are_refused_before_anything_is_fetched() {
        let error = check_nested(&scenario(5)).unwrap_err();
        assert!(error.is::<Unusable>());
        assert!(error.to_string().contains("at most 4"), "{error}");
        let error = check(&scenario(64)).map(|_| ());
        // 34 GiB: a machine that has them is told by the emulated host's limit.
        if let Err(error) = error {
            assert!(error.to_string().contains("vms_per_pcpu"), "{error}");
        }
    }
}
