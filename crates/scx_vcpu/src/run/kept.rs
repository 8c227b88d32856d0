// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What vCPUs had, for as long as no scheduler of ours is in the kernel: their counters go on
//! when the next one is attached, and `scx_vcpu list` shows them until then.
//!
//! Run and waited time are the kernel's own count of each thread, but for the moments of a
//! change: what a thread has between the kernel's disabling a scheduler and our look at it is
//! taken for sleep, and what it has between our last word and its entry in the next table is in
//! no counter. Turns, interrupts and halts are counted by our programs only, and not meanwhile.

use std::collections::BTreeMap;

use anyhow::Context;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use units::Ns;

use super::rest::Used;
use crate::roster::Knobs;
use crate::seat::Found;
use crate::skel::main::types::sv_vcpu;
use crate::sleep;
use crate::table;

/// A vCPU without a scheduler.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// As it was when its scheduler left; it was last accounted at `since_ns`.
    entry: sv_vcpu,
    /// What its thread had had by then.
    used: Used,
}

impl Past {
    /// The entry at `now` of `CLOCK_MONOTONIC`, when its thread has had `used` and is worth this;
    /// `None`: as much as before.
    fn at(&self, used: Used, now: units::Time, worth: Option<Knobs>) -> sv_vcpu {
        let (ran, waited) = (used.ran - self.used.ran, used.waited - self.used.waited);
        let passed = Ns(now.0.saturating_sub(self.entry.since_ns));
        let slept = passed - ran - waited;
        let entry = sv_vcpu {
            // enum sv_state: nobody schedules it, and its entry is in use.
            state: 1,
            ran_ns: self.entry.ran_ns + ran.0,
            waited_ns: self.entry.waited_ns + waited.0,
            slept_ns: self.entry.slept_ns + slept.0,
            ..self.entry
        };
        worth.map_or(entry, |worth| sv_vcpu {
            weight: worth.weight,
            cap_permille: worth.cap_permille,
            class: worth.class as u32,
            slice_ns: worth.slice.0,
            latency_ns: worth.latency.0,
            ..entry
        })
    }
}

/// All of them, by thread, and who has woken whom.
#[derive(Debug, Default)]
pub(super) struct Kept {
    vcpus: BTreeMap<u32, Past>,
    wakers: Vec<(Vec<u8>, Vec<u8>)>,
    /// It has been said that counters are lost.
    warned: bool,
}

impl Kept {
    /// Of a scheduler that has just left the kernel, whose table had so many `positions` in use:
    /// what `vcpus` had. Those that it did not schedule are as they were kept before.
    pub(super) fn keep(&mut self, maps: (&MapHandle, &MapHandle), positions: u32, vcpus: &[Found]) {
        let done = self.read(maps, positions, vcpus);
        self.warn(done);
    }

    fn read(
        &mut self,
        maps: (&MapHandle, &MapHandle),
        positions: u32,
        vcpus: &[Found],
    ) -> anyhow::Result<()> {
        let (entries, wakers) = maps;
        let mut kept = BTreeMap::new();
        for entry in table::raw(entries, positions)? {
            let is_ours = |found: &Found| (found.vm, found.tid) == (entry.vm, entry.tid);
            if !vcpus.iter().any(is_ours) {
                continue;
            }
            let Some(used) = Used::of_thread(entry.vm, entry.tid) else {
                continue;
            };
            let past = Past { entry, used };
            // It may have had another position before.
            let slot = kept.entry(entry.tid).or_insert(past);
            if slot.entry.since_ns < entry.since_ns {
                *slot = past;
            }
        }
        self.vcpus.retain(|tid, past| {
            vcpus
                .iter()
                .any(|found| (found.vm, found.tid) == (past.entry.vm, *tid))
        });
        self.vcpus.extend(kept);
        self.wakers = wakers
            .keys()
            .filter_map(|key| {
                let count = wakers.lookup(&key, MapFlags::ANY).ok()??;
                Some((key, count))
            })
            .collect();
        Ok(())
    }

    /// Tells a scheduler that is loaded and not attached, and who looks at its maps, what they
    /// had until now, and what they will be worth. `worth(vm, tid)`: what was said of one, also
    /// since.
    pub(super) fn tell(&mut self, past: &impl MapCore, worth: impl Fn(u32, u32) -> Option<Knobs>) {
        let now = sleep::monotonic();
        let mut all = Ok(());
        for (tid, kept) in &self.vcpus {
            let key = tid.to_ne_bytes();
            let done = match Used::of_thread(kept.entry.vm, *tid) {
                Some(used) => {
                    let entry = kept.at(used, now, worth(kept.entry.vm, *tid));
                    past.update(&key, table::bytes_of(&entry), MapFlags::ANY)
                }
                // It has ended.
                None => match past.delete(&key) {
                    Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
                    done => done,
                },
            };
            all = all.and(done.context("cannot keep what a vCPU had"));
        }
        self.warn(all);
    }

    /// The scheduler is attached and has all of it. Another thread may have such an id later. Not
    /// forgotten here: the kernel may end a scheduler before it has any thread, if a CPU has come
    /// or gone since it was loaded.
    pub(super) fn taken(&self, past: &impl MapCore) {
        for tid in self.vcpus.keys() {
            // One that has ended has none.
            let _ = past.delete(&tid.to_ne_bytes());
        }
    }

    /// The same of who has woken whom, once.
    pub(super) fn tell_wakers(&mut self, wakers: &impl MapCore) {
        let mut all = Ok(());
        for (key, count) in &self.wakers {
            let done = wakers.update(key, count, MapFlags::ANY);
            all = all.and(done.context("cannot keep who has woken a vCPU"));
        }
        self.warn(all);
    }

    /// Counters are no reason to end. Once: it would be said every second.
    fn warn(&mut self, done: anyhow::Result<()>) {
        if let Err(error) = done
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!("counters of vCPUs are lost: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map without room for any, which says E2BIG.
    #[test]
    fn root_what_does_not_fit_is_warned_of_once_and_no_reason_to_end() {
        let own = std::process::id();
        let map = MapHandle::create(
            libbpf_rs::MapType::Hash,
            Some("past"),
            4,
            size_of::<sv_vcpu>() as u32,
            1,
            &libbpf_rs::libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
                ..Default::default()
            },
        );
        let map = map.unwrap();
        let other = vec![0; size_of::<sv_vcpu>()];
        map.update(&1u32.to_ne_bytes(), &other, MapFlags::ANY)
            .unwrap();
        let entry = sv_vcpu {
            vm: own,
            tid: own,
            ..sv_vcpu::default()
        };
        let used = Used::default();
        let mut kept = Kept::default();
        kept.vcpus.insert(own, Past { entry, used });
        kept.tell(&map, |_, _| None);
        assert!(kept.warned);
        assert_eq!(map.keys().count(), 1);
        // There is room now.
        map.delete(&1u32.to_ne_bytes()).unwrap();
        kept.tell(&map, |_, _| None);
        assert_eq!(map.keys().next(), Some(own.to_ne_bytes().to_vec()));
        kept.taken(&map);
        assert_eq!(map.keys().count(), 0);
    }

    #[test]
    fn time_without_a_scheduler_is_part_of_what_a_vcpu_had() {
        let past = Past {
            entry: sv_vcpu {
                since_ns: 1000,
                ran_ns: 10,
                waited_ns: 20,
                slept_ns: 30,
                nr_turns: 4,
                weight: 256,
                ..sv_vcpu::default()
            },
            used: Used {
                ran: Ns(500),
                waited: Ns(600),
            },
        };
        let used = Used {
            ran: Ns(503),
            waited: Ns(604),
        };
        let entry = past.at(used, units::Time(1100), None);
        assert_eq!((entry.state, entry.nr_turns, entry.weight), (1, 4, 256));
        assert_eq!(
            (entry.ran_ns, entry.waited_ns, entry.slept_ns),
            (13, 24, 30 + 93)
        );
    }

    #[test]
    fn what_is_said_at_rest_is_listed() {
        let past = Past {
            entry: sv_vcpu {
                weight: 256,
                nr_turns: 4,
                ..sv_vcpu::default()
            },
            used: Used::default(),
        };
        let said = Knobs {
            weight: 1024,
            cap_permille: 450,
            class: crate::config::Class::Io,
            home: None,
            slice: Ns(7),
            latency: Ns(8),
            cpus: None,
        };
        let entry = past.at(Used::default(), units::Time(0), Some(said));
        assert_eq!(
            (entry.weight, entry.cap_permille, entry.class),
            (1024, 450, 1)
        );
        assert_eq!((entry.slice_ns, entry.latency_ns), (7, 8));
        assert_eq!(entry.nr_turns, 4);
    }
}
