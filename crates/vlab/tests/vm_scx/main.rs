// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu` on a kernel with sched_ext: it loads, its policies give what they
//! should, and the machine is the kernel's own again however it ends.
//!
//! Each test is one VM under TCG, which emulates AMD's SVM: its kernel has KVM, and
//! `vlab load vm` runs real vCPUs under it. Times are the VM's own and coarse; what is
//! checked is far from what another policy would give. The VM's kernel patches
//! its code while the scheduler loads, which older QEMUs do not always survive:
//! hence several tries.

// Helpers of tests, where a panic is the report.
#![allow(clippy::unwrap_used)]

mod attacks;
mod balance;
mod busy;
mod caps;
mod cost;
mod ends;
mod guests;
mod held;
mod kernels;
mod knobs;
mod own;
mod papers;
mod patience;
mod policies;
mod rests;
mod service;
mod shares;
mod suspend;
mod turns;
mod vmms;
mod waits;

use std::path::Path;
use std::time::Duration;

use experiment::lab::Turns;
use scx_vcpu::table::Vcpu;
use scx_vcpu::trace::Event;
use units::Ns;
use units::Time;
use vlab::kvm::host::turns::Span;
use vlab::kvm::host::turns::turns as turns_of;
use vlab::vm::Guest;
use vlab::vm::Image;
use vlab::vm::Kernel;
use vlab::vm::Options;
use vlab::vm::Output;
use vlab::vm::Qemu;
use vlab::vm::Store;
use vlab::vm::systemd;

const DEADLINE: Duration = Duration::from_secs(400);
const TRIES: u32 = 3;

/// What a VM has beside the scheduler.
#[derive(Default)]
struct Machine<'a> {
    /// Programs of this machine.
    programs: &'a [&'a Path],
    /// Files of this machine, and where they are in it.
    files: &'a [(&'a Path, &'a str)],
    /// QEMU, for VMs of its own.
    qemu: bool,
    /// libvirt and QEMU, for VMs of its own.
    libvirt: bool,
    /// A unit of ours, under systemd.
    unit: Option<&'a Path>,
    /// Its kernel, if not 7.3 for clouds.
    series: Option<&'a str>,
    /// pCPUs, if not two.
    cpus: Option<u32>,
    /// Its clock counts instructions.
    counted: bool,
    /// How long the script may take, if not [`DEADLINE`].
    deadline: Option<Duration>,
}

/// What a script says in a VM that has the scheduler.
fn boot(script: &str) -> Output {
    boot_with(script, Machine::default())
}

/// The same in a VM that has more.
fn boot_with(script: &str, machine: Machine<'_>) -> Output {
    let vlab = Path::new(assert_cmd::cargo::cargo_bin!("vlab"));
    let scx_vcpu = vlab.with_file_name("scx_vcpu");
    assert!(
        scx_vcpu.exists(),
        "no {}; run: cargo build -p scx_vcpu",
        scx_vcpu.display()
    );
    let store = Store::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm")).unwrap();
    let kernel = Kernel::debian(&store, machine.series.unwrap_or("7.3")).unwrap();
    let mut image = Image::builder(&kernel)
        .module("kvm_amd")
        .binary(vlab)
        .binary(&scx_vcpu)
        .script(format!("{}{script}", include_str!("common.sh")));
    for program in machine.programs {
        image = image.binary(program);
    }
    for (file, place) in machine.files {
        image = image.file(*file, place);
    }
    if machine.qemu {
        image = image.qemu(&store).unwrap();
    }
    if machine.libvirt {
        image = image.libvirt(&store).unwrap();
    }
    if let Some(unit) = machine.unit {
        image = image.systemd(unit);
    }
    let image = image.build().unwrap();
    let options = Options {
        append: machine.unit.map_or("", |_| systemd::APPEND).to_owned(),
        keep_logs: Some(store.root().join("logs")),
        vcpus: machine.cpus.unwrap_or(2),
        counted: machine.counted,
        ..Options::new(Qemu::debian(&store).unwrap())
    };
    let deadline = machine.deadline.unwrap_or(DEADLINE);
    let output = Guest::run_with_tries(&image, &options, deadline, TRIES).unwrap();
    eprintln!(
        "script after {:?}, {:?} in all, failed tries: {:?}",
        output.boot, output.total, output.failed_tries
    );
    let lost: Vec<&str> = output.stdout.lines().filter(|line| is_lost(line)).collect();
    assert!(lost.is_empty(), "{lost:#?} in\n{}", output.stdout);
    output
}

/// Does a script say here that what it waited for did not come, or that it could not set?
fn is_lost(line: &str) -> bool {
    line.split(' ')
        .next()
        .is_some_and(|key| key == "set-failed" || key.ends_with("-lost"))
}

/// What follows `key` and a blank at the start of a line.
fn said<'a>(output: &'a Output, key: &str) -> &'a str {
    output
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no {key} in\n{}\n{}", output.stdout, output.serial))
}

fn number(output: &Output, key: &str) -> u64 {
    said(output, key).trim().parse().unwrap()
}

/// So many vCPUs, VMs in the order in which they were started.
fn vcpus(output: &Output, key: &str, count: usize) -> Vec<Vcpu> {
    // Why there are none is further below in what the script says.
    let mut vcpus: Vec<Vcpu> = serde_json::from_str(said(output, key))
        .unwrap_or_else(|error| panic!("{key}: {error}\n{}\n{}", output.stdout, output.serial));
    assert_eq!(vcpus.len(), count, "{vcpus:?}");
    vcpus.sort_by_key(|vcpu| (vcpu.vm, vcpu.vcpu));
    vcpus
}

/// CPU time of these.
fn ran(vcpus: &[Vcpu]) -> Ns {
    vcpus.iter().fold(Ns::ZERO, |sum, vcpu| sum + vcpu.ran)
}

/// Of the time that two VMs had, the part of the first.
fn share(first: &[Vcpu], second: &[Vcpu]) -> f64 {
    ran(first).0 as f64 / (ran(first) + ran(second)).0 as f64
}

/// Turns on a pCPU in a window of a trace.
fn on_cpu(events: &[Event], cpu: u16, asked: Ns, from: Time, to: Time) -> Turns {
    turns_of(events, cpu, asked, Span { from, to })
}

fn trace(output: &Output, key: &str) -> Vec<Event> {
    let hex = said(output, key).as_bytes();
    let bytes: Vec<u8> = hex
        .chunks_exact(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    scx_vcpu::trace::read(bytes.as_slice()).unwrap()
}
