// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conventional (O3) and relaxed (O5) coscheduling: VMs as gangs.
//!
//! A gang is started only when enough pCPUs are free for it. Conventional: for
//! all its ready vCPUs. Relaxed: for a part of them, the smaller the higher the
//! relax level. pCPUs that are too few for anybody stay idle: fragmentation.

use units::Ns;

/// What is left open (O3, O5, O7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Relax level in thousandths: this part of the vCPUs need not be there. 0:
    /// conventional. 1000: one vCPU is enough.
    pub relax_permille: u64,
    /// Which vCPUs a gang consists of.
    pub members: Members,
    /// How long a gang that does not fit may be passed by others that do; then
    /// pCPUs are kept free for it. 60 ms: two Xen slices.
    pub max_wait: Ns,
    /// How long a gang runs: 10 ms.
    pub slice: Ns,
}

/// Does a vCPU that has nothing to do need a pCPU of the gang?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// No: only ready ones are counted.
    Ready,
    /// Yes: strict, all or nothing.
    All,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            relax_permille: 0,
            members: Members::Ready,
            max_wait: Ns::from_ms(60),
            slice: Ns::from_ms(10),
        }
    }
}

/// One VM that could be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Its vCPUs.
    pub vcpus: usize,
    /// Those that are ready and not running.
    pub ready: usize,
    /// CPU time it has had, divided by its weight: who had least goes first.
    pub used: Ns,
    /// Time since it became ready or last ran.
    pub waited: Ns,
}

impl Gang {
    /// How many pCPUs must be free to start it.
    #[must_use]
    pub fn needs(&self, settings: &Settings) -> usize {
        let all = match settings.members {
            Members::Ready => self.ready,
            Members::All => self.vcpus,
        };
        let kept = 1000_u64.saturating_sub(settings.relax_permille);
        let needed = (all as u64 * kept).div_ceil(1000);
        usize::try_from(needed).unwrap_or(all).clamp(1, all.max(1))
    }
}

/// What to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Position of the gang.
    pub gang: usize,
    /// How many of its ready vCPUs.
    pub vcpus: usize,
}

/// The gang to start on `free` of `pcpus` pCPUs. Call again with what is left
/// until None. A gang that needs more than there are pCPUs at all could never
/// run; it needs all of them.
#[must_use]
pub fn pick(gangs: &[Gang], free: usize, pcpus: usize, settings: &Settings) -> Option<Start> {
    if free == 0 {
        return None;
    }
    let mut order: Vec<usize> = (0..gangs.len()).filter(|&g| gangs[g].ready > 0).collect();
    order.sort_by_key(|&g| (gangs[g].used, g));
    for gang in order {
        let this = &gangs[gang];
        if this.needs(settings).min(pcpus) <= free {
            return Some(Start {
                gang,
                vcpus: this.ready.min(free),
            });
        }
        if this.waited >= settings.max_wait {
            // Nobody passes it any more.
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gang(ready: usize, used_ms: u64, waited_ms: u64) -> Gang {
        Gang {
            vcpus: 4,
            ready,
            used: Ns::from_ms(used_ms),
            waited: Ns::from_ms(waited_ms),
        }
    }

    /// Two VMs of four on four cores: one at a time. One of two vCPUs beside
    /// leaves two cores idle when three are wanted: fragmentation.
    #[test]
    fn all_or_nothing() {
        let settings = Settings::default();
        let gangs = [gang(4, 20, 0), gang(4, 10, 0)];
        let first = pick(&gangs, 4, 4, &settings);
        assert_eq!(first, Some(Start { gang: 1, vcpus: 4 }));
        assert_eq!(pick(&[gang(3, 0, 0)], 2, 4, &settings), None);
        assert_eq!(
            pick(&[gang(3, 0, 0), gang(2, 50, 0)], 2, 4, &settings),
            Some(Start { gang: 1, vcpus: 2 }),
            "another that fits passes"
        );
    }

    #[test]
    fn who_waited_long_is_not_passed() {
        let settings = Settings::default();
        let gangs = [gang(3, 0, 60), gang(2, 50, 0)];
        assert_eq!(pick(&gangs, 2, 4, &settings), None);
        assert_eq!(
            pick(&gangs, 3, 4, &settings),
            Some(Start { gang: 0, vcpus: 3 })
        );
    }

    /// O5: a higher level needs fewer.
    #[test]
    fn the_relax_level_lowers_the_bar() {
        let needs = |relax_permille| {
            gang(4, 0, 0).needs(&Settings {
                relax_permille,
                ..Settings::default()
            })
        };
        assert_eq!([0, 250, 500, 750, 1000].map(needs), [4, 3, 2, 1, 1]);
        let relaxed = Settings {
            relax_permille: 500,
            ..Settings::default()
        };
        assert_eq!(
            pick(&[gang(4, 0, 0)], 3, 4, &relaxed),
            Some(Start { gang: 0, vcpus: 3 })
        );
    }

    #[test]
    fn strict_counts_sleepers_too() {
        let strict = Settings {
            members: Members::All,
            ..Settings::default()
        };
        assert_eq!(pick(&[gang(1, 0, 0)], 3, 4, &strict), None);
        assert_eq!(
            pick(&[gang(1, 0, 0)], 4, 4, &strict),
            Some(Start { gang: 0, vcpus: 1 })
        );
    }

    #[test]
    fn a_vm_larger_than_the_machine_still_runs() {
        let large = Gang {
            vcpus: 8,
            ready: 8,
            used: Ns::ZERO,
            waited: Ns::ZERO,
        };
        assert_eq!(
            pick(&[large], 4, 4, &Settings::default()),
            Some(Start { gang: 0, vcpus: 4 })
        );
    }

    proptest! {
        /// Under a round of slices every gang gets its turn, whatever the sizes.
        #[test]
        fn nobody_starves(sizes in proptest::collection::vec(1usize..9, 1..6)) {
            let settings = Settings::default();
            let mut gangs: Vec<Gang> = sizes.iter().map(|&n| Gang {
                vcpus: n, ready: n, used: Ns::ZERO, waited: Ns::ZERO,
            }).collect();
            let mut turns = vec![0u32; gangs.len()];
            for _ in 0..60 {
                let mut free = 8;
                let mut ran = vec![false; gangs.len()];
                let mut now = gangs.clone();
                while let Some(start) = pick(&now, free, 8, &settings) {
                    prop_assert!(start.vcpus <= free);
                    free -= start.vcpus;
                    now[start.gang].ready = 0;
                    ran[start.gang] = true;
                }
                for (g, gang) in gangs.iter_mut().enumerate() {
                    if ran[g] {
                        gang.used += settings.slice;
                        gang.waited = Ns::ZERO;
                        turns[g] += 1;
                    } else {
                        gang.waited += settings.slice;
                    }
                }
            }
            prop_assert!(turns.iter().all(|&n| n >= 5), "{:?}", turns);
        }
    }
}
