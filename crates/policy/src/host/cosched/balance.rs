// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Balance scheduling (O2): no two vCPUs of a VM on one core.
//!
//! They need not run at the same time; but as they are never stacked, they can.

/// What a core looks like to one VM's vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// vCPUs of all VMs that are placed there (or ready there, at a wake-up).
    pub vcpus: u32,
    /// How many of them belong to the same VM.
    pub siblings: u32,
}

/// The core for a vCPU: without a sibling if there is one, then the one with
/// fewest vCPUs, then the first. With more vCPUs than cores the stacks are kept
/// as low as possible. None without cores.
#[must_use]
pub fn choose(cores: &[Core]) -> Option<usize> {
    (0..cores.len()).min_by_key(|&c| (cores[c].siblings, cores[c].vcpus, c))
}

/// Places the vCPUs of VMs with these sizes: `place(..)[vm][vcpu]` is a core. A
/// VM with no more vCPUs than there are cores is never stacked (J15).
#[must_use]
pub fn place(vms: &[usize], cores: usize) -> Vec<Vec<usize>> {
    let mut table = vec![Core::default(); cores];
    vms.iter()
        .map(|&vcpus| {
            for core in &mut table {
                core.siblings = 0;
            }
            (0..vcpus)
                .filter_map(|_| {
                    let core = choose(&table)?;
                    table[core].vcpus += 1;
                    table[core].siblings += 1;
                    Some(core)
                })
                .collect()
        })
        .collect()
}

/// May a vCPU be taken over by a core with these `siblings` (in numbers), when
/// balancing load? Only if it is not stacked more than where it is.
#[must_use]
pub fn may_move(siblings_here: u32, siblings_there: u32) -> bool {
    // It is itself counted here.
    siblings_there < siblings_here
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_small_vms_share_four_cores_without_overlap() {
        assert_eq!(place(&[2, 2], 4), [[0, 1], [2, 3]]);
    }

    #[test]
    fn load_comes_second() {
        let core = |vcpus, siblings| Core { vcpus, siblings };
        assert_eq!(choose(&[core(1, 1), core(5, 0), core(4, 0)]), Some(2));
        assert_eq!(choose(&[core(1, 2), core(5, 1)]), Some(1));
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn a_move_may_not_stack() {
        assert!(may_move(1, 0), "to a core without siblings");
        assert!(!may_move(1, 1));
        assert!(may_move(3, 1), "off a stack");
    }

    proptest! {
        #[test]
        fn siblings_are_apart_and_cores_are_even(
            vms in proptest::collection::vec(0usize..20, 0..12), cores in 1usize..17,
        ) {
            let placed = place(&vms, cores);
            let mut load = vec![0u32; cores];
            for (vm, vcpus) in placed.iter().zip(&vms) {
                prop_assert_eq!(vm.len(), *vcpus);
                let mut here = vec![0usize; cores];
                for &core in vm {
                    here[core] += 1;
                    load[core] += 1;
                }
                prop_assert!(here.iter().all(|&n| n <= vcpus.div_ceil(cores)));
            }
            let spread = load.iter().max().unwrap() - load.iter().min().unwrap();
            prop_assert!(spread <= 1);
        }
    }
}
