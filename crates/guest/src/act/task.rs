// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `/proc` says about a thread.

use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use units::CpuSet;
use units::TaskKey;
use units::Tid;
use units::VcpuId;

use super::sched;

/// Why a thread's facts could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// There is no such thread any more, or its id belongs to another one.
    #[error("thread {key} is gone")]
    Gone {
        /// The thread that was asked for.
        key: TaskKey,
    },
    /// A file of the thread cannot be read.
    #[error(
        "cannot read {name} of thread {tid}: {source}; see whether /proc is mounted with hidepid"
    )]
    Read {
        /// The thread.
        tid: Tid,
        /// The file below `/proc/<tid>`.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A file of the thread does not look as it should.
    #[error("{name} of thread {tid} has no usable {field}")]
    Format {
        /// The thread.
        tid: Tid,
        /// The file below `/proc/<tid>`.
        name: &'static str,
        /// What was looked for.
        field: &'static str,
    },
}

/// Where `/proc` and `/sys` are: a test brings its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Usually `/proc`.
    pub proc: PathBuf,
    /// Usually `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
        }
    }
}

/// What matters of `/proc/<tid>/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Thread name.
    pub comm: String,
    /// Parent process.
    pub ppid: u32,
    /// Process group; 0 of a thread that is just being taken apart, for which
    /// the kernel prints -1.
    pub group: u32,
    /// Session; 0 likewise.
    pub session: u32,
    /// `PF_*` of the kernel.
    pub flags: u32,
    /// Start, in clock ticks since boot: the second half of a [`TaskKey`].
    pub start_ticks: u64,
    /// `SCHED_*`.
    pub policy: u32,
}

/// `PF_KTHREAD` of `include/linux/sched.h`; part of the interface of
/// `/proc/<tid>/stat`, unchanged since 2.6.27.
const PF_KTHREAD: u32 = 0x0020_0000;
/// `PF_NO_SETAFFINITY`, likewise, since 3.12: the kernel refuses any change.
const PF_NO_SETAFFINITY: u32 = 0x0400_0000;

impl Stat {
    /// Is it a thread of the kernel?
    pub(crate) const fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Is its policy one that runs in turn with others?
    pub(crate) const fn is_fair(&self) -> bool {
        matches!(
            self.policy,
            sched::SCHED_OTHER | sched::SCHED_BATCH | sched::SCHED_IDLE
        )
    }

    /// Takes a line of `/proc/<tid>/stat` apart. `None` if it is cut short.
    ///
    /// The name may contain blanks and parentheses, so the fields are counted
    /// from the last one. The procfs crate is not used here: it slices past
    /// the end of a line that is cut short, and a daemon must not panic.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let open = line.find('(')?;
        let close = line.rfind(')')?;
        let comm = line.get(open + 1..close)?.to_owned();
        // Field 3, the state, comes first here.
        let field = |n: usize| line.get(close + 1..)?.split_ascii_whitespace().nth(n - 3);
        Some(Self {
            comm,
            ppid: field(4)?.parse().ok()?,
            group: field(5)?.parse::<i32>().ok()?.max(0).cast_unsigned(),
            session: field(6)?.parse::<i32>().ok()?.max(0).cast_unsigned(),
            flags: field(9)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
        })
    }
}

/// What is known about a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The thread.
    pub key: TaskKey,
    /// Its process.
    pub tgid: u32,
    /// The parent of its process.
    pub ppid: u32,
    /// Its name.
    pub comm: String,
    /// `PF_*` of the kernel.
    pub flags: u32,
    /// `SCHED_*`.
    pub policy: u32,
    /// Its owner's mask, offline CPUs included.
    pub mask: CpuSet,
}

impl Facts {
    /// Is it a thread of the kernel?
    #[must_use]
    pub const fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Does the kernel refuse to change its mask?
    #[must_use]
    pub const fn is_immovable(&self) -> bool {
        self.flags & PF_NO_SETAFFINITY != 0
    }
}

/// One thread's directory in `/proc`, kept open. The kernel ties it to that
/// very thread, so that nothing read through it can come from a later thread
/// with the same id.
#[derive(Debug)]
pub struct TaskDir {
    tid: Tid,
    dir: OwnedFd,
}

impl TaskDir {
    /// Opens the directory of whatever thread has this id now.
    pub fn open(roots: &Roots, tid: Tid) -> Result<Self, TaskError> {
        let path = roots.proc.join(tid.0.to_string());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| read_error(tid, "its directory", error.into()))?;
        Ok(Self { tid, dir })
    }

    /// Opens one of the thread's files.
    pub fn file(&self, name: &'static str) -> Result<File, TaskError> {
        rustix::fs::openat(
            self.dir.as_fd(),
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(File::from)
        .map_err(|error| read_error(self.tid, name, error.into()))
    }

    /// Reads one of the thread's files. Names may be any bytes; what is not
    /// UTF-8 is replaced.
    pub fn text(&self, name: &'static str) -> Result<String, TaskError> {
        let mut bytes = Vec::with_capacity(2048);
        self.file(name)?
            .read_to_end(&mut bytes)
            .map_err(|error| read_error(self.tid, name, error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads `stat`.
    pub fn stat(&self) -> Result<Stat, TaskError> {
        Stat::parse(&self.text("stat")?).ok_or(TaskError::Format {
            tid: self.tid,
            name: "stat",
            field: "line",
        })
    }

    /// Reads everything.
    pub fn facts(&self) -> Result<Facts, TaskError> {
        let stat = self.stat()?;
        let status = self.text("status")?;
        let field = |name: &'static str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
                .ok_or(TaskError::Format {
                    tid: self.tid,
                    name: "status",
                    field: name,
                })
        };
        let bad = |field| TaskError::Format {
            tid: self.tid,
            name: "status",
            field,
        };
        Ok(Facts {
            key: TaskKey {
                tid: self.tid,
                start_ticks: stat.start_ticks,
            },
            tgid: field("Tgid")?.parse().map_err(|_| bad("Tgid"))?,
            mask: field("Cpus_allowed_list")?
                .parse()
                .map_err(|_| bad("Cpus_allowed_list"))?,
            ppid: stat.ppid,
            comm: stat.comm,
            flags: stat.flags,
            policy: stat.policy,
        })
    }
}

fn read_error(tid: Tid, name: &'static str, source: io::Error) -> TaskError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => TaskError::Gone {
            key: TaskKey {
                tid,
                start_ticks: 0,
            },
        },
        _ => TaskError::Read { tid, name, source },
    }
}

impl Roots {
    /// The facts of that thread and of no other.
    pub fn facts(&self, key: TaskKey) -> Result<(TaskDir, Facts), TaskError> {
        let gone = |error| match error {
            TaskError::Gone { .. } => TaskError::Gone { key },
            other => other,
        };
        let dir = TaskDir::open(self, key.tid).map_err(gone)?;
        let facts = dir.facts().map_err(gone)?;
        if facts.key == key {
            Ok((dir, facts))
        } else {
            Err(TaskError::Gone { key })
        }
    }

    /// The key of whatever thread has this id now.
    pub fn key(&self, tid: Tid) -> Result<TaskKey, TaskError> {
        let stat = TaskDir::open(self, tid)?.stat()?;
        Ok(TaskKey {
            tid,
            start_ticks: stat.start_ticks,
        })
    }

    /// The CPUs that are online; `None` if the machine does not say.
    #[must_use]
    pub fn online(&self) -> Option<CpuSet> {
        read_set(&self.sys.join("devices/system/cpu/online"))
    }

    /// Those of `cpus` that are offline, or on their way there or back. A CPU takes no
    /// more threads some milliseconds before `online` says so (`sched_cpu_deactivate`,
    /// kernel/sched/core.c); its hotplug state is lower than that of a running CPU then.
    /// Of those there is always one. The one that the caller runs on may be the very CPU
    /// that goes: threads stay there until they are next scheduled.
    #[must_use]
    pub(crate) fn not_up(&self, cpus: &CpuSet) -> CpuSet {
        let Some(online) = self.online() else {
            return CpuSet::default();
        };
        let state = |cpu: VcpuId| -> Option<u32> {
            let file = format!("devices/system/cpu/cpu{cpu}/hotplug/state");
            let text = std::fs::read_to_string(self.sys.join(file)).ok()?;
            text.trim().parse().ok()
        };
        let running = online.iter().filter_map(state).max();
        cpus.iter()
            .filter(|cpu| {
                !online.contains(*cpu)
                    || matches!((running, state(*cpu)), (Some(up), Some(now)) if now != up)
            })
            .collect()
    }

    /// What is another number each time that this CPU has come up; `None` while it is away,
    /// and where the machine does not say.
    ///
    /// It is that of a directory which the kernel removes when the CPU goes and makes when
    /// it comes (`topology_remove_dev` and `topology_add_dev`, drivers/base/topology.c), and
    /// kernfs numbers what it makes in order (`__kernfs_new_node`, fs/kernfs/dir.c). There
    /// is a count, `/sys/kernel/sched_ext/hotplug_seq`, but not on every kernel.
    pub(crate) fn came_up(&self, cpu: VcpuId) -> Option<u64> {
        let made_anew = format!("devices/system/cpu/cpu{cpu}/topology");
        let metadata = std::fs::metadata(self.sys.join(made_anew)).ok()?;
        Some(metadata.ino())
    }

    /// The CPUs that the thread's cpuset permits and that are online; `None`
    /// if neither can be told.
    #[must_use]
    pub fn permitted(&self, dir: &TaskDir) -> Option<CpuSet> {
        match (self.cpuset(dir), self.online()) {
            (Some(cpuset), Some(online)) => Some(cpuset.and(&online)),
            (cpuset, online) => cpuset.or(online),
        }
    }

    /// The CPUs of the cpuset that applies to the thread, where cgroup v2 or v1 is mounted
    /// at its usual place.
    ///
    /// `/proc/<tid>/cgroup` has a line for each hierarchy, `number:controllers:path`, with
    /// no controllers for v2. There a group without a cpuset of its own has that of the next
    /// one above. Not `/proc/<tid>/cpuset`, which names the right group at once: newer
    /// kernels than 6.12 have it only with cpusets of v1 (`PROC_PID_CPUSET`, init/Kconfig),
    /// so Debian's 7.3 has not.
    fn cpuset(&self, dir: &TaskDir) -> Option<CpuSet> {
        let text = dir.text("cgroup").ok()?;
        let group = |wanted: fn(&str) -> bool| {
            text.lines()
                .filter_map(|line| line.split_once(':')?.1.split_once(':'))
                .find(|(controllers, _)| wanted(controllers))
                .map(|(_, path)| Path::new(path.trim_start_matches('/')))
        };
        let cgroup = self.sys.join("fs/cgroup");
        if let Some(group) = group(|all| all.split(',').any(|one| one == "cpuset")) {
            let group = cgroup.join("cpuset").join(group);
            return read_set(&group.join("cpuset.effective_cpus"));
        }
        let group = group(str::is_empty)?;
        [cgroup.clone(), cgroup.join("unified")]
            .iter()
            .find_map(|root| {
                let mut groups = group.ancestors();
                groups.find_map(|group| read_set(&root.join(group).join("cpuset.cpus.effective")))
            })
    }

    /// The id that was given to a new thread last. If it has not changed, no
    /// thread has been started anywhere since.
    pub(crate) fn last_tid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.proc.join("loadavg")).ok()?;
        text.split_ascii_whitespace().nth(4)?.parse().ok()
    }

    /// This boot's identity, 128 bits.
    pub(crate) fn boot_id(&self) -> io::Result<[u64; 2]> {
        let path = self.proc.join("sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(path)?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let id = u128::from_str_radix(&digits, 16)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok([(id >> 64) as u64, id as u64])
    }
}

fn read_set(path: &Path) -> Option<CpuSet> {
    std::fs::read_to_string(path)
        .ok()?
        .parse()
        .ok()
        .filter(|set: &CpuSet| !set.is_empty())
}

#[cfg(test)]
mod tests;
