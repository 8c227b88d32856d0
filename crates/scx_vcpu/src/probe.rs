// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether this machine can run the scheduler, and whether it would be alone.
//!
//! Files of the kernel are asked, not its version. Every text is one line with
//! the cause and the way out.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;

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
    /// KVM is not loaded, or its module has no BTF.
    #[error(
        "KVM is not loaded, or its module has no BTF (no {0}); load it: modprobe kvm_amd, or kvm_intel"
    )]
    NoKvm(PathBuf),
    /// Another scheduler is loaded.
    #[error(
        "another sched_ext scheduler, {0}, is loaded; end it first (a kernel has one at a time)"
    )]
    Beside(String),
    /// Loading is not allowed.
    #[error("not permitted to load BPF programs; run as root")]
    NotPermitted,
    /// Two tasks share a core-scheduling cookie.
    #[error(
        "thread {0} has a core-scheduling cookie, and the kernel can hang with both; end that use of core scheduling first"
    )]
    CoreScheduling(u32),
    /// The kernel's verifier or libbpf refused for another reason.
    #[error(
        "the kernel refuses the scheduler's BPF programs; RUST_LOG=libbpf=debug shows its reasons"
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
    let state = fs::read_to_string(sched_ext.join("state")).unwrap_or_default();
    if !matches!(state.trim(), "" | "disabled") {
        return Err(another(&sched_ext));
    }
    // The vCPU's kernel structure is described by the module that has it; in a
    // kernel with KVM built in, by the kernel's own description.
    let kvm = root.join("sys/kernel/btf/kvm");
    if !kvm.exists() && !root.join("sys/module/kvm").exists() {
        return Err(Unsupported::NoKvm(kvm));
    }
    Ok(())
}

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

/// Is there a thread with a core-scheduling cookie?
///
/// # Errors
/// The first one that has one.
pub fn core_scheduling() -> Result<(), Unsupported> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let tasks = fs::read_dir(process.path().join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(tid) = tid
                && has_cookie(tid)
            {
                return Err(Unsupported::CoreScheduling(tid));
            }
        }
    }
    Ok(())
}

fn has_cookie(tid: u32) -> bool {
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
    // An error means no core scheduling in this kernel, no SMT, or no thread.
    done == 0 && cookie != 0
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
        dir
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
    fn a_function_of_kvm_is_found_by_its_whole_name() {
        let dir = root("x\0__apic_accept_irq\0y");
        assert!(has_kvm_function(dir.path(), "__apic_accept_irq"));
        assert!(!has_kvm_function(dir.path(), "apic_accept_irq"));
        let empty = tempfile::tempdir().unwrap();
        assert!(!has_kvm_function(empty.path(), "x"));
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
