// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Xen 4.12 adds to Credit2, worked by hand. Credits in us.
use units::Ns;

use crate::host::credit::Credit;
use crate::host::credit::Weight;
use crate::host::credit::credit2::*;

const INIT: Ns = Ns::from_ms(10);

fn credit(us: i64) -> Credit {
    Credit(us * 1000)
}

/// One of the run queue, its credit, allowed here, and last here.
fn waiting(vcpu: usize, us: i64, may: bool, here: bool) -> Waiting {
    Waiting {
        vcpu,
        credit: credit(us),
        may,
        here,
    }
}

#[test]
fn who_comes_from_elsewhere_needs_half_a_millisecond_more() {
    let xen = Xen::default();
    let chosen = |running: Option<i64>, queue: &[Waiting]| {
        let of = xen.candidate(running.map(credit), queue.iter().copied());
        (of.vcpu, of.is_first)
    };
    let near = waiting(1, 5200, true, true);
    // 5.4 is not enough from elsewhere, 5.2 is from here; 5.5 is just enough.
    let queue = [waiting(0, 5400, true, false), near];
    assert_eq!(chosen(Some(5000), &queue), (Some(1), false));
    let queue = [waiting(0, 5500, true, false), near];
    assert_eq!(chosen(Some(5000), &queue), (Some(0), true));
    // Who may not run here is passed over, whatever it has.
    let queue = [waiting(0, 9000, false, false), near];
    assert_eq!(chosen(Some(5000), &queue), (Some(1), false));
    // As much is not more; who follows has less.
    let queue = [waiting(0, 5000, true, true), near];
    assert_eq!(chosen(Some(5000), &queue), (None, true));
    // Nobody runs: the first who may.
    let queue = [waiting(0, 9000, false, false), waiting(1, -7, true, false)];
    assert_eq!(chosen(None, &queue), (Some(1), false));
    assert_eq!(chosen(None, &[]), (None, true));
}

#[test]
fn a_turn_lasts_until_the_first_has_as_much() {
    let xen = Xen::default();
    let turn = |own: i64, first: Option<i64>, ran_us: u64| {
        let lasts = |credit| lasts(credit, Weight::DEFAULT, Weight::DEFAULT);
        let first = first.map(credit);
        let turn = xen.turn(credit(own), first, Ns::from_us(ran_us), lasts);
        turn.as_ns() / 1000
    };
    assert_eq!(turn(8000, Some(5000), 0), 3000);
    // Nobody waits, or nobody with credit: until its own is used up.
    assert_eq!(turn(8000, None, 0), 8000);
    assert_eq!(turn(8000, Some(-1), 0), 8000);
    assert_eq!(turn(10_500, None, 0), 10_000);
    // What is left of the rate limit at least, and half a millisecond after it.
    assert_eq!(turn(5000, Some(5000), 0), 1000);
    assert_eq!(turn(5000, Some(6000), 300), 700);
    assert_eq!(turn(5000, Some(6000), 1000), 500);
    assert_eq!(turn(-3000, None, 4000), 500);
}

#[test]
fn a_reset_adds_until_the_next_has_some() {
    let xen = Xen::default();
    let resets = |us| xen.resets(credit(us), INIT);
    assert_eq!([1, 0, -4000, -10_000, -10_800].map(resets), [0, 1, 1, 1, 2]);
    let after = |us, resets| xen.after(credit(us), resets, INIT).0 / 1000;
    assert_eq!(after(-10_800, 2), 9200);
    assert_eq!(after(300, 1), 10_300);
    // Half a millisecond is carried over, not more.
    assert_eq!(after(700, 1), 10_500);
}

#[test]
fn the_rate_limit_protects_who_runs() {
    let xen = Xen::default();
    let us = [0, 940, 960, 999, 1000].map(Ns::from_us);
    assert_eq!(
        us.map(|ran| xen.keeps(ran)),
        [true, true, true, true, false]
    );
    assert_eq!(
        us.map(|ran| xen.is_preemptable(ran)),
        [false, false, true, true, true]
    );
    let score = |here| xen.score(credit(6000), credit(5700), here) / 1000;
    assert_eq!([true, false].map(score), [300, -200]);
}
