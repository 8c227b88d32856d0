// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU that stays away for longer than any gap before: nobody waits for it for ever
//! (decision 0035).

use freezer::Event;
use freezer::plan::Lane;
use freezer::plan::Pair;
use freezer::plan::Pattern;
use guest::settings::Settings;
use units::Ns;
use units::VcpuId;

use crate::Bed;
use crate::Done;
use crate::SECOND;
use crate::bed::SLICE;
use crate::bed::eventually;
use crate::bed::moving;
use crate::bed::now;
use crate::in_three_tries;
use crate::io_bound;

/// The long gap, seven slices of others.
const LONG: Ns = Ns::from_ms(77);

/// Two CPUs that take turns, and of every eleven gaps of the first one is long.
fn lanes() -> Vec<Lane> {
    let pair = |off| Pair { on: SLICE, off };
    let mut first = vec![pair(SLICE); 10];
    first.push(pair(LONG));
    let lane = |cpu, first_on, pairs| Lane {
        cpu: VcpuId(cpu),
        first_on,
        pattern: Pattern::Recorded(pairs),
    };
    vec![lane(0, SLICE, first), lane(1, SLICE * 2, vec![pair(SLICE)])]
}

/// The longest time in a gap in which nothing was completed.
fn longest(gap: &Event, done: &[Done]) -> Ns {
    let inside = done
        .iter()
        .map(|done| done.at)
        .filter(|at| gap.out <= *at && *at < gap.back);
    let edges: Vec<_> = [gap.out]
        .into_iter()
        .chain(inside)
        .chain([gap.back])
        .collect();
    let pauses = edges.windows(2).map(|pair| pair[1].since(pair[0]));
    pauses.max().unwrap_or(Ns::ZERO)
}

/// Of the long gaps of five seconds, the median of the longest time without a request.
fn stalls(change: impl Fn(Settings) -> Settings) -> Ns {
    let bed = Bed::planned(lanes());
    let subject = io_bound();
    let engine = bed.engine(change(bed.settings()));
    moving(&engine, 60);
    let (from, to) = (now(), now() + Ns::from_secs(5));
    eventually(8 * SECOND, "five seconds are over", || now() >= to);
    engine.stop();
    let done = subject.between(from, to);
    let log = bed.freezer.log();
    let long = log
        .iter()
        .filter(|gap| from <= gap.out && gap.back < to && gap.back.since(gap.out) > LONG / 2);
    let mut stalls: Vec<Ns> = long.map(|gap| longest(gap, &done)).collect();
    assert!(stalls.len() >= 10, "{} long gaps", stalls.len());
    stalls.sort_unstable();
    stalls[stalls.len() / 2]
}

/// In a long gap the other CPU is on for three slices. A task that waits for the one that
/// is overdue has none of them.
#[test]
fn root_a_task_does_not_wait_for_a_vcpu_that_is_overdue() {
    in_three_tries(|| {
        let waits = stalls(|mut settings| {
            settings.placement.back_overdue_after = None;
            settings
        });
        let leaves = stalls(|settings| settings);
        println!("median of the longest stall: {leaves}, as before {waits}");
        assert!(waits > SLICE * 4, "{waits}: this would show nothing");
        assert!(leaves < SLICE * 2, "{leaves}");
    });
}
