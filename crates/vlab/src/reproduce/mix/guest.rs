// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM's guest: its tasks, what each of them does, and its daemon.

use policy::guest::xballoon;
use sim::guest::Class;
use sim::guest::Guest;
use sim::guest::Knowledge;
use sim::guest::Migrater;
use sim::guest::NewTask;
use sim::ids::Vcpu;
use sim::ids::VmId;
use sim::program::Backend;
use sim::program::Compute;
use sim::program::Dodger;
use sim::program::Echo;
use sim::program::FakeIo;
use sim::program::Later;
use sim::program::Locked;
use sim::program::Parallel;
use sim::program::Program;
use sim::program::Reader;
use sim::program::Until;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use super::BACKEND;
use super::COMPUTE;
use super::Daemon;
use super::ECHO;
use super::IO;
use super::PARALLEL;
use super::Task;
use super::UNIT;
use super::Vm;
use super::Work;

pub(super) fn guest(vm: &Vm, id: VmId, first: Vcpu, seed: u64) -> Guest {
    let mut guest = Guest::new(id, first, vm.vcpus, vm.kernel, seed);
    let parallel = |task: &&Task| matches!(task.work, Work::Parallel { .. });
    let meet = || vm.tasks.iter().filter(parallel);
    let leave = meet().find_map(|task| match task.work {
        Work::Parallel { leave, .. } => Some(leave),
        _ => None,
    });
    guest.add_barrier(meet().count() as u32, leave.unwrap_or_default());
    guest.add_lock();
    let mut compute = Vec::new();
    let leader = vm.tasks.iter().position(|task| parallel(&task));
    for (n, task) in vm.tasks.iter().enumerate() {
        let (group, program) = program(task, leader == Some(n));
        let added = guest.add(NewTask {
            name: format!("{group}"),
            group: task.group.unwrap_or(group),
            class: if task.fifo {
                Class::Fifo
            } else {
                Class::Fair(task.weight)
            },
            mask: if task.pinned {
                CpuSet::only(VcpuId(task.vcpu))
            } else {
                CpuSet::first(vm.vcpus)
            },
            vcpu: VcpuId(task.vcpu % vm.vcpus.max(1)),
            program,
        });
        if group == COMPUTE || group == PARALLEL {
            compute.push(added);
        }
    }
    match &vm.daemon {
        Daemon::None => {}
        Daemon::Vmigrater(settings) => {
            guest.set_migrater(Migrater::new((**settings).clone(), vm.vcpus, vm.completion));
        }
        Daemon::Balloon(settings) => {
            guest.set_xballoon(xballoon::Settings::default(), (**settings).clone());
        }
        Daemon::Xballoon(settings) => {
            let mut settings = (**settings).clone();
            if let Knowledge::Told(told) = &mut settings.knowledge {
                told.compute = compute;
            }
            guest.set_balloon(settings);
        }
    }
    guest
}

/// `first`: it is the first thread of its VM that meets others.
fn program(task: &Task, first: bool) -> (u32, Box<dyn Program>) {
    let (group, program): (u32, Box<dyn Program>) = match task.work {
        Work::Compute => (COMPUTE, Box::new(Compute::new(UNIT))),
        Work::Io(settings) => (IO, Box::new(Reader::new(settings))),
        Work::Echo(device, work) => {
            let echo = Echo::new(sim::ids::DeviceId(device), 64, work);
            (ECHO, Box::new(echo))
        }
        Work::Parallel {
            length,
            spread,
            skew,
            spin,
            alone,
            leave: _,
        } => {
            let program = Parallel::new(length, spread, spin).uneven(skew);
            (PARALLEL, Box::new(program.with(alone, first)))
        }
        Work::Backend { work, copies } => (BACKEND, Box::new(Backend::new(work, copies))),
        Work::Locks {
            work,
            spread,
            hold,
            spin,
        } => (PARALLEL, Box::new(Locked::new(0, work, spread, hold, spin))),
        Work::Dodge(tick, early) => (COMPUTE, Box::new(Dodger::new(tick, early))),
        Work::FakeIo(device, every) => (
            COMPUTE,
            Box::new(FakeIo::new(sim::ids::DeviceId(device), every)),
        ),
    };
    let program = match task.until {
        None => program,
        Some(end) => Box::new(Until::new(end, program)),
    };
    if task.at == Ns::ZERO && task.start_up == Ns::ZERO {
        (group, program)
    } else {
        let later = Later::new(task.at, task.start_up, program);
        (group, Box::new(later))
    }
}
