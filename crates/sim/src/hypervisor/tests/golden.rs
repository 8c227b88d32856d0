// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first picks of a small mix under every policy. A change here is a change
//! of schedule: look at it before accepting it.

use units::Ns;

use super::bed::FREE;
use super::bed::Task::Barrier;
use super::bed::Task::Hog;
use super::bed::Task::Reads;
use super::bed::run;
use super::bed::vm;
use crate::hypervisor::NAMES;
use crate::hypervisor::Sharing;
use crate::hypervisor::by_name;

#[test]
fn the_first_picks_of_every_policy() {
    let sharing = Sharing {
        vms_per_pcpu: 3,
        slice: Ns::from_ms(11),
        sweep_permille: 0,
    };
    for name in NAMES.iter().copied() {
        let barrier = Barrier(Ns::from_ms(3));
        let vms = [
            vm(&[&[Reads], &[Hog]]),
            vm(&[&[barrier], &[barrier]]),
            vm(&[&[Hog], &[Hog]]),
        ];
        let policy = by_name(name, &sharing).unwrap();
        let outcome = run(policy, 2, true, FREE, &vms, Ns::from_ms(300));
        insta::assert_snapshot!(name, outcome.trace(40));
    }
}
