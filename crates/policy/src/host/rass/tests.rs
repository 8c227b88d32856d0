// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;

use super::*;

fn vcpu(rate: u16, weight: u32) -> Vcpu {
    Vcpu {
        rate: Permille::new(rate),
        weight,
    }
}

fn io_bound(core: &[Vcpu], settings: &Settings) -> Vec<usize> {
    let classes = classify(core, settings);
    (0..core.len())
        .filter(|&v| classes[v] == Class::Io)
        .collect()
}

/// M14 by hand: rates 700, 100, 400, 0 with weights 1024 each: the two top ones.
#[test]
fn the_top_half_by_weight_is_io_bound() {
    let core = [
        vcpu(700, 1024),
        vcpu(100, 1024),
        vcpu(400, 1024),
        vcpu(0, 1024),
    ];
    assert_eq!(io_bound(&core, &Settings::default()), [0, 2]);
    // A heavy top one is a half by itself.
    let core = [
        vcpu(700, 3072),
        vcpu(100, 1024),
        vcpu(400, 1024),
        vcpu(0, 1024),
    ];
    assert_eq!(io_bound(&core, &Settings::default()), [0]);
    // Of three equals 1 : 2 and 2 : 1 are as good: fewer.
    let core = [vcpu(300, 1024), vcpu(200, 1024), vcpu(100, 1024)];
    assert_eq!(io_bound(&core, &Settings::default()), [0]);
    assert_eq!(classify(&[], &Settings::default()), []);
}

/// M17: higher weights for those that wait make fewer of them I/O-bound.
#[test]
fn compensation_makes_fewer_io_bound() {
    let core = [
        vcpu(900, 1024),
        vcpu(800, 1024),
        vcpu(0, 1024),
        vcpu(0, 1024),
    ];
    assert_eq!(io_bound(&core, &Settings::default()).len(), 2);
    let compensated = Settings {
        compensation_permille: 3000,
        ..Settings::default()
    };
    // 3.7 + 3.4 against 1 + 1: the first alone is closest to half.
    assert_eq!(io_bound(&core, &compensated), [0]);
}

/// M16.
#[test]
fn the_io_thread_is_lent_and_taken_back() {
    assert_eq!(
        next_on_io_thread(IoThread::Idle, None, Some(7)),
        Decision::Lend(7)
    );
    assert_eq!(
        next_on_io_thread(IoThread::Idle, Some(3), Some(7)),
        Decision::Run(3)
    );
    assert_eq!(
        next_on_io_thread(IoThread::Lent(7), Some(3), None),
        Decision::Run(3)
    );
    assert_eq!(
        next_on_io_thread(IoThread::Lent(7), None, Some(8)),
        Decision::Keep
    );
    // In context retention it is not idle.
    assert_eq!(
        next_on_io_thread(IoThread::Busy, None, Some(7)),
        Decision::Keep
    );
    assert_eq!(
        next_on_io_thread(IoThread::Idle, None, None),
        Decision::Keep
    );
}

fn cycles(base: u64, miss: u64, waiting: u64) -> Cycles {
    Cycles {
        total: base + miss + waiting,
        base,
        miss,
    }
}

/// M18: W = CPI - B - M; by our formula two that issue all the time clash fully,
/// one that issues and one that waits for memory not at all; halves clash halfway.
#[test]
fn symbiosis_by_hand() {
    let issue = cycles(1000, 0, 0);
    let memory = cycles(0, 1000, 0);
    let both = cycles(500, 500, 0);
    assert_eq!(cycles(300, 500, 200).waiting(), 200);
    let of = |a, b| symbiosis(a, b).map(Permille::get);
    assert_eq!(of(&issue, &issue), Some(0));
    assert_eq!(of(&issue, &memory), Some(1000));
    assert_eq!(of(&both, &issue), Some(500));
    assert_eq!(of(&both, &both), Some(500));
    assert_eq!(of(&issue, &Cycles::default()), None);
}

/// M19: the best of the first few; fairness decides among equals.
#[test]
fn the_partner_is_the_most_symbiotic_of_a_few() {
    let (issue, memory) = (cycles(1000, 0, 0), cycles(0, 1000, 0));
    let ready = [
        (4, Some(issue)),
        (5, None),
        (6, Some(cycles(600, 400, 0))),
        (7, Some(memory)),
    ];
    assert_eq!(partner(Some(&issue), &ready, 3), Some(6));
    assert_eq!(partner(Some(&issue), &ready, 4), Some(7));
    assert_eq!(partner(None, &ready, 4), Some(4), "nothing known: fairness");
    assert_eq!(partner(Some(&issue), &[], 3), None);
}

proptest! {
    /// M14: no other cut of the ranking is closer to half, and no CPU-bound vCPU
    /// waits more than an I/O-bound one.
    #[test]
    fn the_cut_is_the_best_one(
        core in proptest::collection::vec((0u16..=1000, 1u32..5000), 0..12),
    ) {
        let core: Vec<Vcpu> = core.into_iter().map(|(r, w)| vcpu(r, w)).collect();
        let settings = Settings::default();
        let classes = classify(&core, &settings);
        let weight = |class| -> u64 {
            core.iter().zip(&classes).filter(|(_, c)| **c == class)
                .map(|(v, _)| u64::from(v.weight)).sum()
        };
        let unequal = weight(Class::Io).abs_diff(weight(Class::Cpu));
        let mut rates: Vec<(u16, u32)> = core.iter().map(|v| (v.rate.get(), v.weight)).collect();
        rates.sort_by_key(|r| std::cmp::Reverse(r.0));
        // With distinct rates the ranking is unique, so every cut can be tried.
        if rates.windows(2).all(|w| w[0].0 > w[1].0) {
            for cut in 0..=rates.len() {
                let sum = |part: &[(u16, u32)]| part.iter().map(|r| u64::from(r.1)).sum::<u64>();
                prop_assert!(unequal <= sum(&rates[..cut]).abs_diff(sum(&rates[cut..])));
            }
        }
        for (v, class) in core.iter().zip(&classes) {
            for (w, other) in core.iter().zip(&classes) {
                prop_assert!(!(*class == Class::Io && *other == Class::Cpu && v.rate < w.rate));
            }
        }
    }

    #[test]
    fn symbiosis_is_symmetric(a in any::<[u32; 3]>(), b in any::<[u32; 3]>()) {
        let cycles = |c: [u32; 3]| cycles(c[0].into(), c[1].into(), c[2].into());
        prop_assert_eq!(symbiosis(&cycles(a), &cycles(b)), symbiosis(&cycles(b), &cycles(a)));
    }
}
