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

/// How the kernel was built.
pub(crate) const VERSION_FILE: &str = "/proc/sys/kernel/version";

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
    /// A kernel for real time, whose verifier refuses BPF timers
    /// (kernel/bpf/verifier.c: "bpf_timer cannot be used for PREEMPT_RT").
    #[error(
        "this kernel is built for real time ({VERSION_FILE} says PREEMPT_RT), where BPF programs \
         have no timers; use one that is not, for instance Debian's linux-image-amd64"
    )]
    RealTime,
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

/// Is the kernel whose version `file` holds built for real time? That alone says nothing: it is
/// what explains a refusal.
pub(crate) fn for_real_time(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains("PREEMPT_RT"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_for_real_time_says_so_in_its_version() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (version, real_time) in [
            ("#1 SMP PREEMPT_RT Debian 7.3.4-1 (2026-11-03)\n", true),
            (
                "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1 (2026-11-03)\n",
                false,
            ),
        ] {
            fs::write(file.path(), version).unwrap();
            assert_eq!(for_real_time(file.path()), real_time, "{version}");
        }
        assert!(!for_real_time(Path::new("/does/not/exist")));
    }
}
