// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program as a user starts it, on a machine that may or may not be a KVM
//! host with sched_ext. What it does on one is tested on an emulated host, see
//! `crates/vlab/tests/kvm_nested.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::process::Output;

fn scx_vcpu(arguments: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("scx_vcpu"))
        .args(arguments)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_teaches() {
    let output = scx_vcpu(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("scx_vcpu run") && text.contains("Exit codes"),
        "{text}"
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_the_range() {
    for (arguments, part) in [
        (["run", "--slice=10us"], "--slice"),
        (["run", "--slice=1h"], "--slice"),
        (["run", "--sweep=501"], "--sweep"),
        (["run", "--policy=fastest"], "fastest"),
        (["run", "--slice=fast"], "--slice"),
        (["run", "--watchdog=31s"], "5s to 30s"),
    ] {
        let output = scx_vcpu(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(part), "{}", said(&output));
    }
}

#[test]
fn a_machine_that_cannot_run_it_is_told_why_in_one_line() {
    // A machine that can would be scheduled: then there is nothing to refuse.
    if Path::new("/sys/kernel/sched_ext").exists() {
        return;
    }
    let output = scx_vcpu(&["run", "--for=100ms"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    assert!(said.contains("no sched_ext") && said.contains("CONFIG_SCHED_CLASS_EXT"));
}

#[test]
fn a_policy_file_with_an_error_is_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vms.toml");
    for (text, parts) in [
        (
            "[credit1]\nslice = \"1us\"\n",
            [":2: credit1.slice = 1 us", "use 1 ms to 3 s"],
        ),
        (
            "[[vm]]\nmatch = \"a\"\nweight = \"many\"\n",
            [":3: vm.weight: ", "\"many\", expected a whole number"],
        ),
        (
            "\n[credit2]\nslices = \"10ms\"\n",
            [":3: ", "unknown field `slices`, expected one of `slice`"],
        ),
        ("[credit2\n", [":1: ", "expected"]),
    ] {
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        let output = scx_vcpu(&["run", "--policy=credit1", "--config", &path]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        let begins = format!("scx_vcpu: {path}:");
        assert!(said.starts_with(&begins), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert_eq!(
            said.matches("expected").count(),
            usize::from(!text.contains("1us")),
            "{said}"
        );
    }
    let output = scx_vcpu(&["run", "--config=/nowhere/f.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("cannot read /nowhere/f.toml: No such file"));
}

#[test]
fn a_key_that_the_policy_makes_nothing_of_is_warned_of_in_one_line() {
    // A machine that can would be scheduled.
    if Path::new("/sys/kernel/sched_ext").exists() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vms.toml");
    let text = "[[vm]]\nmatch = \"a\"\nweight = 2\ncap = 50\n[isacs]\nhardened = true\n";
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    for (policy, keys) in [
        (
            "fixed",
            &["3: vm.weight", "4: vm.cap", "6: isacs.hardened"][..],
        ),
        ("credit1", &["6: isacs.hardened"]),
        ("isacs", &[]),
    ] {
        let output = scx_vcpu(&["run", "--policy", policy, "--config", &path]);
        let said = said(&output);
        let warnings: Vec<&str> = said.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), keys.len(), "{said}");
        for (warning, key) in warnings.iter().zip(keys) {
            let says = format!("{path}:{key} has no effect: policy {policy} ");
            assert!(warning.contains(&says), "{said}");
        }
    }
}

#[test]
fn monitor_is_every_second_and_excludes_another_period() {
    let output = scx_vcpu(&["stats", "--monitor", "--every=2s"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    // It gets as far as looking for a scheduler.
    if !Path::new("/sys/fs/bpf/scx_vcpu_table").exists() {
        let output = scx_vcpu(&["stats", "--monitor", "--count=1"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("scx_vcpu run"), "{}", said(&output));
    }
}

/// Nobody's user and group, who may do nothing.
const NOBODY: u32 = 65_534;

#[test]
fn root_doctor_tells_who_has_no_privileges() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // Where anybody can start it.
    let dir = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let program = dir.path().join("scx_vcpu");
    std::fs::copy(assert_cmd::cargo::cargo_bin!("scx_vcpu"), &program).unwrap();
    let output = Command::new(program)
        .arg("doctor")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("no: privileges are missing (CAP_SYS_ADMIN"),
        "{said}"
    );
    // Not "no thread has one", which it cannot know; unless no thread can.
    let unknown = said.contains("no: whether threads have core-scheduling cookies is unknown");
    assert!(unknown || !core_scheduling_is_there(), "{said}");
}

/// Has this kernel core scheduling, and this machine SMT?
fn core_scheduling_is_there() -> bool {
    let mut cookie = 0u64;
    // SAFETY: PR_SCHED_CORE_GET writes one u64, which outlives the call.
    let done = unsafe {
        libc::prctl(
            libc::PR_SCHED_CORE,
            libc::PR_SCHED_CORE_GET,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            &raw mut cookie,
        )
    };
    done == 0
}
