// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DATS: adjust time slices to demand, within a VM (J7..J9).
//!
//! A vCPU that was preempted because its slice was used up gets 10 % more weight;
//! the others lose in proportion to their weights, so that the VM's total stays
//! what it was (J7, J8). A vCPU's slice is its part of the VM's share.

use units::Ns;

/// What the text fixes (the step) and what it leaves open (J8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Increase of a vCPU whose slice was used up: 100 permille (J7).
    pub step_permille: u64,
    /// Least weight of a vCPU in thousandths of the VM's average. Open. 100: a
    /// vCPU that wakes after a long sleep can still do something.
    pub min_permille: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            step_permille: 100,
            min_permille: 100,
        }
    }
}

/// Weight of one vCPU. Only ratios count; [`UNIT`] each is a good start, coarse
/// enough for any share and fine enough that rounding does not show.
pub type Weight = u64;

/// A vCPU's weight to start with: a million, so a step is never rounded away.
pub const UNIT: Weight = 1_000_000;

/// New weights of the vCPUs of one VM after a period; `depleted[v]`: v was
/// preempted because its slice was used up (J7). The sum is the same to the unit.
///
/// If all were depleted, nothing changes: there is nobody to take from
/// (normalising by the fixed total, J8).
pub fn adjust(weights: &mut [Weight], depleted: &[bool], settings: &Settings) {
    let is_depleted = |v: usize| depleted.get(v).copied().unwrap_or(false);
    let total: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    let takers = (0..weights.len()).filter(|&v| is_depleted(v)).count();
    if total == 0 || takers == 0 || takers == weights.len() {
        return;
    }
    let average = total / weights.len() as u128;
    let floor = average * u128::from(settings.min_permille.min(1000)) / 1000;
    // A giver that is below the floor already (another setting before) stays.
    let giver_floor = |w: Weight| u128::from(w).min(floor);

    let wanted = |w: Weight| u128::from(w) * u128::from(1000 + settings.step_permille) / 1000;
    let sum_of = |of_takers: bool, part: &dyn Fn(Weight) -> u128| -> u128 {
        (0..weights.len())
            .filter(|&v| is_depleted(v) == of_takers)
            .map(|v| part(weights[v]))
            .sum()
    };
    let takers_had = sum_of(true, &u128::from);
    let raise = sum_of(true, &wanted) - takers_had;
    let givers_had = sum_of(false, &u128::from);
    let can_give = givers_had - sum_of(false, &giver_floor);
    let taken = raise.min(can_give);
    if raise == 0 || taken == 0 {
        return;
    }

    // Each gives in proportion to its weight (J8), none below the floor; what the
    // floor holds back the others give, again in proportion.
    let mut next: Vec<u128> = weights.iter().map(|&w| u128::from(w)).collect();
    let mut open: Vec<usize> = (0..weights.len()).filter(|&v| !is_depleted(v)).collect();
    let mut to_take = taken;
    while to_take > 0 && !open.is_empty() {
        let base: u128 = open.iter().map(|&v| u128::from(weights[v])).sum();
        if base == 0 {
            break;
        }
        let round = to_take;
        for &v in &open {
            let spare = next[v] - giver_floor(weights[v]);
            // Rounded up, so that a remainder is taken in this round too.
            let part = (round * u128::from(weights[v])).div_ceil(base);
            let part = part.min(spare).min(to_take);
            next[v] -= part;
            to_take -= part;
        }
        open.retain(|&v| next[v] > giver_floor(weights[v]));
    }
    let mut to_give = taken - to_take;
    let all = to_give;
    for v in 0..weights.len() {
        if is_depleted(v) {
            let part = (all * (wanted(weights[v]) - u128::from(weights[v]))).div_ceil(raise);
            let part = part.min(to_give);
            next[v] += part;
            to_give -= part;
        }
    }
    for (weight, next) in weights.iter_mut().zip(next) {
        *weight = Weight::try_from(next).unwrap_or(Weight::MAX);
    }
}

/// What a vCPU of this weight may use of `vm_time`, the VM's CPU time of the next
/// period.
#[must_use]
pub fn slice(weight: Weight, total: Weight, vm_time: Ns) -> Ns {
    if total == 0 {
        return Ns::ZERO;
    }
    vm_time.scaled(weight, total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Four vCPUs of 100; the first was depleted: 110, and the 10 are taken from
    /// the others in equal parts, the remainder where it comes first.
    #[test]
    fn the_depleted_one_gets_ten_percent_more() {
        let mut weights = [100_000; 4];
        adjust(
            &mut weights,
            &[true, false, false, false],
            &Settings::default(),
        );
        assert_eq!(weights, [110_000, 96_666, 96_666, 96_668]);
        assert_eq!(weights.iter().sum::<u64>(), 400_000);
    }

    #[test]
    fn others_give_in_proportion_to_what_they_have() {
        let mut weights = [200_000, 300_000, 100_000];
        adjust(&mut weights, &[true, false, false], &Settings::default());
        assert_eq!(weights, [220_000, 285_000, 95_000]);
    }

    /// Two depleted: 20 of 200 in all, each gets its own ten per cent.
    #[test]
    fn several_takers_share() {
        let mut weights = [100, 100, 100, 100].map(|w| w * 1000);
        adjust(
            &mut weights,
            &[true, true, false, false],
            &Settings::default(),
        );
        assert_eq!(weights, [110_000, 110_000, 90_000, 90_000]);
    }

    #[test]
    fn if_all_are_depleted_nobody_gains() {
        let mut weights = [100_000, 300_000];
        adjust(&mut weights, &[true, true], &Settings::default());
        assert_eq!(weights, [100_000, 300_000]);
    }

    #[test]
    fn a_sleeper_keeps_a_tenth_of_the_average() {
        let mut weights = [UNIT; 2];
        for _ in 0..200 {
            adjust(&mut weights, &[true, false], &Settings::default());
        }
        assert_eq!(weights, [UNIT * 19 / 10, UNIT / 10]);
    }

    #[test]
    fn slices_are_parts_of_the_vms_time() {
        assert_eq!(slice(110, 400, Ns::from_ms(400)), Ns::from_ms(110));
        assert_eq!(slice(1, 0, Ns::from_ms(400)), Ns::ZERO);
    }

    proptest! {
        /// J8: the total is kept to the unit, whoever asks for what and how often.
        #[test]
        fn the_total_weight_is_constant(
            start in proptest::collection::vec(0u64..10_000_000, 1..24),
            periods in proptest::collection::vec(any::<u32>(), 1..40),
        ) {
            let mut weights = start.clone();
            for asks in periods {
                let depleted: Vec<bool> =
                    (0..weights.len()).map(|v| asks >> (v % 32) & 1 == 1).collect();
                let before = weights.clone();
                adjust(&mut weights, &depleted, &Settings::default());
                for v in 0..weights.len() {
                    if depleted[v] {
                        prop_assert!(weights[v] >= before[v]);
                        prop_assert!(weights[v] <= before[v] + before[v] / 10 + 1);
                    } else {
                        prop_assert!(weights[v] <= before[v]);
                    }
                }
            }
            prop_assert_eq!(weights.iter().sum::<u64>(), start.iter().sum::<u64>());
        }
    }
}
