// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU that is away for longer than was expected (decision 0035).

use super::*;

fn overdue(id: u32, late: Ns) -> VcpuView {
    let back = exactly(NOW - late);
    vcpu(
        id,
        VcpuState::Descheduled {
            since: NOW - late - MS(11),
            back: Some(back),
        },
    )
}

#[test]
fn nobody_waits_for_ever_for_a_vcpu_that_is_overdue() {
    let at_hand = |late| [overdue(0, late), running(1, MS(8))];
    let waits = skips(&at_hand(US(300)), &[task(1, 0)], &ours());
    assert_eq!(waits, [Skip::BackSoon]);
    let pulled = [(1, 1, Why::Pull)];
    assert_eq!(moves(&at_hand(US(301)), &[task(1, 0)], &ours()), pulled);
    let published = Settings::published();
    assert_eq!(moves(&at_hand(MS(9)), &[task(1, 0)], &published), pulled);
    let for_ever = Settings {
        back_overdue_after: None,
        ..ours()
    };
    let waits = skips(&at_hand(MS(9)), &[task(1, 0)], &for_ever);
    assert_eq!(waits, [Skip::BackSoon]);

    let [gone, hand] = at_hand(US(300));
    assert_eq!(pull_point(NOW, &gone, &ours()), Some(NOW + Ns(1)));
    assert_eq!(pull_point(NOW + Ns(1), &gone, &ours()), None);
    assert_eq!(pull_point(NOW, &gone, &for_ever), None);
    assert_eq!(pull_point(NOW, &hand, &ours()), None);
}

/// Any moment is soon enough where nobody else runs on, and not where somebody does.
#[test]
fn a_task_is_sent_to_a_vcpu_that_is_overdue_if_none_is_at_hand() {
    let sent = [(1, 1, Why::SoonActive)];
    let none = [running(0, US(100)), overdue(1, MS(9))];
    assert_eq!(moves(&none, &[task(1, 0)], &ours()), sent);
    let prefers_fresh = Settings {
        soon_below: MS(11),
        ..ours()
    };
    let three = |late| [running(0, US(100)), overdue(1, late), running(2, MS(8))];
    assert_eq!(moves(&three(US(300)), &[task(1, 0)], &prefers_fresh), sent);
    assert_eq!(
        moves(&three(US(301)), &[task(1, 0)], &prefers_fresh),
        [(1, 2, Why::Push)]
    );
}

/// Any time may be left, so that no cost speaks against the move.
#[test]
fn what_a_pull_from_an_overdue_vcpu_gains_is_unknown() {
    let source = running(0, US(100));
    assert_eq!(gain(NOW, Why::Pull, &overdue(1, US(301)), &source), None);
}
