// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One guest: a QEMU process, its QMP socket, and the agent inside.

use std::fs;
use std::fs::File;
use std::io;
use std::io::BufReader;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use qapi::Qmp;
use qapi::Stream;
use qapi::qmp;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::process::Signal;
use units::CpuSet;
use units::VcpuId;

use super::super::protocol::FromGuest;
use super::super::protocol::Setup;
use super::super::protocol::ToGuest;
use super::super::protocol::receive;
use super::super::protocol::send;
use super::PATIENCE;
use super::network;
use crate::child::ends_with_parent;
use crate::run::environment::Inside;
use crate::run::network::is_needed;

/// How long QEMU may take to answer on its own socket.
const QMP_PATIENCE: Duration = Duration::from_secs(90);

/// How much of a lost guest's console is told, in lines.
const TOLD: usize = 4;

/// A running guest; its QEMU is killed on drop.
pub(super) struct Guest {
    number: u32,
    child: Child,
    dir: PathBuf,
    /// Threads of its vCPUs, by their numbers.
    vcpus: Vec<Pid>,
    qmp: Option<Qmp<Stream<BufReader<UnixStream>, UnixStream>>>,
    agent: Option<BufReader<UnixStream>>,
    has_network: bool,
    /// What the agent says of its machine.
    pub(super) inside: Inside,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Guest {
    /// Starts QEMU and returns at once.
    pub(super) fn start(setup: &Setup, number: u32, disk: Option<&Path>) -> anyhow::Result<Self> {
        let dir = Path::new(&setup.dir).join(format!("guest{number}"));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let (program, first) = setup.qemu.split_first().context("no QEMU given")?;
        let log = File::create(dir.join("qemu"))?;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(arguments(setup, number, &dir, disk))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        ends_with_parent(&mut command, Signal::KILL);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Self {
            number,
            child,
            dir,
            vcpus: Vec::new(),
            qmp: None,
            agent: None,
            has_network: is_needed(&setup.scenario),
            inside: Inside::default(),
        })
    }

    /// Process id of its QEMU: the VM's name in the host's trace.
    pub(super) fn vm(&self) -> u32 {
        self.child.id()
    }

    /// Connects to QEMU and the port of the agent, and puts vCPU i on the i-th of `cpus`,
    /// counted round and round.
    pub(super) fn connect(&mut self, cpus: &CpuSet) -> anyhow::Result<()> {
        let stream = self.dial("qmp", Instant::now() + QMP_PATIENCE)?;
        stream.set_read_timeout(Some(QMP_PATIENCE))?;
        let mut qmp = Qmp::new(Stream::new(BufReader::new(stream.try_clone()?), stream));
        qmp.handshake().with_context(|| {
            let (number, words) = (self.number, self.last_words());
            format!("QEMU of guest {number} does not speak QMP{words}")
        })?;
        let vcpus = qmp.execute(&qmp::query_cpus_fast {})?;
        for vcpu in &vcpus {
            let base = match vcpu {
                qmp::CpuInfoFast::x86_64(vcpu) => vcpu,
                _ => anyhow::bail!("guest {} is no x86-64 machine", self.number),
            };
            let tid = Pid::from_raw(i32::try_from(base.thread_id)?);
            self.vcpus.push(tid.context("a vCPU has no thread")?);
        }
        if self.has_network {
            network::connect(self.number)?;
        }
        // Not before: it may run nowhere else.
        self.place(cpus, false)?;
        qmp.execute(&qmp::cont {})?;
        self.qmp = Some(qmp);
        // Now, not when the guest is up: a port that nobody holds is at its end
        // for those inside.
        let stream = self.dial("agent", Instant::now() + QMP_PATIENCE)?;
        self.agent = Some(BufReader::new(stream));
        Ok(())
    }

    /// Puts vCPU i on the i-th of `cpus`, counted round and round, or lets them all be
    /// anywhere on these.
    pub(super) fn place(&self, cpus: &CpuSet, anywhere: bool) -> anyhow::Result<()> {
        let all: Vec<VcpuId> = cpus.iter().collect();
        for (vcpu, own) in self.vcpus.iter().zip(all.iter().copied().cycle()) {
            let mut mask = rustix::thread::CpuSet::new();
            for cpu in cpus.iter().filter(|cpu| anywhere || *cpu == own) {
                mask.set(cpu.index());
            }
            rustix::thread::sched_setaffinity(Some(*vcpu), &mask)
                .with_context(|| format!("cannot put a vCPU on CPU {own}"))?;
        }
        Ok(())
    }

    /// Waits until the agent inside has spoken, and tells it the scenario.
    pub(super) fn come_up(&mut self, setup: &Setup, until: Instant) -> anyhow::Result<()> {
        match self.answer(until)? {
            FromGuest::Up(inside) => self.inside = inside,
            other => anyhow::bail!("guest {} says {other:?} first", self.number),
        }
        let scenario = Box::new(setup.scenario.clone());
        self.order(&ToGuest::Scenario(scenario, setup.dilation), PATIENCE)
    }

    /// Starts it again from the beginning; its console so far is kept as `console.N`.
    pub(super) fn restart(
        &mut self,
        setup: &Setup,
        disk: Option<&Path>,
        nr: u32,
    ) -> anyhow::Result<()> {
        // First: two of them would have the same disk and sockets.
        self.end();
        let console = self.dir.join("console");
        // None if it was lost before it had one.
        let _ = fs::rename(&console, console.with_extension(nr.to_string()));
        *self = Self::start(setup, self.number, disk)?;
        Ok(())
    }

    fn end(&mut self) {
        // Nothing in it is worth a polite end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the agent something and waits for its answer.
    pub(super) fn ask(&mut self, what: &ToGuest, patience: Duration) -> anyhow::Result<FromGuest> {
        self.tell(what)?;
        self.answer(Instant::now() + patience)
    }

    /// Asks the agent something that has no answer but "done".
    pub(super) fn order(&mut self, what: &ToGuest, patience: Duration) -> anyhow::Result<()> {
        match self.ask(what, patience)? {
            FromGuest::Done => Ok(()),
            other => anyhow::bail!("guest {} says {other:?}", self.number),
        }
    }

    /// Tells the agent something, and waits for nothing.
    pub(super) fn tell(&mut self, what: &ToGuest) -> anyhow::Result<()> {
        let agent = self.agent.as_mut().context("the guest is not up")?;
        send(agent.get_mut(), what).map_err(|error| {
            let words = self.last_words();
            anyhow::anyhow!("guest {}: {error:#}{words}", self.number)
        })
    }

    /// The agent's next answer.
    pub(super) fn answer(&mut self, until: Instant) -> anyhow::Result<FromGuest> {
        let number = self.number;
        let left = until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let agent = self.agent.as_mut().context("the guest is not up")?;
        match hear(agent, left, &std::io::stdin()) {
            Ok(FromGuest::Failed(why)) => anyhow::bail!("guest {number}: {why}"),
            Ok(answer) => Ok(answer),
            Err(Silence::Alone) => anyhow::bail!("nobody wants guest {number} any more"),
            Err(why) => anyhow::bail!("guest {number} {why}{}", self.last_words()),
        }
    }

    /// Connects to a socket that QEMU makes when it gets so far.
    fn dial(&mut self, name: &str, until: Instant) -> anyhow::Result<UnixStream> {
        let (path, number) = (self.dir.join(name), self.number);
        loop {
            if let Ok(stream) = UnixStream::connect(&path) {
                return Ok(stream);
            }
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!(
                    "QEMU of guest {} ended ({status}){}",
                    number,
                    self.last_words()
                );
            }
            anyhow::ensure!(
                Instant::now() < until,
                "QEMU of guest {} does not open its socket {name}{}",
                number,
                self.last_words()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What QEMU thinks of it, where its vCPUs are, and the end of its console.
    fn last_words(&mut self) -> String {
        let mut words = Vec::new();
        if let Ok(Some(status)) = self.child.try_wait() {
            words.push(format!("QEMU ended: {status}"));
        } else if let Some(qmp) = &mut self.qmp {
            if let Ok(status) = qmp.execute(&qmp::query_status {}) {
                words.push(format!("QEMU says {:?}", status.status));
            }
            let asked = qmp.execute(&qmp::human_monitor_command {
                cpu_index: None,
                command_line: "info registers -a".to_owned(),
            });
            if let Ok(registers) = asked {
                let rip = registers
                    .lines()
                    .filter_map(|line| {
                        line.split_whitespace()
                            .find(|word| word.starts_with("RIP="))
                    })
                    .collect::<Vec<_>>()
                    .join(" ");
                let halted = registers.matches("HLT=1").count();
                words.push(format!("{rip}, {halted} vCPU(s) halted"));
                let _ = fs::write(self.dir.join("registers"), registers);
            }
        }
        for file in ["console", "qemu"] {
            let text = fs::read(self.dir.join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            words.extend(
                lines[lines.len().saturating_sub(TOLD)..]
                    .iter()
                    .map(|line| (*line).trim().to_owned()),
            );
        }
        if words.is_empty() {
            String::new()
        } else {
            format!(": {}", words.join(" | "))
        }
    }
}

/// Why there is no answer from a guest.
#[derive(Debug, thiserror::Error)]
enum Silence {
    /// QEMU has closed the socket: it has ended, or is about to.
    #[error("has closed its port")]
    Closed,
    /// It may be hung, or have too little CPU time.
    #[error("does not answer within {} s", .0.as_secs())]
    Late(Duration),
    /// A line that cannot be read.
    #[error("cannot be understood: {0}")]
    Garbled(String),
    /// Who asked us has gone, and with it whoever wants the answer.
    #[error("is not wanted any more")]
    Alone,
}

/// The next message of an agent, unless `asker` hangs up before.
fn hear(
    agent: &mut BufReader<UnixStream>,
    patience: Duration,
    asker: &impl AsFd,
) -> Result<FromGuest, Silence> {
    let garbled = |error: &dyn std::fmt::Display| Silence::Garbled(error.to_string());
    let until = Instant::now() + patience;
    while agent.buffer().is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Silence::Late(patience));
        }
        let mut fds = [
            PollFd::new(agent.get_ref(), PollFlags::IN),
            // Not for reading: what comes next is for later.
            PollFd::new(asker, PollFlags::RDHUP),
        ];
        let timeout = Timespec::try_from(left).map_err(|error| garbled(&error))?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(garbled(&error)),
        }
        let gone = PollFlags::RDHUP | PollFlags::HUP;
        if fds[1].revents().intersects(gone) {
            return Err(Silence::Alone);
        }
        if !fds[0].revents().is_empty() {
            break;
        }
    }
    // A line that has begun comes to its end, or not.
    let left = until.saturating_duration_since(Instant::now());
    let left = left.max(Duration::from_millis(1));
    let set = agent.get_ref().set_read_timeout(Some(left));
    set.map_err(|error| garbled(&error))?;
    match receive(agent) {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(Silence::Closed),
        Err(error) => Err(
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    Silence::Late(patience)
                }
                Some(io::ErrorKind::ConnectionReset) => Silence::Closed,
                _ => Silence::Garbled(format!("{error:#}")),
            },
        ),
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// QEMU's arguments for a guest.
fn arguments(setup: &Setup, number: u32, dir: &Path, disk: Option<&Path>) -> Vec<String> {
    let vcpus = setup.vcpus(number);
    let at = |name: &str| dir.join(name).display().to_string();
    let mut args = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["-name", &format!("vlab{number},debug-threads=on")]);
    add(&["-accel", "kvm", "-cpu", &setup.cpu, "-machine", "pc"]);
    add(&["-smp", &vcpus.to_string()]);
    add(&["-m", &setup.memory_mib.to_string()]);
    add(&["-nodefaults", "-no-user-config", "-no-reboot"]);
    add(&["-display", "none", "-S"]);
    add(&["-kernel", &setup.kernel, "-initrd", &setup.initramfs]);
    // hvc0: under nested KVM the emulated serial port loses output.
    add(&[
        "-append",
        &format!(
            "console=hvc0 8250.nr_uarts=0 loglevel=5 panic=-1 oops=panic mitigations=off {}",
            setup.append
        ),
    ]);
    let qmp = format!("unix:{},server=on,wait=off", at("qmp"));
    add(&["-qmp", &qmp]);
    add(&["-device", "virtio-serial-pci"]);
    add(&["-chardev", &format!("file,id=hvc,path={}", at("console"))]);
    add(&["-device", "virtconsole,chardev=hvc"]);
    for name in ["out", "ctl"] {
        add(&["-chardev", &format!("file,id={name},path={}", at(name))]);
        add(&[
            "-device",
            &format!("virtserialport,chardev={name},name=vlab.{name}"),
        ]);
    }
    let agent = format!("socket,id=agent,path={},server=on,wait=off", at("agent"));
    add(&["-chardev", &agent]);
    add(&["-device", "virtserialport,chardev=agent,name=vlab.agent"]);
    if let Some(disk) = disk {
        add(&["-object", "iothread,id=io0"]);
        let blockdev = format!(
            "driver=host_device,node-name=disk,filename={},cache.direct=on,aio=native",
            disk.display()
        );
        add(&["-blockdev", &blockdev]);
        let queues = setup.scenario.topology.disk_queues.unwrap_or(vcpus);
        let device = format!("virtio-blk-pci,drive=disk,iothread=io0,num-queues={queues}");
        add(&["-device", &device]);
    }
    if is_needed(&setup.scenario) {
        args.extend(network::arguments(number));
    }
    args
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::super::protocol::tests::setup;
    use super::*;

    #[test]
    fn a_guest_that_has_ended_that_is_late_and_that_is_garbled_are_told_apart() {
        let short = Duration::from_millis(50);
        let (asker, _asks) = UnixStream::pair().unwrap();
        let said = |bytes: &[u8], ends: bool| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(bytes).unwrap();
            let open = (!ends).then_some(theirs);
            let heard = hear(&mut BufReader::new(ours), short, &asker);
            drop(open);
            heard.map_or_else(|why| why.to_string(), |answer| format!("{answer:?}"))
        };
        assert_eq!(said(b"\"Done\"\n", false), "Done");
        assert_eq!(said(b"", true), "has closed its port");
        assert_eq!(said(b"", false), "does not answer within 0 s");
        // It stops in the middle of a line.
        assert_eq!(said(b"\"Do", false), "does not answer within 0 s");
        let garbled = said(b"[ 118.9] hrtimer\n", false);
        assert!(
            garbled.starts_with("cannot be understood: a part of the lab says `[ 118.9] hrtimer`"),
            "{garbled}"
        );
    }

    #[test]
    fn a_question_is_given_up_when_who_asked_has_gone() {
        let (agent, _guest) = UnixStream::pair().unwrap();
        let (asker, asks) = UnixStream::pair().unwrap();
        drop(asks);
        let asked = Instant::now();
        let heard = hear(&mut BufReader::new(agent), Duration::from_secs(60), &asker);
        assert!(matches!(heard, Err(Silence::Alone)), "{heard:?}");
        assert!(asked.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn guests_have_a_network_where_a_load_asks_for_one() {
        let mut setup = setup();
        let cards = |setup: &Setup| {
            let words = arguments(setup, 0, Path::new("/d"), None);
            let cards = words.iter().filter(|word| word.starts_with("virtio-net"));
            cards.count()
        };
        assert_eq!(cards(&setup), 0);
        let text = r#"
            name = "s"
            title = "s"
            topology = { cpus = 2 }
            sharing = { slice = "11 ms" }
            vm = [{ name = "one", placement = "one-to-one" }]
            device = [{ name = "net", kind = "network" }]
            load = [{ name = "ping", kind = "echo", device = "net" }]
            arm = [{ name = "vanilla" }]
        "#;
        setup.scenario = experiment::scenario::Scenario::parse_real_points(text, "s.toml")
            .unwrap()
            .remove(0);
        assert_eq!(cards(&setup), 1);
    }

    #[test]
    fn a_disk_has_a_queue_per_vcpu_or_as_many_as_the_scenario_says() {
        let mut setup = setup();
        let disk = |setup: &Setup, disk: Option<&str>| -> Vec<String> {
            let words = arguments(setup, 0, Path::new("/d"), disk.map(Path::new));
            let disks = words
                .into_iter()
                .filter(|word| word.starts_with("virtio-blk"));
            disks.collect()
        };
        let device = |queues: u32| {
            [format!(
                "virtio-blk-pci,drive=disk,iothread=io0,num-queues={queues}"
            )]
        };
        assert_eq!(disk(&setup, Some("/dev/nullb0")), device(2));
        setup.scenario.topology.disk_queues = Some(1);
        assert_eq!(disk(&setup, Some("/dev/nullb0")), device(1));
        assert!(disk(&setup, None).is_empty());
    }
}
