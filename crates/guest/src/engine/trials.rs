// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do no harm: which programs are better off without us? `policy::guest::trial`
//! says when to ask; here programs are let go, held again, and their requests
//! counted, all on the control thread.
//!
//! A program is all I/O-bound threads of one name: threads of a pool, or processes
//! started alike, help and hinder each other as one. What was learnt of a name is
//! believed of the next thread that has it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use arc_swap::ArcSwap;
use policy::guest::trial::Program;
use policy::guest::trial::Seen;
use policy::guest::trial::Side;
use policy::guest::trial::Trial;
use units::Ns;
use units::Tid;
use units::Time;

use super::core::Core;
use super::mover;
use super::mover::Wait;
use super::view::Tracks;
use crate::act::task::Stat;
use crate::report::Program as Shown;
use crate::sense::SlotState;
use crate::settings::ModeChoice;

/// Programs remembered; beyond that those without a task are forgotten, which
/// costs them nothing but another trial.
const REMEMBERED: usize = 256;

/// What all threads may ask.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// What is done for each program now. Read without waiting; the control
    /// thread replaces it.
    sides: ArcSwap<BTreeMap<String, Side>>,
    /// For `status`.
    shown: Mutex<Vec<Shown>>,
}

impl Trials {
    /// Is this thread one of a program that is let go?
    pub(super) fn is_free(&self, core: &Core, tid: Tid) -> bool {
        let sides = self.sides.load();
        // The name costs a file: not while nobody is free.
        enabled(core)
            && sides.values().any(|side| *side == Side::Free)
            && comm(tid).is_some_and(|comm| sides.get(&comm) == Some(&Side::Free))
    }

    /// The same by name.
    pub(super) fn is_let_go(&self, comm: &str) -> bool {
        self.sides.load().get(comm) == Some(&Side::Free)
    }

    /// Has the control thread not heard of this program yet?
    pub(super) fn wants(&self, comm: &str) -> bool {
        !self.sides.load().contains_key(comm)
    }

    pub(super) fn report(&self) -> Vec<Shown> {
        self.shown.lock().map_or(Vec::new(), |shown| shown.clone())
    }
}

fn enabled(core: &Core) -> bool {
    core.settings.trial.enabled
        && core.settings.mode == ModeChoice::Vmigrater
        && !core.settings.dry_run
}

fn comm(tid: Tid) -> Option<String> {
    let line = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // Not /proc/<tid>/comm: a name with a line break in it is written otherwise there.
    Some(Stat::parse(&line)?.comm)
}

/// A task of ours at one instant.
struct Ours {
    slot: usize,
    seen: Seen,
}

/// The control thread's own.
#[derive(Default)]
pub(super) struct Programs(BTreeMap<String, Program>);

impl Programs {
    /// Ends the legs that are due and begins others. Returns when to come again;
    /// `None` while no program has an I/O-bound task.
    pub(super) fn look(&mut self, core: &Core, now: Time) -> Option<Duration> {
        if !enabled(core) {
            return None;
        }
        let tasks = tasks(core);
        if tasks.is_empty() {
            return None;
        }
        for name in tasks.keys() {
            if !self.0.contains_key(name) {
                let program = Program::new(&core.settings.trial, now);
                self.0.insert(name.clone(), program);
            }
        }
        let any_due = self
            .0
            .iter()
            .any(|(name, program)| program.due() <= now && tasks.contains_key(name));
        if any_due {
            let cycle = cycle(core);
            for (name, tasks) in &tasks {
                if let Some(program) = self.0.get_mut(name) {
                    turn(core, name, program, tasks, now, cycle);
                }
            }
        }
        if self.0.len() > REMEMBERED {
            self.0.retain(|name, _| tasks.contains_key(name));
        }
        self.publish(core);
        tasks
            .keys()
            .filter_map(|name| self.0.get(name))
            .map(|program| Duration::from_nanos(program.due().since(now).as_ns()))
            .min()
    }

    fn publish(&self, core: &Core) {
        let sides = core.trials.sides.load();
        let same = sides.len() == self.0.len()
            && self
                .0
                .iter()
                .all(|(name, program)| sides.get(name) == Some(&program.trial().side()));
        if !same {
            core.trials.sides.store(Arc::new(self.sides()));
        }
        if let Ok(mut report) = core.trials.shown.lock() {
            *report = self
                .0
                .iter()
                .map(|(comm, program)| shown(comm, program.trial()))
                .collect();
        }
    }

    fn sides(&self) -> BTreeMap<String, Side> {
        self.0
            .iter()
            .map(|(name, program)| (name.clone(), program.trial().side()))
            .collect()
    }
}

fn shown(comm: &str, trial: &Trial) -> Shown {
    Shown {
        comm: comm.to_owned(),
        held: trial.side() == Side::Held,
        believed: match trial.believed() {
            Side::Held => "held",
            Side::Free => "free",
        }
        .to_owned(),
        free_to_held: trial.free_to_held(),
        trials: trial.trials(),
    }
}

/// Has a leg ended? What comes next?
fn turn(
    core: &Core,
    name: &str,
    program: &mut Program,
    tasks: &[Ours],
    now: Time,
    cycle: Option<Ns>,
) {
    let before = program.trial().side();
    let believed = program.trial().believed();
    let rested = program.trial().is_at_rest();
    let seen: Vec<Seen> = tasks.iter().map(|task| task.seen).collect();
    let Some(leg) = program.look(now, cycle, &seen) else {
        return;
    };
    let trial = program.trial();
    let side = trial.side();
    if !rested {
        tracing::debug!(
            name,
            side = ?before,
            requests = leg.requests,
            task_time = %leg.task_time,
            free_to_held = trial.free_to_held(),
            "a leg of a trial"
        );
    }
    if trial.believed() != believed {
        tracing::info!(
            name,
            free_to_held = trial.free_to_held(),
            now = ?trial.believed(),
            "this program does better otherwise"
        );
    }
    if side != before {
        // Known before it is done: who takes hold meanwhile looks again.
        let mut sides = BTreeMap::clone(&core.trials.sides.load());
        sides.insert(name.to_owned(), side);
        core.trials.sides.store(Arc::new(sides));
        for Ours { slot, .. } in tasks {
            match side {
                Side::Free => free(core, *slot, Wait::ForOthers),
                Side::Held => mover::seat(core, *slot, Wait::ForOthers),
            }
        }
    }
}

/// Lets go of a task whose I/O phase goes on.
pub(super) fn free(core: &Core, slot: usize, wait: Wait) {
    let seat = &core.seats[slot];
    if let Some(seated) = seat.anyone() {
        if !mover::let_go(core, &seated.held, wait) {
            return;
        }
        if seat.leave_of(&seated) {
            seat.set_free(true);
        }
    }
    core.phase_may_end();
}

/// What a mover could not let go of, see [`Core::put_off`].
pub(super) fn catch_up(core: &Core) {
    for slot in core.slots() {
        let seated = core.seats[slot].anyone();
        if seated.is_some_and(|seated| core.trials.is_let_go(&seated.comm)) {
            free(core, slot, Wait::ForOthers);
        }
    }
}

/// The tasks that are held or let go to compare, by program.
fn tasks(core: &Core) -> BTreeMap<String, Vec<Ours>> {
    let shared = core.sense.shared();
    let mut programs = BTreeMap::<String, Vec<Ours>>::new();
    for slot in core.slots() {
        let seat = &core.seats[slot];
        if shared.slot_state(slot) != SlotState::Live || !seat.is_ours() {
            continue;
        }
        let task = shared.task(slot);
        let name = match seat.anyone() {
            Some(seated) => Some(seated.comm.clone()),
            None => comm(Tid(task.tid)),
        };
        if let Some(name) = name {
            let seen = Seen {
                tid: task.tid,
                taken: task.taken,
                requests: task.nr_requests,
            };
            programs.entry(name).or_default().push(Ours { slot, seen });
        }
    }
    programs
}

/// Slice and gap of the vCPU where both together are longest.
fn cycle(core: &Core) -> Option<Ns> {
    let mut tracks = Tracks::with_history(core);
    tracks.catch_up(core);
    core.vcpus()
        .filter_map(|vcpu| {
            let timeline = tracks.timeline(vcpu);
            Some(timeline.slice()?.value + timeline.gap_estimate()?.value)
        })
        .max()
}
