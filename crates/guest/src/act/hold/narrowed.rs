// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tells a CPU that has been away and is back from one that was there all the time.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use units::VcpuId;

use crate::act::task::Roots;

/// A CPU, and which of its comings-up this is. In one word, since a move takes no lock: 16
/// bits of CPU, 48 bits of [`Roots::came_up`]. 0 where the machine does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CameUp(u64);

const BITS: u32 = 48;

impl CameUp {
    pub(super) fn of(roots: &Roots, cpu: VcpuId) -> Self {
        let number = roots.came_up(cpu).map(|number| number & ((1 << BITS) - 1));
        Self(number.map_or(0, |number| u64::from(cpu.0) << BITS | number))
    }

    fn cpu(self) -> Option<VcpuId> {
        (self != Self(0)).then_some(VcpuId((self.0 >> BITS) as u32))
    }
}

/// The CPU that a thread was narrowed to last; of two movers at once, one's.
#[derive(Debug, Default)]
pub(super) struct Narrowed(AtomicU64);

impl Narrowed {
    /// `came_up`: from before the thread was narrowed, so that no absence since is missed.
    pub(super) fn to(&self, came_up: CameUp) {
        self.0.store(came_up.0, Ordering::Release);
    }

    /// That CPU, if it has been away since.
    pub(super) fn been_away(&self, roots: &Roots) -> Option<VcpuId> {
        let then = CameUp(self.0.load(Ordering::Acquire));
        then.cpu().filter(|cpu| CameUp::of(roots, *cpu) != then)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cpu_that_has_been_away_is_known_by_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().join("proc"),
            sys: dir.path().join("sys"),
        };
        let narrowed = Narrowed::default();
        assert_eq!(narrowed.been_away(&roots), None, "to none yet");
        let cpu = VcpuId(3);
        narrowed.to(CameUp::of(&roots, cpu));
        assert_eq!(narrowed.been_away(&roots), None, "no machine");

        let topology = roots.sys.join("devices/system/cpu/cpu3/topology");
        fs::create_dir_all(&topology).unwrap();
        narrowed.to(CameUp::of(&roots, cpu));
        assert_eq!(narrowed.been_away(&roots), None);
        // Kept, so that the file system does not give its number to the next one.
        fs::rename(&topology, dir.path().join("removed")).unwrap();
        assert_eq!(narrowed.been_away(&roots), Some(cpu), "away");
        fs::create_dir_all(&topology).unwrap();
        assert_eq!(narrowed.been_away(&roots), Some(cpu), "and back");
        narrowed.to(CameUp::of(&roots, cpu));
        assert_eq!(narrowed.been_away(&roots), None, "narrowed since");
    }

    #[test]
    fn this_machine_says_when_its_cpus_came_up() {
        let roots = Roots::default();
        let online = roots.online().unwrap();
        let numbers: Vec<u64> = online
            .iter()
            .map(|cpu| roots.came_up(cpu).unwrap())
            .collect();
        let again = online.iter().map(|cpu| roots.came_up(cpu).unwrap());
        assert!(again.eq(numbers), "they stay while nobody goes");
    }
}
