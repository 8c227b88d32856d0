// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor of a vCPU: sees, estimates, decides.

use policy::guest::placement;
use policy::guest::placement::Looks;
use policy::guest::view::Activity;
use policy::guest::view::Completion;
use policy::guest::view::Move;
use policy::guest::view::Plan;
use policy::guest::view::TaskView;
use policy::guest::view::VcpuState;
use policy::guest::view::VcpuView;
use policy::guest::view::Why;
use policy::guest::wakeup::Lever;
use policy::guest::wakeup::WakeStats;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::super::Guest;
use super::super::TaskState;
use super::super::World;
use super::DaemonCosts;
use super::KIND_ALARM;
use super::KIND_BELL;
use super::KIND_MOVE;
use super::Migrater;
use super::Order;
use super::Source;
use super::code;
use super::key;
use crate::event::Event;
use crate::ids::TaskId;

/// A claim lasts this long, as in the daemon.
const CLAIM: Ns = Ns::from_us(500);

impl Guest {
    /// What the daemon's work costs, if there is one.
    pub(in crate::guest) fn daemon_costs(&self) -> Option<&DaemonCosts> {
        self.migrater.as_ref().map(|m| &m.settings.costs)
    }

    /// A vCPU is back; it was away since `out` (`idle`: it was halted).
    pub(crate) fn daemon_entered(
        &mut self,
        cpu: usize,
        out: Time,
        idle: bool,
        world: &mut World<'_>,
    ) {
        let now = world.agenda.now();
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        if let Source::Heartbeat { period, .. } = migrater.settings.source {
            let monitor = &mut migrater.monitors[cpu];
            if idle {
                monitor.timeline.idled(now);
                monitor.beat = now;
            }
            // The beat that was due meanwhile comes now; the first one ever starts it.
            if monitor.alarm_at.is_none() {
                monitor.beat = now;
                self.set_alarm(cpu, Some(now + period), world);
            }
            return;
        }
        let monitor = &mut migrater.monitors[cpu];
        monitor.gone = None;
        if idle {
            monitor.timeline.idled(now);
        } else if now > out {
            let before = monitor.timeline.gaps();
            monitor.timeline.gap(out, now);
            if monitor.timeline.gaps() != before {
                self.slice_over(cpu, out, now);
                self.look_first(cpu, world);
            }
        }
    }

    /// Something that a monitor waited for.
    pub(crate) fn daemon_event(&mut self, cpu: usize, what: u32, world: &mut World<'_>) {
        let now = world.agenda.now();
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let costs = migrater.settings.costs;
        let monitor = &mut migrater.monitors[cpu];
        if what == code(KIND_ALARM, monitor.alarm_epoch) {
            monitor.alarm_at = None;
            if let Source::Heartbeat { period, tolerance } = migrater.settings.source {
                let last = std::mem::replace(&mut monitor.beat, now);
                let late = now.since(last) > period + tolerance;
                if late {
                    monitor.timeline.gap(last, now);
                }
                migrater.counts.cpu += costs.beat;
                self.add_foreign(cpu, costs.beat);
                if late {
                    self.slice_over(cpu, last, now);
                    self.balloon_news(cpu, world);
                }
                self.think(cpu, world);
                self.set_alarm(cpu, Some(now + period), world);
                return;
            }
        } else if what == code(KIND_BELL, monitor.bell_epoch) {
            monitor.bell_at = None;
        } else if what >> 30 == KIND_MOVE {
            self.carry_out_orders(cpu, world);
            return;
        } else {
            return;
        }
        migrater.counts.wakeups += 1;
        migrater.counts.cpu += costs.think;
        if !std::mem::take(&mut migrater.monitors[cpu].paid) {
            self.add_foreign(cpu, costs.think);
        }
        self.think(cpu, world);
    }

    /// A slice has ended: who was concerned, and do the levers still fit?
    fn slice_over(&mut self, cpu: usize, out: Time, now: Time) {
        let me = VcpuId(cpu as u32);
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let caught = migrater
            .seats
            .iter()
            .zip(&self.tasks)
            .filter(|(seat, task)| seat.held && task.vcpu == me && seat.moved_at <= out)
            .count() as u32;
        let monitor = &mut migrater.monitors[cpu];
        let concerned = std::mem::take(&mut monitor.left_in_slice) + caught;
        monitor.budget.slice_ended(concerned);
        migrater.counts.n_min += u64::from(concerned);
        for (seat, task) in migrater.seats.iter_mut().zip(&mut self.tasks) {
            if !seat.held || task.vcpu != me {
                continue;
            }
            let (switches, queued, on_cpu, at) = seat.lever_seen;
            let stats = WakeStats {
                wakes: task.switches.saturating_sub(switches),
                queued_ns: task.queued - queued,
                on_cpu_ns: task.on_cpu - on_cpu,
                window: now.since(at),
            };
            seat.lever_seen = (task.switches, task.queued, task.on_cpu, now);
            let lever = seat.decider.observe(&stats, seat.window.io_latency());
            if lever != seat.lever {
                seat.lever = lever;
                task.lever = (lever != Lever::Off).then_some(lever);
            }
        }
    }

    /// Looks at everything and does what this vCPU has to do.
    fn think(&mut self, cpu: usize, world: &mut World<'_>) {
        let now = world.agenda.now();
        self.end_dozing(now);
        self.look_at_trials(now);
        let Some(mut migrater) = self.migrater.take() else {
            return;
        };
        let (vcpus, tasks) = self.views(&mut migrater, cpu, now);
        if tasks.is_empty() {
            self.migrater = Some(migrater);
            if self
                .migrater
                .as_ref()
                .is_some_and(|m| m.settings.source == Source::StealPage)
            {
                self.set_alarm(cpu, None, world);
            }
            return;
        }
        let mut plan: Plan = std::mem::take(&mut migrater.plan);
        let settings = migrater.monitors[cpu].placement.clone();
        placement::place_into(now, &vcpus, &tasks, &settings, &mut plan);
        for m in &plan.moves {
            self.consider(&mut migrater, cpu, m, &vcpus, world);
        }
        migrater.plan = plan;
        let steal = migrater.settings.source == Source::StealPage;
        let timer = migrater.settings.costs.timer;
        self.migrater = Some(migrater);
        if steal {
            let me = VcpuId(cpu as u32);
            let mine: Vec<TaskView> = tasks.iter().filter(|t| t.vcpu == me).copied().collect();
            let push = placement::push_point(now, &vcpus[cpu], &mine, &settings);
            let looks = Looks::default();
            let look = placement::look_point(now, me, &vcpus, &tasks, &settings, &looks);
            let longer = self
                .migrater
                .as_ref()
                .and_then(|migrater| migrater.monitors[cpu].timeline.longer_from(now));
            let longer = longer.filter(|_| !mine.is_empty());
            let due = push.into_iter().chain(look).chain(longer).min();
            self.set_alarm(cpu, due.map(|due| due + timer), world);
        }
    }

    fn set_alarm(&mut self, cpu: usize, at: Option<Time>, world: &mut World<'_>) {
        let vm = self.vm;
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let monitor = &mut migrater.monitors[cpu];
        if monitor.alarm_at == at && at.is_some() {
            return;
        }
        monitor.alarm_epoch += 1;
        monitor.alarm_at = at;
        if let Some(at) = at {
            let epoch = code(KIND_ALARM, monitor.alarm_epoch);
            let vcpu = VcpuId(cpu as u32);
            world.agenda.at(at, Event::Daemon { vm, vcpu, epoch });
        }
    }

    /// Makes one move of the plan, if it is this vCPU's to make.
    fn consider(
        &mut self,
        migrater: &mut Migrater,
        cpu: usize,
        m: &Move,
        vcpus: &[VcpuView],
        world: &mut World<'_>,
    ) {
        let now = world.agenda.now();
        let me = VcpuId(cpu as u32);
        let (from, to) = (&vcpus[m.from.index()], &vcpus[m.to.index()]);
        let source_runs = matches!(from.state, VcpuState::Running { .. } | VcpuState::Idle);
        if m.performer(source_runs) != me {
            return;
        }
        let task = TaskId(m.task.tid.0 - 1);
        if migrater.seat(task).claimed_until > now {
            return;
        }
        let gain = placement::gain(now, m.why, from, to);
        let monitor = &mut migrater.monitors[cpu];
        if !gain.is_none_or(|gain| monitor.budget.worth_it(gain)) || !monitor.budget.take() {
            migrater.counts.refused += 1;
            return;
        }
        let at = now + migrater.settings.costs.react;
        let order = Order {
            at,
            decided: now,
            task,
            to: m.to,
            why: m.why,
        };
        monitor.orders.push(order);
        if matches!(m.why, Why::Push | Why::SoonActive) {
            monitor.left_in_slice += 1;
        }
        migrater.seat(task).claimed_until = now + CLAIM;
        Self::count_move(&mut migrater.counts, m);
        let event = Event::Daemon {
            vm: self.vm,
            vcpu: me,
            epoch: code(KIND_MOVE, 0),
        };
        world.agenda.at(at, event);
    }

    /// Everything as the policy wants to see it.
    fn views(
        &self,
        migrater: &mut Migrater,
        me: usize,
        now: Time,
    ) -> (Vec<VcpuView>, Vec<TaskView>) {
        let heartbeat = match migrater.settings.source {
            Source::StealPage => None,
            Source::Heartbeat { period, tolerance } => Some(period + tolerance),
        };
        let vcpus = self
            .cpus
            .iter()
            .zip(&migrater.monitors)
            .enumerate()
            .map(|(n, (cpu, monitor))| {
                let line = &monitor.timeline;
                let (away, since) = match heartbeat {
                    None => (!cpu.on, cpu.turned),
                    Some(limit) => (now.since(monitor.beat) > limit, monitor.beat),
                };
                let state = if n == me {
                    line.state_running(now)
                } else if cpu.idle {
                    VcpuState::Idle
                } else if away {
                    line.state_descheduled(since, now)
                } else {
                    line.state_running(now)
                };
                VcpuView {
                    id: VcpuId(n as u32),
                    state,
                    share: line.share(),
                    preferred: true,
                }
            })
            .collect();
        let completion = migrater
            .fixed_path
            .map_or(Completion::FollowsTask, Completion::On);
        let mut tasks = Vec::new();
        for n in 0..migrater.seats.len() {
            let task = TaskId(n as u32);
            let (t, seat) = (&self.tasks[n], &migrater.seats[n]);
            // One that is on its way is not sent on before it has arrived.
            if !seat.held || t.in_transit {
                continue;
            }
            if seat.window.stays(&migrater.settings.iobound, now) {
                continue;
            }
            tasks.push(TaskView {
                key: key(task),
                vcpu: t.vcpu,
                activity: match t.state {
                    TaskState::Current => Activity::Running,
                    TaskState::Queued => Activity::Queued(t.since),
                    TaskState::BlockedIo | TaskState::Blocked | TaskState::Exited => {
                        Activity::Blocked(t.since)
                    }
                },
                load: seat.window.load,
                cpu_share: seat.window.cpu_share,
                priority: 0,
                allowed: self
                    .owned(task)
                    .and(&units::CpuSet::first(self.cpus.len() as u32)),
                io_latency: seat.window.io_latency(),
                completion,
            });
        }
        (vcpus, tasks)
    }
}
