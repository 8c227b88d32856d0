// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holding threads still: a cgroup whose members run or stand together.
//!
//! # Problem
//! A balloon takes CPU time away from some threads of a vCPU while others run on,
//! and the vCPU must halt meanwhile, or nothing is preserved. Priorities cannot do
//! that: a thread of low priority runs when nobody else does.
//!
//! # Approach
//! cgroup v2, which every kernel has since 5.2 without any controller: a threaded
//! child of the threads' own cgroup, and its file `cgroup.freeze`. Single threads
//! can be held (a process may compute with one and do I/O with another), it takes
//! about 0.1 ms, their parents and debuggers notice nothing, and service managers
//! still find them below their unit.
//!
//! # Undo first
//! The cgroup is its own entry in the journal: it is made before a thread goes
//! there, the kernel keeps it when the daemon is killed, and its name says whose it
//! is. So whatever restores the journal ([`restore_all`]) also gives back what it
//! finds in such cgroups, children of those threads included. None of them outlives
//! a boot.
//!
//! # Rejected
//! `SIGSTOP`: holds whole processes, shows in their parents, and cannot be told
//! from a stop by their owner. ptrace: keeps debuggers out. `SCHED_DEADLINE`:
//! limits a thread, but runs it before everything else. `cpu.max`: needs the
//! controller enabled in cgroups that are not ours.

use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use units::Tid;
use units::VcpuId;

use super::task::Roots;

/// How the names of our cgroups begin; the vCPU's number follows.
const PREFIX: &str = "vmigrater-balloon-";

/// A thread may start another while its balloon is emptied: so often is looked.
const PASSES: usize = 16;

/// Why nothing can be held here.
#[derive(Debug, thiserror::Error)]
pub enum BalloonError {
    /// There is no cgroup v2.
    #[error("mode xballoon needs cgroup v2; mount it, for instance on /sys/fs/cgroup")]
    NoHierarchy,
    /// It cannot be changed.
    #[error(
        "mode xballoon cannot make cgroups in {}: {source}; run as root, and not with protected cgroups",
        path.display()
    )]
    Refused {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The mounted cgroup v2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    root: PathBuf,
    proc: PathBuf,
}

impl Hierarchy {
    /// Finds it; `None` if it is not mounted.
    #[must_use]
    pub fn find(roots: &Roots) -> Option<Self> {
        let mounts = fs::read_to_string(roots.proc.join("self/mountinfo")).ok()?;
        Some(Self {
            root: mount_point(&mounts)?,
            proc: roots.proc.clone(),
        })
    }

    /// Finds it and tries whether it can be changed.
    pub fn open(roots: &Roots) -> Result<Self, BalloonError> {
        let hierarchy = Self::find(roots).ok_or(BalloonError::NoHierarchy)?;
        let probe = hierarchy.root.join(format!("{PREFIX}probe"));
        Balloon::make_at(probe)
            .and_then(|balloon| balloon.dissolve().map(drop))
            .map_err(|source| BalloonError::Refused {
                path: hierarchy.root.clone(),
                source,
            })?;
        Ok(hierarchy)
    }

    /// The cgroup of a thread, its balloon left out; an error if it has ended or
    /// its cgroup is not in sight.
    pub fn group_of(&self, tid: Tid) -> io::Result<PathBuf> {
        let text = fs::read_to_string(self.proc.join(format!("{}/cgroup", tid.0)))?;
        let path = group_in(&text).ok_or(io::ErrorKind::NotFound)?;
        let group = self.root.join(path.trim_start_matches('/'));
        Ok(if is_ours(&group) {
            group.parent().map_or(group.clone(), Path::to_owned)
        } else {
            group
        })
    }
}

/// Where the first cgroup v2 of a `mountinfo` is mounted.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split_whitespace().nth(4)?;
        (right.split_whitespace().next() == Some("cgroup2")).then(|| point.into())
    })
}

/// The cgroup v2 path of a `/proc/<tid>/cgroup`; none if it is outside of what
/// this process can see.
fn group_in(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    (!path.split('/').any(|part| part == "..")).then_some(path)
}

fn is_ours(dir: &Path) -> bool {
    dir.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(PREFIX))
}

/// One balloon: threads of one cgroup that share a vCPU.
#[derive(Debug)]
pub struct Balloon {
    dir: PathBuf,
    freeze: File,
    held: AtomicBool,
}

impl Balloon {
    /// Makes one below `group`, or takes the one that is there. Nobody is in it
    /// and nobody is held.
    pub fn make(group: &Path, vcpu: VcpuId) -> io::Result<Self> {
        Self::make_at(group.join(format!("{PREFIX}{vcpu}")))
    }

    fn make_at(dir: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let made = fs::write(dir.join("cgroup.type"), "threaded").and_then(|()| Self::at(&dir));
        if made.is_err() {
            // It would say that we hold somebody.
            let _ = fs::remove_dir(&dir);
        }
        made
    }

    fn at(dir: &Path) -> io::Result<Self> {
        let freeze = File::options()
            .write(true)
            .open(dir.join("cgroup.freeze"))?;
        Ok(Self {
            dir: dir.to_owned(),
            freeze,
            held: AtomicBool::new(false),
        })
    }

    /// The cgroup from which its threads come.
    #[must_use]
    pub fn group(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// Holds its threads, or lets them run. Free if that is so already.
    pub fn hold(&self, hold: bool) -> io::Result<()> {
        if self.held.swap(hold, Ordering::AcqRel) == hold {
            return Ok(());
        }
        let done = self.write_freeze(hold);
        if done.is_err() {
            self.held.store(!hold, Ordering::Release);
        }
        done
    }

    fn write_freeze(&self, hold: bool) -> io::Result<()> {
        self.freeze.write_all_at(if hold { b"1" } else { b"0" }, 0)
    }

    /// Takes a thread in.
    pub fn take(&self, tid: Tid) -> io::Result<()> {
        put(&self.dir, tid)
    }

    /// Gives a thread back to its cgroup; it runs on at once.
    pub fn give_back(&self, tid: Tid) -> io::Result<()> {
        put(self.group(), tid)
    }

    /// Who is in it.
    pub fn members(&self) -> io::Result<Vec<Tid>> {
        let text = fs::read_to_string(self.dir.join("cgroup.threads"))?;
        Ok(text
            .lines()
            .filter_map(|line| line.parse().ok())
            .map(Tid)
            .collect())
    }

    /// Lets everybody run, gives them back and removes the cgroup. Returns how
    /// many threads that were.
    pub fn dissolve(&self) -> io::Result<u64> {
        // Whatever `held` says: after a crash it knows nothing.
        self.write_freeze(false)?;
        self.held.store(false, Ordering::Release);
        let mut given = 0;
        for _ in 0..PASSES {
            let mut failed = None;
            let members = self.members()?;
            for tid in members {
                match self.give_back(tid) {
                    Ok(()) => given += 1,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => failed = Some(error),
                }
            }
            match fs::remove_dir(&self.dir) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    if let Some(error) = failed {
                        return Err(error);
                    }
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => return Ok(given),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }
}

/// Moves one thread into a cgroup.
fn put(dir: &Path, tid: Tid) -> io::Result<()> {
    fs::write(dir.join("cgroup.threads"), tid.0.to_string())
}

/// What a look for left balloons has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Threads given back.
    pub restored: u64,
    /// Balloons that could not be emptied.
    pub failed: u64,
}

/// Gives back everybody who is in a balloon, whoever made it. To be called only
/// while no daemon is at work. Idempotent.
#[must_use]
pub fn restore_all(roots: &Roots) -> Left {
    let mut left = Left::default();
    let Some(hierarchy) = Hierarchy::find(roots) else {
        return left;
    };
    let mut todo = vec![hierarchy.root];
    while let Some(dir) = todo.pop() {
        // A cgroup that went away meanwhile had nobody in it.
        let children = fs::read_dir(&dir).into_iter().flatten().flatten();
        for child in children.filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = child.path();
            if !is_ours(&path) {
                todo.push(path);
                continue;
            }
            match Balloon::at(&path).and_then(|balloon| balloon.dissolve()) {
                Ok(given) => left.restored += given,
                Err(error) => {
                    tracing::error!(
                        "cannot give back the threads in {}: {error}",
                        path.display()
                    );
                    left.failed += 1;
                }
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_among_other_mounts() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw\n\
            32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("garbage\n"), None);
    }

    #[test]
    fn a_thread_outside_of_our_sight_is_nobodys() {
        let path = |text| group_in(text).map(str::to_owned);
        assert_eq!(path("9:cpu:/x\n0::/a.slice\n").as_deref(), Some("/a.slice"));
        assert_eq!(path("0::/../other\n"), None);
        assert_eq!(path("9:cpu:/x\n"), None);
    }

    #[test]
    fn our_cgroups_are_known_by_their_name() {
        assert!(is_ours(Path::new("/x/vmigrater-balloon-3")));
        assert!(!is_ours(Path::new("/vmigrater-balloon-3/x")));
        assert!(!is_ours(Path::new("/")));
    }

    /// Needs root, freezes nothing: one thread of this process stands still.
    #[test]
    fn root_a_held_thread_stands_still_and_its_neighbour_does_not() {
        use std::sync::atomic::AtomicU64;
        use std::time::Duration;
        use std::time::Instant;

        let hierarchy = Hierarchy::open(&Roots::default()).unwrap();
        static COUNTS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        static TIDS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        static STOP: AtomicBool = AtomicBool::new(false);
        let threads: Vec<_> = [0, 1]
            .map(|i| {
                std::thread::spawn(move || {
                    let tid = rustix::thread::gettid().as_raw_nonzero().get();
                    TIDS[i].store(u64::from(tid.unsigned_abs()), Ordering::Release);
                    while !STOP.load(Ordering::Relaxed) {
                        COUNTS[i].fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(100));
                    }
                })
            })
            .into();
        let wait = |what: &str, mut is: Box<dyn FnMut() -> bool>| {
            let end = Instant::now() + Duration::from_secs(10);
            while !is() {
                assert!(Instant::now() < end, "{what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait(
            "both run",
            Box::new(|| COUNTS.iter().all(|n| n.load(Ordering::Relaxed) > 0)),
        );
        let tid = Tid(TIDS[0].load(Ordering::Acquire) as u32);
        let home = hierarchy.group_of(tid).unwrap();
        let balloon = Balloon::make(&home, VcpuId(999)).unwrap();
        balloon.take(tid).unwrap();
        assert_eq!(hierarchy.group_of(tid).unwrap(), home);
        balloon.hold(true).unwrap();
        let events = balloon.dir.join("cgroup.events");
        wait(
            "frozen",
            Box::new(|| fs::read_to_string(&events).unwrap().contains("frozen 1")),
        );
        let before = [0, 1].map(|i: usize| COUNTS[i].load(Ordering::Relaxed));
        wait(
            "the neighbour runs on",
            Box::new(move || COUNTS[1].load(Ordering::Relaxed) > before[1] + 20),
        );
        assert_eq!(COUNTS[0].load(Ordering::Relaxed), before[0]);
        // As after a crash: nobody knows the balloon but the kernel.
        drop(balloon);
        let left = restore_all(&Roots::default());
        assert_eq!((left.failed, left.restored >= 1), (0, true), "{left:?}");
        wait(
            "it runs again",
            Box::new(move || COUNTS[0].load(Ordering::Relaxed) > before[0] + 20),
        );
        assert!(!home.join(format!("{PREFIX}999")).exists());
        STOP.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}
