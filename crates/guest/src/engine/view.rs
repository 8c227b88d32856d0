// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the shared memory to the views on which `policy::guest` decides.

use policy::guest::iobound::WokenHere;
use policy::guest::slice::Distribution;
use policy::guest::slice::LastValue;
use policy::guest::slice::SliceEstimator;
use policy::guest::slice::Timeline;
use policy::guest::view::Activity as Doing;
use policy::guest::view::Completion;
use policy::guest::view::TaskView;
use policy::guest::view::VcpuState;
use policy::guest::view::VcpuView;
use policy::guest::view::need;
use units::CpuSet;
use units::Permille;
use units::Time;
use units::VcpuId;

use super::core::Core;
use super::heartbeat::silent;
use crate::sense::Activity;
use crate::sense::SlotState;
use crate::sense::TaskSlot;
use crate::settings::EstimatorChoice;
use crate::settings::Settings;

/// One vCPU's slices as far as they have been read from its history.
struct Track {
    timeline: Timeline,
    /// Number of the next gap to read.
    next: u64,
}

/// The slices of every vCPU.
///
/// Each monitor keeps its own copy and catches up when it has to decide: what a
/// vCPU knows is then never behind a lock or a thread of another vCPU. The price
/// is the same arithmetic on each, some hundred nanoseconds per gap.
pub(super) struct Tracks(Vec<Track>);

impl Tracks {
    pub(super) fn new(core: &Core, now: Time) -> Self {
        let shared = core.sense.shared();
        Self(
            core.vcpus()
                .map(|vcpu| Track {
                    timeline: Timeline::new(estimator(&core.settings), &core.settings.slice, now),
                    next: shared.vcpu(vcpu).nr_gaps,
                })
                .collect(),
        )
    }

    /// As far back as the history goes: for a single look.
    pub(super) fn with_history(core: &Core) -> Self {
        let mut tracks = Self::new(core, Time::ZERO);
        for track in &mut tracks.0 {
            track.next = track.next.saturating_sub(15);
        }
        tracks
    }

    /// Reads what has happened since the last call.
    pub(super) fn catch_up(&mut self, core: &Core) {
        let shared = core.sense.shared();
        for (track, vcpu) in self.0.iter_mut().zip(core.vcpus()) {
            let slot = shared.vcpu(vcpu);
            // What was overwritten is lost; the estimator lives on the rest.
            track.next = track.next.max(slot.nr_gaps.saturating_sub(15));
            while track.next < slot.nr_gaps {
                if let Some((out, back)) = shared.gap(vcpu, track.next) {
                    track.timeline.gap(out, back);
                }
                track.next += 1;
            }
            if slot.idle_end > track.timeline.running_since() {
                track.timeline.idled(slot.idle_end);
            }
        }
    }

    pub(super) fn timeline(&self, vcpu: VcpuId) -> &Timeline {
        &self.0[vcpu.index()].timeline
    }
}

/// The estimator that the user wants.
pub(super) fn estimator(settings: &Settings) -> Box<dyn SliceEstimator> {
    match settings.estimator {
        EstimatorChoice::LastValue => Box::new(LastValue::new()),
        EstimatorChoice::Distribution => Box::new(Distribution::new(&settings.slice)),
    }
}

/// Everything that a decision needs, in memory that is used again.
#[derive(Default)]
pub(super) struct Views {
    pub(super) now: Time,
    /// Gaps of the caller's vCPU so far.
    pub(super) gaps: u64,
    pub(super) out: CpuSet,
    /// Those that are online.
    pub(super) vcpus: Vec<VcpuView>,
    /// [`Timeline::longer_from`] of the caller's vCPU.
    pub(super) longer_from: Option<Time>,
    pub(super) tasks: Vec<TaskView>,
    /// The slot of each task in `tasks`.
    pub(super) slots: Vec<usize>,
    /// Slots of tasks that sleep, for too long and not on I/O.
    pub(super) dozing: Vec<usize>,
    /// Slots on the caller's vCPU whose task has left its I/O phase or ended: a
    /// bell has said so, and this is in case it was lost.
    pub(super) ended: Vec<usize>,
    /// Devices of these tasks of which Linux has not been asked lately.
    pub(super) unasked: Vec<u32>,
}

impl Views {
    /// Looks at everything as of now. `me` is the vCPU of the caller, which runs.
    pub(super) fn refresh(&mut self, core: &Core, tracks: &Tracks, me: VcpuId) {
        self.look_at_vcpus(core, tracks, me);
        self.look_at_tasks(core, me);
    }

    fn look_at_vcpus(&mut self, core: &Core, tracks: &Tracks, me: VcpuId) {
        let shared = core.sense.shared();
        // First: a gap after this makes what follows void.
        self.gaps = shared.vcpu(me).nr_gaps;
        (self.now, self.out) = if core.sense.source().reads_steal() {
            match core.sense.look(me) {
                Ok(snapshot) => (snapshot.now, snapshot.out),
                Err(error) => {
                    core.fail(format!("cannot read the steal pages: {error}"));
                    (crate::sense::now(), CpuSet::EMPTY)
                }
            }
        } else {
            let now = crate::sense::now();
            (now, silent(core, now))
        };
        self.vcpus.clear();
        // One that is not there looks idle: what it ran last was its idle task.
        let there = |vcpu: &VcpuId| *vcpu == me || core.online.contains(*vcpu);
        for vcpu in core.vcpus().filter(there) {
            let slot = shared.vcpu(vcpu);
            let timeline = tracks.timeline(vcpu);
            let state = if vcpu == me {
                self.longer_from = timeline.longer_from(self.now);
                timeline.state_running(self.now)
            } else if slot.idle {
                // Also on hosts that flag an idle vCPU as preempted (before 2022).
                VcpuState::Idle
            } else if self.out.contains(vcpu) {
                let since = left_at(core, timeline, vcpu, slot.seen, self.now);
                timeline.state_descheduled(since, self.now)
            } else {
                timeline.state_running(self.now)
            };
            self.vcpus.push(VcpuView {
                id: vcpu,
                state,
                share: timeline.share(),
                preferred: core.preferred.contains(vcpu),
            });
        }
    }

    fn look_at_tasks(&mut self, core: &Core, me: VcpuId) {
        let shared = core.sense.shared();
        self.tasks.clear();
        self.slots.clear();
        self.dozing.clear();
        self.ended.clear();
        self.unasked.clear();
        for i in core.slots() {
            let slot = shared.task(i);
            match slot.state {
                SlotState::Live => {}
                SlotState::Left | SlotState::Exited if slot.vcpu == me => {
                    self.ended.push(i);
                    continue;
                }
                _ => continue,
            }
            let seat = &core.seats[i];
            let Some(seated) = seat.seated(&slot) else {
                continue;
            };
            let settings = &core.settings.iobound;
            if slot.activity == Activity::Blocked {
                let asleep = self.now.since(slot.since);
                if settings.phase_over(asleep) {
                    self.dozing.push(i);
                    continue;
                }
                let woken = WokenHere(u32::from(slot.woken_here.get()));
                if settings.stays(asleep, woken) && slot.by_kthread < KTHREAD_ENDS {
                    continue;
                }
            }
            // Where its mask says: asleep, it will wake there.
            let vcpu = seat.home().unwrap_or(slot.vcpu);
            self.tasks.push(TaskView {
                key: seated.key,
                vcpu,
                activity: match slot.activity {
                    Activity::Running => Doing::Running,
                    // Woken towards a vCPU that is away: in nobody's queue, and
                    // to move it would wait for that vCPU as for a running task.
                    Activity::Waking if self.out.contains(vcpu) => Doing::Running,
                    Activity::Queued | Activity::Waking => Doing::Queued(slot.since),
                    Activity::BlockedIo | Activity::Blocked => Doing::Blocked(slot.since),
                },
                load: slot.load,
                cpu_share: need(slot.on_cpu, slot.blocked_io, slot.asleep, settings.window),
                priority: seated.priority,
                allowed: seated.allowed(),
                io_latency: slot.latency,
                completion: completion(core, &slot),
            });
            self.slots.push(i);
            if core.priors.is_due(core, slot.dev, self.now) && !self.unasked.contains(&slot.dev) {
                self.unasked.push(slot.dev);
            }
        }
    }

    /// The tasks on one vCPU.
    pub(super) fn tasks_on(&self, vcpu: VcpuId) -> Vec<TaskView> {
        self.tasks
            .iter()
            .filter(|task| task.vcpu == vcpu)
            .copied()
            .collect()
    }
}

/// Of a thousand sleeps of a task, those that a kernel thread ended, from which on no
/// vCPU is where its completions arrive. An fsync on ext4 is at 333 (a worker finishes the
/// data, the journal's block and the flush complete by themselves) or, where it waits for
/// the journal's thread, above; a reader at 0.
const KTHREAD_ENDS: Permille = Permille::new(250);

/// Where the completions of this task's requests arrive.
pub(super) fn completion(core: &Core, slot: &TaskSlot) -> Completion {
    if slot.by_kthread >= KTHREAD_ENDS {
        return Completion::ByKthread;
    }
    match slot.dev {
        0 => slot.path.completion(),
        dev => {
            let device = core.sense.shared().device(dev);
            device.map_or(Completion::Unknown, |(_, path)| path.completion())
        }
    }
}

/// When a vCPU that is away was taken away: the programs know only that it was
/// not before they last ran there, so the expected end of its slice decides.
fn left_at(core: &Core, timeline: &Timeline, vcpu: VcpuId, seen: Time, now: Time) -> Time {
    let seen = if core.sense.source().reads_steal() {
        seen
    } else {
        core.pulses[vcpu.index()].last()
    };
    match timeline.remaining(now) {
        Some(_) => match timeline.state_running(now) {
            VcpuState::Running {
                ends: Some(ends), ..
            } => ends.expected.clamp(seen.min(now), now),
            _ => seen,
        },
        None => seen,
    }
}
