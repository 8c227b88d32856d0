// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The example of O8, worked by hand: two applications of four threads on four
//! cores, one unit of time per step.
//!
//! The figure itself is not available; this is a schedule that has all its
//! numbers. App2's thread 0 (B0) runs on core 0 from t = 0 and needs 5; B2 and B3
//! wait for it and need 1 each on cores 2 and 3. App1's thread 0 (A0) becomes
//! ready on core 0 at t = 1 and needs 1; A1 runs on core 1 until 6, A2 and A3 on
//! cores 2 and 3 until 5; when all four are done App1 begins its second iteration,
//! one unit per thread.
//!
//! ```text
//!            A0 preempts at 1                A0 waits until 5
//! core 0  B0 A0 B0 B0 B0 B0 A0' ..        B0 B0 B0 B0 B0 A0 A0'
//! core 1  A1 A1 A1 A1 A1 A1 A1'           A1 A1 A1 A1 A1 A1 A1'
//! core 2  A2 A2 A2 A2 A2  . A2' B2        A2 A2 A2 A2 A2 B2 A2'
//! core 3  A3 A3 A3 A3 A3  . A3' B3        A3 A3 A3 A3 A3 B3 A3'
//! t       0  1  2  3  4  5  6   7         0  1  2  3  4  5  6
//! ```

use units::Ns;
use units::Time;

use crate::host::jupiter::dasl;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thread {
    app: usize,
    core: usize,
    ready_at: u64,
    left: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    app2_done: u64,
    second_iteration: u64,
    /// On core 0 in the first iteration.
    switches: u32,
}

const NEVER: u64 = u64::MAX;

/// Runs the example with this rescheduling latency of A0, in units; all other
/// threads have so much that they never preempt.
fn run(latency_of_a0: u64) -> Outcome {
    let thread = |app, core, ready_at, left| Thread {
        app,
        core,
        ready_at,
        left,
    };
    let mut threads = [
        thread(1, 0, 1, 1), // A0
        thread(1, 1, 0, 6),
        thread(1, 2, 0, 5),
        thread(1, 3, 0, 5),
        thread(2, 0, 0, 5), // B0
        thread(2, 2, NEVER, 1),
        thread(2, 3, NEVER, 1),
    ];
    let mut running: [Option<usize>; 4] = [None; 4];
    let mut last_on_core_0 = None;
    let mut outcome = Outcome {
        app2_done: 0,
        second_iteration: 0,
        switches: 0,
    };
    for t in 0..20 {
        // Barriers.
        if threads[4].left == 0 {
            for b in [5, 6] {
                threads[b].ready_at = threads[b].ready_at.min(t);
            }
        }
        if outcome.second_iteration == 0 && threads[..4].iter().all(|a| a.left == 0) {
            outcome.second_iteration = t;
            for a in &mut threads[..4] {
                (a.left, a.ready_at) = (1, t);
            }
        }
        if outcome.app2_done == 0 && threads[4..].iter().all(|b| b.left == 0) {
            outcome.app2_done = t;
        }
        for core in 0..4 {
            let ready = |&v: &usize| {
                threads[v].core == core && threads[v].left > 0 && threads[v].ready_at <= t
            };
            running[core] = running[core].filter(ready);
            let waiting = (0..threads.len()).filter(ready);
            // App1 is first in the queue where both become ready at once.
            let next = waiting.min_by_key(|&v| (threads[v].ready_at, threads[v].app));
            let due = (core == 0 && latency_of_a0 < NEVER && ready(&0))
                .then_some(0)
                .filter(|_| {
                    let since = Time(threads[0].ready_at);
                    dasl::is_due(since, Time(t), Ns(latency_of_a0))
                });
            running[core] = due.or(running[core]).or(next);
            if core == 0 && t < 6 {
                let switched = last_on_core_0.is_some() && running[0] != last_on_core_0;
                outcome.switches += u32::from(switched && running[0].is_some());
                last_on_core_0 = running[0].or(last_on_core_0);
            }
            if let Some(v) = running[core] {
                threads[v].left -= 1;
            }
        }
    }
    outcome
}

#[test]
fn giving_the_core_to_app1_ends_at_8() {
    assert_eq!(
        run(0),
        Outcome {
            app2_done: 8,
            second_iteration: 6,
            switches: 2
        }
    );
}

/// A0 may wait from 1 to 5 without harm: its rescheduling latency is 4.
#[test]
fn giving_it_to_app2_ends_at_6_and_harms_nobody() {
    assert_eq!(
        run(4),
        Outcome {
            app2_done: 6,
            second_iteration: 6,
            switches: 1
        }
    );
}
