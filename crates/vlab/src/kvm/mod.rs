// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab run --backend kvm`: a scenario on real virtual machines.
//!
//! # Problem
//! Steal time, interrupts and host schedulers exist on real KVM hosts only, and
//! the machine at hand may have no KVM that boots a stock kernel, or a kernel
//! without sched_ext.
//!
//! # Approach
//! Where this machine can be the host, it is. Else QEMU emulates an AMD machine
//! whose kernel is a KVM host with sched_ext, and the guests run inside that:
//! everything is real but the speed, so all times are multiplied by 20. Three
//! copies of this program work together (see `protocol`); the same code runs
//! on both kinds of hosts.
//!
//! # Layout
//! `args` the command line, `fit` whether a scenario fits, `images` what is booted, `machine` the
//! host, [`host`] what runs on it, [`agent`] what runs in a guest, `labs` one lab after the other,
//! `keep` what has been measured.
//!
//! # Limits
//! x86-64. An emulated host loses a guest now and then: its phases are measured
//! again, and every loss is counted in the result.

pub mod agent;
pub mod boots;
pub mod host;

mod args;
mod fit;
mod images;
mod keep;
mod labs;
mod machine;
pub(crate) mod protocol;

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use experiment::lab::Lab;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use units::Ns;

pub use self::args::KvmArgs;
use self::images::Programs;
use self::keep::DIRECT;
use self::keep::Kept;
use self::keep::NESTED;
use self::machine::Machine;
use self::protocol::Setup;
use crate::run::Interrupted;
use crate::run::Unusable;
use crate::run::interrupt::Interrupt;
use crate::run::network;
use crate::vm::Image;
use crate::vm::Kernel;
use crate::vm::Store;
use crate::vm::userland::Packages;
use crate::vm::userland::Userland;

/// The series of the emulated host's kernel: it has sched_ext.
const HOST_SERIES: &str = "7.3";

/// What runs on the emulated host and in the guests.
const PACKAGES: Packages = Packages {
    name: "lab",
    packages: &[
        "qemu-system-x86",
        "fio",
        "stress-ng",
        "sysbench",
        "e2fsprogs",
    ],
};

/// Memory of a guest; its root file system is in it.
const GUEST_MIB: u32 = 512;

/// Memory of the emulated host beside its guests'.
const HOST_MIB: u32 = 1536;

/// CPUs of an emulated host on which no guest runs, the first ones. QEMU (10.2.2) has the flags
/// of its first CPU written by all others whenever they load FPU state, without a lock
/// (`cpu_clear_ignne`); those of virtualisation are among them, and what is lost is then a
/// guest or the host: docs/lab.md.
const SPARE_CPUS: u32 = 1;

/// How long a lab may take until all guests are up.
const BOOT: Ns = Ns::from_secs(300);

/// Everything that is booted.
struct Parts {
    /// Emulates the guests where this machine is the host.
    qemu: Vec<String>,
    /// Emulates the host.
    host_qemu: Vec<String>,
    guest: Image,
    host: Option<Image>,
    programs: Programs,
    guests: u32,
    /// Length of each arm's timeline, dilated; zero: none.
    timeline: Ns,
}

/// Measures a scenario on real VMs. What has been measured is in `json` at any time; with
/// `resume`, what is there already is the beginning.
///
/// # Errors
/// [`Unusable`] if the scenario does not fit, [`Interrupted`] after a signal, a
/// package that is not there, or more lost labs than are worth another try.
pub(crate) fn run(
    mut scenario: Scenario,
    args: &KvmArgs,
    vmigrater: PathBuf,
    timeline: Ns,
    json: Option<&Path>,
    resume: bool,
) -> anyhow::Result<RunResult> {
    let interrupt = Arc::new(Interrupt::catch().context("cannot catch signals")?);
    // What is certain now is said before anything is fetched.
    let sure = if args.nested {
        Some("as asked".to_owned())
    } else {
        machine::why_surely_not_direct(Path::new("/"))
    };
    if sure.is_some() {
        fit::check_nested(&scenario)?;
    }
    let guests = fit::check(&scenario)?;
    let prepared = prepare(&scenario, args, vmigrater, guests, sure, &interrupt);
    // A tool that was ended for it has failed, and that is not what to tell.
    if interrupt.is_set() {
        return Err(Interrupted.into());
    }
    let (mut parts, why) = prepared?;
    let dilation = args
        .dilation
        .unwrap_or(if parts.host.is_some() { 20 } else { 1 });
    parts.timeline = timeline * u64::from(dilation);
    fit::dilate(&mut scenario, u64::from(dilation));
    match &parts.host {
        Some(_) => {
            eprintln!("KVM inside an emulated host ({why}); all times are multiplied by {dilation}")
        }
        None => eprintln!("KVM of this machine; times are multiplied by {dilation}"),
    }
    let lab = Lab {
        host: if parts.host.is_some() { NESTED } else { DIRECT }.to_owned(),
        why,
        dilation,
        guest_kernel: parts.guest.kernel().release().to_owned(),
        disk_latency: Ns::from(args.disk_latency),
        policy: policies(&scenario),
        ..Lab::default()
    };
    let Programs {
        vmigrater,
        scx_vcpu,
        ..
    } = &parts.programs;
    let environment = crate::run::environment(&[vmigrater, scx_vcpu]);
    let mut kept = Kept::new(scenario, environment, lab, json);
    if resume {
        kept.resume()?;
    }
    let mut next = |kept: &Kept| -> anyhow::Result<(Machine, Setup)> {
        let machine = boot(&parts, kept.scenario(), args)?;
        let setup = setup(&parts, kept, args, &machine);
        Ok((machine, setup))
    };
    match labs::measure_all(&mut kept, &mut next, &args.cache.join("logs"), &interrupt) {
        Ok(()) => Ok(kept.result(None)),
        Err(error) => Err(kept.give_up(error)),
    }
}

/// What schedules the VMs, in the order of the arms.
fn policies(scenario: &Scenario) -> String {
    let mut names: Vec<&str> = Vec::new();
    for arm in &scenario.arms {
        let name = arm.host_policy().name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(",")
}

fn boot(parts: &Parts, scenario: &Scenario, args: &KvmArgs) -> anyhow::Result<Machine> {
    match &parts.host {
        Some(image) => Machine::nested(
            &parts.host_qemu,
            image,
            scenario.topology.cpus + SPARE_CPUS,
            HOST_MIB + parts.guests * GUEST_MIB + fit::stored_mib(scenario),
            &args.host_cpu,
            &args.host_append,
            &args.host_accel,
        ),
        None => {
            let mut program = Command::new(&parts.programs.vlab);
            program.arg("kvm-host");
            Machine::direct(program)
        }
    }
}

fn setup(parts: &Parts, kept: &Kept, args: &KvmArgs, machine: &Machine) -> Setup {
    let path = |path: &Path| path.display().to_string();
    let nested = parts.host.is_some();
    let mut qemu = if nested {
        Userland::qemu_inside()
    } else {
        parts.qemu.clone()
    };
    qemu.extend(args.guest_qemu.split_whitespace().map(str::to_owned));
    Setup {
        scenario: kept.scenario().clone(),
        guests: parts.guests,
        memory_mib: GUEST_MIB,
        kernel: if nested {
            images::GUEST_KERNEL.to_owned()
        } else {
            path(&parts.guest.kernel().vmlinuz())
        },
        initramfs: if nested {
            images::GUEST_INITRAMFS.to_owned()
        } else {
            path(&parts.guest.initramfs())
        },
        first_cpu: if nested { SPARE_CPUS } else { 0 },
        qemu,
        scx_vcpu: if nested {
            "/bin/scx_vcpu".to_owned()
        } else {
            path(&parts.programs.scx_vcpu)
        },
        disk_latency: kept.lab.disk_latency * u64::from(kept.lab.dilation),
        append: args.guest_append.clone(),
        cpu: args.guest_cpu.clone(),
        boot: BOOT,
        dilation: kept.lab.dilation,
        timeline: parts.timeline,
        dir: if nested {
            "/tmp/lab".to_owned()
        } else {
            path(&machine.dir().join("lab"))
        },
    }
}

/// What is booted, and why this machine is not the host if it is not.
fn prepare(
    scenario: &Scenario,
    args: &KvmArgs,
    vmigrater: PathBuf,
    guests: u32,
    sure: Option<String>,
    interrupt: &Arc<Interrupt>,
) -> anyhow::Result<(Parts, String)> {
    let vlab = std::env::current_exe().context("cannot find our own program")?;
    let scx_vcpu = vlab.with_file_name("scx_vcpu");
    if !scx_vcpu.is_file() {
        return Err(Unusable::new(format!(
            "there is no host scheduler at {}; build it with `cargo build --release -p scx_vcpu`",
            scx_vcpu.display()
        ))
        .into());
    }
    if let Some(text) = &scenario.host_config {
        let name = format!("host_config of scenario {}", scenario.name);
        scx_vcpu::config::Config::parse(text, &name)
            .map_err(|error| Unusable::new(error.to_string()))?;
    }
    let programs = Programs {
        vlab,
        vmigrater,
        scx_vcpu,
    };
    let store = Store::open(&args.cache)
        .with_context(|| format!("cannot use {}", args.cache.display()))?
        .interruptible(Arc::clone(interrupt));
    // First: a series that does not exist is told at once.
    let kernel = Kernel::debian(&store, &args.guest_kernel)?;
    let userland = Userland::open(&store, &args.packages, PACKAGES)?;
    let qemu = userland.qemu_here();
    let network = network::is_needed(scenario);
    let wanted = images::wanted(scenario);
    let guest = images::guest(&kernel, &userland, &programs, &wanted, network)?;
    let why = sure.or_else(|| machine::why_not_direct(&qemu, &guest, interrupt));
    let host = match &why {
        None => None,
        Some(_) => {
            fit::check_nested(scenario)?;
            let kernel = Kernel::debian(&store, HOST_SERIES)?;
            Some(images::host(
                &kernel, &userland, &programs, &guest, network,
            )?)
        }
    };
    let parts = Parts {
        host_qemu: qemu.clone(),
        qemu,
        guest,
        host,
        programs,
        guests,
        timeline: Ns::ZERO,
    };
    Ok((parts, why.unwrap_or_default()))
}
