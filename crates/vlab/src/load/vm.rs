// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load vm`: a virtual machine of some forty bytes.
//!
//! # Problem
//! What schedules vCPUs is to be tested with vCPUs: threads that really call
//! `KVM_RUN`, halt in the kernel and are woken by interrupts. A guest with a
//! kernel needs seconds to boot, minutes where KVM itself is emulated.
//!
//! # Approach
//! Each vCPU runs, in real mode, a loop that counts down and writes to a port, at
//! which KVM hands it back to us. With `--io` it then halts until a device raises
//! its interrupt: an MSI that a thread of ours sends, as the I/O thread of any
//! VMM does. How long after that the guest writes to a second port is the
//! response time that a scheduler of vCPUs can spoil. With `--storm` the device
//! raises interrupts to a vCPU that computes and has asked for none.
//!
//! VMs that are measured beside each other are given the same `--at`: their vCPUs begin
//! together, none while another VM is still being made, and count in one window.
//!
//! # Limits
//! x86-64. A response time includes the way out of the guest. A vCPU that waits when
//! the window closes has no response in it.

mod guest;

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use kvm_bindings::KVM_MP_STATE_RUNNABLE;
use kvm_bindings::kvm_mp_state;
use kvm_bindings::kvm_msi;
use kvm_ioctls::Kvm;
use kvm_ioctls::VcpuExit;
use kvm_ioctls::VcpuFd;
use kvm_ioctls::VmFd;
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde::Serialize;
use units::CpuSet;
use units::Ns;
use units::Time;

use self::guest::AWAKE;
use self::guest::DONE;
use self::guest::Memory;
use self::guest::Then;
use self::guest::VECTOR;
use super::now;
use super::say;

/// A VM whose vCPUs compute, or wait for a device again and again.
#[derive(Args, Clone, Debug)]
pub struct VmArgs {
    /// Where the vCPUs run: one on each of these CPUs, for instance 0-1.
    #[arg(long, value_name = "LIST")]
    pub cpus: CpuSet,
    /// There is one vCPU for each of the CPUs, and all may run on any of them.
    #[arg(long)]
    pub free: bool,
    /// Each vCPU waits for a device that takes so long, after each piece of work.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub io: Option<Duration>,
    /// So many vCPUs, the last ones, have no device and only compute.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "io")]
    pub computing: usize,
    /// The first vCPU wakes the second one by an interrupt after each piece of work; the
    /// others only halt.
    #[arg(long, conflicts_with = "io")]
    pub ipi: bool,
    /// A device raises an interrupt to each vCPU so often, while it computes and waits for none.
    #[arg(long, value_name = "EVERY", value_parser = humantime::parse_duration, conflicts_with_all = ["io", "ipi"])]
    pub storm: Option<Duration>,
    /// Steps of a piece of work; some ten million take 10 ms.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub work: u32,
    /// Steps of a piece of work of a vCPU that has a device, if not as many.
    #[arg(long, value_name = "N", requires = "io")]
    pub io_work: Option<u32>,
    /// Count from this time of CLOCK_MONOTONIC on, and run for a second before that; without
    /// it from the start.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub at: Option<Duration>,
    /// Count for so long, then end and print what each vCPU got.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub length: Duration,
}

/// What one vCPU got.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VcpuReport {
    /// CPU time of its thread, ns.
    pub cpu_ns: u64,
    /// Pieces of work done.
    pub pieces: u64,
    /// Interrupts of its device that it waited for.
    pub responses: u64,
    /// From the interrupt to the guest's first instruction after it, ns; zero without any.
    pub response_p50_ns: u64,
    /// See there.
    pub response_p95_ns: u64,
    /// See there.
    pub response_p99_ns: u64,
    /// Scheduling policy of its thread at the end, without flags, as sched_getscheduler(2)
    /// numbers them: 0 is the fair class, 7 SCHED_EXT.
    pub policy: i32,
}

/// What the VM got.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmReport {
    /// How long was counted, ns.
    pub wall_ns: u64,
    /// By number.
    pub vcpus: Vec<VcpuReport>,
}

/// How long vCPUs run before --at: whoever schedules them is to have found them.
const WARM_UP: Ns = Ns::from_secs(1);
/// A response later than this is counted as this late.
const LONGEST: Ns = Ns::from_secs(60);
/// The signal that makes a vCPU leave its guest, and how often it is sent until it has.
const CALL_BACK: Signal = Signal::SIGUSR1;
const EVERY: Duration = Duration::from_millis(10);
/// Address of the local APIC; a vCPU's number is in bits 12 and up of an MSI's.
const APIC: u64 = 0xfee0_0000;
/// Bit of CR0 that a guest in real mode has not set.
const PROTECTED: u64 = 1;
/// Spurious vector register: bit 8 enables the APIC.
const APIC_SVR: usize = 0xf0;

/// What vCPU `number` of these does.
fn then(args: &VmArgs, number: usize) -> Then {
    let computes = number + args.computing >= args.cpus.len() as usize;
    match args {
        VmArgs { ipi: true, .. } if number > 0 => Then::Halts,
        VmArgs { ipi: true, .. } => Then::Wakes,
        VmArgs { io: Some(_), .. } if !computes => Then::Waits,
        _ => Then::Nothing,
    }
}

/// Runs the VM.
///
/// # Errors
/// No KVM here, or it refuses something.
pub fn run(args: &VmArgs) -> anyhow::Result<()> {
    let from = match args.at {
        Some(at) => Time(u64::try_from(at.as_nanos())?),
        None => now(),
    };
    let kvm = Kvm::new().context("cannot use /dev/kvm")?;
    let vm = Arc::new(kvm.create_vm().context("cannot create a VM")?);
    // Intel's real mode needs a page of its own; AMD ignores it.
    vm.set_tss_address(0xfffb_d000)?;
    vm.create_irq_chip()?;
    let memory = Memory::new()?;
    // SAFETY: `memory` is mapped for as long as the vCPUs run: they end below,
    // before it goes.
    unsafe { vm.set_user_memory_region(memory.region()) }?;
    let stop = Arc::new(AtomicBool::new(false));
    // What it does is to be delivered: a signal ends KVM_RUN.
    signal_hook::flag::register(CALL_BACK as i32, Arc::new(AtomicBool::new(false)))
        .context("cannot catch signals")?;
    if args.at.is_some() {
        let (now, begin) = (now(), Time(from.0.saturating_sub(WARM_UP.0)));
        anyhow::ensure!(
            now <= begin,
            "the VM is there {:.1} s too late to run for {WARM_UP} before --at; say a later time",
            now.since(begin).to_std().as_secs_f64()
        );
        std::thread::sleep(begin.since(now).to_std());
    }
    let (ended, early) = mpsc::channel();
    let threads = args
        .cpus
        .iter()
        .enumerate()
        .map(|(number, cpu)| {
            let then = then(args, number);
            let own = args.io_work.filter(|_| then == Then::Waits);
            let work_steps = own.unwrap_or(args.work);
            let vcpu = vcpu(&vm, number as u64, then.address(), work_steps)?;
            let device = args
                .io
                .filter(|_| then == Then::Waits)
                .map(|latency| Device::new(Arc::clone(&vm), number as u64, latency));
            let mut cpus = rustix::thread::CpuSet::new();
            for cpu in args.cpus.iter().filter(|each| args.free || *each == cpu) {
                cpus.set(cpu.index());
            }
            let (stop, ended) = (Arc::clone(&stop), ended.clone());
            std::thread::Builder::new()
                .name(format!("vcpu-{number}"))
                .spawn(move || {
                    let report = work(vcpu, &cpus, device.as_ref(), from, &stop);
                    // Nobody listens any more if the time is over.
                    let _ = ended.send(());
                    report
                })
                .context("cannot start a vCPU")
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(every) = args.storm {
        storm(&vm, u64::from(args.cpus.len()), every, &stop);
    }
    let to = from + Ns(u64::try_from(args.length.as_nanos())?);
    // A vCPU that ends early has failed.
    let _ = early.recv_timeout(to.since(now()).to_std());
    stop.store(true, Ordering::Relaxed);
    let wall = now().since(from);
    call_back(&threads);
    let vcpus = threads
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a vCPU's thread panicked"))?
        })
        .collect::<anyhow::Result<Vec<_>>>()
        .map_err(|error| match memory.damage() {
            Some(at) => error.context(format!("the guest's code has changed at {at:#x}")),
            None => error,
        })?;
    drop(memory);
    say(&VmReport {
        wall_ns: wall.0,
        vcpus,
    })
}

/// Waits until all have ended. A vCPU that halts, or whose guest the machine has lost, would
/// never leave `KVM_RUN`; a signal that comes before it does nothing, hence more than one.
fn call_back<T>(vcpus: &[JoinHandle<T>]) {
    let mut left: Vec<_> = vcpus.iter().collect();
    loop {
        left.retain(|vcpu| !vcpu.is_finished());
        if left.is_empty() {
            return;
        }
        for vcpu in &left {
            // It has not been joined, so there is such a thread.
            let _ = pthread_kill(vcpu.as_pthread_t(), CALL_BACK);
        }
        std::thread::sleep(EVERY);
    }
}

/// A vCPU at the start of the code at this address, with an APIC that takes interrupts.
fn vcpu(vm: &VmFd, number: u64, at: u64, work: u32) -> anyhow::Result<VcpuFd> {
    let vcpu = vm.create_vcpu(number)?;
    let mut special = vcpu.get_sregs()?;
    for segment in [&mut special.cs, &mut special.ds, &mut special.ss] {
        segment.base = 0;
        segment.selector = 0;
    }
    special.es.base = APIC;
    vcpu.set_sregs(&special)?;
    let mut registers = vcpu.get_regs()?;
    registers.rip = at;
    registers.rflags = 2;
    registers.rbx = u64::from(work.max(1));
    // A stack of its own for each.
    registers.rsp = 0x8000 + (number % 64) * 0x100;
    vcpu.set_regs(&registers)?;
    let mut apic = vcpu.get_lapic()?;
    apic.regs[APIC_SVR + 1] = 1;
    vcpu.set_lapic(&apic)?;
    vcpu.set_mp_state(kvm_mp_state {
        mp_state: KVM_MP_STATE_RUNNABLE,
    })?;
    Ok(vcpu)
}

/// A device of one vCPU, which waits for each answer.
struct Device {
    ask: mpsc::Sender<()>,
    state: Arc<DeviceState>,
}

#[derive(Default)]
struct DeviceState {
    /// It has a request that it has not answered.
    busy: AtomicBool,
    /// When it raised its last interrupt, ns.
    raised: AtomicU64,
}

impl Device {
    /// It answers `latency` after each request.
    fn new(vm: Arc<VmFd>, vcpu: u64, latency: Duration) -> Self {
        let (ask, asked) = mpsc::channel::<()>();
        let state = Arc::new(DeviceState::default());
        let device = Arc::clone(&state);
        // Ends when the vCPU has gone.
        std::thread::spawn(move || {
            while asked.recv().is_ok() {
                std::thread::sleep(latency);
                device.raised.store(now().0, Ordering::Relaxed);
                device.busy.store(false, Ordering::Release);
                if !raise(&vm, vcpu) {
                    break;
                }
            }
        });
        Self { ask, state }
    }

    fn ask(&self) -> anyhow::Result<()> {
        // A vCPU that goes on past its HLT computes, and keeps a device busy for ever by
        // what it has asked for: it is not the load that it was to be. Emulated nested
        // virtualisation has done that.
        anyhow::ensure!(
            !self.state.busy.swap(true, Ordering::Acquire),
            "the guest did not wait for its device: HLT did not stop it, which is the \
             machine's fault; start the VM again"
        );
        self.ask.send(()).context("the device has gone")
    }

    /// Since its last interrupt, ns.
    fn since_raised(&self, now: Time) -> u64 {
        now.0
            .saturating_sub(self.state.raised.load(Ordering::Relaxed))
    }
}

/// Interrupts to each of these vCPUs until `stop`, from a thread of each one's device.
fn storm(vm: &Arc<VmFd>, vcpus: u64, every: Duration, stop: &Arc<AtomicBool>) {
    for vcpu in 0..vcpus {
        let (vm, stop) = (Arc::clone(vm), Arc::clone(stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) && raise(&vm, vcpu) {
                std::thread::sleep(every);
            }
        });
    }
}

/// Raises a device's interrupt to a vCPU; false if KVM does not take it.
fn raise(vm: &VmFd, vcpu: u64) -> bool {
    let msi = kvm_msi {
        address_lo: (APIC | (vcpu << 12)) as u32,
        data: u32::from(VECTOR),
        ..kvm_msi::default()
    };
    vm.signal_msi(msi).is_ok()
}

/// CPU time of this thread.
fn cpu_time() -> Ns {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Ns(Ns::from_secs(used.tv_sec.cast_unsigned()).0 + used.tv_nsec.cast_unsigned())
}

fn work(
    mut vcpu: VcpuFd,
    cpus: &rustix::thread::CpuSet,
    device: Option<&Device>,
    from: Time,
    stop: &AtomicBool,
) -> anyhow::Result<VcpuReport> {
    rustix::thread::sched_setaffinity(None, cpus)
        .context("cannot run on the CPUs that --cpus names")?;
    let (mut pieces, mut before) = (0, None);
    let mut responses = Histogram::<u64>::new_with_max(LONGEST.0, 3)?;
    while !stop.load(Ordering::Relaxed) {
        let exit = vcpu.run();
        // A guest that computes leaves after each piece at the latest.
        let at = now();
        if before.is_none() && at >= from {
            before = Some(cpu_time());
        }
        match exit {
            Ok(VcpuExit::IoOut(DONE, _)) => {
                pieces += u64::from(before.is_some());
                if let Some(device) = device {
                    device.ask()?;
                }
            }
            Ok(VcpuExit::IoOut(AWAKE, _)) => {
                if let Some(device) = device.filter(|_| before.is_some()) {
                    responses.saturating_record(device.since_raised(at));
                }
            }
            Ok(other) => anyhow::bail!("the guest did something else: {other:?}"),
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(error).context("KVM does not run the vCPU"),
        }
    }
    check_state(&vcpu)?;
    // SAFETY: asks the kernel about this thread and takes no pointer.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    let now = cpu_time();
    Ok(VcpuReport {
        cpu_ns: now.0 - before.unwrap_or(now).0,
        pieces,
        responses: responses.len(),
        response_p50_ns: responses.value_at_quantile(0.5),
        response_p95_ns: responses.value_at_quantile(0.95),
        response_p99_ns: responses.value_at_quantile(0.99),
        policy,
    })
}

/// Its guest never leaves real mode; emulated nested virtualisation has taken one out of it.
///
/// # Errors
/// It is in another mode, or KVM does not tell.
fn check_state(vcpu: &VcpuFd) -> anyhow::Result<()> {
    let state = vcpu
        .get_sregs()
        .context("KVM does not tell the vCPU's state")?;
    anyhow::ensure!(
        state.cr0 & PROTECTED == 0 && state.cs.base == 0,
        "the guest is not in the mode that it began in (CR0 {:#x}, CS at {:#x}), which is the \
         machine's fault; start the VM again",
        state.cr0,
        state.cs.base
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        vm: VmArgs,
    }

    fn kinds(words: &str) -> Option<Vec<Then>> {
        let words = format!("vm --for 1s --cpus 0-2 {words}");
        let args = Cli::try_parse_from(words.split_whitespace()).ok()?.vm;
        Some((0..3).map(|number| then(&args, number)).collect())
    }

    #[test]
    fn each_vcpu_does_what_was_asked_for() {
        use Then::Halts;
        use Then::Nothing;
        use Then::Waits;
        use Then::Wakes;
        assert_eq!(kinds("").unwrap(), [Nothing; 3]);
        assert_eq!(kinds("--storm 1ms").unwrap(), [Nothing; 3]);
        assert_eq!(kinds("--io 1ms").unwrap(), [Waits; 3]);
        let mixed = kinds("--io 1ms --computing 2").unwrap();
        assert_eq!(mixed, [Waits, Nothing, Nothing]);
        assert_eq!(kinds("--ipi").unwrap(), [Wakes, Halts, Halts]);
        // A device that nobody asked and one that somebody did, or computing beside no device.
        assert!(kinds("--io 1ms --storm 1ms").is_none());
        assert!(kinds("--computing 1").is_none());
    }

    #[test]
    fn a_guest_that_does_not_wait_for_its_device_is_an_error() {
        let (ask, _asked) = mpsc::channel();
        let state = Arc::new(DeviceState::default());
        let device = Device { ask, state };
        device.ask().unwrap();
        let error = device.ask().unwrap_err().to_string();
        assert!(error.contains("HLT did not stop it"), "{error}");
        device.state.busy.store(false, Ordering::Relaxed);
        device.ask().unwrap();
    }
}
