// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who looks at the vCPUs of others, and when.

use super::*;

fn looks(me: u32, vcpus: &[VcpuView], tasks: &[TaskView], settings: &Settings) -> Option<Time> {
    look_point(NOW, VcpuId(me), vcpus, tasks, settings, &Looks::default())
}

#[test]
fn the_vcpu_that_runs_longest_looks_when_another_should_be_gone() {
    let two = [running(0, MS(2)), running(1, MS(8)), running(2, MS(5))];
    let here = [task(1, 0)];
    let gone_at = NOW + MS(2) + Looks::default().after;
    assert_eq!(looks(1, &two, &here, &ours()), Some(gone_at));
    assert_eq!(looks(2, &two, &here, &ours()), None, "vCPU 1 runs longer");
    assert_eq!(looks(1, &two, &[task(1, 1)], &ours()), None, "its own");
    let lives_there = [homed(1, 0, 0)];
    assert_eq!(looks(1, &two, &lives_there, &ours()), None);
    let unmoved = Settings {
        pull: false,
        ..ours()
    };
    assert_eq!(looks(1, &two, &here, &unmoved), None);
}

/// One whose own end nobody knows leaves it to those that know theirs.
#[test]
fn a_vcpu_without_a_known_end_is_looked_at_again_and_again() {
    let three = [open_ended(0), running(1, MS(8)), running(2, MS(5))];
    let again = NOW + Looks::default().again;
    assert_eq!(looks(1, &three, &[task(1, 0)], &ours()), Some(again));
    assert_eq!(looks(0, &three, &[task(1, 2)], &ours()), None);
}

/// A vCPU that is away is looked at when it is overdue, if tasks wait for it.
#[test]
fn a_vcpu_that_is_away_is_looked_at_when_it_is_overdue() {
    let two = [gone(0, MS(4)), running(1, MS(8))];
    let overdue = pull_point(NOW, &two[0], &ours());
    assert!(overdue.is_some_and(|at| at > NOW + MS(4)));
    assert_eq!(looks(1, &two, &[task(1, 0)], &ours()), overdue);
    assert_eq!(looks(1, &two, &[task(1, 1)], &ours()), None);
}
