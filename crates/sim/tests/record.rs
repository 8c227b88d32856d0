// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is recorded of vCPUs and tasks is what the books say.

mod common;

use sim::device::Delay;
use sim::device::Path;
use sim::engine::Sim;
use sim::guest::KernelSettings;
use sim::guest::Migrater;
use sim::guest::MigraterSettings;
use sim::guest::NewTask;
use sim::hypervisor::Sharing;
use sim::hypervisor::by_name;
use sim::ids::VmId;
use sim::machine::State;
use sim::queue::QueueKind;
use sim::record::Does;
use sim::record::Recording;
use units::Ns;
use units::Time;
use units::VcpuId;

const IO: u32 = 7;
const FROM: Time = Time(200_000_000);
const LENGTH: Ns = Ns::from_ms(300);

/// Two vCPUs with compute and a reader each, beside two other VMs.
fn bed(policy: &str, path: Path, daemon: bool) -> Sim {
    let machine = common::machine(2, 3, false);
    let mut guests = common::guests(&machine, KernelSettings::default(), 1);
    for guest in &mut guests {
        guest.add(common::compute(0));
        guest.add(common::compute(1));
    }
    for vcpu in 0..2 {
        guests[0].add(NewTask {
            group: IO,
            ..common::reader(vcpu, common::READS)
        });
    }
    if daemon {
        let fixed = match path {
            Path::Fixed(vcpu) => Some(vcpu),
            Path::Submitter => None,
        };
        guests[0].set_migrater(Migrater::new(MigraterSettings::default(), 2, fixed));
    }
    let sharing = Sharing {
        vms_per_pcpu: 3,
        slice: Ns::from_ms(11),
        sweep_permille: 100,
    };
    let policy = by_name(policy, &sharing).expect("one of NAMES");
    let mut sim = common::simulation(machine, guests, policy, QueueKind::Wheel, 1);
    sim.add_device(Box::new(Delay::new(Ns::from_us(100), 0)), path);
    sim
}

fn recorded(sim: &mut Sim, until: Time) -> Recording {
    sim.run_until(FROM);
    sim.open_window();
    sim.record(VmId(0), IO, until);
    sim.run_until(FROM + LENGTH);
    sim.recorded().expect("it was asked for")
}

#[test]
fn spells_have_no_hole_and_add_up_to_the_books() {
    for policy in ["fixed", "cfs", "credit1", "vsmtio"] {
        let mut sim = bed(policy, Path::Submitter, true);
        sim.run_until(FROM);
        let before: Vec<[Ns; 3]> = books(&sim);
        let recording = recorded(&mut sim, FROM + LENGTH);
        for (vcpu, spells) in recording.vcpus.iter().enumerate() {
            let mut sums = [Ns::ZERO; 3];
            let mut at = FROM;
            for spell in spells {
                assert_eq!(spell.from, at, "{policy}");
                at = spell.to;
                let part = match spell.state {
                    State::Running(_) | State::Waiting(_) => 0,
                    State::Queued => 1,
                    State::Halted => 2,
                };
                sums[part] += spell.to.since(spell.from);
            }
            assert_eq!(at, FROM + LENGTH, "{policy}");
            let after = books(&sim)[vcpu];
            for part in 0..3 {
                assert_eq!(sums[part], after[part] - before[vcpu][part], "{policy}");
            }
        }
        let readers = sim.guest(VmId(0)).tasks().iter().enumerate();
        for (n, task) in readers.filter(|(_, task)| task.group == IO) {
            let mut sums = [Ns::ZERO; 7];
            let mut at = FROM;
            for spell in recording.tasks.iter().filter(|s| s.task.index() == n) {
                assert_eq!(spell.from, at, "{policy}");
                at = spell.to;
                sums[spell.does as usize] += spell.to.since(spell.from);
            }
            assert_eq!(at, FROM + LENGTH, "{policy}");
            assert_eq!(sums, task.spent, "{policy}");
        }
        let count = recording.tasks.iter().filter(|s| s.task.index() < 2);
        assert_eq!(count.count(), 0, "compute is not of the group");
    }
}

/// Ran, ready and halted of the first VM's vCPUs.
fn books(sim: &Sim) -> Vec<[Ns; 3]> {
    let vcpus = sim.machine().vcpus.iter().take(2);
    vcpus.map(|v| [v.ran, v.ready, v.halted]).collect()
}

/// Where every completion goes to vCPU 0, a task of vCPU 1 waits for vCPU 0.
#[test]
fn a_completion_pends_where_it_arrives_and_until_that_vcpu_is_back() {
    let mut sim = bed("fixed", Path::Fixed(VcpuId(0)), false);
    let recording = recorded(&mut sim, FROM + LENGTH);
    let pending: Vec<_> = recording
        .tasks
        .iter()
        .filter(|spell| spell.does == Does::Pending && spell.to < FROM + LENGTH)
        .collect();
    assert!(pending.len() > 5, "{}", pending.len());
    for spell in pending {
        assert_eq!(spell.vcpu, VcpuId(0));
        let off = |at: Time| {
            let mut spells = recording.vcpus[0].iter();
            let now = spells.find(|s| s.from <= at && at < s.to);
            now.is_some_and(|s| s.state == State::Queued)
        };
        assert!(off(spell.from), "it begins while vCPU 0 is off");
        assert!(!off(spell.to), "it ends when vCPU 0 is on");
    }
}

#[test]
fn a_move_is_where_the_task_changes_its_vcpu() {
    let mut sim = bed("fixed", Path::Submitter, true);
    let recording = recorded(&mut sim, FROM + LENGTH);
    let counts = sim.guest(VmId(0)).migrater().unwrap().counts();
    assert!(recording.moves.len() > 10, "{}", recording.moves.len());
    assert!(recording.moves.len() as u64 <= counts.n_migrate());
    for moved in &recording.moves {
        let mut spells = recording.tasks.iter();
        let there = spells.find(|s| s.task == moved.task && s.from <= moved.at && moved.at < s.to);
        let there = there.expect("spells have no hole");
        assert!(
            there.vcpu == moved.to || there.does == Does::Pending,
            "{moved:?} {there:?}"
        );
    }
}

#[test]
fn nothing_is_kept_beyond_the_end() {
    let mut sim = bed("fixed", Path::Submitter, true);
    let until = FROM + Ns::from_ms(50);
    let recording = recorded(&mut sim, until);
    assert!(!recording.tasks.is_empty() && !recording.moves.is_empty());
    assert!(recording.tasks.iter().all(|spell| spell.from < until));
    assert!(recording.moves.iter().all(|moved| moved.at < until));
    let mut vcpus = recording.vcpus.iter().flatten();
    assert!(vcpus.all(|spell| spell.from < until));
    assert!(sim.recorded().is_none());
}
