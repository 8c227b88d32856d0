// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Children that cannot survive the run.
//!
//! Each child leads a process group of its own, so that Ctrl-C at the terminal
//! reaches only us (we end the children in order), and so that its children end
//! with it. If we die without a chance to clean up, the kernel sends the child
//! the signal that ends it.

use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;

use anyhow::Context;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::WaitId;
use rustix::process::WaitIdOptions;
use rustix::process::WaitIdStatus;
use units::Ns;
use units::Time;

use super::interrupt::Interrupt;
use super::interrupt::Waited;
use crate::child::ends_with_parent;
use crate::load::now;

/// How long a child may take to end after it was asked to. In a guest of an emulated host
/// 10 s were too few for the daemon, which waits for the kernel to detach its programs.
const PATIENCE: Ns = Ns::from_secs(60);

/// A child with its process group.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    group: Pid,
    end: Signal,
    errors: File,
    buffer: Vec<u8>,
    /// It knows that it is to end.
    asked: bool,
    reaped: bool,
}

impl Process {
    /// Starts one. `end` is the signal that asks it to end.
    ///
    /// Must be called on the thread that lives as long as the run: the kernel
    /// takes the end of that *thread* for the parent's death.
    pub(super) fn spawn(
        name: &str,
        program: &std::ffi::OsStr,
        arguments: &[String],
        end: Signal,
    ) -> anyhow::Result<Self> {
        Self::start(name, program, arguments, end, Talk::Protocol)
    }

    /// The same for a program that nobody talks to: it reads nothing, and
    /// whatever it prints is only for our error messages.
    pub(super) fn spawn_silent(
        name: &str,
        program: &std::ffi::OsStr,
        arguments: &[String],
        end: Signal,
    ) -> anyhow::Result<Self> {
        Self::start(name, program, arguments, end, Talk::Nobody)
    }

    fn start(
        name: &str,
        program: &std::ffi::OsStr,
        arguments: &[String],
        end: Signal,
        talk: Talk,
    ) -> anyhow::Result<Self> {
        let errors = unnamed_file().context("cannot make a file for a child's messages")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stderr(errors.try_clone()?)
            .process_group(0);
        match talk {
            Talk::Protocol => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
            Talk::Nobody => command.stdin(Stdio::null()).stdout(errors.try_clone()?),
        };
        ends_with_parent(&mut command, end);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
        let group = Pid::from_child(&child);
        Ok(Self {
            name: name.to_owned(),
            child,
            group,
            end,
            errors,
            buffer: Vec::new(),
            asked: false,
            reaped: false,
        })
    }

    /// Its process id, which is also its group's.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it ended by itself?
    pub(super) fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.reaped |= status.is_some();
        Ok(status)
    }

    /// Has it ended by itself? It stays a zombie, so that its group's id remains
    /// its own.
    pub(super) fn has_ended_in_place(&self) -> io::Result<Option<WaitIdStatus>> {
        if self.reaped {
            return Ok(None);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(rustix::process::waitid(WaitId::Pid(self.group), options)?)
    }

    /// Sends it a line.
    pub(super) fn write_line(&mut self, line: &str) -> anyhow::Result<()> {
        let stdin = self
            .child
            .stdin
            .as_mut()
            .context("a child's input is closed")?;
        stdin
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot talk to {}", self.name))
    }

    /// The next line that it prints.
    pub(super) fn read_line(
        &mut self,
        interrupt: &Interrupt,
        until: Time,
    ) -> anyhow::Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.read_some(interrupt, until)? == 0 {
                anyhow::bail!("{} ended without an answer{}", self.name, self.last_words());
            }
        }
    }

    /// Everything that it prints until it closes its output.
    pub(super) fn read_to_end(
        &mut self,
        interrupt: &Interrupt,
        until: Time,
    ) -> anyhow::Result<String> {
        while self.read_some(interrupt, until)? > 0 {}
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned())
    }

    fn read_some(&mut self, interrupt: &Interrupt, until: Time) -> anyhow::Result<usize> {
        let stdout = self
            .child
            .stdout
            .as_mut()
            .context("a child's output is closed")?;
        if interrupt.wait_readable(&*stdout, until)? == Waited::Elapsed {
            anyhow::bail!("{} does not answer{}", self.name, self.last_words());
        }
        let mut chunk = [0; 4096];
        let n = stdout
            .read(&mut chunk)
            .with_context(|| format!("cannot read from {}", self.name))?;
        self.buffer.extend_from_slice(&chunk[..n]);
        Ok(n)
    }

    /// Asks it to end, without waiting. The second time does nothing.
    pub(super) fn ask_to_end(&mut self) {
        if !self.reaped && !self.asked {
            self.asked = true;
            // It may have ended already.
            let _ = rustix::process::kill_process(self.group, self.end);
        }
    }

    /// The same for one that a line ends.
    pub(super) fn ask_to_end_by(&mut self, line: &str) -> anyhow::Result<()> {
        if !self.asked {
            self.asked = true;
            self.write_line(line)?;
        }
        Ok(())
    }

    /// Asks it to end and waits; what is left of its group is killed.
    pub(super) fn end(mut self, interrupt: &Interrupt) -> anyhow::Result<ExitStatus> {
        self.ask_to_end();
        let give_up = now() + PATIENCE;
        loop {
            if let Some(status) = self.has_ended()? {
                return Ok(status);
            }
            anyhow::ensure!(
                now() < give_up,
                "{} does not end when asked to{}",
                self.name,
                self.last_words()
            );
            interrupt.sleep(Ns::from_ms(2))?;
        }
    }

    /// Asks its whole group to end, waits until the last of it has, and kills
    /// what is left when patience is over: a command may have started others.
    pub(super) fn end_group(self, interrupt: &Interrupt) -> anyhow::Result<()> {
        self.end_group_within(interrupt, PATIENCE)
    }

    fn end_group_within(mut self, interrupt: &Interrupt, patience: Ns) -> anyhow::Result<()> {
        // The leader is reaped last: until then the group's id cannot be
        // somebody else's.
        let _ = rustix::process::kill_process_group(self.group, self.end);
        let give_up = now() + patience;
        while self.group_lives() {
            if now() >= give_up {
                let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
                break;
            }
            interrupt.sleep(Ns::from_ms(2))?;
        }
        self.child.wait().context("cannot wait for a child")?;
        self.reaped = true;
        Ok(())
    }

    /// Is anybody in its group who has not ended?
    fn group_lives(&self) -> bool {
        let group = self.group.as_raw_nonzero().get();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
            .any(|stat| is_alive_in(&stat, group))
    }

    /// What it has said on its standard error so far.
    ///
    /// By offset: the descriptor's position is shared with the child, which must
    /// go on writing at the end.
    pub(super) fn messages(&self) -> String {
        let length = self.errors.metadata().map_or(0, |file| file.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        match self.errors.read_exact_at(&mut bytes, 0) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// The last line of its error messages, for ours.
    pub(super) fn last_words(&self) -> String {
        let text = self.messages();
        let last: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        match last.as_slice() {
            [] => String::new(),
            lines => format!(
                "; its last words: {}",
                lines[lines.len().saturating_sub(3)..].join(" / ")
            ),
        }
    }
}

/// Whether a child speaks the loads' protocol.
#[derive(Clone, Copy, Debug)]
enum Talk {
    Protocol,
    Nobody,
}

/// Does a line of `/proc/PID/stat` tell of a process of this group that has not
/// ended? The name in parentheses may contain anything.
fn is_alive_in(stat: &str, group: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(") ") else {
        return false;
    };
    let mut fields = rest.split_whitespace();
    let state = fields.next();
    let its_group = fields.nth(1).and_then(|word| word.parse::<i32>().ok());
    its_group == Some(group) && !matches!(state, Some("Z" | "X"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // Politely first, since a daemon has to put things back; then the whole
        // group. A reaped leader's id may be another process's by now, so its
        // group is only touched while it is still ours.
        if self.reaped {
            return;
        }
        // Also one that a line should have ended.
        let _ = rustix::process::kill_process(self.group, self.end);
        let give_up = now() + PATIENCE;
        while now() < give_up && matches!(self.has_ended_in_place(), Ok(None)) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A file without a name in memory.
fn unnamed_file() -> io::Result<File> {
    let fd = rustix::fs::memfd_create("vlab-child-errors", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_are_told_from_others_and_from_the_dead() {
        let stat = |name: &str, state: &str, group: i32| {
            format!("77 ({name}) {state} 1 {group} 5 0 -1 4194560\n")
        };
        assert!(is_alive_in(&stat("a", "S", 42), 42));
        assert!(is_alive_in(&stat("a) Z 1 7", "R", 42), 42));
        assert!(!is_alive_in(&stat("a", "Z", 42), 42));
        assert!(!is_alive_in(&stat("a", "S", 41), 42));
        assert!(!is_alive_in("", 42));
    }

    #[test]
    fn a_command_ends_with_everything_that_it_started() {
        let interrupt = Interrupt::catch().unwrap();
        // The leader ends by itself and leaves two behind, one of which ignores
        // the signal.
        let script = "sleep 100 & sh -c 'trap \"\" TERM; echo ready >&2; while :; do sleep 0.05; done' & exit 0";
        let arguments = ["-c".to_owned(), script.to_owned()];
        let process =
            Process::spawn_silent("a test", "sh".as_ref(), &arguments, Signal::TERM).unwrap();
        let group = process.pid().cast_signed();
        let give_up = now() + PATIENCE;
        while !process.last_words().contains("ready") {
            assert!(now() < give_up, "it does not start");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(process.group_lives());
        process
            .end_group_within(&interrupt, Ns::from_ms(300))
            .unwrap();
        let gone = || {
            !std::fs::read_dir("/proc")
                .unwrap()
                .flatten()
                .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
                .any(|stat| is_alive_in(&stat, group))
        };
        while !gone() {
            assert!(now() < give_up, "some of the group are left");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}
