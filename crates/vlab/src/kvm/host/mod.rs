// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab kvm-host`: the part of a lab that runs on the KVM host.
//!
//! It boots the guests, runs the scheduler, measures a step when told to, and
//! goes when its input ends. All that it starts dies with it.

mod boot;
mod clock;
mod disk;
mod guest;
mod scheduler;
pub mod turns;
mod watch;

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
use experiment::result::Liveness;
use experiment::result::Phase;
use experiment::scenario::HostPolicy;
use experiment::scenario::LoadKind;
use units::CpuSet;
use units::Ns;
use units::Time;

use self::boot::Booting;
use self::clock::Clock;
use self::disk::NullDisk;
use self::guest::Guest;
use self::scheduler::Scheduler;
use self::turns::Span;
use self::watch::Watch;
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
    _disk: NullDisk,
    setup: Setup,
    cpus: CpuSet,
    clock: Clock,
    started: Time,
}

/// What a lab needs of its host before there is any guest.
#[derive(Debug)]
struct Ground {
    cpus: CpuSet,
    disk: NullDisk,
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
        let disk = NullDisk::create(
            disk_mib(setup),
            setup.disk_latency,
            setup.scenario.topology.cpus,
        )?;
        Ok(Self { cpus, disk })
    }
}

impl Lab {
    fn start(setup: Setup, ground: Ground, output: &mut impl Write) -> anyhow::Result<Self> {
        let mut says = |what: FromHost| send(output, &what);
        let Ground { cpus, disk } = ground;
        let started = Instant::now();
        let mut booting = (0..setup.guests)
            .map(|number| Booting::start(&setup, number, disk.path(), &cpus))
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
        let clock = clock::compare(guests.first_mut().context("no guests")?, PATIENCE)?;
        Ok(Self {
            clock,
            scheduler: None,
            guests,
            _disk: disk,
            setup,
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
    /// Between two policies the guests' loads rest and the kernel's own scheduler has the
    /// vCPUs: what is loaded and unloaded under load has cost hosts their life.
    fn schedule_by(
        &mut self,
        policy: HostPolicy,
        says: &mut dyn FnMut(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let present = self.scheduler.as_ref().map(|one| one.policy);
        if present == Some(policy) {
            return Ok(());
        }
        for guest in self.guests.iter_mut().skip(1) {
            guest.order(&ToGuest::Compute(false), PATIENCE)?;
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
        for (number, guest) in self.guests.iter_mut().enumerate().skip(1) {
            // The other VMs of this phase compute, the rest sleeps.
            let computes = (number as u32) < plan.vms_per_pcpu;
            guest.order(&ToGuest::Compute(computes), PATIENCE)?;
        }
        self.scheduler()?.alive()?;
        let (under_test, others) = self.guests.split_first_mut().context("there is no guest")?;
        let clock = self.clock;
        let patience = plan.length.to_std() + PATIENCE * 3;
        let timeline = Some(self.setup.timeline).filter(|length| plan.detail && *length > Ns::ZERO);
        // Nothing is faster in a dilated guest because its window is longer.
        let room = timeline.map(|_| plan.length / u64::from(self.setup.dilation));
        let measured = match under_test.ask(&ToGuest::Measure(step, room), patience)? {
            FromGuest::Measured(measured) => *measured,
            other => anyhow::bail!("the guest under test says {other:?}"),
        };
        let mut alive = 1;
        for guest in others {
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
            ..LabPhase::default()
        };
        let vm = under_test.vm();
        // Alone a vCPU keeps its pCPU, and for long there is nothing to trace.
        if phase.vms_per_pcpu > 1 {
            let events = self.scheduler()?.events_until(window.to)?;
            lab.holes = turns::holes(&events, window);
            phase.host = turns::host(&events, vm, window);
            lab.turns = self.turns(&events, plan.host, window);
            let computing = self.guests.iter().take(plan.vms_per_pcpu as usize);
            lab.ran = computing
                .map(|guest| turns::ran(&events, guest.vm(), window))
                .collect();
            let beside = lab.ran.iter().enumerate().skip(1);
            phase.liveness.extend(beside.map(|(number, ran)| Liveness {
                who: format!("guest {number}"),
                alive: *ran > Ns::ZERO,
                per_s: ran.as_secs_f64() / window.length().as_secs_f64(),
            }));
            lab.steal = steal(&events, vm, &measured, span);
            if let Some(recording) = &measured.recording {
                let guest = Window {
                    from: Time(measured.from),
                    to: Time(measured.to),
                };
                let gaps = gaps(turns::gaps(&events, vm, window), clock);
                // The guest's own numbers.
                let inside = CpuSet::first(self.setup.scenario.topology.cpus);
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

/// As large as the largest file that a load wants to read.
fn disk_mib(setup: &Setup) -> u32 {
    let sizes = setup.scenario.loads.iter().map(|load| match load.kind {
        LoadKind::Disk { file_mib, .. } => file_mib,
        _ => 0,
    });
    sizes.max().unwrap_or(0).max(16)
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
