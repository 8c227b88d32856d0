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
use crate::run::interrupt::Interrupt;
use crate::run::interrupt::Waited;
use crate::vm::Image;
use crate::vm::autopsy;
use crate::vm::autopsy::SPEAKING;

/// How long the try to boot under this machine's KVM may take.
const PROBE: Duration = Duration::from_secs(15);

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

/// Why this machine cannot be the host, if that can be told without a try.
pub(super) fn why_surely_not_direct() -> Option<String> {
    if !Path::new("/dev/kvm").exists() {
        return Some("this machine has no /dev/kvm".to_owned());
    }
    scx_vcpu::probe::files(Path::new("/"))
        .err()
        .map(|why| why.to_string())
}

/// Why this machine's KVM is not used after all: a guest does not boot.
pub(super) fn why_not_direct(
    qemu: &[String],
    guest: &Image,
    interrupt: &Interrupt,
) -> Option<String> {
    match boots_under_kvm(qemu, guest, interrupt) {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "this machine's KVM does not boot {} within {} s",
            guest.kernel().release(),
            PROBE.as_secs()
        )),
        Err(error) => Some(format!("{error:#}")),
    }
}

/// Does a stock kernel reach its first process under this machine's KVM?
fn boots_under_kvm(qemu: &[String], guest: &Image, interrupt: &Interrupt) -> anyhow::Result<bool> {
    let dir = scratch()?;
    let mut process = start(
        qemu,
        &arguments("kvm", "host", guest, dir.path(), 2, 1024, "panic=-1"),
        dir.path(),
    )?;
    let give_up = Instant::now() + PROBE;
    let ctl = dir.path().join("ctl");
    while Instant::now() < give_up {
        if fs::read_to_string(&ctl)
            .unwrap_or_default()
            .contains("start")
        {
            return Ok(true);
        }
        if process.child.try_wait()?.is_some() {
            return Ok(false);
        }
        interrupt.sleep(Ns::from_ms(50))?;
    }
    Ok(false)
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
                let said = fs::read_to_string(dir.path().join("qemu")).unwrap_or_default();
                anyhow::bail!("QEMU ended at once ({status}): {}", said.trim());
            }
            anyhow::ensure!(Instant::now() < give_up, "QEMU does not start");
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok(Self {
            process,
            stream: BufReader::new(stream),
            dir,
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
            Some(message) => Ok(message),
            None => Err(if interrupt.is_set() {
                Interrupted.into()
            } else {
                anyhow::anyhow!("the host has gone")
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
        for name in ["serial", "out", "qemu", "state"] {
            let _ = fs::copy(self.dir.path().join(name), dir.join(name));
        }
        Some(dir)
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
    fn the_rate_of_the_counter_is_that_of_a_real_cpu() {
        let khz = tsc_khz();
        assert!((500_000..10_000_000).contains(&khz), "{khz} kHz");
    }
}
