// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether this machine can run the scheduler, and whether it would be alone.
//!
//! Files of the kernel are asked, not its version. Every text is one line with
//! the cause and the way out.

mod filled;
mod unseen;

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

pub(crate) use unseen::EVENTS;
pub(crate) use unseen::HALTS;
pub(crate) use unseen::no_events;
pub(crate) use unseen::no_halts;
pub use unseen::unseen;

/// Why the scheduler cannot run here.
#[derive(Debug, Error)]
pub enum Unsupported {
    /// The kernel has no sched_ext.
    #[error(
        "this kernel has no sched_ext (no {0}); use one with CONFIG_SCHED_CLASS_EXT=y, for instance Debian's from backports"
    )]
    NoSchedExt(PathBuf),
    /// The kernel has no BTF.
    #[error("this kernel has no BTF (no {0}); use one with CONFIG_DEBUG_INFO_BTF=y")]
    NoBtf(PathBuf),
    /// The kernel's sched_ext lacks functions that the programs call.
    #[error("this kernel's sched_ext is too old (it lacks {missing}); use Linux {since} or newer")]
    TooOld {
        /// Their names.
        missing: String,
        /// The first kernel that has all of them.
        since: &'static str,
    },
    /// The kernel is built for real time.
    #[error(
        "this kernel is built for real time ({0} says PREEMPT_RT), where BPF programs have no timers; use one that is not, for instance Debian's linux-image-amd64 or -cloud-amd64"
    )]
    RealTime(PathBuf),
    /// The kernel's description of functions that the programs call is half there.
    #[error(
        "this kernel's BTF lacks {0}, without which its verifier refuses every scheduler that calls such functions: a fault of its build; use another kernel, for instance Debian's 7.3"
    )]
    HalfDescribed(String),
    /// KVM is not loaded, or its module has no BTF.
    #[error(
        "KVM is not loaded, or its module has no BTF (no {0}); load it: modprobe kvm_amd, or kvm_intel; if it is, use the module that came with this kernel"
    )]
    NoKvm(PathBuf),
    /// Another scheduler is loaded.
    #[error(
        "another sched_ext scheduler, {0}, is loaded; end it first (a kernel has one at a time)"
    )]
    Beside(String),
    /// One of ours is there, and may have no vCPU to schedule yet.
    #[error("scx_vcpu runs already; end that one first")]
    Runs,
    /// Loading is not allowed.
    #[error("privileges are missing ({0}); run as root")]
    NotPermitted(String),
    /// The kernel does not say whether a thread has a cookie.
    #[error(
        "whether threads have core-scheduling cookies is unknown (thread {0}: not permitted to ask); run as root"
    )]
    CookiesUnknown(u32),
    /// Two tasks share a core-scheduling cookie.
    #[error(
        "thread {0} has a core-scheduling cookie, and the kernel can hang with both; end that use of core scheduling first"
    )]
    CoreScheduling(u32),
    /// The kernel's verifier or libbpf refused for another reason.
    #[error(
        "the kernel refuses the scheduler's BPF programs: its verifier, a lockdown mode or a security module; RUST_LOG=libbpf=debug shows its reasons"
    )]
    Refused(#[source] libbpf_rs::Error),
}

/// Asks the files below `root` (normally `/`), without loading anything.
///
/// # Errors
/// The first thing that stands in the way.
pub fn files(root: &Path) -> Result<(), Unsupported> {
    let sched_ext = root.join("sys/kernel/sched_ext");
    if !sched_ext.exists() {
        return Err(Unsupported::NoSchedExt(sched_ext));
    }
    let btf = root.join("sys/kernel/btf/vmlinux");
    if !btf.exists() {
        return Err(Unsupported::NoBtf(btf));
    }
    // kernel/bpf/verifier.c: "bpf_timer cannot be used for PREEMPT_RT".
    let version = root.join("proc/sys/kernel/version");
    if fs::read_to_string(&version).is_ok_and(|text| text.contains("PREEMPT_RT")) {
        return Err(Unsupported::RealTime(version));
    }
    functions(&btf)?;
    let half = filled::half_described(&btf);
    if !half.is_empty() {
        let twins: Vec<String> = half.iter().map(|name| format!("{name}_impl")).collect();
        return Err(Unsupported::HalfDescribed(twins.join(", ")));
    }
    let state = fs::read_to_string(sched_ext.join("state")).unwrap_or_default();
    if !matches!(state.trim(), "" | "disabled") {
        return Err(another(&sched_ext));
    }
    kvm(root)
}

/// Functions of the kernel that the programs call and that its first sched_ext, that of 6.12,
/// had not yet, with the first kernel that has each (docs.ebpf.io/linux/kfuncs), the oldest
/// first.
const FUNCTIONS: [(&str, &str); 4] = [
    ("scx_bpf_dsq_insert___v2", "6.19"),
    ("scx_bpf_dsq_peek", "6.19"),
    ("scx_bpf_task_set_slice", "6.19"),
    ("scx_bpf_dsq_move_to_local___v2", "7.1"),
];

/// Has the kernel with this description all [`FUNCTIONS`]? Their names are strings in it among
/// others. One pass: it has megabytes.
fn functions(btf: &Path) -> Result<(), Unsupported> {
    let bytes = fs::read(btf).unwrap_or_default();
    let mut missing = FUNCTIONS.to_vec();
    for name in bytes.split(|byte| *byte == 0) {
        if name.starts_with(b"scx_bpf_") {
            missing.retain(|(function, _)| function.as_bytes() != name);
        }
    }
    let Some((_, since)) = missing.last() else {
        return Ok(());
    };
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    Err(Unsupported::TooOld {
        missing: names.join(", "),
        since,
    })
}

/// Whether vCPUs can be found on a system whose files are below `root`.
pub(crate) fn kvm(root: &Path) -> Result<(), Unsupported> {
    let btf = root.join("sys/kernel/btf/vmlinux");
    if !btf.exists() {
        return Err(Unsupported::NoBtf(btf));
    }
    // The vCPU's kernel structure is described by the module that has it; in a
    // kernel with KVM built in, by the kernel's own description. That the module is there says
    // nothing: where its description is missing (the kernel refuses one that does not match its
    // own), libbpf would fail with a text about the programs.
    let kvm = root.join("sys/kernel/btf/kvm");
    if !kvm.exists() && !has_kvm_function(root, RUNS) {
        return Err(Unsupported::NoKvm(kvm));
    }
    Ok(())
}

/// Where vCPUs are found, see `vcpu.h`.
const RUNS: &str = "kvm_arch_vcpu_ioctl_run";

/// The scheduler that is in the way of ours.
fn another(sched_ext: &Path) -> Unsupported {
    let name = fs::read_to_string(sched_ext.join("root/ops")).unwrap_or_default();
    Unsupported::Beside(match name.trim() {
        "" => "without a name".to_owned(),
        name => name.to_owned(),
    })
}

/// Has KVM a function of this name that can be traced? Below `root` (normally `/`).
///
/// Asks the type information, where the name is a string among others; the list
/// of all symbols says the same, and costs a slow machine many seconds.
pub(crate) fn has_kvm_function(root: &Path, name: &str) -> bool {
    let name = [b"\0", name.as_bytes(), b"\0"].concat();
    // Built into the kernel, KVM has no description of its own.
    ["kvm", "vmlinux"].iter().any(|object| {
        let bytes = fs::read(root.join("sys/kernel/btf").join(object)).unwrap_or_default();
        bytes.windows(name.len()).any(|window| window == name)
    })
}

/// Capabilities that it takes (include/uapi/linux/capability.h): to load the programs,
/// and to give threads of others another scheduling policy.
const CAPABILITIES: [(u32, &str); 2] = [(21, "CAP_SYS_ADMIN"), (23, "CAP_SYS_NICE")];

/// Has the process with this status (normally `/proc/self/status`) the privileges?
///
/// # Errors
/// The names of those that are missing.
pub fn privileges(status: &Path) -> Result<(), Unsupported> {
    let text = fs::read_to_string(status).unwrap_or_default();
    let effective = text
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or_default();
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Unsupported::NotPermitted(missing.join(", ")))
    }
}

/// Is there a thread with a core-scheduling cookie?
///
/// # Errors
/// The first one that has one; else one of which the kernel does not say.
pub fn core_scheduling() -> Result<(), Unsupported> {
    cookies(Path::new("/proc"), cookie_of)
}

/// The same for the threads below `proc`, with `cookie_of` each.
fn cookies(proc: &Path, cookie_of: impl Fn(u32) -> Result<u64, Errno>) -> Result<(), Unsupported> {
    // Ours, of which the kernel always says: without core scheduling or SMT no thread has one.
    if matches!(cookie_of(0), Err(Errno::INVAL | Errno::NODEV)) {
        return Ok(());
    }
    let mut unknown = None;
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let tasks = fs::read_dir(process.path().join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match cookie_of(tid) {
                Ok(0) => {}
                Ok(_) => return Err(Unsupported::CoreScheduling(tid)),
                Err(Errno::PERM | Errno::ACCESS) => unknown = unknown.or(Some(tid)),
                // It has gone.
                Err(_) => {}
            }
        }
    }
    unknown.map_or(Ok(()), |tid| Err(Unsupported::CookiesUnknown(tid)))
}

/// The cookie of a thread, 0: none; of thread 0: our own.
fn cookie_of(tid: u32) -> Result<u64, Errno> {
    let mut cookie: u64 = 0;
    // SAFETY: PR_SCHED_CORE_GET writes one u64 to the address it is given, and
    // `cookie` outlives the call.
    let done = unsafe {
        libc::prctl(
            libc::PR_SCHED_CORE,
            libc::PR_SCHED_CORE_GET,
            libc::c_ulong::from(tid),
            // PIDTYPE_PID: this thread alone.
            0 as libc::c_ulong,
            &raw mut cookie,
        )
    };
    if done == 0 {
        return Ok(cookie);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(state: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in ["btf/vmlinux", "btf/kvm", "sched_ext/state"] {
            let path = dir.path().join("sys/kernel").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, state).unwrap();
        }
        let names = FUNCTIONS.map(|(name, _)| name).join("\0");
        has(&dir, &format!("\0{state}\0{names}\0"));
        dir
    }

    /// What the description of its kernel has.
    fn has(dir: &tempfile::TempDir, btf: &str) {
        fs::write(dir.path().join("sys/kernel/btf/vmlinux"), btf).unwrap();
    }

    #[test]
    fn a_kernel_whose_sched_ext_is_too_old_is_told_which_one_is_not() {
        let dir = root("disabled\n");
        for (btf, since, missing) in [
            ("\0scx_bpf_dsq_insert\0", "6.12", 4),
            // 6.19 and 7.0.
            (
                "\0scx_bpf_dsq_insert___v2\0scx_bpf_dsq_peek\0scx_bpf_task_set_slice\0scx_bpf_dsq_move_to_local\0",
                "7.0",
                1,
            ),
        ] {
            has(&dir, btf);
            let why = files(dir.path()).unwrap_err().to_string();
            assert!(why.contains("use Linux 7.1 or newer"), "{since}: {why}");
            assert!(
                why.contains("scx_bpf_dsq_move_to_local___v2"),
                "{since}: {why}"
            );
            assert_eq!(why.matches("scx_bpf_").count(), missing, "{since}: {why}");
            assert_eq!(why.lines().count(), 1);
        }
    }

    #[test]
    fn a_kernel_for_real_time_is_told_so() {
        let dir = root("disabled\n");
        let version = dir.path().join("proc/sys/kernel/version");
        fs::create_dir_all(version.parent().unwrap()).unwrap();
        let says = |text| fs::write(&version, text).unwrap();
        says("#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-03)\n");
        files(dir.path()).unwrap();
        says("#1 SMP PREEMPT_RT Debian 7.3.4-1~bpo13+1 (2026-11-03)\n");
        let why = files(dir.path()).unwrap_err().to_string();
        assert!(why.contains("built for real time"), "{why}");
        assert_eq!(why.lines().count(), 1);
    }

    #[test]
    fn each_thing_that_is_missing_is_named() {
        let dir = root("disabled\n");
        files(dir.path()).unwrap();
        for (gone, text) in [
            ("sys/kernel/btf/kvm", "KVM is not loaded"),
            ("sys/kernel/btf/vmlinux", "no BTF"),
            ("sys/kernel/sched_ext/state", ""),
        ] {
            fs::remove_file(dir.path().join(gone)).unwrap();
            let said = files(dir.path()).map_or_else(|why| why.to_string(), |()| String::new());
            assert!(said.contains(text), "{said}");
        }
        let empty = tempfile::tempdir().unwrap();
        let why = files(empty.path()).unwrap_err().to_string();
        assert!(why.contains("no sched_ext"), "{why}");
        assert_eq!(why.lines().count(), 1);
    }

    #[test]
    fn a_module_without_a_description_is_not_kvm_built_in() {
        let dir = root("disabled\n");
        fs::remove_file(dir.path().join("sys/kernel/btf/kvm")).unwrap();
        fs::create_dir_all(dir.path().join("sys/module/kvm/parameters")).unwrap();
        for part in [files, kvm] {
            let why = part(dir.path()).unwrap_err();
            assert!(matches!(why, Unsupported::NoKvm(_)), "{why}");
            assert!(why.to_string().contains("its module has no BTF"), "{why}");
        }
        // Built in; its parameters are where the module's are.
        let names = FUNCTIONS.map(|(name, _)| name).join("\0");
        has(&dir, &format!("\0{names}\0{RUNS}\0"));
        files(dir.path()).unwrap();
        kvm(dir.path()).unwrap();
    }

    #[test]
    fn a_function_of_kvm_is_found_by_its_whole_name() {
        let dir = root("x\0__apic_accept_irq\0y");
        assert!(has_kvm_function(dir.path(), "__apic_accept_irq"));
        assert!(!has_kvm_function(dir.path(), "apic_accept_irq"));
        let empty = tempfile::tempdir().unwrap();
        assert!(!has_kvm_function(empty.path(), "x"));
    }

    #[test]
    fn privileges_are_those_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let status = dir.path().join("status");
        for (effective, missing) in [
            ("000001ffffffffff", ""),
            ("0000000000a00000", ""),
            ("0000000000200000", "CAP_SYS_NICE"),
            ("0000000000000000", "CAP_SYS_ADMIN, CAP_SYS_NICE"),
        ] {
            let text = format!("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{effective}\n");
            fs::write(&status, text).unwrap();
            let said = privileges(&status).map_or_else(|why| why.to_string(), |()| String::new());
            assert!(said.contains(missing), "{said}");
            assert_eq!(said.is_empty(), missing.is_empty(), "{said}");
        }
    }

    #[test]
    fn a_cookie_is_refused_and_one_that_is_not_told_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        for task in ["7/task/7", "7/task/8", "9/task/9", "self/task/x"] {
            fs::create_dir_all(dir.path().join(task)).unwrap();
        }
        let ask = |answer: &dyn Fn(u32) -> Result<u64, Errno>| match cookies(dir.path(), answer) {
            Ok(()) => "none".to_owned(),
            Err(why) => why.to_string(),
        };
        assert_eq!(ask(&|_| Ok(0)), "none");
        let one = ask(&|tid| Ok(u64::from(tid == 8)));
        assert!(
            one.contains("thread 8 has a core-scheduling cookie"),
            "{one}"
        );
        // One that has gone meanwhile.
        let gone = |tid| if tid == 7 { Err(Errno::SRCH) } else { Ok(0) };
        assert_eq!(ask(&gone), "none");
        let hidden = |tid| if tid == 7 { Err(Errno::PERM) } else { Ok(0) };
        let unknown = ask(&hidden);
        assert!(unknown.contains("unknown (thread 7"), "{unknown}");
        let both = |tid| {
            if tid == 7 {
                Err(Errno::PERM)
            } else {
                Ok(u64::from(tid == 9))
            }
        };
        let both = ask(&both);
        assert!(both.contains("thread 9 has"), "{both}");
        // A kernel without core scheduling, and a CPU without SMT.
        for errno in [Errno::INVAL, Errno::NODEV] {
            assert_eq!(ask(&|_| Err(errno)), "none");
        }
    }

    #[test]
    fn another_scheduler_is_named() {
        let dir = root("enabled\n");
        let ops = dir.path().join("sys/kernel/sched_ext/root/ops");
        fs::create_dir_all(ops.parent().unwrap()).unwrap();
        fs::write(ops, "rusty\n").unwrap();
        let why = files(dir.path()).unwrap_err().to_string();
        assert!(why.contains("rusty"), "{why}");
    }
}
