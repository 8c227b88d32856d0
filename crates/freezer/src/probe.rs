// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether this machine can be frozen. Each feature is tried, none is deduced
//! from a kernel version.

use std::fs;
use std::path::Path;

use libbpf_rs::btf::Btf;
use units::CpuSet;

use crate::load;
use crate::load::Failure;

/// The kernel's own type information.
const BTF_FILE: &str = "/sys/kernel/btf/vmlinux";
/// The type that BTF holds for each tracepoint a BPF program can attach to.
const TRACEPOINT_TYPE: &str = "btf_trace_local_timer_entry";

/// What a machine offers that can be frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// The CPUs that a plan can name.
    pub online: CpuSet,
}

/// Why a machine cannot be frozen. Each text ends with the way out.
#[derive(Debug, thiserror::Error)]
pub enum Unsupported {
    /// The kernel was built without BTF.
    #[error("no {BTF_FILE}: this kernel has no BTF; use one built with CONFIG_DEBUG_INFO_BTF=y")]
    NoBtf,
    /// The tracepoint is not there: another architecture, or no tracepoints.
    #[error(
        "the kernel has no tracepoint local_timer_entry ({TRACEPOINT_TYPE} is not in {BTF_FILE}); \
         it exists on x86 kernels with CONFIG_TRACEPOINTS=y"
    )]
    NoTracepoint,
    /// Timers cannot be pinned to a CPU.
    #[error(
        "the kernel cannot pin a BPF timer to a CPU (flag BPF_F_TIMER_CPU_PIN); Linux 6.7 and later can"
    )]
    NoTimerPinning,
    /// Loading BPF is not allowed.
    #[error(
        "BPF programs may not be loaded; run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN"
    )]
    NotPermitted,
    /// The kernel's verifier or libbpf refused for some other reason.
    #[error(
        "the kernel refuses the freezer's BPF program; its reason is in the log at level debug"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// The list of CPUs cannot be read.
    #[error("cannot read {path}; is /sys mounted?")]
    NoCpuList {
        /// The file.
        path: &'static str,
    },
}

/// Tries what the freezer needs, without freezing anything.
///
/// # Errors
/// The first thing that is missing.
pub fn probe() -> Result<Support, Unsupported> {
    if !Path::new(BTF_FILE).exists() {
        return Err(Unsupported::NoBtf);
    }
    let btf = Btf::from_vmlinux().map_err(|_| Unsupported::NoBtf)?;
    let tracepoint: Option<libbpf_rs::btf::types::Typedef<'_>> = btf.type_by_name(TRACEPOINT_TYPE);
    if tracepoint.is_none() {
        return Err(Unsupported::NoTracepoint);
    }
    let online = online_cpus()?;
    let one = online.iter().take(1).collect();
    match load::load(&load::Sizes::MINIMAL, &one) {
        Ok(_) => Ok(Support { online }),
        Err(Failure::Unsupported(why)) => Err(why),
        Err(Failure::Timer(_, error)) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(Unsupported::NoTimerPinning)
        }
        Err(Failure::Timer(_, error)) => Err(Unsupported::Refused(error.into())),
        // This process may not go there, which says nothing about the machine.
        Err(Failure::Pin(..)) => Ok(Support { online }),
    }
}

/// The CPUs that are online.
///
/// # Errors
/// [`Unsupported::NoCpuList`] without `/sys`.
pub fn online_cpus() -> Result<CpuSet, Unsupported> {
    let path = "/sys/devices/system/cpu/online";
    fs::read_to_string(path)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Unsupported::NoCpuList { path })
}
