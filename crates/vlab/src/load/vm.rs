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
//! response time that a scheduler of vCPUs can spoil.
//!
//! # Limits
//! x86-64. A response time includes the way out of the guest.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use kvm_bindings::KVM_MP_STATE_RUNNABLE;
use kvm_bindings::kvm_mp_state;
use kvm_bindings::kvm_msi;
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::Kvm;
use kvm_ioctls::VcpuExit;
use kvm_ioctls::VcpuFd;
use kvm_ioctls::VmFd;
use serde::Serialize;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use super::now;
use super::say;

/// A VM whose vCPUs compute, or wait for a device again and again.
#[derive(Args, Clone, Debug)]
pub struct VmArgs {
    /// Where the vCPUs run: one on each of these CPUs, for instance 0-1.
    #[arg(long, value_name = "LIST")]
    pub cpus: CpuSet,
    /// Each vCPU waits for a device that takes so long, after each piece of work.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub io: Option<Duration>,
    /// The first vCPU wakes the second one by an interrupt after each piece of work; the
    /// others only halt.
    #[arg(long, conflicts_with = "io")]
    pub ipi: bool,
    /// Steps of a piece of work; some ten million take 10 ms.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub work: u32,
    /// End after so long and print what each vCPU got.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub length: Duration,
}

/// What one vCPU got.
#[derive(Clone, Debug, Serialize)]
struct VcpuReport {
    /// CPU time of its thread.
    cpu_ns: u64,
    /// Pieces of work done.
    pieces: u64,
    /// From the interrupt to the guest's first instruction after it.
    response_p50_ns: u64,
    response_p95_ns: u64,
}

/// What the VM got.
#[derive(Clone, Debug, Serialize)]
struct VmReport {
    wall_ns: u64,
    vcpus: Vec<VcpuReport>,
}

/// Where the code is, that of vCPUs which only halt, and the handler of [`VECTOR`].
const CODE: u64 = 0x500;
const HALTS: u64 = 0x580;
const HANDLER: u16 = 0x600;
const VECTOR: u8 = 0x20;
/// Ports: a piece of work is done; the interrupt was there.
const DONE: u16 = 0x10;
const AWAKE: u16 = 0x11;
/// A response later than this is counted as this late.
const LONGEST: Ns = Ns::from_secs(60);
/// Bytes of the guest's memory.
const MEMORY: usize = 0x10000;
/// Address of the local APIC; a vCPU's number is in bits 12 and up of an MSI's.
const APIC: u64 = 0xfee0_0000;
/// Spurious vector register: bit 8 enables the APIC.
const APIC_SVR: usize = 0xf0;

/// What follows a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The next one.
    Nothing,
    /// It waits for its device.
    Waits,
    /// It wakes vCPU 1.
    Wakes,
}

/// `cli; 1: mov ecx, ebx; 2: dec ecx; jnz 2b; out DONE, al`, then
/// `jmp 1b`, or `sti; hlt; cli; out AWAKE, al; jmp 1b`, or `SEND; jmp 1b`.
fn code(then: Then) -> Vec<u8> {
    let mut code = vec![0xfa];
    code.extend([0x66, 0x89, 0xd9]);
    code.extend([0x66, 0x49, 0x75, 0xfc]);
    code.extend([0xe6, DONE as u8]);
    if then == Then::Wakes {
        code.extend(SEND);
    }
    if then == Then::Waits {
        code.extend([0xfb, 0xf4, 0xfa]);
        code.extend([0xe6, AWAKE as u8]);
    }
    // A jump is relative to what follows it; its target is byte 1.
    let back = 1 - (code.len() as i8 + 2);
    code.extend([0xeb, back.cast_unsigned()]);
    code
}

/// `cli; 1: sti; hlt; cli; jmp 1b`.
const HALT: [u8; 6] = [0xfa, 0xfb, 0xf4, 0xfa, 0xeb, 0xfb];

/// `mov dword es:[0x310], 1 << 24; mov dword es:[0x300], 0x4000 | VECTOR`: an interrupt
/// to the vCPU whose APIC is number 1.
const SEND: [u8; 20] = [
    0x66, 0x26, 0xc7, 0x06, 0x10, 0x03, 0, 0, 0, 1, 0x66, 0x26, 0xc7, 0x06, 0x00, 0x03, VECTOR,
    0x40, 0, 0,
];

/// `mov dword es:[0xb0], 0; iret`: tells the APIC that the interrupt was served.
const SERVE: [u8; 11] = [0x66, 0x26, 0xc7, 0x06, 0xb0, 0, 0, 0, 0, 0, 0xcf];

/// Runs the VM.
///
/// # Errors
/// No KVM here, or it refuses something.
pub fn run(args: &VmArgs) -> anyhow::Result<()> {
    let kvm = Kvm::new().context("cannot use /dev/kvm")?;
    let vm = Arc::new(kvm.create_vm().context("cannot create a VM")?);
    // Intel's real mode needs a page of its own; AMD ignores it.
    vm.set_tss_address(0xfffb_d000)?;
    vm.create_irq_chip()?;
    let then = match args {
        _ if args.ipi => Then::Wakes,
        VmArgs { io: Some(_), .. } => Then::Waits,
        _ => Then::Nothing,
    };
    let memory = Memory::new(then)?;
    // SAFETY: `memory` is mapped for as long as the vCPUs run: they end below,
    // before it goes.
    unsafe { vm.set_user_memory_region(memory.region()) }?;
    let stop = Arc::new(AtomicBool::new(false));
    let from = Instant::now();
    let threads = args
        .cpus
        .iter()
        .enumerate()
        .map(|(number, cpu)| {
            let at = if args.ipi && number > 0 { HALTS } else { CODE };
            let vcpu = vcpu(&vm, number as u64, at, args.work)?;
            let device = args
                .io
                .map(|latency| device(Arc::clone(&vm), number as u64, latency));
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name(format!("vcpu-{number}"))
                .spawn(move || work(vcpu, cpu, device, &stop))
                .context("cannot start a vCPU")
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::sleep(args.length);
    stop.store(true, Ordering::Relaxed);
    let vcpus = threads
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a vCPU's thread panicked"))?
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    drop(memory);
    say(&VmReport {
        wall_ns: u64::try_from(from.elapsed().as_nanos())?,
        vcpus,
    })
}

/// The guest's memory, with its code.
struct Memory(*mut libc::c_void);

impl Memory {
    fn new(then: Then) -> anyhow::Result<Self> {
        // SAFETY: a new anonymous mapping, which touches nothing that exists.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MEMORY,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("no memory for the guest");
        }
        // SAFETY: MEMORY bytes are mapped there, writable, and no vCPU runs yet.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), MEMORY) };
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(CODE as usize, &code(then));
        put(HALTS as usize, &HALT);
        put(usize::from(HANDLER), &SERVE);
        put(usize::from(VECTOR) * 4, &HANDLER.to_le_bytes());
        Ok(Self(at))
    }

    fn region(&self) -> kvm_userspace_memory_region {
        kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: MEMORY as u64,
            userspace_addr: self.0 as u64,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no vCPU runs any more.
        unsafe { libc::munmap(self.0, MEMORY) };
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

/// A device of one vCPU. Told of a request it answers after `latency`, and says
/// when in the number that comes back.
fn device(vm: Arc<VmFd>, vcpu: u64, latency: Duration) -> (mpsc::Sender<()>, Arc<AtomicU64>) {
    let (ask, asked) = mpsc::channel::<()>();
    let raised = Arc::new(AtomicU64::new(0));
    let at = Arc::clone(&raised);
    // Ends when the vCPU has gone.
    std::thread::spawn(move || {
        while asked.recv().is_ok() {
            std::thread::sleep(latency);
            at.store(now().0, Ordering::Relaxed);
            let msi = kvm_msi {
                address_lo: (APIC | (vcpu << 12)) as u32,
                data: u32::from(VECTOR),
                ..kvm_msi::default()
            };
            if vm.signal_msi(msi).is_err() {
                break;
            }
        }
    });
    (ask, raised)
}

fn work(
    mut vcpu: VcpuFd,
    cpu: VcpuId,
    device: Option<(mpsc::Sender<()>, Arc<AtomicU64>)>,
    stop: &AtomicBool,
) -> anyhow::Result<VcpuReport> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu.index());
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on CPU {cpu}"))?;
    let mut pieces = 0;
    let mut responses = Histogram::<u64>::new_with_max(LONGEST.0, 3)?;
    while !stop.load(Ordering::Relaxed) {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(DONE, _)) => {
                pieces += 1;
                if let Some((ask, _)) = &device {
                    ask.send(()).context("the device has gone")?;
                }
            }
            Ok(VcpuExit::IoOut(AWAKE, _)) => {
                if let Some((_, raised)) = &device {
                    let since = raised.load(Ordering::Relaxed);
                    responses.saturating_record(now().0.saturating_sub(since));
                }
            }
            Ok(other) => anyhow::bail!("the guest did something else: {other:?}"),
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(error).context("KVM does not run the vCPU"),
        }
    }
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Ok(VcpuReport {
        cpu_ns: Ns::from_secs(used.tv_sec.cast_unsigned()).0 + used.tv_nsec.cast_unsigned(),
        pieces,
        response_p50_ns: responses.value_at_quantile(0.5),
        response_p95_ns: responses.value_at_quantile(0.95),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_loops_jump_back_to_their_second_byte() {
        let back = |code: &[u8]| {
            let back = code[code.len() - 1].cast_signed();
            assert_eq!(code.len() as i64 + i64::from(back), 1);
        };
        for then in [Then::Nothing, Then::Waits, Then::Wakes] {
            let code = code(then);
            back(&code);
            assert_eq!(code.contains(&0xf4), then == Then::Waits, "hlt");
            assert!(CODE as usize + code.len() <= HALTS as usize);
        }
        back(&HALT);
        assert!(HALTS as usize + HALT.len() <= usize::from(HANDLER));
    }
}
