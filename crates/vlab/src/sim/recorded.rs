// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator's books and recordings in the words of a result.

use experiment::result::Books;
use experiment::result::IoTime;
use experiment::result::MoveMark;
use experiment::result::Spell;
use experiment::result::Spells;
use experiment::result::TaskState;
use experiment::result::TaskTrack;
use experiment::result::Timeline;
use experiment::result::VcpuBooks;
use experiment::result::VcpuTrack;
use experiment::result::VmBooks;
use policy::guest::view::Why;
use sim::engine::Sim;
use sim::guest::Task;
use sim::ids::VmId;
use sim::machine::State;
use sim::machine::VcpuFacts;
use sim::record::Does;
use sim::record::Recording;
use sim::record::VcpuSpell;
use units::Ns;
use units::Time;

use super::build;

/// The VM under test.
const TESTED: VmId = VmId(0);

/// Its I/O tasks with their numbers.
fn io_tasks(sim: &Sim) -> impl Iterator<Item = (usize, &Task)> {
    let tasks = sim.guest(TESTED).tasks().iter().enumerate();
    tasks.filter(|(_, task)| task.group == build::IO)
}

/// What has been counted since the simulation began; tasks count since the window was
/// opened.
pub(super) fn books(sim: &Sim) -> Books {
    let machine = sim.machine();
    let vcpu = |v: &VcpuFacts| VcpuBooks {
        active: v.ran,
        kept: v.waited_on_pcpu,
        ready: v.ready,
        waiting: v.halted,
        migrations: v.migrations,
        preempted: v.preempted,
        woken: v.wakeups,
    };
    Books {
        pcpus: u32::try_from(machine.pcpus.len()).unwrap_or(u32::MAX),
        switches: machine.pcpus.iter().map(|pcpu| pcpu.turns).sum(),
        io_inactivity: io_tasks(sim).map(|(_, task)| task.inactive).sum(),
        task_moves: io_tasks(sim).map(|(_, task)| task.moved).sum(),
        vms: machine
            .vms
            .iter()
            .map(|vm| VmBooks {
                name: vm.name.clone(),
                weight: vm.weight,
                vcpus: machine.vcpus[vm.vcpus.start as usize..vm.vcpus.end as usize]
                    .iter()
                    .map(vcpu)
                    .collect(),
            })
            .collect(),
    }
}

/// The books of a window: those at its end without those at its beginning.
pub(super) fn between(before: &Books, mut after: Books) -> Books {
    after.switches -= before.switches;
    for (vm, old) in after.vms.iter_mut().zip(&before.vms) {
        for (vcpu, old) in vm.vcpus.iter_mut().zip(&old.vcpus) {
            *vcpu = VcpuBooks {
                active: vcpu.active - old.active,
                kept: vcpu.kept - old.kept,
                ready: vcpu.ready - old.ready,
                waiting: vcpu.waiting - old.waiting,
                migrations: vcpu.migrations - old.migrations,
                preempted: vcpu.preempted - old.preempted,
                woken: vcpu.woken - old.woken,
            };
        }
    }
    after
}

const fn state_of(does: Does) -> TaskState {
    match does {
        Does::Running => TaskState::Running,
        Does::Device => TaskState::Device,
        Does::Pending => TaskState::Pending,
        Does::Queued => TaskState::Queued,
        Does::QueuedOff => TaskState::QueuedOff,
        Does::CurrentOff => TaskState::CurrentOff,
        Does::Asleep => TaskState::Asleep,
    }
}

/// Where the time of the I/O tasks went since the window was opened; `None` without any.
pub(super) fn io_time(sim: &Sim) -> Option<IoTime> {
    let mut time = IoTime::default();
    for (_, task) in io_tasks(sim) {
        time.threads += 1;
        for does in Does::ALL {
            time.add(state_of(does), task.spent[does as usize]);
        }
    }
    (time.threads > 0).then_some(time)
}

/// A recording that began at `from`, of which `length` counts.
pub(super) fn timeline(sim: &Sim, recording: &Recording, from: Time, length: Ns) -> Timeline {
    let clip = |at: Time| at.since(from).min(length);
    let in_state = |spells: &[VcpuSpell], wanted: State| -> Vec<(Ns, Ns)> {
        let of = spells.iter().filter(|spell| spell.state == wanted);
        let of = of.map(|spell| (clip(spell.from), clip(spell.to)));
        of.filter(|(from, to)| from < to).collect()
    };
    let tid = |task: usize| u32::try_from(task + 1).unwrap_or(u32::MAX);
    let track = |(n, task): (usize, &Task)| {
        let mut spells = Spells::default();
        for spell in recording.tasks.iter().filter(|s| s.task.index() == n) {
            spells.push(Spell {
                state: state_of(spell.does),
                cpu: spell.vcpu.0,
                length: clip(spell.to) - clip(spell.from),
            });
        }
        TaskTrack {
            tid: tid(n),
            name: task.name.clone(),
            spells,
        }
    };
    Timeline {
        from: Ns::ZERO,
        length,
        vcpus: (0..)
            .zip(&recording.vcpus)
            .map(|(id, spells)| VcpuTrack {
                id,
                gaps: in_state(spells, State::Queued),
                halts: in_state(spells, State::Halted),
            })
            .collect(),
        tasks: io_tasks(sim).map(track).collect(),
        moves: recording
            .moves
            .iter()
            .map(|moved| MoveMark {
                at: clip(moved.at),
                cost: moved.took,
                tid: tid(moved.task.index()),
                to: moved.to.0,
                why: word(moved.why).to_owned(),
            })
            .collect(),
    }
}

/// In the words of the daemon's report.
const fn word(why: Why) -> &'static str {
    match why {
        Why::Push => "push",
        Why::Pull => "pull",
        Why::SoonActive => "soon-active",
        Why::Completion => "completion",
        Why::Spread => "spread",
    }
}
