// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The KVM host of a lab: this machine if it can, else an emulated one.

use std::fs;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use rustix::process::Pid;
use rustix::process::Signal;
use tempfile::TempDir;
use units::Ns;

use super::protocol::FromHost;
use super::protocol::ToHost;
use super::protocol::receive;
use super::protocol::send;
use crate::child::ends_with_parent;
use crate::load::now;
use crate::run::Interrupted;
use crate::run::Unusable;
use crate::run::interrupt::Interrupt;
use crate::run::interrupt::Waited;
use crate::vm::Image;
use crate::vm::autopsy;
use crate::vm::autopsy::SPEAKING;

/// What `/proc/PID/fd` shows for a vCPU, before its number.
const VCPU: &str = "anon_inode:kvm-vcpu";

/// How long the try to boot under this machine's KVM may take.
const PROBE: Duration = Duration::from_secs(15);

/// How long this machine's host may take to undo what it did to this machine: its scheduler
/// has 5 s, a question to a guest is given up at once.
const UNDO: Duration = Duration::from_secs(20);

/// How long a host may take to say its last words.
const LAST_WORDS: Duration = Duration::from_secs(8);

/// How long one that did not may take to print the traces of its CPUs.
const TRACES: Duration = Duration::from_secs(6);

/// For the emulated host. The clock is the real machine's TSC, whose rate the
/// kernel would otherwise measure while its CPUs are being taken away. QEMU asks for
/// huge pages for its guests' memory, 256 for each instead of 131 072 small ones to be
/// faulted in: with them guests boot in half the time (docs/lab.md). Nobody else gets
/// them, for gathering them takes time.
const HOST_APPEND: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off \
    tsc=reliable nowatchdog transparent_hugepage=madvise";

/// QEMU's socket for QMP, below the host's directory.
const MONITOR: &str = "monitor";

/// Why the machine whose files are below `root` cannot be the host, if that can be told
/// without a try.
pub(super) fn why_surely_not_direct(root: &Path) -> Option<String> {
    if !root.join("dev/kvm").exists() {
        return Some("this machine has no /dev/kvm".to_owned());
    }
    if let Some(whose) = runs_a_vm(root) {
        return Some(format!(
            "{whose} runs a VM here, whose vCPUs the lab's scheduler would take as well"
        ));
    }
    scx_vcpu::probe::files(root)
        .err()
        .map(|why| why.to_string())
}

/// A process below `root` that has a vCPU of KVM, if there is one: number and name.
fn runs_a_vm(root: &Path) -> Option<String> {
    let processes = fs::read_dir(root.join("proc")).ok()?;
    processes
        .flatten()
        .map(|entry| entry.path())
        .find_map(|process| {
            let number: u32 = process.file_name()?.to_str()?.parse().ok()?;
            // Of a process that has gone, or is not ours to look at, nothing is known.
            let fds = fs::read_dir(process.join("fd")).ok()?;
            let is_vcpu = |path: &Path| {
                fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with(VCPU))
            };
            fds.flatten().find(|fd| is_vcpu(&fd.path()))?;
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            Some(format!("process {number} ({})", name.trim()))
        })
}

/// Why this machine's KVM is not used after all: a guest does not boot.
pub(super) fn why_not_direct(
    qemu: &[String],
    guest: &Image,
    interrupt: &Interrupt,
) -> Option<String> {
    match boots_under_kvm(qemu, guest, interrupt) {
        Ok(None) => None,
        Ok(Some(why)) => Some(format!(
            "this machine's KVM does not boot {}: {why}",
            guest.kernel().release(),
        )),
        Err(error) => Some(format!("{error:#}")),
    }
}

/// Why a stock kernel does not reach its first process under this machine's KVM, if it does not.
fn boots_under_kvm(
    qemu: &[String],
    guest: &Image,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<String>> {
    let dir = scratch()?;
    let arguments = arguments("kvm", "host", guest, dir.path(), 2, 1024, "panic=-1");
    why_no_first_process(start(qemu, &arguments, dir.path())?, dir.path(), interrupt)
}

/// The same of a QEMU that has been started and reports in `dir`.
fn why_no_first_process(
    mut process: Group,
    dir: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<String>> {
    let give_up = Instant::now() + PROBE;
    let ctl = dir.join("ctl");
    while Instant::now() < give_up {
        if fs::read_to_string(&ctl)
            .unwrap_or_default()
            .contains("start")
        {
            return Ok(None);
        }
        if let Some(status) = process.child.try_wait()? {
            return Ok(Some(ended_at_once(status, dir)));
        }
        interrupt.sleep(Ns::from_ms(50))?;
    }
    Ok(Some(format!("not up within {} s", PROBE.as_secs())))
}

/// What to tell of a QEMU that has ended and what it said.
fn ended_at_once(status: ExitStatus, dir: &Path) -> String {
    let said = fs::read_to_string(dir.join("qemu")).unwrap_or_default();
    // One line: it becomes a part of one.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("QEMU ended at once ({status}): {said}")
}

/// A process that leads a group and takes it along.
#[derive(Debug)]
struct Group {
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        // Not reaped before, so the number cannot be somebody else's by now.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A KVM host that listens to us.
#[derive(Debug)]
pub(super) struct Machine {
    // In this order: the host before its files.
    process: Group,
    stream: BufReader<UnixStream>,
    dir: TempDir,
    /// Is it this machine? Then what it changes here has to be undone.
    direct: bool,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It goes when its input ends, and then its disk and the kernel's slices are again
        // what they were; an emulated one takes them along.
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Both);
        if self.direct {
            self.ends_within(UNDO);
        }
    }
}

impl Machine {
    /// This machine: `command`, which listens on its input, as a child.
    pub(super) fn direct(mut command: Command) -> anyhow::Result<Self> {
        let dir = scratch()?;
        let (ours, theirs) = UnixStream::pair()?;
        let errors = File::create(dir.path().join("out"))?;
        command
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stderr(errors);
        let process = spawn(command)?;
        Ok(Self {
            process,
            stream: BufReader::new(ours),
            dir,
            direct: true,
        })
    }

    /// An emulated host.
    pub(super) fn nested(
        qemu: &[String],
        image: &Image,
        cpus: u32,
        memory_mib: u32,
        cpu: &str,
        append: &str,
        accel: &str,
    ) -> anyhow::Result<Self> {
        let dir = scratch()?;
        let append = format!(
            "{HOST_APPEND} {SPEAKING} tsc_early_khz={} {append}",
            tsc_khz()
        );
        let mut arguments = arguments(accel, cpu, image, dir.path(), cpus, memory_mib, &append);
        let socket = dir.path().join("host");
        arguments.extend([
            "-chardev".to_owned(),
            format!(
                "socket,id=host,path={},server=on,wait=off",
                socket.display()
            ),
            "-device".to_owned(),
            "virtserialport,chardev=host,name=vlab.host".to_owned(),
            "-qmp".to_owned(),
            format!(
                "unix:{},server=on,wait=off",
                dir.path().join(MONITOR).display()
            ),
            // Threads of vCPUs have their vCPU's name.
            "-name".to_owned(),
            "host,debug-threads=on".to_owned(),
        ]);
        let mut process = start(qemu, &arguments, dir.path())?;
        // At once: a port that nobody holds is at its end for those inside.
        let give_up = Instant::now() + Duration::from_secs(20);
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            if let Some(status) = process.child.try_wait()? {
                anyhow::bail!(ended_at_once(status, dir.path()));
            }
            anyhow::ensure!(Instant::now() < give_up, "QEMU does not start");
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok(Self {
            process,
            stream: BufReader::new(stream),
            dir,
            direct: false,
        })
    }

    /// A directory of the host's that goes with it.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Tells the host something.
    pub(super) fn tell(&mut self, what: &ToHost) -> anyhow::Result<()> {
        send(self.stream.get_mut(), what)
    }

    /// The host's next message, or why there is none.
    pub(super) fn hear(&mut self, interrupt: &Interrupt, patience: Ns) -> anyhow::Result<FromHost> {
        let until = now() + patience;
        if self.stream.buffer().is_empty()
            && interrupt.wait_readable(self.stream.get_ref(), until)? == Waited::Elapsed
        {
            anyhow::bail!("the host says nothing for {patience}");
        }
        // A line that has begun comes to its end, or the host is gone.
        self.stream
            .get_ref()
            .set_read_timeout(Some(Duration::from_secs(30)))?;
        match receive(&mut self.stream)? {
            Some(FromHost::Failed(why)) => anyhow::bail!("{why}"),
            Some(FromHost::CannotSetUp(why)) => Err(Unusable::new(why).into()),
            Some(message) => Ok(message),
            None => Err(if interrupt.is_set() {
                Interrupted.into()
            } else {
                anyhow::anyhow!("the host has gone: QEMU {}", self.ending())
            }),
        }
    }

    /// Keeps what a lost host said in `dir`, and ends it. One that says nothing any more is
    /// asked where its CPUs are.
    pub(super) fn keep(mut self, dir: &Path) -> Option<PathBuf> {
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Both);
        let monitor = self.dir.path().join(MONITOR);
        if !self.ends_within(LAST_WORDS) && monitor.exists() {
            let state = autopsy::examine(self.process.child.id(), &monitor);
            let _ = fs::write(self.dir.path().join("state"), state);
            self.ends_within(TRACES);
        }
        let dir = dir.join(format!(
            "kvm-{}-{}",
            std::process::id(),
            self.process.child.id()
        ));
        fs::create_dir_all(&dir).ok()?;
        for name in ["serial", "out", "qemu", "state", "resets"] {
            let _ = fs::copy(self.dir.path().join(name), dir.join(name));
        }
        Some(dir)
    }

    /// How QEMU ended. A host that reset itself, as after a triple fault, is no error to QEMU.
    fn ending(&mut self) -> String {
        self.ends_within(LAST_WORDS);
        match self.process.child.try_wait() {
            Ok(Some(status)) => format!("ended with {status}"),
            Ok(None) => "still runs".to_owned(),
            Err(error) => format!("cannot be asked: {error}"),
        }
    }

    fn ends_within(&mut self, patience: Duration) -> bool {
        let give_up = Instant::now() + patience;
        while matches!(self.process.child.try_wait(), Ok(None)) {
            if Instant::now() >= give_up {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }
}

fn scratch() -> anyhow::Result<TempDir> {
    TempDir::with_prefix("vlab-kvm-").context("cannot make a temporary directory")
}

fn start(qemu: &[String], arguments: &[String], dir: &Path) -> anyhow::Result<Group> {
    let (program, first) = qemu.split_first().context("no QEMU given")?;
    let log = File::create(dir.join("qemu"))?;
    let mut command = Command::new(program);
    command
        .args(first)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    spawn(command)
}

fn spawn(mut command: Command) -> anyhow::Result<Group> {
    command.process_group(0);
    ends_with_parent(&mut command, Signal::KILL);
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    Ok(Group { child })
}

/// QEMU's arguments for a machine that boots `image` and reports in `dir`.
fn arguments(
    accel: &str,
    cpu: &str,
    image: &Image,
    dir: &Path,
    cpus: u32,
    memory_mib: u32,
    append: &str,
) -> Vec<String> {
    let at = |name: &str| dir.join(name).display().to_string();
    let mut args = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["-accel", accel, "-cpu", cpu]);
    add(&["-smp", &cpus.to_string(), "-m", &memory_mib.to_string()]);
    add(&["-nodefaults", "-no-user-config", "-no-reboot"]);
    // Why a host that goes without a word has done so, with its registers.
    add(&["-d", "cpu_reset", "-D", &at("resets")]);
    add(&["-display", "none"]);
    add(&["-kernel", &image.kernel().vmlinuz().display().to_string()]);
    add(&["-initrd", &image.initramfs().display().to_string()]);
    add(&["-append", append]);
    add(&["-serial", &format!("file:{}", at("serial"))]);
    add(&["-device", "virtio-serial-pci"]);
    for name in ["out", "ctl"] {
        add(&["-chardev", &format!("file,id={name},path={}", at(name))]);
        add(&[
            "-device",
            &format!("virtserialport,chardev={name},name=vlab.{name}"),
        ]);
    }
    args
}

/// Rate of this CPU's time-stamp counter in kHz, measured over 50 ms.
fn tsc_khz() -> u64 {
    // SAFETY: reads a counter that every x86-64 CPU has.
    let tsc = || unsafe { core::arch::x86_64::_rdtsc() };
    let (clock, from) = (now(), tsc());
    while now().since(clock) < Ns::from_ms(50) {}
    let (ticks, ns) = (tsc() - from, now().since(clock).0);
    ticks * 1_000_000 / ns.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_on_this_machine_may_undo_what_it_did_before_it_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("undone");
        let mut command = Command::new("sh");
        command
            .args(["-c", "while read -r _; do :; done; : >\"$0\""])
            .arg(&marker);
        let mut machine = Machine::direct(command).unwrap();
        machine.tell(&ToHost::Quit).unwrap();
        drop(machine);
        assert!(marker.exists());
    }

    #[test]
    fn a_qemu_that_ends_at_once_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo 'Could not access KVM kernel module: Permission denied' >&2; exit 1";
        let qemu = ["sh", "-c", script].map(str::to_owned);
        let process = start(&qemu, &[], dir.path()).unwrap();
        let interrupt = Interrupt::catch().unwrap();
        let why = why_no_first_process(process, dir.path(), &interrupt).unwrap();
        assert_eq!(
            why.unwrap(),
            "QEMU ended at once (exit status: 1): Could not access KVM kernel module: Permission denied"
        );
    }

    #[test]
    fn what_keeps_a_machine_from_being_the_host_is_told_before_anything_is_tried() {
        let dir = tempfile::tempdir().unwrap();
        let why = || why_surely_not_direct(dir.path()).unwrap();
        assert_eq!(why(), "this machine has no /dev/kvm");
        fs::create_dir(dir.path().join("dev")).unwrap();
        fs::write(dir.path().join("dev/kvm"), "").unwrap();
        let process = dir.path().join("proc/77");
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::write(process.join("comm"), "qemu-system-x86\n").unwrap();
        let fd = |number: &str, to: &str| {
            std::os::unix::fs::symlink(to, process.join("fd").join(number)).unwrap();
        };
        // Who has only opened KVM runs nothing.
        fd("10", "anon_inode:kvm-vm");
        assert!(!why().contains("process"), "{}", why());
        fd("11", "anon_inode:kvm-vcpu:0");
        assert!(
            why().starts_with("process 77 (qemu-system-x86) runs a VM here"),
            "{}",
            why()
        );
        fs::remove_dir_all(&process).unwrap();
        // Nor has it anything else.
        assert!(why().contains("sched_ext"), "{}", why());
    }

    #[test]
    fn the_rate_of_the_counter_is_that_of_a_real_cpu() {
        let khz = tsc_khz();
        assert!((500_000..10_000_000).contains(&khz), "{khz} kHz");
    }
}
