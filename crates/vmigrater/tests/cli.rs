// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line without a daemon: exit codes and messages. Needs no privileges.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::net::UnixListener;

use common::Home;
use common::one_line;

#[test]
fn every_broken_configuration_is_one_line_and_exit_2() {
    let home = Home::new();
    for (text, message) in [
        (&b"dry_run = \n"[..], "c.toml:1:11: not valid TOML"),
        (
            b"[iobound]\nenter = \"150 %\"\n",
            "c.toml:2:1: iobound.enter = \"150 %\": expected a percentage",
        ),
        (b"perood = 1\n", "c.toml:1:1: unknown key `perood`"),
        (b"\xff\xfe", "c.toml: not UTF-8 at 1:1"),
    ] {
        let file = home.path("c.toml");
        fs::write(&file, text).unwrap();
        let output = home.run(&["run", "--config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let line = one_line(&output);
        assert!(
            line.starts_with("vmigrater: ") && line.contains(message),
            "{line}"
        );
    }
    let directory = home.path("");
    let output = home.run(&["run", "--config", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(one_line(&output).contains("is a directory"));
    let output = home.run(&["run", "--config", "/nonexistent/c.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(one_line(&output).contains("no such file"));
    assert!(
        !home.path("lock").exists(),
        "nothing may be touched before the configuration is right"
    );
}

#[test]
fn show_config_reads_back() {
    let home = Home::new();
    let file = home.path("c.toml");
    fs::write(
        &file,
        "profile = \"published\"\n[heartbeat]\nperiod = \"400 us\"\n",
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let first = home.run(&["run", "--config", path, "--source", "auto", "--show-config"]);
    assert_eq!(first.status.code(), Some(0));
    let text = String::from_utf8(first.stdout.clone()).unwrap();
    for line in [
        "profile = \"published\"",
        "source = \"auto\"",
        "period = \"400 us\"",
    ] {
        assert!(
            text.lines().any(|shown| shown == line),
            "{line} not in\n{text}"
        );
    }
    fs::write(&file, &text).unwrap();
    let second = home.run(&["run", "--config", path, "--show-config"]);
    assert_eq!(String::from_utf8(second.stdout).unwrap(), text);
}

#[test]
fn help_lists_commands_and_exit_codes() {
    let output = Home::new().run(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "run",
        "doctor",
        "status",
        "restore",
        "Exit codes:",
        "5  another vmigrater daemon runs",
    ] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
    assert!(!text.contains("bpf-selftest"), "hidden commands show");
}

#[test]
fn wrong_arguments_are_exit_2() {
    let home = Home::new();
    for arguments in [
        &["fly"][..],
        &["run", "--source", "guess"],
        &["run", "--steal-map-id", "0"],
        &["run", "--profile", "fast"],
        &["doctor", "--for", "1"],
        &["doctor", "--for", "0s"],
        &["status", "--watch=never"],
    ] {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let line = one_line(&output);
        assert!(
            line.contains(arguments.last().unwrap().trim_start_matches("--watch=")),
            "{line}"
        );
    }
    assert_eq!(home.run(&[]).status.code(), Some(2));
    let output = home
        .command(&[])
        .arg("run")
        .env("VMIGRATER_STEAL_MAP_ID", "x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(one_line(&output).contains("VMIGRATER_STEAL_MAP_ID=x"));
}

#[test]
fn status_without_a_daemon_is_exit_7() {
    let home = Home::new();
    let output = home.run(&["status"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(one_line(&output).contains("systemctl start vmigrater"));
    // A stale socket is nobody either.
    drop(UnixListener::bind(home.path("socket")).unwrap());
    assert_eq!(home.run(&["status"]).status.code(), Some(7));
}

#[test]
fn restore_without_a_journal_has_nothing_to_do() {
    let output = Home::new().run(&["restore"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .starts_with("nothing to restore")
    );
}

#[test]
fn something_else_in_the_journals_place_is_left_alone() {
    let home = Home::new();
    fs::write(home.path("journal"), "precious").unwrap();
    let output = home.run(&["restore"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(one_line(&output).contains("is not a journal of this version"));
    assert_eq!(
        fs::read_to_string(home.path("journal")).unwrap(),
        "precious"
    );
}

#[test]
fn a_file_in_the_sockets_place_is_left_alone() {
    let home = Home::new();
    fs::write(home.path("socket"), "precious").unwrap();
    let output = home.run(&["run"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        one_line(&output)
            .contains("exists and is not a socket; remove it or choose another --socket")
    );
    assert_eq!(fs::read_to_string(home.path("socket")).unwrap(), "precious");
}

#[test]
fn doctor_judges_a_tree() {
    let home = Home::new();
    let tree = home.path("tree");
    fs::create_dir_all(tree.join("sys/devices/system/cpu")).unwrap();
    fs::write(tree.join("sys/devices/system/cpu/online"), "0-3\n").unwrap();
    let output = home.run(&["doctor", "--json", "--root", tree.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4), "no BTF in this tree");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["verdict"]["exit_code"], 4);
    assert_eq!(json["machine"]["online"], "0-3");
    assert!(
        json["verdict"]["words"]
            .as_str()
            .unwrap()
            .contains("CONFIG_DEBUG_INFO_BTF")
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let output = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{} run --show-config | head -1",
            env!("CARGO_BIN_EXE_vmigrater")
        ))
        .output()
        .unwrap();
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
