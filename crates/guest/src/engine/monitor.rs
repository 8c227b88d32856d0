// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPU Monitor and Task Migrater, the head: one thread per vCPU (V7) that
//! decides what its own vCPU has to do.
//!
//! It sleeps until a program rings (this vCPU is back, a task arrived, a class
//! changed), its slice timer goes off (a task has to leave soon), or, with the
//! heartbeat source, the next beat is due. Then it looks at everything afresh and
//! decides; nothing is remembered from the last time that could be wrong now.

mod when;

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;

use policy::guest::budget::Budget;
use policy::guest::heartbeat::Pace;
use policy::guest::placement;
use policy::guest::view::Move;
use policy::guest::view::Plan;
use policy::guest::view::Skip;
use policy::guest::view::VcpuState;
use policy::guest::view::VcpuView;
use policy::guest::view::Why;
use policy::guest::wakeup::WakeStats;
use units::Ns;
use units::TaskKey;
use units::Tid;
use units::Time;
use units::VcpuId;

use super::bells::ring;
use super::core::Core;
use super::count::Counters;
use super::count::Wakeup;
use super::heartbeat::Heart;
use super::mover::MoveOrder;
use super::mover::Order;
use super::mover::Outcome;
use super::thread::Alarm;
use super::thread::Home;
use super::thread::Meter;
use super::thread::Waiter;
use super::view::Tracks;
use super::view::Views;
use crate::sense::Bell;
use crate::sense::Mode;
use crate::sense::SenseError;
use crate::sense::SlotState;
use crate::sense::now;

/// A claim lasts this long: a move takes some ten microseconds, and a claimant
/// that is descheduled must not keep others from the task.
const CLAIM: Ns = Ns::from_us(500);

/// What this thread waits on, in the order of its `Waiter`.
const RING: u32 = 1 << 0;
const ALARM: u32 = 1 << 1;
const POKE: u32 = 1 << 2;

/// The thread of one vCPU.
pub(super) struct Monitor {
    core: Arc<Core>,
    me: VcpuId,
    orders: SyncSender<Order>,
    outcomes: Receiver<Outcome>,
    tracks: Tracks,
    views: Views,
    plan: Plan,
    alarm: Alarm,
    budget: Budget,
    /// The user's, with a margin that covers what a move takes here.
    placement: placement::Settings,
    /// When the slice timer was due that woke us, if one did.
    due: Option<Time>,
    /// Moves made by this vCPU since its slice began for the end of a slice: this
    /// one's, or that of the vCPU from which it took a task.
    left_in_slice: u32,
    /// Gaps of this vCPU seen by `slice_ended`.
    gaps_seen: u64,
    /// What was skipped in this slice, so that each case counts once.
    skipped: Vec<(TaskKey, Skip)>,
    heart: Heart,
    /// How often this monitor may look.
    pace: Pace,
    home: Home,
    /// Bells and orders that were lost as of the last look.
    lost: u64,
}

impl Monitor {
    pub(super) fn new(
        core: Arc<Core>,
        me: VcpuId,
        orders: SyncSender<Order>,
        outcomes: Receiver<Outcome>,
    ) -> std::io::Result<Self> {
        let gaps_seen = core.sense.shared().vcpu(me).nr_gaps;
        Ok(Self {
            tracks: Tracks::new(&core, now()),
            heart: Heart::new(&core, me),
            pace: Pace::new(
                core.settings.heartbeat.period,
                core.settings.heartbeat.tolerance,
            ),
            budget: Budget::new(&core.settings.budget),
            placement: core.settings.placement.clone(),
            due: None,
            alarm: Alarm::new()?,
            core,
            me,
            orders,
            outcomes,
            views: Views::default(),
            plan: Plan::default(),
            left_in_slice: 0,
            gaps_seen,
            skipped: Vec::new(),
            home: Home::new(me),
            lost: 0,
        })
    }

    /// Runs until the engine stops.
    pub(super) fn run(mut self) {
        if let Err(error) = self.try_run() {
            self.core.fail(format!(
                "the monitor of vCPU {} stopped: {error:#}",
                self.me
            ));
        }
    }

    fn try_run(&mut self) -> Result<(), SenseError> {
        let core = Arc::clone(&self.core);
        let bells = Rc::new(RefCell::new(Vec::<u64>::new()));
        let ring = ring(core.sense.ring(self.me), Rc::clone(&bells))?;
        // SAFETY: the ring buffer owns this descriptor and lives until the end
        // of this function, like the waiter that uses it.
        let ring_fd = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
        let poke = &core.pokes[self.me.index()];
        let broken = |source| SenseError::System {
            call: "epoll",
            source,
        };
        // Where looks are dear: a poke (the engine stops, a phase begins or ends) cuts a
        // rest short, and a bell does not.
        let resting = Waiter::new(&[poke.as_fd()]).map_err(broken)?;
        let mut meter = Meter::new();
        let waiter = Waiter::new(&[ring_fd, self.alarm.as_fd(), poke.as_fd()]).map_err(broken)?;
        while !core.stopping() {
            let ready = waiter.wait(None);
            let woke_at = now();
            self.due = None;
            let counters = &core.counters[self.me.index()];
            if ready & POKE != 0 {
                core.pokes[self.me.index()].clear();
            }
            if ready & ALARM != 0 {
                let due = self.alarm.went_off();
                counters.woke(if self.heart.is_beating() {
                    Wakeup::Heartbeat
                } else {
                    Wakeup::Timer
                });
                if self.heart.is_beating() {
                    self.heart.beat(&core, &self.pace, woke_at);
                } else if let Some(due) = due {
                    let lag = woke_at.since(due);
                    tracing::trace!(vcpu = %self.me, %lag, "slice timer");
                    counters.lagged(lag);
                    self.due = Some(due);
                }
            }
            if ready & RING != 0 {
                counters.woke(Wakeup::Bell);
                // From the end of the gap, where the bell was rung: the way of a
                // bell, and whatever the kernel had to catch up with before.
                let since_gap = core.sense.shared().since_gap(self.me, woke_at);
                tracing::trace!(vcpu = %self.me, ?since_gap, "bell");
                let _ = ring.consume();
            }
            for word in bells.borrow_mut().drain(..) {
                self.answer(word);
            }
            let there = self.home.stay();
            if there != core.online.contains(self.me) {
                core.online.refresh();
            }
            if there {
                self.think();
            } else {
                // Nothing to decide, and no timer: the control thread wakes us when
                // the vCPU is back.
                self.rest();
            }
            self.pace.look(meter.lap());
            let rest = self.pace.rest();
            if rest > Ns::ZERO {
                // Nothing is lost: bells stay in the ring, and the alarm stays due.
                resting.wait(Some(rest.to_std()));
            }
        }
        Ok(())
    }

    /// Takes down what a bell says; the looking is left to `think`.
    fn answer(&mut self, word: u64) {
        let order = match Bell::decode(word) {
            Some(Bell::Enter(slot)) => Order::Seat(slot),
            Some(Bell::Leave(slot)) => Order::Release(slot),
            Some(Bell::Fork { slot, child }) => Order::Fork {
                slot,
                child: Tid(child),
            },
            Some(
                Bell::Gap | Bell::Arrived | Bell::Shared | Bell::Quiet | Bell::Io | Bell::Calm,
            )
            | None => return,
        };
        self.order(order);
    }

    /// Hands an order to the mover of this vCPU. A full channel means that it is
    /// stuck: the order is dropped, since the next look will find the same.
    fn order(&self, order: Order) -> bool {
        let sent = self.orders.try_send(order).is_ok();
        if !sent {
            self.counters()
                .orders_dropped
                .fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    fn counters(&self) -> &Counters {
        &self.core.counters[self.me.index()]
    }

    /// Looks at everything and does what this vCPU has to do.
    fn think(&mut self) {
        self.settle();
        self.notice_losses();
        if self.core.sense.shared().mode() != Mode::Active {
            self.rest();
            return;
        }
        self.tracks.catch_up(&self.core);
        self.views.refresh(&self.core, &self.tracks, self.me);
        for slot in &self.views.dozing {
            if self.core.sense.shared().demote(*slot) {
                self.order(Order::Release(*slot));
            }
        }
        for slot in &self.views.ended {
            self.order(Order::Release(*slot));
        }
        for dev in &self.views.unasked {
            self.order(Order::Ask(*dev));
        }
        self.end_slice();
        self.widen_margin();
        let mut plan = std::mem::take(&mut self.plan);
        placement::place_into(
            self.views.now,
            &self.views.vcpus,
            &self.views.tasks,
            &self.placement,
            &mut plan,
        );
        for m in &plan.moves {
            self.consider(m);
        }
        self.note_skips(&plan.skipped);
        self.plan = plan;
        self.arm();
        self.publish();
    }

    /// What a lost bell would have said of gaps is found by looking afresh, whenever that
    /// is. Who came, who went and what children have inherited is looked for here. A ring
    /// that was full is read afterwards, so that somebody gets here.
    fn notice_losses(&mut self) {
        let dropped = self.counters().orders_dropped.load(Ordering::Relaxed);
        let shared = self.core.sense.shared();
        let lost = shared.lost_bells() + dropped;
        if lost == self.lost {
            return;
        }
        self.lost = lost;
        for slot in self.core.slots() {
            match shared.slot_state(slot) {
                SlotState::Live if !self.core.seats[slot].was_looked_at(&shared.task(slot)) => {
                    self.order(Order::Seat(slot));
                }
                SlotState::Left | SlotState::Exited => {
                    self.order(Order::Release(slot));
                }
                _ => {}
            }
        }
        self.core.want_sweep();
    }

    /// Nothing to do: nothing armed, nothing remembered.
    fn rest(&mut self) {
        self.heart.stop(&self.core);
        self.alarm.set(None);
        self.core.sense.shared().set_alarm(self.me, None, None);
        self.counters().timers_armed.store(0, Ordering::Relaxed);
        self.left_in_slice = 0;
        self.publish();
    }

    /// The adaptive margin's base is what was measured here if that is more than
    /// what is configured: a slow machine needs longer from the timer to the end
    /// of a move, and a move that comes too late costs a whole gap.
    fn widen_margin(&mut self) {
        let reaction = self.counters().reaction();
        if let placement::Margin::Adaptive { base, .. } = &mut self.placement.margin
            && let placement::Margin::Adaptive { base: least, .. } =
                self.core.settings.placement.margin
        {
            *base = least.max(reaction);
        }
    }

    /// If this vCPU is back after a gap: who was concerned by the slice's end?
    fn end_slice(&mut self) {
        let gaps = self.tracks.timeline(self.me).gaps();
        if gaps == self.gaps_seen {
            return;
        }
        self.gaps_seen = gaps;
        if let Some(balloons) = &self.core.balloons {
            balloons.wake(self.me);
        }
        self.skipped.clear();
        // Those that came while this vCPU was away (V12) were not concerned.
        let shared = self.core.sense.shared();
        let last = shared.vcpu(self.me).nr_gaps.saturating_sub(1);
        let out = shared
            .gap(self.me, last)
            .map_or(self.views.now, |(out, _)| out);
        let caught = self
            .views
            .tasks
            .iter()
            .zip(&self.views.slots)
            .filter(|(t, slot)| t.vcpu == self.me && self.core.seats[**slot].was_here(out))
            .count();
        let concerned = self.left_in_slice + u32::try_from(caught).unwrap_or(u32::MAX);
        self.left_in_slice = 0;
        self.budget.slice_ended(concerned);
        self.think_of_levers();
    }

    /// Once a slice: does the wake-up lever of the tasks here still fit?
    fn think_of_levers(&self) {
        for (task, slot) in self.views.tasks.iter().zip(&self.views.slots) {
            if task.vcpu != self.me {
                continue;
            }
            let Some(seated) = self.core.seats[*slot].anyone() else {
                continue;
            };
            let Ok(mut state) = seated.deciding.try_lock() else {
                continue;
            };
            let seen = self.core.sense.shared().task(*slot);
            let stats = WakeStats {
                // Each time it was put on a CPU it had queued for it before, woken
                // or preempted; wake-ups alone miss a thread whose requests
                // complete before it can sleep.
                wakes: seen.nr_switches.saturating_sub(state.switches),
                queued_ns: seen.queued - state.queued,
                on_cpu_ns: seen.on_cpu - state.on_cpu,
                window: self.views.now.since(state.at),
            };
            state.at = self.views.now;
            state.switches = seen.nr_switches;
            state.queued = seen.queued;
            state.on_cpu = seen.on_cpu;
            let lever = state.decider.observe(&stats, seen.latency);
            if lever != seated.lever() {
                self.order(Order::Lever { slot: *slot, lever });
            }
        }
    }

    /// Makes one move of the plan, if it is this vCPU's to make.
    fn consider(&mut self, m: &Move) {
        let Some(from) = self.vcpu_view(m.from) else {
            return;
        };
        let source_runs = matches!(from.state, VcpuState::Running { .. } | VcpuState::Idle);
        if m.performer(source_runs) != self.me {
            return;
        }
        let from_state = from.state;
        let to_state = self.vcpu_view(m.to).map(|to| to.state);
        let gain = self
            .vcpu_view(m.to)
            .and_then(|to| placement::gain(self.views.now, m.why, from, to));
        let Some(index) = self.views.tasks.iter().position(|t| t.key == m.task) else {
            return;
        };
        let slot = self.views.slots[index];
        let seat = &self.core.seats[slot];
        let dry_run = self.core.settings.dry_run;
        let gap = self.core.sense.shared().vcpu(m.from).nr_gaps;
        if dry_run && seat.would_have_left(m.from, gap) {
            return;
        }
        let Some(claim) = seat.claim(self.views.now, self.core.settings.here(CLAIM)) else {
            return;
        };
        let worth = gain.is_none_or(|gain| self.budget.worth_it(gain));
        if !worth || !self.budget.take() {
            seat.unclaim(claim);
            self.note_skips(&[(m.task, Skip::Budget)]);
            return;
        }
        let sent = self.order(Order::Move(MoveOrder {
            slot,
            key: m.task,
            to: m.to,
            why: m.why,
            claim,
            gaps: self.views.gaps,
            due: self.due.filter(|_| leaves(m.why)),
        }));
        if !sent {
            seat.unclaim(claim);
            self.budget.give_back();
            return;
        }
        tracing::trace!(task = %m.task, from = %m.from, to = %m.to, why = ?m.why, ?gain,
            activity = ?self.views.tasks[index].activity, from_state = ?from_state, to_state = ?to_state, now = %self.views.now.as_ns(), "decided");
        if dry_run {
            seat.would_leave(m.from, gap);
            // Where it would have gone it would have run for so long.
            let there = to_state.and_then(|state| left_of(state, self.views.now));
            let saved = gain.map_or(Ns::ZERO, |gain| there.map_or(gain, |left| gain.min(left)));
            self.counters()
                .would_have_saved_ns
                .fetch_add(saved.as_ns(), Ordering::Relaxed);
        }
        self.left_in_slice += u32::from(saves_a_later_move(m.why));
    }

    /// Books what has become of earlier orders.
    fn settle(&mut self) {
        while let Ok(outcome) = self.outcomes.try_recv() {
            match outcome {
                Outcome::Made(cost) => {
                    let cost = cost.unwrap_or_else(|| self.budget.c_avg());
                    self.budget.migrated(cost);
                }
                Outcome::NotMade(why) => {
                    self.budget.give_back();
                    let stayed = u32::from(saves_a_later_move(why));
                    self.left_in_slice = self.left_in_slice.saturating_sub(stayed);
                }
            }
        }
    }

    fn vcpu_view(&self, vcpu: VcpuId) -> Option<&VcpuView> {
        // Mostly its own place, but those that are offline have none.
        let at = self.views.vcpus.get(vcpu.index());
        at.filter(|view| view.id == vcpu)
            .or_else(|| self.views.vcpus.iter().find(|view| view.id == vcpu))
    }

    /// Counts each reason once per task and slice, however often it is looked at.
    fn note_skips(&mut self, skips: &[(TaskKey, Skip)]) {
        for skip in skips {
            let mine = self
                .views
                .tasks
                .iter()
                .any(|t| t.key == skip.0 && t.vcpu == self.me);
            if mine && !self.skipped.contains(skip) {
                self.skipped.push(*skip);
                self.counters().skipped(skip.1);
            }
        }
    }

    fn publish(&self) {
        let counters = self.counters();
        let publish = |counter: &AtomicU64, value| counter.store(value, Ordering::Relaxed);
        publish(&counters.n_min, self.budget.n_min());
        publish(&counters.n_migrate, self.budget.n_migrate());
        publish(&counters.c_avg_ns, self.budget.c_avg().as_ns());
    }
}

/// What is left of the slice of a vCPU that runs, where that is known.
fn left_of(state: VcpuState, now: Time) -> Option<Ns> {
    match state {
        VcpuState::Running {
            ends: Some(ends), ..
        } => Some(ends.expected.since(now)),
        _ => None,
    }
}

/// Does such a move take a task off the vCPU that makes it, before its slice ends?
const fn leaves(why: Why) -> bool {
    matches!(why, Why::Push | Why::SoonActive)
}

/// Would the task have had to leave its vCPU at the end of that slice anyway? Then
/// the move is one of N_min, counted by the vCPU that makes it.
const fn saves_a_later_move(why: Why) -> bool {
    leaves(why) || matches!(why, Why::Spread)
}
