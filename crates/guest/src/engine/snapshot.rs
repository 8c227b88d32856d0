// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report, from the shared state.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use policy::guest::view::Completion;
use policy::guest::wakeup::Lever;
use units::Ns;
use units::Permille;
use units::Tid;

use super::core::Core;
use super::count::Totals;
use super::view;
use super::view::Tracks;
use crate::act::counters::Counter;
use crate::report::Disk;
use crate::report::Report;
use crate::report::Task;
use crate::report::Vcpu;
use crate::sense::SlotState;
use crate::sense::now;
use crate::settings::ModeChoice;

/// What the last report saw, for rates.
#[derive(Debug)]
pub(super) struct LastLook {
    at: Instant,
    wakeups: u64,
}

impl LastLook {
    pub(super) fn new() -> Self {
        Self {
            at: Instant::now(),
            wakeups: 0,
        }
    }
}

pub(super) fn report(core: &Core, last: &Mutex<LastLook>, at: Instant) -> Report {
    let totals = Totals(&core.counters);
    let wakeups = totals.wakeups();
    let n_migrate = totals.sum(|c| &c.n_migrate);
    let n_min = totals.sum(|c| &c.n_min);
    let tasks = tasks(core);
    let inactivity = inactivity(core) + Ns(core.past_inactivity_ns.load(Ordering::Relaxed));
    // Estimated before a gap that may be shorter, or not have come yet: what was not lost
    // cannot be saved.
    let would_have_saved = Ns(totals.sum(|c| &c.would_have_saved_ns)).min(inactivity);
    Report {
        format: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_ns: core.started.elapsed().into(),
        dry_run: core.settings.dry_run,
        mode: core.mode(),
        source: core.sense.source().name().to_owned(),
        source_accuracy_ns: super::heartbeat::accuracy(core),
        detector_attached: core.sense.is_armed(),
        timers_armed: totals.sum(|c| &c.timers_armed),
        wakeups_per_s: rate(last, at, wakeups.values().sum()),
        wakeups,
        stopped_ns: stopped(core),
        loop_lag_p99_ns: totals.lag_p99(),
        vcpus: vcpus(core),
        tasks,
        io_inactivity_ns: inactivity,
        would_have_saved_ns: would_have_saved,
        io_phase_ns: core.io_phase(),
        moves: totals.moves(),
        skipped: totals.skips(),
        failed: failed(core, &totals),
        n_migrate,
        n_min,
        p: (n_min > 0).then(|| n_migrate as f64 / n_min as f64),
        c_avg_ns: totals.c_avg(core.settings.budget.assumed_cost),
        disks: disks(core),
        programs: core.trials.report(),
        lost_events: core.sense.shared().lost_bells() + totals.sum(|c| &c.orders_dropped),
        lost_tasks: core.sense.shared().lost_tasks(),
        does: match core.settings.mode {
            ModeChoice::Vmigrater => "vmigrater",
            ModeChoice::Xballoon => "xballoon",
        }
        .to_owned(),
        balloons: core
            .balloons
            .as_ref()
            .map_or(Vec::new(), |balloons| balloons.report(now())),
    }
}

/// Moves that failed, by reason.
fn failed(core: &Core, totals: &Totals<'_>) -> BTreeMap<String, u64> {
    let reasons = [
        Counter::Vanished,
        Counter::Reused,
        Counter::Foreign,
        Counter::NotPermitted,
        Counter::Invalid,
        Counter::Busy,
        Counter::OtherError,
        Counter::LeverForeign,
        Counter::ReleaseFailed,
        Counter::WidenFailed,
    ];
    let counters = core.actor.counters();
    let expired = totals.sum(|c| &c.orders_expired);
    reasons
        .into_iter()
        .map(|reason| (reason.name().to_owned(), counters.get(reason)))
        .chain([("expired".to_owned(), expired)])
        .collect()
}

/// Of those that are held or let go to compare.
fn inactivity(core: &Core) -> Ns {
    let shared = core.sense.shared();
    core.slots()
        .filter(|i| shared.slot_state(*i) == SlotState::Live && core.seats[*i].is_ours())
        .map(|i| shared.task(i).inactive)
        .sum()
}

/// How long our own threads were current on vCPUs that were away. A late beat is seen by the
/// thread that it should have woken, not by who was current.
fn stopped(core: &Core) -> Option<Ns> {
    let shared = core.sense.shared();
    let seen = core.sense.source().reads_steal();
    seen.then(|| core.vcpus().map(|vcpu| shared.vcpu(vcpu).ours).sum())
}

/// Wake-ups per second since the last report.
fn rate(last: &Mutex<LastLook>, at: Instant, wakeups: u64) -> f64 {
    let Ok(mut last) = last.lock() else {
        return 0.0;
    };
    let seconds = at.duration_since(last.at).as_secs_f64();
    let rate = (wakeups - last.wakeups) as f64 / seconds.max(1e-3);
    last.at = at;
    last.wakeups = wakeups;
    rate
}

fn vcpus(core: &Core) -> Vec<Vcpu> {
    let shared = core.sense.shared();
    // A report replays the history that is still there: enough for an estimate,
    // and it needs nothing from the monitors.
    let mut tracks = Tracks::with_history(core);
    tracks.catch_up(core);
    let out = core
        .sense
        .source()
        .reads_steal()
        .then(|| core.sense.snapshot().ok())
        .flatten();
    let preferred = core.preferred.mask();
    core.online.refresh();
    core.vcpus()
        .filter(|vcpu| core.online.contains(*vcpu))
        .map(|vcpu| {
            let slot = shared.vcpu(vcpu);
            let timeline = tracks.timeline(vcpu);
            let slice = timeline.slice();
            let state = match &out {
                _ if slot.idle => "idle",
                Some(snapshot) if snapshot.out.contains(vcpu) => "descheduled",
                Some(_) => "running",
                None => "unknown",
            };
            Vcpu {
                id: vcpu.0,
                state: state.to_owned(),
                preferred: preferred.map(|mask| mask.contains(vcpu)),
                slice_ns: slice.map(|slice| slice.value),
                gap_ns: timeline.gap_estimate().map(|gap| gap.value),
                confidence_permille: slice.map_or(Permille::ZERO, |slice| slice.confidence),
                gaps: slot.nr_gaps,
                stolen_ns: slot.stolen,
            }
        })
        .collect()
}

fn tasks(core: &Core) -> Vec<Task> {
    let shared = core.sense.shared();
    core.slots()
        .filter(|i| shared.slot_state(*i) == SlotState::Live)
        .filter_map(|i| {
            let slot = shared.task(i);
            let seat = &core.seats[i];
            let seated = seat.seated(&slot)?;
            Some(Task {
                tid: Tid(slot.tid),
                tgid: seated.tgid,
                comm: seated.comm.clone(),
                vcpu: seat.home().unwrap_or(slot.vcpu),
                load_permille: slot.load,
                inactivity_ns: slot.inactive,
                moves: seat.moves(),
                wakeup: match seated.lever() {
                    Lever::Off => "off",
                    Lever::EevdfSlice(_) => "eevdf-slice",
                    Lever::Fifo => "fifo",
                }
                .to_owned(),
                completion: words(view::completion(core, &slot)),
            })
        })
        .collect()
}

fn disks(core: &Core) -> Vec<Disk> {
    core.sense
        .shared()
        .devices()
        .map(|(dev, completions, path)| Disk {
            dev: format!("{}:{}", dev >> 20, dev & 0xf_ffff),
            completions,
            completion: words(path.completion()),
            learnt: path.is_learnt(),
        })
        .collect()
}

fn words(completion: Completion) -> String {
    match completion {
        Completion::FollowsTask => "follows-task".to_owned(),
        Completion::On(vcpu) => format!("vcpu {vcpu}"),
        Completion::ByKthread => "by-kernel-thread".to_owned(),
        Completion::Unknown => "unknown".to_owned(),
    }
}
