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
        wrong(&arguments, part);
    }
}

/// Exit code 2, and one line that begins with our name and has this in it.
fn wrong(arguments: &[&str], part: &str) {
    let output = scx_vcpu(arguments);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("scx_vcpu: "), "{arguments:?}: {said}");
    assert!(said.contains(part), "{arguments:?}: {said}");
}

#[test]
fn a_command_line_that_is_wrong_is_told_in_one_line_with_the_way_out() {
    for (arguments, part) in [
        (
            &["run", "--policy", "fastest"][..],
            "[possible values: fixed, credit1, credit2, vslicer, ische, isacs]",
        ),
        (&["run", "--policy", "credit3"], "tip: a similar value"),
        (&["run", "--slice", "fast"], "for instance 11ms"),
        (&["run", "--for", "10"], "for instance 11ms"),
        (&["run", "--policy", "a\n\nb"], "a; b"),
        (&["run", "--weight=3"], "unexpected argument '--weight'"),
        (&["run", "--slice"], "a value is required for '--slice"),
        (
            &["run", "--policy=credit1", "--slice=5ms"],
            "takes its slices from --config",
        ),
        (&["go"], "unrecognized subcommand 'go'"),
        (&["set", "web"], "usage: scx_vcpu set "),
        (&["set", "web", "--weight=-1"], "--weight"),
        (
            &["set", "web", "--class=disk"],
            "[possible values: cpu, io]",
        ),
        (&["set", "web", "--cpus="], "name at least one, or any"),
        (&["trace"], "usage: scx_vcpu trace "),
        (&["doctor", "--config=/tmp/x"], "--programs"),
        (
            &["doctor", "--programs", "--config=/nowhere/f.toml"],
            "cannot read /nowhere/f.toml: No such file",
        ),
    ] {
        wrong(arguments, part);
    }
    // Nothing is wrong with these.
    for (arguments, code) in [(&["--version"][..], 0), (&["set", "--help"], 0), (&[], 2)] {
        let output = scx_vcpu(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let all = [output.stdout, output.stderr].concat();
        assert!(!String::from_utf8_lossy(&all).contains("scx_vcpu: "));
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

/// The same as nobody.
fn scx_vcpu_as_nobody(arguments: &[&str]) -> Output {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // Where anybody can start it.
    let dir = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let program = dir.path().join("scx_vcpu");
    // By a process of its own: a program that this one had open to write could not be started
    // while a child of another test, forked meanwhile, still has that descriptor.
    let copied = Command::new("cp")
        .arg(assert_cmd::cargo::cargo_bin!("scx_vcpu"))
        .arg(&program)
        .status()
        .unwrap();
    assert!(copied.success());
    Command::new(program)
        .args(arguments)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap()
}

/// Where there is no scheduler, `list`, `stats` and `set` say that, whoever asks; where there is
/// no sched_ext, `run` does. Who asks in vain where there are both is tested on such a machine,
/// see `crates/vlab/tests/vm_scx/knobs.rs`.
#[test]
fn root_who_has_no_privileges_is_told_in_one_line_what_to_do() {
    let file = std::env::temp_dir().join(format!("scx_vcpu-nobody-{}", std::process::id()));
    for (arguments, codes) in [
        (&["run", "--for=100ms"][..], &[3][..]),
        (&["restore"], &[3]),
        (&["trace", file.to_str().unwrap()], &[3]),
        (&["list"], &[1]),
        (&["stats", "--count=1"], &[1]),
        (&["set", "web", "--weight=3"], &[1]),
    ] {
        let output = scx_vcpu_as_nobody(arguments);
        let said = said(&output);
        let code = output.status.code().unwrap();
        assert!(codes.contains(&code), "{arguments:?}: {code}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
        let ways = ["run as root", "`scx_vcpu run`", "use one with", "modprobe"];
        let way = ways.iter().find(|way| said.contains(*way));
        assert!(way.is_some(), "{arguments:?}: {said}");
        assert!(
            !arguments.contains(&"restore") || way == Some(&ways[0]),
            "{said}"
        );
    }
    assert!(!file.exists(), "nothing was traced");
}

#[test]
fn root_doctor_tells_who_has_no_privileges() {
    let output = scx_vcpu_as_nobody(&["doctor"]);
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
