// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sensing: which vCPUs are away, which tasks wait for I/O.
//!
//! The programs are in `src/bpf`; [`Sense`] loads them, owns the memory they
//! share with us and the rings through which they call. What is *probed* at
//! start, never assumed from a version: BTF, the timer tracepoint, the steal
//! page, permission.

use std::io;

use thiserror::Error;

mod driver;
mod locate;
mod offered;
mod probe;
mod selftest;
mod shared;
mod skel;

pub use driver::Sense;
pub use probe::Probe;
pub use probe::SourceFacts;
pub(crate) use probe::accuracy;
pub(crate) use probe::now;
pub use probe::probe;
pub use selftest::ProgramState;
pub use selftest::Tested;
pub use selftest::selftest;
pub(crate) use shared::Activity;
pub(crate) use shared::Bell;
pub(crate) use shared::Mode;
pub(crate) use shared::Shared;
pub(crate) use shared::SlotState;
pub(crate) use shared::TaskSlot;

/// The most vCPUs that the programs can follow (`MAX_VCPUS` of `shared.h`).
pub const MAX_VCPUS: usize = 256;
/// The most block devices that the programs can follow (`MAX_DEVICES` of `shared.h`).
pub(crate) const MAX_DEVICES: usize = 32;
/// The most tasks that can be I/O-bound at once (`MAX_TASKS` of `shared.h`).
pub const MAX_TASKS: usize = 128;

/// Where slices are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// KVM's steal page.
    StealPage,
    /// A BPF map with the same layout (test beds).
    StealMap,
    /// A timer on every vCPU (V7).
    Heartbeat,
}

impl Source {
    /// As shown to people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StealPage => "steal-page",
            Self::StealMap => "steal-map",
            Self::Heartbeat => "heartbeat",
        }
    }

    /// Does BPF see the gaps itself?
    #[must_use]
    pub const fn reads_steal(self) -> bool {
        matches!(self, Self::StealPage | Self::StealMap)
    }
}

/// Why sensing cannot start.
#[derive(Debug, Error)]
pub enum SenseError {
    /// CO-RE needs the kernel's own type information.
    #[error(
        "this kernel has no BTF at /sys/kernel/btf/vmlinux; \
         boot a kernel built with CONFIG_DEBUG_INFO_BTF (every Debian kernel since 5.10 is)"
    )]
    NoBtf,
    /// Not root, and not the capabilities either.
    #[error(
        "no permission to load BPF programs; \
         run as root or with CAP_BPF, CAP_PERFMON and CAP_SYS_NICE"
    )]
    Permission,
    /// BPF may not read the kernel's memory, whoever asks.
    #[error(
        "this kernel is locked down for confidentiality, BPF may not read its memory; \
         boot it with lockdown=integrity, or without lockdown"
    )]
    LockedDown,
    /// libbpf or the verifier refused.
    #[error("cannot {action} the BPF programs")]
    Bpf {
        /// What was tried.
        action: &'static str,
        /// libbpf's reason.
        source: libbpf_rs::Error,
    },
    /// The steal page was asked for and cannot be read.
    #[error("the steal page cannot be read ({reason}); use --source heartbeat or auto")]
    NoStealPage {
        /// Why.
        reason: String,
    },
    /// The map given as steal page is not one.
    #[error("BPF map {id} cannot serve as steal page ({reason})")]
    StealMap {
        /// The map's id.
        id: u32,
        /// Why.
        reason: String,
    },
    /// A program runs and says what is not so.
    #[error("BPF program {program} gives a wrong answer ({answer})")]
    WrongAnswer {
        /// The program.
        program: &'static str,
        /// What it said, and what would be right.
        answer: String,
    },
    /// A system call failed.
    #[error("{call} failed")]
    System {
        /// Which one.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// More vCPUs than the programs can follow.
    #[error(
        "this machine has {found} possible vCPUs, and at most {MAX_VCPUS} are supported; \
         boot it with possible_cpus={MAX_VCPUS} or fewer"
    )]
    TooManyVcpus {
        /// How many there are.
        found: usize,
    },
}

impl SenseError {
    /// From libbpf, telling a lack of permission from other trouble. The error
    /// alone does not: the verifier also answers with "permission denied".
    fn bpf(action: &'static str, source: libbpf_rs::Error) -> Self {
        if !may_load() {
            Self::Permission
        } else if is_locked_down() {
            Self::LockedDown
        } else {
            Self::Bpf { action, source }
        }
    }
}

/// Only confidentiality takes `bpf_probe_read_kernel` away
/// (`bpf_tracing_func_proto` of kernel/trace/bpf_trace.c); the verifier then knows
/// no function of that name. False where nobody can tell.
fn is_locked_down() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lockdown")
        .is_ok_and(|levels| levels.contains("[confidentiality]"))
}

/// Have we CAP_PERFMON (38) and CAP_BPF (39), or CAP_SYS_ADMIN (21) for both?
fn may_load() -> bool {
    let both = 1 << 38 | 1 << 39;
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .is_some_and(|caps| caps & both == both || caps & 1 << 21 != 0)
}
