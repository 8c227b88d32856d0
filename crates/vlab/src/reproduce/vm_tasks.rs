// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loads of a scenario's VM as tasks.

use experiment::scenario::Leave as LeaveOf;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use experiment::scenario::Pattern;
use experiment::scenario::Program;
use experiment::scenario::Threads;
use experiment::scenario::Trick;
use experiment::scenario::Vm as VmOf;
use sim::guest::KernelSettings;
use sim::guest::Leave;
use sim::ids::DeviceId;
use sim::program::Alone;
use sim::program::Phases;
use sim::program::ReaderSettings;

use super::mix::Task;
use super::mix::Work;
use super::platforms;
use super::vms::Request;
use crate::run::Unusable;
use crate::sim::platform::Platform;
use crate::sim::profile;

/// Bytes from one VM's region of a disk to the next one's: more than any load's
/// threads have together.
const REGION: u64 = 1 << 44;

/// Makes the tasks of one load in one VM.
pub(super) struct Maker<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) table: &'a VmOf,
    /// The place of the VM.
    pub(super) n: usize,
    pub(super) platform: &'a Platform,
    /// The number of the load's device.
    pub(super) device: u32,
}

impl Maker<'_> {
    /// The tasks; an application also says what its tasks lose when they are moved.
    pub(super) fn tasks(
        &self,
        load: &Load,
        kernel: &mut KernelSettings,
    ) -> anyhow::Result<Vec<Task>> {
        let spec = self.request.scenario.sim.clone().unwrap_or_default();
        let submit = spec.submit.unwrap_or(self.platform.submit);
        let process = spec.process.unwrap_or(self.platform.process);
        let reader = |bytes: u32, span: u64, sequential: bool| ReaderSettings {
            device: DeviceId(self.device),
            depth: 1,
            bytes,
            start: 0,
            span,
            sequential,
            submit,
            process,
            process_spread: self.platform.process_spread,
            further: spec.further.or(self.platform.further),
            write: false,
            phases: None,
        };
        Ok(match &load.kind {
            LoadKind::Idle => Vec::new(),
            LoadKind::Disk {
                pattern,
                queue_depth,
                block_kib,
                file_mib,
                threads,
                burst,
            } => {
                let sequential = *pattern == Pattern::SequentialRead;
                let all = ReaderSettings {
                    depth: *queue_depth,
                    phases: burst.map(|burst| Phases {
                        on: burst.on,
                        off: burst.off,
                    }),
                    ..reader(block_kib * 1024, u64::from(*file_mib) << 20, sequential)
                };
                self.readers(all, &few(*threads), *threads)
            }
            LoadKind::Profile { profile } => {
                let profile = profile::named(profile)?;
                kernel.migration_delay = profile.migration()?;
                let mut all = profile.reader(
                    DeviceId(self.device),
                    0,
                    submit,
                    platforms::count("guest.process_spread_permille")?,
                )?;
                all.start = 0;
                let count = profile.tasks();
                self.readers(all, &few(count), count)
            }
            LoadKind::Simulated { program } => {
                let threads = program.threads();
                let count = threads.count.unwrap_or(self.table.vcpus);
                match self.plain(program) {
                    Some(work) => (0..count)
                        .map(|n| self.task(&threads, n, count, work))
                        .collect(),
                    None => {
                        let block = reader(0, 0, true);
                        self.reader(program, block, &threads, count)
                    }
                }
            }
            LoadKind::Fsync { .. } | LoadKind::Pulse { .. } => {
                return Err(Unusable(format!(
                    "load {}: beside [[vm]] the simulator has neither fsync nor pulse; write kind = \"disk\" or \"reader\"",
                    load.name
                ))
                .into());
            }
        })
    }

    /// The work of programs whose threads are all alike; none for readers.
    fn plain(&self, program: &Program) -> Option<Work> {
        Some(match *program {
            Program::Reader { .. } => return None,
            Program::Echo { work, .. } => Work::Echo(self.device, work),
            Program::Parallel {
                work,
                spread_permille,
                skew_permille,
                spin,
                alone,
                alone_permille,
                leave,
                ..
            } => Work::Parallel {
                length: work,
                spread: spread_permille,
                skew: skew_permille,
                spin,
                alone: Alone::part(alone, alone_permille, work),
                leave: match leave {
                    LeaveOf::AtOnce => Leave::AtOnce,
                    LeaveOf::InTurn => Leave::InTurn,
                },
            },
            Program::Locks {
                work,
                spread_permille,
                hold,
                spin,
                ..
            } => Work::Locks {
                work,
                spread: spread_permille,
                hold,
                spin,
            },
            Program::Compute { .. } => Work::Compute,
            Program::Adversary { trick, .. } => match trick {
                Trick::Dodge { tick, early } => Work::Dodge(tick, early),
                Trick::FakeIo { every } => Work::FakeIo(self.device, every),
            },
        })
    }

    fn reader(
        &self,
        program: &Program,
        usual: ReaderSettings,
        threads: &Threads,
        count: u32,
    ) -> Vec<Task> {
        let Program::Reader {
            sequential,
            write,
            queue_depth,
            block_bytes,
            file_mib,
            burst,
            submit,
            process,
            further,
            spread_permille,
            arrivals,
            start_up,
            ..
        } = program
        else {
            return Vec::new();
        };
        let all = ReaderSettings {
            depth: *queue_depth,
            bytes: *block_bytes,
            span: u64::from(*file_mib) << 20,
            sequential: *sequential,
            submit: submit.unwrap_or(usual.submit),
            process: process.unwrap_or(usual.process),
            further: further.or(usual.further),
            process_spread: spread_permille.unwrap_or(usual.process_spread),
            write: *write,
            phases: burst.map(|burst| Phases {
                on: burst.on,
                off: burst.off,
            }),
            ..usual
        };
        let later: u32 = arrivals.iter().map(|arrival| arrival.threads).sum();
        let mut tasks = self.readers(all, threads, count + later);
        let mut next = count as usize;
        for arrival in arrivals {
            for task in tasks.iter_mut().skip(next).take(arrival.threads as usize) {
                task.at = self.request.opens + arrival.at;
                task.start_up = start_up.unwrap_or_default();
            }
            next += arrival.threads as usize;
        }
        tasks
    }

    /// Readers, each in a region of its own.
    fn readers(&self, all: ReaderSettings, threads: &Threads, count: u32) -> Vec<Task> {
        let one = |n: u32| {
            let start = self.n as u64 * REGION + u64::from(n) * all.span;
            self.task(threads, n, count, Work::Io(ReaderSettings { start, ..all }))
        };
        (0..count).map(one).collect()
    }

    /// The n-th thread of `count`: spread over the vCPUs.
    fn task(&self, threads: &Threads, n: u32, count: u32, work: Work) -> Task {
        let vcpus = self.table.vcpus;
        let place = if count <= vcpus {
            n * (vcpus / count.max(1))
        } else {
            n
        };
        let vcpu = (threads.vcpu + place) % vcpus;
        let task = if threads.pinned {
            Task::pinned(vcpu, work)
        } else {
            Task::on(vcpu, work)
        };
        task.weighing(threads.weight)
    }
}

/// Threads that start on vCPU 0 and may go anywhere.
const fn few(count: u32) -> Threads {
    Threads {
        count: Some(count),
        vcpu: 0,
        pinned: false,
        weight: None,
    }
}
