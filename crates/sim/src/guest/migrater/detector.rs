// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Task Detector: time blocked on I/O and on the CPU, window by window.

use policy::guest::iobound;
use policy::guest::iobound::Class;
use policy::guest::iobound::WokenHere;
use policy::guest::view::need;
use units::Ns;
use units::Permille;
use units::Time;

use super::super::Guest;
use super::super::TaskState;
use super::super::World;
use crate::ids::TaskId;

/// Latencies that are remembered.
const LATENCIES: usize = 16;

/// One task's present window and class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    start: Time,
    io: Ns,
    on_cpu: Ns,
    /// The task's counters when they were looked at last.
    seen: (Ns, Ns, Ns),
    pub(crate) class: Class,
    pub(crate) load: Permille,
    pub(crate) cpu_share: Permille,
    /// In this phase: ran, waited for I/O, slept for another reason.
    phase: (Ns, Ns, Ns),
    /// Sleeps for another reason than I/O since then, wherever it is taken meanwhile.
    slept_at: Option<Time>,
    woken_here: WokenHere,
    /// Woken from a long sleep, has not run since.
    dozed: bool,
    latencies: [Ns; LATENCIES],
    next: usize,
}

impl Window {
    /// Usual latency: only two of the last sixteen were longer.
    pub(crate) fn io_latency(&self) -> Ns {
        let mut sorted = self.latencies;
        sorted.sort_unstable();
        sorted[LATENCIES - 3]
    }

    pub(crate) fn completed(&mut self, latency: Ns) {
        self.latencies[self.next] = latency;
        self.next = (self.next + 1) % LATENCIES;
    }

    /// Is it left where it sleeps?
    pub(super) fn stays(&self, settings: &iobound::Settings, now: Time) -> bool {
        let asleep = self.slept_at.map(|since| now.since(since));
        asleep.is_some_and(|asleep| settings.stays(asleep, self.woken_here))
    }
}

impl Guest {
    /// A request of a task has completed.
    pub(crate) fn detect_completion(&mut self, task: TaskId, latency: Ns) {
        if let Some(migrater) = &mut self.migrater {
            let seat = migrater.seat(task);
            seat.window.completed(latency);
            seat.requests += 1;
        }
    }

    /// A task has just been switched: its window may be complete. The task's books
    /// are settled.
    pub(crate) fn detect(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let now = world.agenda.now();
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let t = &self.tasks[task.index()];
        if t.blocked_io == Ns::ZERO && t.io_on_cpu == Ns::ZERO {
            return;
        }
        let settings = migrater.settings.iobound.clone();
        let window = &mut migrater.seat(task).window;
        // Counters are cleared when the measured window opens.
        let since = |now: Ns, then: Ns| if now >= then { now - then } else { now };
        let io = since(t.blocked_io, window.seen.0);
        let cpu_time = since(t.on_cpu, window.seen.1);
        let busy = since(t.io_on_cpu, window.seen.2);
        window.seen = (t.blocked_io, t.on_cpu, t.io_on_cpu);
        window.io += io + busy;
        window.on_cpu += cpu_time - busy;
        let before = window.class.is_io_bound();
        if before {
            window.phase.0 += cpu_time;
            window.phase.1 += io;
            let (ran, waited, slept) = window.phase;
            window.cpu_share = need(ran, waited, slept, settings.window);
        } else if settings.certain(window.start, now, window.io, window.on_cpu) {
            window.load = iobound::load(window.io, window.on_cpu);
            window.class = settings.next(window.class, window.load);
            self.begin_phase(cpu, task, world);
            return;
        }
        if !settings.window_complete(window.start, now, window.io + window.on_cpu) {
            return;
        }
        let load = iobound::load(window.io, window.on_cpu);
        window.class = settings.next(window.class, load);
        window.load = load;
        window.start = now;
        window.io = Ns::ZERO;
        window.on_cpu = Ns::ZERO;
        let after = window.class.is_io_bound();
        if after && !before {
            self.begin_phase(cpu, task, world);
        } else if before && !after {
            self.let_loose(task);
        }
    }

    fn begin_phase(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let group = self.tasks[task.index()].group;
        if let Some(migrater) = &mut self.migrater {
            let seat = migrater.seat(task);
            seat.taken = world.agenda.now();
            seat.requests = 0;
            if migrater.is_free(group) {
                return;
            }
        }
        self.take_hold(task, world.agenda.now());
        self.ring(cpu, world);
        self.balloon_news(cpu, world);
    }

    /// A task begins to sleep, and not on I/O.
    pub(crate) fn detect_sleep(&mut self, task: TaskId, now: Time) {
        if let Some(migrater) = &mut self.migrater {
            migrater.seat(task).window.slept_at = Some(now);
        }
    }

    /// A vCPU wakes a task, which has not been queued yet: did it sleep for long, did its
    /// waker run where it had fallen asleep, is its phase over?
    pub(crate) fn detect_wake(&mut self, waker: usize, task: TaskId, now: Time) {
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let settings = migrater.settings.iobound.clone();
        let t = &self.tasks[task.index()];
        let window = &mut migrater.seat(task).window;
        let Some(since) = window.slept_at.take() else {
            return;
        };
        let asleep = now.since(since);
        window.phase.2 += asleep;
        if settings.is_long_sleep(asleep) {
            let here = t.ran_on.index() == waker;
            window.woken_here = window.woken_here.after(here);
            window.dozed = true;
        }
        if !settings.phase_over(asleep) {
            return;
        }
        window.class = Class::default();
        window.start = now;
        window.io = Ns::ZERO;
        window.on_cpu = Ns::ZERO;
        window.seen = (t.blocked_io, t.on_cpu, t.io_on_cpu);
        if migrater.seat(task).held {
            self.let_loose(task);
        }
    }

    /// A task gets a vCPU: where it is new, or no timer was armed for it because it
    /// slept, the monitor has to know.
    pub(crate) fn detect_arrival(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let seat = migrater.seat(task);
        let dozed = std::mem::take(&mut seat.window.dozed);
        let t = &self.tasks[task.index()];
        // One whose move has held it up counts as here since it came, and was no task of
        // this vCPU's until now.
        let came = dozed || t.in_transit || t.ran_on.index() != cpu;
        let alarm = migrater.monitors[cpu].alarm_at;
        let is_armed = alarm.is_some_and(|at| at > world.agenda.now());
        if came && migrater.seat(task).held && !is_armed {
            self.ring(cpu, world);
        }
    }

    /// Tasks that have slept for long, and not on I/O, are no longer I/O-bound.
    pub(super) fn end_dozing(&mut self, now: Time) {
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let settings = &migrater.settings.iobound;
        let dozing: Vec<TaskId> = (0..migrater.seats.len())
            .filter(|n| {
                let seat = &migrater.seats[*n];
                let asleep = seat.window.slept_at.map(|since| now.since(since));
                seat.held
                    && (self.tasks[*n].state == TaskState::Exited
                        || asleep.is_some_and(|asleep| settings.phase_over(asleep)))
            })
            .map(|n| TaskId(n as u32))
            .collect();
        for task in dozing {
            if let Some(migrater) = &mut self.migrater {
                migrater.seat(task).window.class = Class::default();
            }
            self.let_loose(task);
        }
    }

    pub(super) fn take_hold(&mut self, task: TaskId, now: Time) {
        if let Some(migrater) = &mut self.migrater {
            let settings = migrater.settings.clone();
            let seat = migrater.seat(task);
            seat.held = true;
            seat.window.phase = <(Ns, Ns, Ns)>::default();
            seat.window.cpu_share = Permille::ZERO;
            seat.decider = super::decider(&settings);
            let t = &self.tasks[task.index()];
            seat.lever_seen = (t.switches, t.queued, t.on_cpu, now);
        }
    }

    /// Undoes what was done to a task.
    pub(super) fn let_loose(&mut self, task: TaskId) {
        if let Some(migrater) = &mut self.migrater {
            let seat = migrater.seat(task);
            seat.held = false;
            seat.lever = policy::guest::wakeup::Lever::Off;
            let t = &mut self.tasks[task.index()];
            t.mask = t.owned_mask.clone();
            t.lever = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Migrater;
    use super::super::MigraterSettings;
    use super::super::Seat;
    use crate::device::Delay;
    use crate::device::Path;
    use crate::engine::Sim;
    use crate::guest::Guest;
    use crate::guest::KernelSettings;
    use crate::guest::NewTask;
    use crate::hypervisor::Sharing;
    use crate::hypervisor::by_name;
    use crate::ids::DeviceId;
    use crate::ids::Vcpu;
    use crate::ids::VmId;
    use crate::machine::Costs;
    use crate::machine::Machine;
    use crate::machine::NORMAL_WEIGHT;
    use crate::machine::Smt;
    use crate::program::Compute;
    use crate::program::Cx;
    use crate::program::Phases;
    use crate::program::Program;
    use crate::program::Reader;
    use crate::program::ReaderSettings;
    use crate::program::Step;
    use crate::queue::QueueKind;
    use crate::record::Does;
    use units::CpuId;
    use units::CpuSet;
    use units::Permille;
    use units::VcpuId;

    use super::*;

    const READ: ReaderSettings = ReaderSettings {
        device: DeviceId(0),
        depth: 1,
        bytes: 4096,
        start: 0,
        span: 1 << 30,
        sequential: false,
        submit: Ns::from_us(5),
        process: Ns::from_us(10),
        process_spread: 0,
        further: None,
        write: false,
        phases: None,
    };

    fn bursts(on: u64, off: u64) -> Box<dyn Program> {
        Box::new(Reader::new(ReaderSettings {
            phases: Some(Phases {
                on: Ns::from_ms(on),
                off: Ns::from_ms(off),
            }),
            ..READ
        }))
    }

    fn on(vcpu: u32, mask: CpuSet, group: u32, program: Box<dyn Program>) -> NewTask {
        NewTask {
            name: format!("{group}"),
            group,
            class: crate::guest::Class::Fair(NORMAL_WEIGHT),
            mask,
            vcpu: VcpuId(vcpu),
            program,
        }
    }

    /// Two vCPUs, of which the host runs each for 11 ms in `vms` times 11, with compute if
    /// there are others; these programs on vCPU 1, free to go, and these on vCPU 0 for
    /// good. A request takes 100 us and completes where it was submitted.
    fn bed(
        vms: u32,
        free: Vec<Box<dyn Program>>,
        pinned: Vec<Box<dyn Program>>,
        settings: MigraterSettings,
    ) -> Sim {
        let mut machine = Machine::new(2, false, Costs::default(), Smt::default());
        let pins = [vec![CpuId(0)], vec![CpuId(1)]];
        for n in 0..vms {
            machine.add_vm(&format!("vm{n}"), NORMAL_WEIGHT, &pins);
        }
        let mut guests: Vec<Guest> = (0..vms)
            .map(|n| Guest::new(VmId(n), Vcpu(2 * n), 2, KernelSettings::default(), 1))
            .collect();
        for (n, program) in free.into_iter().enumerate() {
            guests[0].add(on(1, CpuSet::first(2), n as u32, program));
        }
        for program in pinned {
            guests[0].add(on(0, CpuSet::only(VcpuId(0)), 10, program));
        }
        for guest in guests.iter_mut().filter(|_| vms > 1) {
            for vcpu in 0..2 {
                let compute = Box::new(Compute::new(Ns::from_us(500)));
                guest.add(on(vcpu, CpuSet::only(VcpuId(vcpu)), 11, compute));
            }
        }
        guests[0].set_migrater(Migrater::new(settings, 2, None));
        let sharing = Sharing {
            vms_per_pcpu: vms,
            slice: Ns::from_ms(11),
            sweep_permille: 100,
        };
        let policy = by_name("fixed", &sharing).unwrap();
        let mut sim = Sim::new(machine, policy, QueueKind::Wheel, 1);
        for guest in guests {
            sim.add_guest(guest);
        }
        sim.add_device(Box::new(Delay::new(Ns::from_us(100), 0)), Path::Submitter);
        sim
    }

    fn seat(sim: &Sim) -> &Seat {
        &sim.guest(VmId(0)).migrater().unwrap().seats[0]
    }

    /// Of 115 us it waits for 100: in 2 ms of a window of 5 more than the 30 % that it
    /// needs (1.74 and a half of 5 are 1.5), whatever it does for the rest.
    #[test]
    fn a_reader_is_found_before_its_window_is_over() {
        let reader = || vec![Box::new(Reader::new(READ)) as Box<dyn Program>];
        let mut sim = bed(1, reader(), Vec::new(), MigraterSettings::default());
        sim.run_until(Time::ZERO + Ns::from_us(1500));
        assert!(!seat(&sim).held);
        sim.run_until(Time::ZERO + Ns::from_ms(4));
        assert!(seat(&sim).held);
    }

    /// Moves that were made while the task slept for long, and others.
    fn moves(sim: &mut Sim) -> (usize, usize) {
        let from = Time::ZERO + Ns::from_ms(1000);
        let until = from + Ns::from_ms(3000);
        sim.run_until(from);
        sim.open_window();
        sim.record(VmId(0), 0, until);
        sim.run_until(until);
        let recording = sim.recorded().unwrap();
        let asleep = recording.moves.iter().filter(|m| {
            let mut spells = recording.tasks.iter();
            let there = spells.find(|s| s.task == m.task && s.from <= m.at && m.at <= s.to);
            there.is_some_and(|s| s.does == Does::Asleep)
        });
        let asleep = asleep.count();
        (asleep, recording.moves.len() - asleep)
    }

    /// Bursts of 30 ms and pauses of 60: six slices' ends in each pause.
    #[test]
    fn whom_its_own_timer_wakes_is_left_where_it_sleeps() {
        let ours = MigraterSettings::default();
        let mut moved = ours.clone();
        moved.iobound.stay = Ns::ZERO;
        let all = |settings| moves(&mut bed(2, vec![bursts(30, 60)], Vec::new(), settings));
        let (asleep, awake) = all(ours);
        assert_eq!(asleep, 0);
        assert!(awake > 20, "{awake}");
        let (asleep, _) = all(moved);
        assert!(asleep > 20, "{asleep}");
    }

    /// Reads for 30 ms, then waits for a message.
    #[derive(Debug)]
    struct Asked {
        reads: Box<dyn Program>,
    }

    impl Program for Asked {
        fn next(&mut self, cx: &mut Cx<'_>) -> Step {
            match self.reads.next(cx) {
                Step::Sleep(_) => Step::Receive,
                step => step,
            }
        }
    }

    /// Sends task 0 a message every 60 ms.
    #[derive(Debug, Default)]
    struct Asks {
        slept: bool,
    }

    impl Program for Asks {
        fn next(&mut self, _: &mut Cx<'_>) -> Step {
            self.slept = !self.slept;
            if self.slept {
                Step::Sleep(Ns::from_ms(60))
            } else {
                Step::Send { task: 0 }
            }
        }
    }

    /// Its waker is on vCPU 0, which is where it is taken from time to time.
    #[test]
    fn whom_another_vcpu_wakes_is_moved_in_its_sleep() {
        let asked = Asked {
            reads: bursts(30, 1),
        };
        let waker = vec![Box::new(Asks::default()) as Box<dyn Program>];
        let ours = MigraterSettings::default();
        let mut sim = bed(2, vec![Box::new(asked)], waker, ours);
        let (asleep, _) = moves(&mut sim);
        assert!(asleep > 3, "{asleep}");
    }

    /// 15 us of work, 5 of interrupt and switch, 100 of waiting, in bursts of 20 ms with
    /// pauses of 60: 17 % of a quarter.
    #[test]
    fn in_its_pauses_a_task_needs_no_cpu() {
        let ours = MigraterSettings::default();
        let mut sim = bed(1, vec![bursts(20, 60)], Vec::new(), ours);
        sim.run_until(Time::ZERO + Ns::from_ms(1000));
        assert!(seat(&sim).held);
        let share = seat(&sim).window.cpu_share;
        assert!(
            (Permille::new(37)..=Permille::new(47)).contains(&share),
            "{share}"
        );
    }

    /// Sleeps of 300 ms: the phase is over, and the owner's mask is back.
    #[test]
    fn a_sleep_that_is_too_long_ends_the_phase() {
        let ours = MigraterSettings::default();
        let mut sim = bed(2, vec![bursts(30, 300)], Vec::new(), ours);
        sim.run_until(Time::ZERO + Ns::from_ms(40));
        assert!(seat(&sim).held);
        sim.run_until(Time::ZERO + Ns::from_ms(320));
        assert!(!seat(&sim).held);
        assert_eq!(sim.guest(VmId(0)).tasks()[0].mask.set(), CpuSet::first(2));
    }

    /// Two VMs of 11 and 12.1 ms each: a cycle of 24.2 at most, legs of 145 ms, and a rest of
    /// eight before the first trial. With trials it is let go for a leg, without it is not.
    #[test]
    fn a_program_is_let_go_for_a_leg_and_held_again() {
        let reader = || vec![Box::new(Reader::new(READ)) as Box<dyn Program>];
        let spells = |settings| {
            let mut sim = bed(2, reader(), Vec::new(), settings);
            sim.run_until(Time::ZERO);
            let mut spells: Vec<(bool, u64)> = Vec::new();
            for ms in 1..3000 {
                sim.run_until_quietly(Time::ZERO + Ns::from_ms(ms));
                let seats = &sim.guest(VmId(0)).migrater().unwrap().seats;
                let is_held = seats.first().is_some_and(|seat| seat.held);
                match spells.last_mut() {
                    Some((held, length)) if *held == is_held => *length += 1,
                    _ => spells.push((is_held, 1)),
                }
            }
            spells
        };
        let ours = MigraterSettings::default();
        let with = spells(ours.clone());
        // Found, held through a rest and a leg, let go, held.
        assert_eq!(
            with.iter().map(|(held, _)| *held).collect::<Vec<_>>(),
            [false, true, false, true],
            "{with:?}"
        );
        let (rest, leg) = (with[1].1, with[2].1);
        assert!((9 * 145..9 * 145 + 60).contains(&rest), "{with:?}");
        assert!((145..145 + 30).contains(&leg), "{with:?}");
        let mut without = ours;
        without.trial.enabled = false;
        assert_eq!(spells(without).len(), 2);
    }
}
