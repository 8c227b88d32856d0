// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tells a CPU that has been away and is back from one that was there all the time.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use units::VcpuId;

use crate::act::task::Roots;

/// The CPU that a mover narrowed a thread to last, and which of its comings-up that was; of
/// two movers at once only one's. In one word, since a move takes no lock: 16 bits of CPU,
/// 48 bits of [`Roots::came_up`]. 0: none, or the machine does not say.
#[derive(Debug, Default)]
pub(super) struct Narrowed(AtomicU64);

const BITS: u32 = 48;

impl Narrowed {
    /// To be called before the thread is narrowed.
    pub(super) fn to(&self, roots: &Roots, cpu: VcpuId) {
        self.0.store(word(roots, cpu), Ordering::Release);
    }

    /// That CPU, if it has been away since.
    pub(super) fn been_away(&self, roots: &Roots) -> Option<VcpuId> {
        let then = self.0.load(Ordering::Acquire);
        let cpu = VcpuId((then >> BITS) as u32);
        (then != 0 && word(roots, cpu) != then).then_some(cpu)
    }
}

fn word(roots: &Roots, cpu: VcpuId) -> u64 {
    let came_up = roots.came_up(cpu).map(|number| number & ((1 << BITS) - 1));
    came_up.map_or(0, |number| u64::from(cpu.0) << BITS | number)
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
        narrowed.to(&roots, cpu);
        assert_eq!(narrowed.been_away(&roots), None, "no machine");

        let topology = roots.sys.join("devices/system/cpu/cpu3/topology");
        fs::create_dir_all(&topology).unwrap();
        narrowed.to(&roots, cpu);
        assert_eq!(narrowed.been_away(&roots), None);
        // Kept, so that the file system does not give its number to the next one.
        fs::rename(&topology, dir.path().join("removed")).unwrap();
        assert_eq!(narrowed.been_away(&roots), Some(cpu), "away");
        fs::create_dir_all(&topology).unwrap();
        assert_eq!(narrowed.been_away(&roots), Some(cpu), "and back");
        narrowed.to(&roots, cpu);
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
