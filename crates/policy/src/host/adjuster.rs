// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vSMT-IO's workload adjuster (M21..M23): mix homogeneous cores.
//!
//! Retention pays where one vCPU waits and another computes. A core whose vCPUs
//! are all alike (small standard deviation of their retention rates) has no such
//! pair. Periodically the most homogeneous core A and the core B whose mean rate
//! is farthest from A's swap their middle vCPUs.

use units::Permille;

/// What is left open (M22, M23).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A core below this standard deviation, in thousandths of a period, is
    /// homogeneous (M22). 50: rates within a tenth of each other.
    pub min_deviation: u16,
    /// Of an even number, which one is in the middle (M23)?
    pub middle: Middle,
    /// Means that are closer than this leave nothing to mix. Open; as published
    /// there is no such test (0), and two homogeneous cores that are alike would
    /// swap for ever. 50.
    pub min_distance: u16,
}

/// M23: even counts are not stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middle {
    /// The one with the higher rate of the two.
    Upper,
    /// The one with the lower rate.
    Lower,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            min_deviation: 50,
            middle: Middle::Upper,
            min_distance: 50,
        }
    }
}

/// One vCPU of a core and its retention rate of the last period (M13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// Position in the caller's table.
    pub vcpu: usize,
    /// Its retention rate.
    pub rate: Permille,
}

/// Two vCPUs that change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Core A and the vCPU that leaves it.
    pub a: (usize, usize),
    /// Core B and the vCPU that leaves it.
    pub b: (usize, usize),
}

/// Mean and standard deviation of a core's retention rates in thousandths of a
/// thousandth, so that nothing is lost to rounding; None without vCPUs.
#[must_use]
pub fn mean_and_deviation(core: &[Vcpu]) -> Option<(u64, u64)> {
    let n = core.len() as u64;
    let rates = || core.iter().map(|v| u64::from(v.rate.get()) * 1000);
    let mean = rates().sum::<u64>().checked_div(n)?;
    let variance = rates().map(|r| r.abs_diff(mean).pow(2)).sum::<u64>() / n;
    Some((mean, variance.isqrt()))
}

/// The swap to do after this period, if any core is homogeneous. At most one, as
/// the text describes one; it runs again after the next period.
#[must_use]
pub fn adjust(cores: &[Vec<Vcpu>], settings: &Settings) -> Option<Swap> {
    let stats: Vec<(usize, u64, u64)> = cores
        .iter()
        .enumerate()
        .filter_map(|(core, vcpus)| mean_and_deviation(vcpus).map(|(m, d)| (core, m, d)))
        .collect();
    let &(a, mean_a, deviation) = stats
        .iter()
        .min_by_key(|&&(core, _, deviation)| (deviation, core))?;
    if deviation >= u64::from(settings.min_deviation) * 1000 {
        return None;
    }
    let &(b, mean_b, _) = stats
        .iter()
        .filter(|&&(core, ..)| core != a)
        .max_by_key(|&&(core, mean, _)| (mean.abs_diff(mean_a), std::cmp::Reverse(core)))?;
    if mean_b.abs_diff(mean_a) < u64::from(settings.min_distance) * 1000 {
        return None;
    }
    Some(Swap {
        a: (a, middle(&cores[a], settings)?),
        b: (b, middle(&cores[b], settings)?),
    })
}

/// The vCPU in the middle of the ranking by rate, highest first (M23).
fn middle(core: &[Vcpu], settings: &Settings) -> Option<usize> {
    let mut ranked = core.to_vec();
    ranked.sort_by_key(|v| (std::cmp::Reverse(v.rate), v.vcpu));
    let at = match settings.middle {
        Middle::Upper => ranked.len().checked_sub(1)? / 2,
        Middle::Lower => ranked.len() / 2,
    };
    ranked.get(at).map(|v| v.vcpu)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn core(first: usize, rates: &[u16]) -> Vec<Vcpu> {
        rates
            .iter()
            .enumerate()
            .map(|(i, &rate)| Vcpu {
                vcpu: first + i,
                rate: Permille::new(rate),
            })
            .collect()
    }

    /// 100, 200, 300: mean 200, variance 20000/3, deviation 81.6.
    #[test]
    fn mean_and_deviation_by_hand() {
        let (mean, deviation) = mean_and_deviation(&core(0, &[100, 200, 300])).unwrap();
        assert_eq!(mean, 200_000);
        assert_eq!(deviation, 81_649, "81.6497 rounded down");
        assert_eq!(mean_and_deviation(&[]), None);
    }

    /// Core 0 computes (0, 10, 20), core 1 is mixed, core 2 waits (700..900):
    /// A = 0, B = 2, their middle vCPUs 1 and 7 swap.
    #[test]
    fn the_middle_vcpus_of_opposite_cores_swap() {
        let cores = [
            core(0, &[0, 10, 20]),
            core(3, &[50, 400, 800]),
            core(6, &[700, 800, 900]),
        ];
        assert_eq!(
            adjust(&cores, &Settings::default()),
            Some(Swap {
                a: (0, 1),
                b: (2, 7)
            })
        );
    }

    #[test]
    fn mixed_cores_are_left_alone() {
        let cores = [core(0, &[0, 500]), core(2, &[100, 900])];
        assert_eq!(adjust(&cores, &Settings::default()), None);
    }

    #[test]
    fn two_cores_that_are_alike_do_not_swap_for_ever() {
        let cores = [core(0, &[10, 20]), core(2, &[15, 25])];
        assert_eq!(adjust(&cores, &Settings::default()), None);
        let published = Settings {
            min_distance: 0,
            ..Settings::default()
        };
        assert!(adjust(&cores, &published).is_some());
    }

    #[test]
    fn of_an_even_number_the_setting_chooses() {
        let cores = [core(0, &[10, 20]), core(2, &[700, 900])];
        let swap = |middle| {
            adjust(
                &cores,
                &Settings {
                    middle,
                    ..Settings::default()
                },
            )
        };
        assert_eq!(
            swap(Middle::Upper),
            Some(Swap {
                a: (0, 1),
                b: (1, 3)
            })
        );
        assert_eq!(
            swap(Middle::Lower),
            Some(Swap {
                a: (0, 0),
                b: (1, 2)
            })
        );
    }

    proptest! {
        /// Both vCPUs come from their cores, and with two cores that are each
        /// homogeneous one swap makes both less so.
        #[test]
        fn a_swap_mixes(
            low in proptest::collection::vec(0u16..20, 2..8),
            high in proptest::collection::vec(900u16..920, 2..8),
        ) {
            let mut cores = vec![core(0, &low), core(100, &high)];
            let before: Vec<u64> = cores.iter()
                .map(|c| mean_and_deviation(c).unwrap().1).collect();
            let swap = adjust(&cores, &Settings::default()).unwrap();
            let take = |cores: &mut Vec<Vec<Vcpu>>, (core, vcpu): (usize, usize)| {
                let at = cores[core].iter().position(|v| v.vcpu == vcpu).unwrap();
                cores[core].remove(at)
            };
            let a = take(&mut cores, swap.a);
            let b = take(&mut cores, swap.b);
            cores[swap.a.0].push(b);
            cores[swap.b.0].push(a);
            for (core, before) in cores.iter().zip(before) {
                prop_assert!(mean_and_deviation(core).unwrap().1 > before);
            }
        }
    }
}
