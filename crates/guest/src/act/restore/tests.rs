// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a killed daemon leaves at each step, made by hand.

use std::sync::Arc;

use tempfile::TempDir;
use units::CpuSet;

use super::super::journal::Original;
use super::super::journal::Slot;
use super::super::lever;
use super::super::testing::Sleeper;
use super::super::testing::cpus;
use super::*;

struct Remains {
    dir: TempDir,
    subject: Sleeper,
    before: CpuSet,
}

impl Remains {
    /// A process that was adopted, and what `then` does to it and its slot.
    fn of(then: impl FnOnce(&Slot, &Original)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let subject = Sleeper::new();
        let tid = subject.tid();
        let before = sched::affinity(tid).unwrap();
        let attr = sched::attr(tid).unwrap();
        let original = Original {
            key: subject.key(),
            tgid: tid.0,
            comm: "sleep".into(),
            mask: before,
            whole_cpuset: true,
            policy: attr.policy,
            priority: attr.priority,
            nice: attr.nice,
            reset_on_fork: false,
            slice_ns: 0,
            adopted_ticks: u64::MAX,
        };
        let journal = Journal::open(&dir.path().join("journal"), &Roots::default(), 4).unwrap();
        let slot = Arc::new(journal).insert(&original).unwrap();
        then(&slot, &original);
        drop(slot);
        Self {
            dir,
            subject,
            before,
        }
    }

    fn restore(&self) -> Summary {
        restore_all(&self.dir.path().join("journal"), &Roots::default()).unwrap()
    }

    fn mask(&self) -> CpuSet {
        sched::affinity(self.subject.tid()).unwrap()
    }
}

fn take_off(slot: &Slot, to: units::VcpuId) {
    let position = slot.position();
    slot.change(position, position.take_off(to).unwrap())
        .unwrap();
}

const RESTORED: Summary = Summary {
    restored: 1,
    gone: 0,
    foreign: 0,
    failed: 0,
    widened: 0,
    torn: 0,
};

#[test]
fn root_killed_before_or_after_the_system_call_of_a_move() {
    let (a, b) = cpus();
    // The moves that got through before, and whether the last one did.
    for (moves, last) in [(0, false), (0, true), (1, false), (1, true)] {
        let remains = Remains::of(|slot, original| {
            let tid = original.key.tid;
            if moves == 1 {
                take_off(slot, a);
                sched::set_affinity(tid, &CpuSet::only(a)).unwrap();
                let position = slot.position();
                slot.change(position, position.land(a, Some(a))).unwrap();
            }
            take_off(slot, b);
            if last {
                sched::set_affinity(tid, &CpuSet::only(b)).unwrap();
            }
        });
        assert_eq!(remains.mask() == remains.before, moves == 0 && !last);
        assert_eq!(remains.restore(), RESTORED);
        assert_eq!(remains.mask(), remains.before);
        assert_eq!(remains.restore(), Summary::default(), "idempotent");
        assert!(!remains.dir.path().join("journal").exists());
    }
}

#[test]
fn root_killed_within_a_release() {
    let (a, _) = cpus();
    let remains = Remains::of(|slot, original| {
        take_off(slot, a);
        sched::set_affinity(original.key.tid, &CpuSet::only(a)).unwrap();
        let position = slot.position();
        slot.change(position, position.land(a, Some(a))).unwrap();
        let position = slot.position();
        slot.change(position, position.end()).unwrap();
    });
    assert_eq!(remains.restore(), RESTORED);
    assert_eq!(remains.mask(), remains.before);
}

#[test]
fn root_a_mask_that_we_never_set_stays() {
    let (a, b) = cpus();
    let remains = Remains::of(|slot, original| {
        take_off(slot, a);
        sched::set_affinity(original.key.tid, &CpuSet::only(b)).unwrap();
    });
    assert_eq!(
        remains.restore(),
        Summary {
            restored: 0,
            foreign: 1,
            ..RESTORED
        }
    );
    assert_eq!(remains.mask(), CpuSet::only(b));
}

#[test]
fn root_killed_before_or_after_the_system_call_of_a_lever() {
    let probe = lever::Probe::run().unwrap();
    let levers = [Lever::Fifo, Lever::EevdfSlice(units::Ns::from_us(200))];
    for (lever, done) in levers
        .into_iter()
        .flat_map(|lever| [(lever, false), (lever, true)])
    {
        let mut attr = None;
        let remains = Remains::of(|slot, original| {
            attr = Some(sched::attr(original.key.tid).unwrap());
            slot.set_lever(lever);
            if done {
                lever::apply(original.key.tid, lever, original, &probe).unwrap();
                assert_ne!(sched::attr(original.key.tid).unwrap(), attr.unwrap());
            }
        });
        assert_eq!(remains.restore(), RESTORED);
        assert_eq!(sched::attr(remains.subject.tid()).unwrap(), attr.unwrap());
    }
}

#[test]
fn root_an_ended_thread_is_not_looked_for_under_its_id() {
    let (a, _) = cpus();
    let remains = Remains::of(|slot, original| {
        take_off(slot, a);
        sched::set_affinity(original.key.tid, &CpuSet::only(a)).unwrap();
    });
    let Remains { dir, subject, .. } = remains;
    let (tid, start) = (subject.tid(), subject.key().start_ticks);
    subject.end();
    let second = loop {
        let second = Sleeper::with_tid(tid);
        if second.key().start_ticks != start {
            break second;
        }
    };
    sched::set_affinity(tid, &CpuSet::only(a)).unwrap();
    let summary = restore_all(&dir.path().join("journal"), &Roots::default()).unwrap();
    assert_eq!(
        summary,
        Summary {
            restored: 0,
            gone: 1,
            ..RESTORED
        }
    );
    assert_eq!(sched::affinity(second.tid()).unwrap(), CpuSet::only(a));
}
