// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab kvm-host`: the part of a lab that runs on the KVM host.
//!
//! It boots the guests, runs the scheduler, measures a step when told to, and
//! goes when its input ends. All that it starts dies with it.

mod boot;
mod clients;
mod clock;
mod disk;
mod guest;
mod network;
mod scheduler;
pub mod turns;
mod watch;
mod weights;

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use experiment::decompose::Gaps;
use experiment::lab::LabPhase;
use experiment::lab::Steal;
use experiment::lab::Turns;
use experiment::result::Host;
use experiment::result::Io;
use experiment::result::Liveness;
use experiment::result::LoadWork;
use experiment::result::Phase;
use experiment::result::VmWork;
use experiment::scenario::HostPolicy;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use units::CpuSet;
use units::Ns;
use units::Time;

use self::boot::Booting;
use self::clients::Clients;
use self::clients::Mean;
use self::clients::Trips;
use self::clock::Clock;
use self::disk::NullDisk;
use self::guest::Guest;
use self::scheduler::Scheduler;
use self::turns::Span;
use self::watch::Watch;
use self::weights::Weights;
use super::fit;
use super::fit::NORMAL_WEIGHT;
use super::fit::cgroup_weight;
use super::protocol::FromGuest;
use super::protocol::FromHost;
use super::protocol::Measured;
use super::protocol::Setup;
use super::protocol::Stolen;
use super::protocol::ToGuest;
use super::protocol::ToHost;
use super::protocol::receive;
use super::protocol::send;
use crate::load::Window;
use crate::load::now;
use crate::run::in_guest;
use crate::run::network::OnNetwork;
use crate::run::network::interval;
use crate::run::network::on_network;

/// How long a guest may take for an answer that needs no measuring. It shares
/// its CPUs with the others and may have to wait for some slices.
const PATIENCE: Duration = Duration::from_secs(40);

/// Runs until the input ends.
///
/// # Errors
/// The other side has gone; whatever else goes wrong is told to it.
pub fn run() -> anyhow::Result<()> {
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    if let Err(error) = serve(&mut input, &mut output) {
        send(&mut output, &FromHost::Failed(format!("{error:#}")))?;
    }
    Ok(())
}

fn serve(input: &mut impl BufRead, output: &mut impl Write) -> anyhow::Result<()> {
    let Some(ToHost::Setup(setup)) = receive(input)? else {
        anyhow::bail!("the first message is not what to set up");
    };
    let ground = match Ground::prepare(&setup) {
        Ok(ground) => ground,
        Err(error) => return send(output, &FromHost::CannotSetUp(format!("{error:#}"))),
    };
    let mut lab = Lab::start(*setup, ground, output)?;
    send(
        output,
        &FromHost::Ready {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            guest: lab
                .guests
                .first()
                .map(|guest| guest.inside.clone())
                .unwrap_or_default(),
            qemu: qemu_version(&lab.setup),
        },
    )?;
    while let Some(message) = receive(input)? {
        match message {
            ToHost::Measure(step) => {
                let measured =
                    lab.measure(step, &mut |what| send(output, &FromHost::Says(what)))?;
                send(output, &FromHost::Measured(Box::new(measured)))?;
            }
            ToHost::Exec(guest, words) => {
                let exit = lab.execute(guest, words)?;
                send(output, &FromHost::Exit(exit))?;
            }
            ToHost::Setup(_) => anyhow::bail!("set up twice"),
            ToHost::Quit => break,
        }
    }
    Ok(())
}

/// The running lab.
#[derive(Debug)]
struct Lab {
    // In the order in which they have to go.
    /// From the first step on.
    scheduler: Option<Scheduler>,
    guests: Vec<Guest>,
    _weights: Option<Weights>,
    _disks: Vec<NullDisk>,
    setup: Setup,
    cpus: CpuSet,
    /// CPUs of the host where no guest runs; all of them if there are none.
    spare: CpuSet,
    /// Of the guests that measure, in their order.
    clocks: Vec<Clock>,
    started: Time,
}

/// What a guest runs on its network, and how often its clients ask.
#[derive(Debug)]
struct OtherEnd {
    runs: OnNetwork,
    interval: Ns,
}

/// What a lab needs of its host before there is any guest.
#[derive(Debug)]
struct Ground {
    cpus: CpuSet,
    /// Of the guests that have one, in their order.
    disks: Vec<NullDisk>,
}

impl Ground {
    fn prepare(setup: &Setup) -> anyhow::Result<Self> {
        let cpus: CpuSet = freezer::online_cpus()?
            .iter()
            .skip(setup.first_cpu as usize)
            .take(setup.scenario.topology.cpus as usize)
            .collect();
        anyhow::ensure!(
            cpus.len() == setup.scenario.topology.cpus,
            "the scenario asks for {} CPUs, the host has {} for guests",
            setup.scenario.topology.cpus,
            cpus.len()
        );
        fs::create_dir_all(&setup.dir)
            .with_context(|| format!("cannot make the directory {}", setup.dir))?;
        let disk = |number| {
            NullDisk::create(
                number,
                fit::disk_mib(&setup.scenario),
                fit::needs_files(&setup.scenario),
                setup.disk_latency,
                setup.scenario.topology.cpus,
            )
        };
        let disks = (0..measuring(setup)).map(disk).collect::<Result<_, _>>()?;
        Ok(Self { cpus, disks })
    }
}

impl Lab {
    fn start(setup: Setup, ground: Ground, output: &mut impl Write) -> anyhow::Result<Self> {
        let mut says = |what: FromHost| send(output, &what);
        let Ground { cpus, disks } = ground;
        let started = Instant::now();
        let mut booting = (0..setup.guests)
            .map(|number| {
                let disk = disks.get(number as usize).map(NullDisk::path);
                Booting::start(&setup, number, disk, &cpus)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let watch = Watch::start(std::path::Path::new(&setup.dir), setup.guests);
        boot::all_up(
            &mut booting,
            started,
            started + setup.boot.to_std(),
            &mut says,
        )?;
        let mut guests: Vec<Guest> = booting.into_iter().map(Booting::into_guest).collect();
        drop(watch);
        // Now, while all guests are idle; the difference does not change.
        let measuring = measuring(&setup) as usize;
        let clocks = guests
            .iter_mut()
            .take(measuring)
            .map(|guest| clock::compare(guest, PATIENCE))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            clocks,
            scheduler: None,
            _weights: weights(&setup, &guests)?,
            guests,
            _disks: disks,
            setup,
            spare: spare(cpus)?,
            cpus,
            started: now(),
        })
    }

    fn execute(&mut self, guest: u32, words: Vec<String>) -> anyhow::Result<super::protocol::Exit> {
        let guest = self
            .guests
            .get_mut(guest as usize)
            .with_context(|| format!("there is no guest {guest}"))?;
        match guest.ask(&ToGuest::Exec(words), PATIENCE * 3)? {
            FromGuest::Exit(exit) => Ok(exit),
            other => anyhow::bail!("a guest says {other:?}"),
        }
    }

    /// Has this policy schedule the VMs from now on.
    ///
    /// Between two steps the guests' loads rest, and between two policies the kernel's own
    /// scheduler has the vCPUs: what is loaded and unloaded under load has cost hosts their
    /// life.
    fn schedule_by(
        &mut self,
        policy: HostPolicy,
        says: &mut dyn FnMut(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let present = self.scheduler.as_ref().map(|one| one.policy);
        if present == Some(policy) {
            return Ok(());
        }
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.end()?;
        }
        for guest in &self.guests {
            guest.place(&self.cpus, policy.chooses_cores())?;
        }
        let scheduler = Scheduler::start(&self.setup, self.cpus, policy)?;
        says(scheduler.said.clone())?;
        self.scheduler = Some(scheduler);
        Ok(())
    }

    /// Measures one step of the schedule.
    fn measure(
        &mut self,
        step: usize,
        says: &mut dyn FnMut(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Phase, LabPhase)> {
        let plan = in_guest::outline(&self.setup.scenario, step, self.setup.dilation)?;
        self.schedule_by(plan.host, says)?;
        self.scheduler()?.alive()?;
        let clock = *self.clocks.first().context("there is no guest")?;
        let timeline = Some(self.setup.timeline).filter(|length| plan.detail && *length > Ns::ZERO);
        // Nothing is faster in a dilated guest because its window is longer.
        let room = timeline.map(|_| plan.length / u64::from(self.setup.dilation));
        let (mut all, trips) = self.guests_measure(step, &plan, room)?;
        let windows = self.windows(&all);
        let mut means = Vec::new();
        for ((measured, trips), window) in all.iter_mut().zip(&trips).zip(&windows) {
            let seen = trips
                .as_ref()
                .map(|trips| trips.within(*window))
                .transpose()?;
            means.push(seen.as_ref().map(|(_, mean)| *mean));
            // A guest knows of no message that waits for it.
            if let Some((io, _)) = seen {
                measured.phase.io = Some(io);
            }
        }
        let measured = all.first().context("nobody has measured")?;
        let mut alive = all.len() as u32;
        for guest in self.guests.iter_mut().skip(all.len()) {
            guest.ask(&ToGuest::Time, PATIENCE)?;
            alive += 1;
        }
        let span = |from: u64, to: u64| Span {
            from: clock.to_host(from),
            to: clock.to_host(to),
        };
        let window = span(measured.from, measured.to);
        let mut phase = measured.phase.clone();
        phase.at = window.from.since(self.started);
        let mut lab = LabPhase {
            load: phase.load.clone(),
            arm: phase.arm.clone(),
            vms_per_pcpu: phase.vms_per_pcpu,
            round: phase.round,
            alive,
            clock_error: clock.error,
            unanswered: means.iter().flatten().map(|mean| mean.unanswered).sum(),
            ..LabPhase::default()
        };
        let vm = self.guests.first().context("there is no guest")?.vm();
        // Alone a vCPU keeps its pCPU, and for long there is nothing to trace, unless the VM
        // has more of them.
        let vcpus = self.setup.vcpus(0);
        if phase.vms_per_pcpu > 1 || vcpus > self.setup.scenario.topology.cpus {
            let last = windows.iter().map(|window| window.to).max();
            let events = self.scheduler()?.events_until(last.unwrap_or(window.to))?;
            lab.holes = turns::holes(&events, window);
            phase.host = turns::host(&events, vm, window);
            lab.turns = self.turns(&events, plan.host, window);
            let computing = self.guests.iter().take(plan.guests as usize);
            lab.ran = computing
                .map(|guest| turns::ran(&events, guest.vm(), window))
                .collect();
            let beside = lab.ran.iter().enumerate().skip(1);
            phase.liveness.extend(beside.map(|(number, ran)| Liveness {
                who: format!("guest {number}"),
                alive: *ran > Ns::ZERO,
                per_s: ran.as_secs_f64() / window.length().as_secs_f64(),
            }));
            if plan.each {
                let first = windows.iter().map(|window| window.from).min();
                let apart = windows
                    .iter()
                    .map(|window| window.from.since(first.unwrap_or(window.from)));
                lab.apart = apart.max().unwrap_or(Ns::ZERO);
                phase.work = self.work(&events, &all, &windows, &means);
                let names = self.setup.scenario.each_vm().map(|(name, _)| name);
                for (name, other) in names.zip(&all).skip(1) {
                    phase
                        .liveness
                        .extend(other.phase.liveness.iter().map(|one| Liveness {
                            who: format!("{name}: {}", one.who),
                            ..one.clone()
                        }));
                }
            }
            lab.steal = steal(&events, vm, measured, span);
            if let Some(recording) = &measured.recording {
                let guest = Window {
                    from: Time(measured.from),
                    to: Time(measured.to),
                };
                let gaps = gaps(turns::gaps(&events, vm, window), clock);
                // The guest's own numbers.
                let inside = CpuSet::first(vcpus);
                let recorded = recording.join(&gaps, guest, &inside, timeline);
                (phase.io_time, phase.timeline) = (Some(recorded.io_time), recorded.timeline);
            }
        } else {
            phase.host = Host {
                on_share: self.cpus.iter().map(|_| 1.0).collect(),
                union_share: 1.0,
                slices: 0,
                ..Host::default()
            };
        }
        Ok((phase, lab))
    }

    /// What the guests that measure say of a step. What they run is running in all of them for
    /// as long as any window is open; the windows open about together, since a guest hears of
    /// it when it has its turn.
    ///
    /// Nobody computes before all arms are under way, nor after the last window: a daemon that
    /// attaches or leaves changes code under all vCPUs of its guest, each change waits until
    /// every one of them has run, and beside VMs that compute that is some slices each time.
    /// With two vCPUs on a pCPU it was more than two minutes.
    fn guests_measure(
        &mut self,
        step: usize,
        plan: &in_guest::Outline,
        room: Option<Ns>,
    ) -> anyhow::Result<(Vec<Measured>, Vec<Option<Trips>>)> {
        let on = self.other_ends(step, plan)?;
        let mut sinks = Vec::new();
        for (number, load) in &on {
            if let OnNetwork::Stream { .. } = load.runs {
                let address = network::host_address(*number);
                sinks.push(Clients::take(address, &self.spare)?);
            }
        }
        let mut clients: Vec<(u32, Clients)> = Vec::new();
        let mut trips = Vec::new();
        let count = if plan.each { plan.guests as usize } else { 1 };
        // The other VMs of this phase compute, if they do not measure; the rest sleeps.
        let (guests, rest) = self.guests.split_at_mut(count);
        let beside = &mut rest[..plan.guests as usize - count];
        for (guest, number) in guests.iter_mut().zip(0..) {
            guest.tell(&ToGuest::Measure {
                step,
                guest: number,
                room: room.filter(|_| number == 0),
            })?;
        }
        let long = plan.length.to_std() + PATIENCE * 3;
        for (moment, patience, compute) in [
            (FromGuest::Armed, PATIENCE * 3, Some(true)),
            (FromGuest::Started, PATIENCE * 3, None),
            (FromGuest::Closed, long, Some(false)),
        ] {
            let until = Instant::now() + patience;
            for guest in guests.iter_mut() {
                let answer = guest.answer(until)?;
                anyhow::ensure!(
                    std::mem::discriminant(&answer) == std::mem::discriminant(&moment),
                    "a guest that measures says {answer:?} and not {moment:?}"
                );
            }
            for guest in beside.iter_mut() {
                if let Some(on) = compute {
                    guest.order(&ToGuest::Compute(on), PATIENCE)?;
                }
            }
            // Not before all that a guest wants runs, and until no window is open any more.
            match moment {
                FromGuest::Started => {
                    for (number, load) in &on {
                        if let OnNetwork::Echo { threads, .. } = load.runs {
                            let guest = network::guest_address(*number);
                            let asking = Clients::ask(guest, threads, load.interval, &self.spare)?;
                            clients.push((*number, asking));
                        }
                    }
                }
                FromGuest::Closed => {
                    trips.resize_with(count, || None);
                    for (number, asking) in clients.drain(..) {
                        trips[number as usize] = Some(asking.end()?);
                    }
                }
                _ => {}
            }
            for guest in guests.iter_mut() {
                guest.tell(&ToGuest::Go)?;
            }
        }
        let measured = |answer| match answer {
            FromGuest::Measured(measured) => Ok(*measured),
            other => anyhow::bail!("a guest that measures says {other:?}"),
        };
        let until = Instant::now() + PATIENCE * 3;
        let answers = guests.iter_mut().map(|guest| guest.answer(until));
        let all: anyhow::Result<_> = answers.map(|answer| measured(answer?)).collect();
        Ok((all?, trips))
    }

    /// What the guests that measure in a step need at the other end of their networks.
    fn other_ends(
        &self,
        step: usize,
        plan: &in_guest::Outline,
    ) -> anyhow::Result<Vec<(u32, OtherEnd)>> {
        let scenario = &self.setup.scenario;
        let count = if plan.each { plan.guests } else { 1 };
        let mut ends = Vec::new();
        for number in 0..count {
            let Some(load) = in_guest::load(scenario, step, number)? else {
                continue;
            };
            if let Some(runs) = on_network(&load.kind, self.setup.vcpus(number)) {
                let interval = interval(scenario, &load).context("a network without clients")?;
                ends.push((number, OtherEnd { runs, interval }));
            }
        }
        Ok(ends)
    }

    /// Their windows on the host's clock.
    fn windows(&self, all: &[Measured]) -> Vec<Span> {
        let with = all.iter().zip(&self.clocks);
        with.map(|(measured, clock)| Span {
            from: clock.to_host(measured.from),
            to: clock.to_host(measured.to),
        })
        .collect()
    }

    /// What each VM got done in its own window. Its compute is what its guest counts, per
    /// second: what that is of a CPU, who keeps the results knows. The pCPUs are those of the
    /// time from the first window's opening to the last one's close, in which all that is
    /// measured runs in each VM ([`Self::guests_measure`]). Over windows of their own, which
    /// open apart by up to some turns, the VMs together had more pCPUs than there are, and what
    /// all windows have in common can be a few turns only.
    fn work(
        &self,
        events: &[scx_vcpu::trace::Event],
        all: &[Measured],
        windows: &[Span],
        means: &[Option<Mean>],
    ) -> Vec<VmWork> {
        let scenario = &self.setup.scenario;
        let with = scenario
            .each_vm()
            .zip(&self.guests)
            .zip(all.iter().zip(windows).zip(means));
        let around = Span::around(windows);
        with.map(|(((name, vm), guest), ((measured, window), mean))| {
            let window = around.unwrap_or(*window);
            let phase = &measured.phase;
            let own = vm.loads.as_ref().map(|loads| loads.first());
            let phases = || scenario.loads.iter().find(|load| load.name == phase.load);
            let load = own.unwrap_or_else(phases);
            let io = load.zip(phase.io.as_ref());
            VmWork {
                vm: name,
                cpus: turns::ran(events, guest.vm(), window).as_secs_f64()
                    / window.length().as_secs_f64(),
                compute: phase.compute_per_s.iter().sum(),
                loads: io
                    .map(|(load, io)| loaded(load, io, mean.unwrap_or_default()))
                    .into_iter()
                    .collect(),
            }
        })
        .collect()
    }

    fn scheduler(&mut self) -> anyhow::Result<&mut Scheduler> {
        self.scheduler.as_mut().context("nobody schedules the VMs")
    }

    fn turns(
        &self,
        events: &[scx_vcpu::trace::Event],
        policy: HostPolicy,
        window: Span,
    ) -> Vec<Turns> {
        let sharing = &self.setup.scenario.sharing;
        let fixed = || {
            let possible = possible_cpus();
            scx_vcpu::policy::fixed::slices(sharing.slice, sharing.sweep_permille, possible)
        };
        // Those of the other policies are their own.
        let asked = if policy == HostPolicy::Fixed {
            fixed().unwrap_or_default()
        } else {
            Vec::new()
        };
        self.cpus
            .iter()
            .map(|cpu| {
                let asked = asked.get(cpu.index()).copied().unwrap_or(Ns::ZERO);
                turns::turns(events, cpu.0 as u16, asked, window)
            })
            .collect()
    }
}

/// Where those run that are other machines to the guests.
fn spare(guests: CpuSet) -> anyhow::Result<CpuSet> {
    let all = freezer::online_cpus()?;
    let spare: CpuSet = all.iter().filter(|cpu| !guests.contains(*cpu)).collect();
    Ok(if spare.is_empty() { all } else { spare })
}

/// How many guests measure: the first one, or all that the scenario names.
fn measuring(setup: &Setup) -> u32 {
    if setup.scenario.vms.is_empty() {
        1
    } else {
        setup.guests
    }
}

/// The guests' weights, if any of them has one.
fn weights(setup: &Setup, guests: &[Guest]) -> anyhow::Result<Option<Weights>> {
    let of = setup
        .scenario
        .each_vm()
        .map(|(_, vm)| cgroup_weight(vm.weight));
    let weights: Vec<u32> = of.collect();
    if weights
        .iter()
        .all(|weight| *weight == cgroup_weight(NORMAL_WEIGHT))
    {
        return Ok(None);
    }
    let vms = guests.iter().map(Guest::vm).zip(weights);
    Weights::give(&vms.collect::<Vec<_>>()).map(Some)
}

/// What a load of a VM got done.
fn loaded(load: &Load, io: &Io, trips: Mean) -> LoadWork {
    let threads = match load.kind {
        LoadKind::Disk { threads, .. } | LoadKind::Pulse { threads, .. } => threads,
        _ => 0,
    };
    LoadWork {
        load: load.name.clone(),
        threads,
        ops_per_s: io.ops_per_s,
        bytes_per_s: io.bytes_per_s,
        latency: io.latency.p50,
        trip: trips.mean,
        trip_max: trips.longest,
    }
}

fn possible_cpus() -> u32 {
    scx_vcpu::run::possible_cpus().unwrap_or(1)
}

/// When each vCPU waited, on the guest's clock.
fn gaps(waited: BTreeMap<u16, Vec<(Time, Time)>>, clock: Clock) -> Gaps {
    let last = waited.keys().last().copied().unwrap_or(0);
    let mut gaps = vec![Vec::new(); usize::from(last) + 1];
    for (vcpu, list) in waited {
        let on_guest = |(from, to)| (clock.to_guest(from), clock.to_guest(to));
        gaps[usize::from(vcpu)] = list.into_iter().map(on_guest).collect();
    }
    Gaps(gaps)
}

/// Both sides of each vCPU's stolen time, each over the interval between the
/// guest's two readings.
fn steal(
    events: &[scx_vcpu::trace::Event],
    vm: u32,
    measured: &Measured,
    span: impl Fn(u64, u64) -> Span,
) -> Vec<Steal> {
    let readings = measured.steal_from.iter().zip(&measured.steal_to);
    readings
        .enumerate()
        .map(|(vcpu, (from, to)): (usize, (&Stolen, &Stolen))| {
            let waited = turns::waited(events, vm, span(from.at, to.at));
            Steal {
                host: u16::try_from(vcpu)
                    .ok()
                    .and_then(|vcpu| waited.get(&vcpu))
                    .copied()
                    .unwrap_or(Ns::ZERO),
                guest: to.stolen - from.stolen,
            }
        })
        .collect()
}

fn qemu_version(setup: &Setup) -> String {
    let Some((program, first)) = setup.qemu.split_first() else {
        return String::new();
    };
    let done = Command::new(program).args(first).arg("--version").output();
    done.ok()
        .and_then(|done| {
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            let word = text.split_whitespace().nth(3)?;
            Some(word.to_owned())
        })
        .unwrap_or_default()
}
