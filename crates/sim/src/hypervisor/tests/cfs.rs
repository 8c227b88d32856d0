// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CFS as the host's scheduler, one level, by hand: "vanilla KVM" (C7..C11).

use units::Ns;

use super::bed::FREE;
use super::bed::Task::Hog;
use super::bed::Task::Naps;
use super::bed::Vm;
use super::bed::run;
use super::bed::vm;
use crate::hypervisor::Cfs;
use crate::hypervisor::CfsSettings;

/// `(ms, vCPU)` of each change on one pCPU.
fn order(settings: CfsSettings, vms: &[Vm], ms: u64) -> Vec<(u64, u32)> {
    let policy = Box::new(Cfs::new(settings));
    run(policy, 1, false, FREE, vms, Ns::from_ms(ms)).order(0)
}

/// Slices of 12 ms for two.
fn shrinking() -> CfsSettings {
    CfsSettings::with_slice(Ns::from_ms(12))
}

/// As many turns of this length as there are hogs, in the order of their numbers.
fn turns(hogs: u32, length: u64) -> Vec<(u64, u32)> {
    (0..hogs).map(|n| (u64::from(n) * length, n)).collect()
}

/// C8: of a latency of 24 ms two have 12 each, three 8, four 6, six 4, eight 3, and that is
/// the least. Fixed slices, as the set-up of 13.1 has them: 12 each, however many.
#[test]
fn slices_shrink_with_the_number_or_are_fixed() {
    let fixed = CfsSettings {
        min_granularity: Ns::from_ms(12),
        ..shrinking()
    };
    let one = || vm(&[&[Hog]]);
    for (hogs, length) in [(2, 12), (3, 8), (4, 6), (6, 4), (8, 3), (12, 3)] {
        let vms: Vec<Vm> = (0..hogs).map(|_| one()).collect();
        let round = u64::from(hogs) * length;
        let found = order(shrinking(), &vms, round);
        assert_eq!(found, turns(hogs, length), "{hogs} shrinking");
        let round = u64::from(hogs) * 12;
        assert_eq!(order(fixed, &vms, round), turns(hogs, 12), "{hogs} fixed");
    }
}

/// Slices of 11 ms end at the next tick of 4 ms, as the one that begins at 13 ms does: at 24.
/// Who wakes preempts at once.
#[test]
fn slices_end_at_a_tick() {
    let ticks = CfsSettings {
        tick: Ns::from_ms(4),
        ..CfsSettings::with_slice(Ns::from_ms(11))
    };
    let hog = || vm(&[&[Hog]]);
    assert_eq!(order(ticks, &[hog(), hog()], 24), turns(2, 12));
    let naps = Naps(Ns::from_ms(1), Ns::from_ms(9));
    let vms = [hog(), vm(&[&[naps]])];
    let expected = [(0, 0), (12, 1), (13, 0), (22, 1), (23, 0)];
    assert_eq!(order(ticks, &vms, 30), expected);
    let slow = CfsSettings {
        wakeup_granularity: Ns::from_ms(500),
        ..ticks
    };
    assert_eq!(order(slow, &vms, 25), [(0, 0), (12, 1), (13, 0), (24, 1)]);
}

/// C7: weights 1 and 2 have 8 and 16 of 24 ms, and have had as much by weight then: the
/// one that has waited longer is next.
#[test]
fn a_slice_is_a_part_by_weight() {
    let mut vms = [vm(&[&[Hog]]), vm(&[&[Hog]])];
    vms[1].weight *= 2;
    let expected = [(0, 0), (8, 1), (24, 0), (32, 1)];
    assert_eq!(order(shrinking(), &vms, 48), expected);
}

/// C9, C10: vCPU 1 works for 1 ms and sleeps for 9. Its first turn comes after the hog's
/// 12 ms; from then on it has had so much less that it preempts each time it wakes.
#[test]
fn who_has_had_less_preempts() {
    let naps = Naps(Ns::from_ms(1), Ns::from_ms(9));
    let vms = [vm(&[&[Hog]]), vm(&[&[naps]])];
    let expected = [(0, 0), (12, 1), (13, 0), (22, 1), (23, 0), (32, 1), (33, 0)];
    assert_eq!(order(shrinking(), &vms, 40), expected);
}

/// C10: it works for 9 ms and sleeps for one. At 22 ms it has had 9 and the hog 13: 4 ms
/// less, which is not more than the granularity, so the hog goes on to the end of its
/// turn, 12 ms from 21 on. At 43 ms it has had 18 and the hog 25.
#[test]
fn who_has_had_not_much_less_waits() {
    let naps = Naps(Ns::from_ms(9), Ns::from_ms(1));
    let vms = [vm(&[&[Hog]]), vm(&[&[naps]])];
    let expected = [(0, 0), (12, 1), (21, 0), (33, 1), (42, 0), (43, 1)];
    assert_eq!(order(shrinking(), &vms, 50), expected);
}

/// C10: with a scheduling delay of half a second nobody preempts; who wakes waits for the
/// end of a slice.
#[test]
fn a_long_scheduling_delay_makes_sleepers_wait() {
    let slow = CfsSettings {
        wakeup_granularity: Ns::from_ms(500),
        ..shrinking()
    };
    let naps = Naps(Ns::from_ms(1), Ns::from_ms(9));
    let vms = [vm(&[&[Hog]]), vm(&[&[naps]])];
    // Awake at 22 ms; the hog's turn is from 13 to 25 ms.
    let expected = [(0, 0), (12, 1), (13, 0), (25, 1), (26, 0), (38, 1), (39, 0)];
    assert_eq!(order(slow, &vms, 45), expected);
}
