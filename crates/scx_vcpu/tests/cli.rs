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
