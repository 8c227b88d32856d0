// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;

use super::*;

/// A core of (VM, slice in ms, latency in ms); positions count up from `first`.
fn core(first: usize, vcpus: &[(usize, u64, u64)]) -> Core {
    Core {
        vcpus: vcpus
            .iter()
            .enumerate()
            .map(|(i, &(vm, slice, latency))| Vcpu {
                vcpu: first + i,
                vm,
                slice: Ns::from_ms(slice),
                latency: Ns::from_ms(latency),
            })
            .collect(),
        conflicts: 0,
    }
}

fn with_conflicts(mut core: Core, conflicts: u64) -> Core {
    core.conflicts = conflicts;
    core
}

/// The example of J12: two slices of 50 ms in a period of 80 ms. The other core
/// has two of 30 ms; swapping one each gives 80 and 80.
#[test]
fn two_slices_that_do_not_fit_are_parted() {
    let mut cores = [
        core(0, &[(0, 50, 10), (1, 50, 10)]),
        core(2, &[(2, 30, 10), (3, 30, 10)]),
    ];
    let swaps = resolve_overload(&mut cores, &Settings::default());
    assert_eq!(
        swaps,
        [Swap {
            a: (0, 0),
            b: (2, 1)
        }]
    );
    assert_eq!(
        cores.each_ref().map(Core::load),
        [Ns::from_ms(80), Ns::from_ms(80)]
    );
}

#[test]
fn ten_percent_more_is_no_conflict() {
    let mut cores = [
        core(0, &[(0, 55, 10), (1, 55, 10)]),
        core(2, &[(2, 100, 10)]),
    ];
    assert_eq!(resolve_overload(&mut cores, &Settings::default()), []);
    let mut cores = [
        core(0, &[(0, 60, 10), (1, 51, 10)]),
        core(2, &[(2, 50, 10), (3, 50, 10)]),
    ];
    assert_eq!(resolve_overload(&mut cores, &Settings::default()).len(), 1);
}

/// The only swap that would help puts two vCPUs of VM 0 on core 1.
#[test]
fn siblings_are_not_stacked() {
    let mut cores = [
        core(0, &[(0, 60, 10), (1, 60, 10)]),
        core(2, &[(0, 30, 10), (1, 30, 10)]),
    ];
    let apart = resolve_overload(&mut cores.clone(), &Settings::default());
    // 60 of VM 0 for 30 of VM 0 keeps them apart.
    assert_eq!(
        apart,
        [Swap {
            a: (0, 0),
            b: (2, 1)
        }]
    );
    let mut stacked = [
        core(0, &[(0, 60, 10), (1, 60, 10)]),
        core(2, &[(0, 80, 10), (1, 10, 10)]),
    ];
    stacked[1].vcpus[1].vm = 2;
    // 90 against 120. VM 1's 60 for VM 2's 10 overshoots; VM 0's cannot come.
    assert_eq!(resolve_overload(&mut stacked, &Settings::default()), []);
    let stack = Settings {
        keep_apart: false,
        ..Settings::default()
    };
    cores[1].vcpus[0].vm = 2;
    cores[1].vcpus[1].vm = 0;
    assert!(!resolve_overload(&mut cores, &stack).is_empty());
}

/// Core 0: low latencies 1, 2, 3 ms and one high; 9 conflicts. Core 1: high
/// latencies 10, 20, 30; 4 conflicts. 9 > 2 x 4: half of three, rounded up, swap,
/// lowest against highest.
#[test]
fn half_of_the_low_latency_vcpus_leave_the_core_with_most_conflicts() {
    let mut cores = [
        with_conflicts(
            core(0, &[(0, 10, 3), (1, 10, 1), (2, 10, 2), (3, 10, 40)]),
            9,
        ),
        with_conflicts(core(4, &[(4, 10, 10), (5, 10, 30), (6, 10, 20)]), 4),
    ];
    let swaps = resolve_conflicts(&mut cores, &Settings::default());
    assert_eq!(
        swaps,
        [
            Swap {
                a: (1, 0),
                b: (5, 1)
            },
            Swap {
                a: (2, 0),
                b: (6, 1)
            }
        ]
    );
    let down = Settings {
        half: Half::Down,
        ..Settings::default()
    };
    let mut cores = [
        with_conflicts(core(0, &[(0, 10, 3), (1, 10, 1), (2, 10, 2)]), 9),
        with_conflicts(core(4, &[(4, 10, 10), (5, 10, 30), (6, 10, 20)]), 4),
    ];
    assert_eq!(resolve_conflicts(&mut cores, &down).len(), 1);
}

#[test]
fn twice_as_many_conflicts_are_still_no_reason() {
    let low = || core(0, &[(0, 10, 1), (1, 10, 1)]);
    let high = || core(2, &[(2, 10, 20), (3, 10, 20)]);
    let swaps = |most, fewest| {
        let mut cores = [with_conflicts(low(), most), with_conflicts(high(), fewest)];
        resolve_conflicts(&mut cores, &Settings::default()).len()
    };
    assert_eq!(swaps(8, 4), 0);
    assert_eq!(swaps(9, 4), 1);
    assert_eq!(swaps(1, 0), 0, "one conflict is noise");
    assert_eq!(swaps(2, 0), 1, "none on the other core");
}

proptest! {
    /// Swaps never change how many vCPUs a core has, lose one, or stack siblings
    /// that were apart; and overload never grows.
    #[test]
    fn swaps_keep_what_must_be_kept(
        slices in proptest::collection::vec((1u64..80, 1u64..40), 12..13),
        conflicts in (0u64..20, 0u64..20, 0u64..20),
    ) {
        // Three cores, four VMs, one vCPU of each VM per core.
        let mut cores: Vec<Core> = (0..3).map(|c| {
            let vcpus: Vec<_> = (0..4)
                .map(|vm| (vm, slices[c * 4 + vm].0, slices[c * 4 + vm].1)).collect();
            core(c * 4, &vcpus)
        }).collect();
        cores[0].conflicts = conflicts.0;
        cores[1].conflicts = conflicts.1;
        cores[2].conflicts = conflicts.2;
        let spread = |cores: &[Core]| {
            let loads = || cores.iter().map(Core::load);
            loads().max().unwrap() - loads().min().unwrap()
        };
        let before = spread(&cores);
        resolve_overload(&mut cores, &Settings::default());
        prop_assert!(spread(&cores) <= before);
        resolve_conflicts(&mut cores, &Settings::default());
        let mut all: Vec<usize> = Vec::new();
        for core in &cores {
            prop_assert_eq!(core.vcpus.len(), 4);
            let mut vms: Vec<usize> = core.vcpus.iter().map(|v| v.vm).collect();
            vms.sort_unstable();
            prop_assert_eq!(vms, vec![0, 1, 2, 3]);
            all.extend(core.vcpus.iter().map(|v| v.vcpu));
        }
        all.sort_unstable();
        prop_assert_eq!(all, (0..12).collect::<Vec<_>>());
    }
}
