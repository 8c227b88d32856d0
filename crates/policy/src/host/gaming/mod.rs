// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks: a VM that arranges its sleeps or fakes I/O to get more than its share
//! of one pCPU, against VMs that compute all the time.
//!
//! Where a published policy can be gamed the test says so and by how much, and
//! shows the switch that closes it.

use units::Ns;

mod credit;
mod engine;
mod isacs;
mod vslicer;

use engine::Attack;
use engine::Scheduler;
use engine::run;

/// How long each attack is tried.
const DURATION: Ns = Ns::from_ms(12_000);

/// Computing VMs beside the attacker.
const VICTIMS: usize = 2;

/// What the attacker gets, in thousandths of its fair share.
fn gain<S: Scheduler>(scheduler: S, attack: Attack) -> u64 {
    let ran = run(scheduler, VICTIMS + 1, attack, DURATION);
    let fair = DURATION / (VICTIMS as u64 + 1);
    ran[0].as_ns() * 1000 / fair.as_ns()
}

/// Attacks by well-timed sleeps: run and sleep lengths around every length that
/// the policies know (10 and 30 ms), waking as by I/O or not.
fn sleeps() -> impl Iterator<Item = Attack> {
    let us = [
        100, 1000, 3300, 5000, 9000, 9990, 10_000, 12_000, 19_990, 29_990,
    ];
    us.into_iter().flat_map(move |run| {
        [10, 100, 1000, 5000, 10_000, 19_000, 20_010, 30_000]
            .into_iter()
            .flat_map(move |sleep| {
                [true, false].map(|io| Attack::Sleeps {
                    run: Ns::from_us(run),
                    sleep: Ns::from_us(sleep),
                    io,
                })
            })
    })
}

/// Attacks by fake I/O: response events at these intervals, in bursts or not.
fn fakes() -> impl Iterator<Item = Attack> {
    [20, 100, 1000, 5000, 10_000, 19_000]
        .into_iter()
        .flat_map(|every| {
            [1, 2, 3, 5, 100].map(|burst| Attack::FakesEvents {
                every: Ns::from_us(every),
                burst,
            })
        })
}

/// The attack that gains most, and its gain.
fn worst<S: Scheduler>(
    make: impl Fn() -> S,
    attacks: impl Iterator<Item = Attack>,
) -> (u64, Attack) {
    attacks
        .map(|attack| (gain(make(), attack), attack))
        .max_by_key(|&(gain, _)| gain)
        .unwrap()
}
