// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One guest: a QEMU process, its deadline and its result.
//!
//! # Approach
//! QEMU runs in a process group of its own that is killed when the [`Guest`]
//! goes, and by the kernel when the thread that booted it dies. The guest
//! reports on two virtio ports backed by files: `out` has what the script
//! printed, `ctl` has `start UPTIME` and `exit CODE UPTIME`. The kernel's own
//! messages go to the serial log, which is kept when something failed.
//!
//! A guest that panics, hangs or is killed never wrote `exit`: that is a
//! [`BootError`] and can be tried again. A script that fails is a result.

use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::process::Pid;
use rustix::process::PidfdFlags;
use rustix::process::Signal;
use rustix::process::kill_process_group;
use rustix::process::pidfd_open;
use thiserror::Error;

use super::Image;
use super::Qemu;
use super::ToolError;
use super::arguments::arguments;
use super::autopsy;
use super::command;
use super::sharing::Sharer;
use super::sharing::Sharing;
use super::words::last_words;
use super::words::parse_ctl;
use crate::child::ends_with_parent;
use crate::scratch::Scratch;

/// How long a guest may print after it got an NMI.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A virtio-blk disk of a guest, one queue per vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// Reads zeroes, forgets writes, answers after `latency_ns` of host time.
    Null {
        /// Size in bytes.
        size: u64,
        /// Host nanoseconds from request to completion.
        latency_ns: u64,
    },
}

/// The machine that a guest gets.
#[derive(Debug, Clone)]
pub struct Options {
    /// The emulator.
    pub qemu: Qemu,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Memory in MiB; the image's files live in it.
    pub memory_mib: u32,
    /// Disks, `/dev/vda` first.
    pub disks: Vec<Disk>,
    /// Added to the kernel's command line.
    pub append: String,
    /// Takes the vCPUs away in turn from when the script asks for it; `None`: as
    /// the host has it.
    pub sharing: Option<Sharing>,
    /// The guest's clock counts instructions, one each nanosecond, and what it does does not
    /// depend on how busy this machine is: a benchmark's time is the instructions that it
    /// took. All vCPUs take turns on one CPU of this machine, so it is slow; one that spins with
    /// PAUSE gives its turn away each time, which is no clock for who waits like that.
    pub counted: bool,
    /// Where the logs of a guest without a result are kept; `None` drops them.
    pub keep_logs: Option<PathBuf>,
}

impl Options {
    /// Two vCPUs, no disk.
    #[must_use]
    pub fn new(qemu: Qemu) -> Self {
        Self {
            qemu,
            vcpus: 2,
            memory_mib: 1024,
            disks: Vec::new(),
            append: String::new(),
            sharing: None,
            counted: false,
            keep_logs: None,
        }
    }
}

/// What a script did in a guest.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code of the script.
    pub exit_code: i32,
    /// All that the script printed, on both standard outputs.
    pub stdout: String,
    /// The kernel's messages.
    pub serial: String,
    /// Guest uptime at which the script started.
    pub boot: Duration,
    /// Guest time that the script took.
    pub script: Duration,
    /// Host time from the start of QEMU to its end.
    pub total: Duration,
    /// How often [`Options::sharing`] took a vCPU away.
    pub gaps: u64,
    /// Why earlier tries gave no result, oldest first; empty if the first did.
    pub failed_tries: Vec<String>,
}

/// A guest gave no result.
#[derive(Debug, Error)]
pub enum BootError {
    /// QEMU is missing or did not start.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// QEMU ended and the script had not.
    #[error("guest {release} ended without a result ({status}){log}; last messages: {tail}")]
    Died {
        /// Kernel release.
        release: String,
        /// Exit status of QEMU in words.
        status: String,
        /// Where the serial log is.
        log: KeptLog,
        /// The end of the serial log and of QEMU's own messages.
        tail: String,
    },
    /// The deadline passed first.
    #[error("guest {release} was still running after {deadline:?}{log}; last messages: {tail}")]
    Deadline {
        /// Kernel release.
        release: String,
        /// What was allowed.
        deadline: Duration,
        /// Where the serial log is.
        log: KeptLog,
        /// The end of the serial log and of QEMU's own messages.
        tail: String,
    },
    /// vCPUs could not be taken away as [`Options::sharing`] says.
    #[error("cannot take the vCPUs of guest {release} away; fix: run as root")]
    Sharing {
        /// Kernel release.
        release: String,
        /// What the system said.
        source: io::Error,
    },
    /// The host could not make or read the guest's files.
    #[error("cannot use {path}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Path of a kept serial log, printed as a half sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLog(pub Option<PathBuf>);

impl std::fmt::Display for KeptLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(path) => write!(f, ", serial log in {}", path.display()),
            None => Ok(()),
        }
    }
}

/// A running guest; killed on drop.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    group: Option<Pid>,
    dir: Scratch,
    release: String,
    started: Instant,
    sharer: Option<Sharer>,
    keep_logs: Option<PathBuf>,
}

impl Guest {
    /// Starts QEMU and returns at once.
    ///
    /// Call [`Guest::run`] from the same thread: QEMU dies with the thread that
    /// started it (`PR_SET_PDEATHSIG`).
    ///
    /// # Errors
    /// QEMU is missing, or the files of the guest cannot be made.
    pub fn boot(image: &Image, options: &Options) -> Result<Self, BootError> {
        let dir = Scratch::new().map_err(io_at(&std::env::temp_dir()))?;
        let stderr_path = dir.path().join("qemu");
        let stderr = File::create(&stderr_path).map_err(io_at(&stderr_path))?;
        let Qemu { program, first } = &options.qemu;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(arguments(image, options, dir.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0);
        ends_with_parent(&mut command, Signal::KILL);
        let child = command
            .spawn()
            .map_err(|err| command::start_error(program, "libc6", err))?;
        let mut guest = Self {
            group: Some(Pid::from_child(&child)),
            child,
            dir,
            release: image.kernel().release().to_owned(),
            started: Instant::now(),
            sharer: None,
            keep_logs: options.keep_logs.clone(),
        };
        if let Some(sharing) = options.sharing {
            let (qemu, out) = (guest.child.id(), guest.dir.path().join("out"));
            let sharer = Sharer::start(sharing, qemu, options.vcpus, out);
            guest.sharer = Some(sharer.map_err(|source| guest.no_sharing(source))?);
        }
        Ok(guest)
    }

    /// Process group of the guest's QEMU.
    pub fn process_group(&self) -> Option<i32> {
        self.group.map(Pid::as_raw_pid)
    }

    /// Waits until the script is through and the guest has powered off.
    ///
    /// # Errors
    /// The guest died or `deadline`, counted from its boot, passed.
    pub fn run(mut self, deadline: Duration) -> Result<Output, BootError> {
        let ended = self.wait_until(self.started + deadline)?;
        let sharing = self.sharer.take().map_or(Ok(0), Sharer::stop);
        if !ended {
            let state = autopsy::examine(self.child.id(), &self.dir.path().join("monitor"));
            // The NMI at its end makes the kernel panic and QEMU end.
            let _ = self.wait_until(Instant::now() + LAST_WORDS)?;
            self.kill();
            return Err(BootError::Deadline {
                release: self.release.clone(),
                deadline,
                log: self.keep_logs(Some(&state)),
                tail: self.tail(),
            });
        }
        let gaps = sharing.map_err(|source| self.no_sharing(source))?;
        let status = self.child.wait().map_err(io_at(self.dir.path()))?;
        self.group = None;
        let total = self.started.elapsed();
        match parse_ctl(&self.read("ctl")) {
            Some((exit_code, boot, script)) => Ok(Output {
                exit_code,
                stdout: self.read("out"),
                serial: self.read("serial"),
                boot,
                script,
                total,
                gaps,
                failed_tries: Vec::new(),
            }),
            None => Err(BootError::Died {
                release: self.release.clone(),
                status: status.to_string(),
                log: self.keep_logs(None),
                tail: self.tail(),
            }),
        }
    }

    /// Boots and runs, again when the guest gave no result, `tries` times at most.
    ///
    /// Every try without a result is reported in [`Output::failed_tries`]: a
    /// guest that needs them is a finding, not noise to be hidden. A script
    /// that fails is not tried again.
    ///
    /// # Errors
    /// The last try's error.
    pub fn run_with_tries(
        image: &Image,
        options: &Options,
        deadline: Duration,
        tries: u32,
    ) -> Result<Output, BootError> {
        let mut failed_tries = Vec::new();
        loop {
            match Self::boot(image, options).and_then(|guest| guest.run(deadline)) {
                Ok(output) => {
                    return Ok(Output {
                        failed_tries,
                        ..output
                    });
                }
                Err(err @ (BootError::Died { .. } | BootError::Deadline { .. })) => {
                    tracing::warn!(try_nr = failed_tries.len() + 1, %err, "guest gave no result");
                    if failed_tries.len() as u64 + 1 >= u64::from(tries) {
                        return Err(err);
                    }
                    failed_tries.push(err.to_string());
                }
                Err(err) => return Err(err),
            }
        }
    }

    /// Whether QEMU ended before `at`.
    fn wait_until(&self, at: Instant) -> Result<bool, BootError> {
        let Some(pid) = self.group else {
            return Ok(true);
        };
        let fd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|err| io_at(Path::new("pidfd"))(err.into()))?;
        loop {
            let left = at.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(err) => return Err(io_at(Path::new("pidfd"))(err.into())),
            }
        }
    }

    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // Not reaped yet, so the number cannot belong to somebody else.
            // An error means that the group is gone, which is what we want.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }

    /// Keeps what a guest without a result said, and what was found out about
    /// it, side by side.
    fn keep_logs(&self, state: Option<&str>) -> KeptLog {
        let kept = self.keep_logs.as_ref().and_then(|dir| {
            fs::create_dir_all(dir).ok()?;
            let stem = dir.join(format!("{}-{}", self.release, self.child.id()));
            let beside = |kind: &str| PathBuf::from(format!("{}.{kind}", stem.display()));
            // The serial log is what matters; a script may have said nothing yet.
            let _ = fs::copy(self.dir.path().join("out"), beside("out"));
            if let Some(state) = state {
                let _ = fs::write(beside("state"), state);
            }
            let path = beside("serial");
            fs::copy(self.dir.path().join("serial"), &path).ok()?;
            Some(path)
        });
        KeptLog(kept)
    }

    fn no_sharing(&self, source: io::Error) -> BootError {
        BootError::Sharing {
            release: self.release.clone(),
            source,
        }
    }

    fn tail(&self) -> String {
        last_words(&format!("{}\n{}", self.read("serial"), self.read("qemu")))
    }

    /// A file of the guest; one that QEMU has not made yet is empty.
    fn read(&self, name: &str) -> String {
        fs::read(self.dir.path().join(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> BootError + use<> {
    let path = path.to_owned();
    move |source| BootError::Io { path, source }
}
