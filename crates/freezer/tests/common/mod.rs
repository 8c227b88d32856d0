// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the native tests share.
// Each test binary has its own copy and uses a part of it.
#![allow(dead_code, unreachable_pub)]
// The setting that lets tests unwrap does not reach what they call.
#![allow(clippy::unwrap_used)]

use std::time::Duration;
use std::time::Instant;

use freezer::Counters;
use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::plan::Pair;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

/// The CPU that is frozen where one is enough, and the one that watches it.
pub const FROZEN: VcpuId = VcpuId(0);
pub const WATCHING: VcpuId = VcpuId(1);

/// No condition here takes longer, also on a machine that is busy otherwise.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn ms(n: u64) -> Ns {
    Ns::from_ms(n)
}

/// Options whose deadline is beyond any test, and that wait for other tests.
pub fn patient() -> Options {
    Options {
        wait: Ns::from_secs(120),
        ..Options::new(Ns::from_secs(60))
    }
}

/// The same slices over and over on [`FROZEN`] alone.
pub fn one_cpu(on: Ns, off: Ns) -> Plan {
    Plan::fixed(on, off, 0, &CpuSet::only(FROZEN)).unwrap()
}

pub fn recorded(pairs: &[(u64, u64)]) -> Plan {
    let pairs = pairs.iter().map(|(on, off)| Pair {
        on: ms(*on),
        off: ms(*off),
    });
    Plan::recorded(vec![(FROZEN, pairs.collect())]).unwrap()
}

/// Waits for a condition.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < give_up, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn gaps(freezer: &Freezer) -> u64 {
    freezer
        .counters()
        .iter()
        .map(|counters| counters.gaps)
        .min()
        .unwrap()
}

#[track_caller]
pub fn wait_for_gaps(freezer: &Freezer, count: u64) {
    until(&format!("{count} gaps on every CPU"), || {
        gaps(freezer) >= count
    });
}

/// Stops and waits until no CPU is off any more, so that counters, log and steal
/// page are at rest.
#[track_caller]
pub fn stop(freezer: &mut Freezer) -> Vec<Counters> {
    freezer.stop();
    let cpus = freezer.cpus();
    until("every CPU is back", || {
        !cpus.iter().any(|cpu| freezer.is_off(cpu))
    });
    // The counters are written a moment after the flag is cleared.
    until("the counters agree with the steal page", || {
        let mut both = freezer.counters().into_iter().zip(freezer.steal_page());
        both.all(|(counters, page)| {
            counters.gaps * 2 == u64::from(page.version) && counters.frozen == page.steal
        })
    });
    until("the log agrees with the counters", || {
        freezer
            .counters()
            .iter()
            .all(|c| c.logged + c.dropped == c.gaps)
    });
    freezer.counters()
}

/// Stays on one CPU from now on.
pub fn pin_to(cpu: VcpuId) {
    let mut here = rustix::thread::CpuSet::new();
    here.set(cpu.index());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

/// Now, on the clock of the log.
pub fn now() -> units::Time {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    units::Time(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
}
