// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nobody is forgotten: every task of every program goes on, under every policy, also where
//! a sibling hyperthread changes a vCPU's speed in the instant in which something is due
//! there.

mod common;

use sim::engine::Sim;
use sim::guest::KernelSettings;
use sim::guest::Leave;
use sim::hypervisor::NAMES;
use sim::hypervisor::Sharing;
use sim::hypervisor::by_name;
use sim::ids::VmId;
use sim::program::Locked;
use sim::program::Parallel;
use sim::queue::QueueKind;
use units::Ns;
use units::Time;

const PCPUS: u32 = 8;

/// Long enough for everybody's turn under every policy.
const WINDOW: Ns = Ns::from_ms(600);

/// What the threads of a VM do.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// They meet, again and again.
    Meet,
    /// They want one lock.
    Lock,
    /// They wait for a disk.
    Read,
}

const VMS: [&[Does]; 3] = [
    &[Does::Meet],
    &[Does::Lock],
    &[Does::Meet, Does::Lock, Does::Read],
];

/// A simulation to watch.
#[derive(Clone, Copy, Debug)]
struct Case {
    policy: &'static str,
    /// Pairs of pCPUs are hyperthreads of a core.
    siblings: bool,
    /// The VMs, with a vCPU on every pCPU each. One alone is not rescued by being
    /// scheduled anew.
    vms: &'static [Does],
    leave: Leave,
    spin: Ns,
    seed: u64,
}

impl Case {
    fn build(self) -> Sim {
        let machine = common::machine(PCPUS, self.vms.len() as u32, self.siblings);
        let mut guests = common::guests(&machine, KernelSettings::scaled(PCPUS), self.seed);
        for (guest, does) in guests.iter_mut().zip(self.vms) {
            guest.add_barrier(PCPUS, self.leave);
            guest.add_lock();
            for vcpu in 0..PCPUS {
                guest.add(match does {
                    Does::Meet => {
                        let meets = Parallel::new(Ns::from_us(500), 300, self.spin);
                        common::task("meets", vcpu, Box::new(meets))
                    }
                    Does::Lock => {
                        let (work, hold) = (Ns::from_us(300), Ns::from_us(20));
                        let locks = Locked::new(0, work, 500, hold, self.spin);
                        common::task("locks", vcpu, Box::new(locks))
                    }
                    Does::Read => common::reader(vcpu, common::READS),
                });
            }
        }
        let sharing = Sharing {
            vms_per_pcpu: self.vms.len() as u32,
            slice: Ns::from_ms(11),
            sweep_permille: 100,
        };
        let policy = by_name(self.policy, &sharing).expect("a policy that exists");
        let queue = QueueKind::default();
        let mut sim = common::simulation(machine, guests, policy, queue, self.seed);
        common::add_delay(&mut sim, Ns::from_us(300), 1000);
        sim
    }

    /// What each task has done, by VM.
    fn done(self, sim: &Sim) -> Vec<Vec<u64>> {
        let tasks = |vm| sim.guest(VmId(vm)).tasks().iter();
        (0..self.vms.len() as u32)
            .map(|vm| tasks(vm).map(|task| task.done.operations).collect())
            .collect()
    }

    /// Two windows, in each of which every task has to do something.
    fn goes_on(self) {
        let mut sim = self.build();
        let mut before = self.done(&sim);
        for window in 1..=2 {
            sim.run_until(Time::ZERO + WINDOW * window);
            let now = self.done(&sim);
            let mut all = now.iter().flatten().zip(before.iter().flatten());
            assert!(
                all.all(|(now, before)| now > before),
                "{self:?}, window {window}: {before:?}, then {now:?}"
            );
            before = now;
        }
    }
}

#[test]
fn every_task_goes_on_under_every_policy() {
    let mut seed = 0;
    for policy in NAMES {
        for siblings in [false, true] {
            for vms in VMS {
                for spin in [20, 2000].map(Ns::from_us) {
                    for leave in [Leave::AtOnce, Leave::InTurn] {
                        seed += 1;
                        let case = Case {
                            policy,
                            siblings,
                            vms,
                            leave,
                            spin,
                            seed,
                        };
                        case.goes_on();
                    }
                }
            }
        }
    }
}
