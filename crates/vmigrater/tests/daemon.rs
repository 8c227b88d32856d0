// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon as its users and its service manager meet it: start, status, ends
//! of every kind, and what may go wrong around it. What it does to tasks is
//! tested elsewhere.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Output;
use std::time::Duration;

use common::Daemon;
use common::Home;
use common::one_line;
use common::until;
use rustix::process::Pid;
use rustix::process::Signal;

/// Its capabilities and no others, as root.
const THREE: [&str; 2] = ["setpriv", "--bounding-set=-all,+bpf,+perfmon,+sys_nice"];

#[test]
fn root_it_starts_answers_and_ends_on_sigterm() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    assert_ne!(daemon.daemon_pid(), daemon.supervisor_pid());
    assert!(!daemon.report.vcpus.is_empty());
    let table = home.run(&["status"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(
        text.contains(&format!("pid {}", daemon.report.pid)),
        "{text}"
    );
    assert_eq!(daemon.stop().code(), Some(0));
    assert!(!home.path("socket").exists(), "the socket stays");
    assert!(!home.path("journal").exists(), "the journal stays");
    assert_eq!(home.run(&["status"]).status.code(), Some(7));
}

/// Has it taken every signal that was sent to it, and gone back to sleep?
fn sleeps_without_signals(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let none_pends = |key: &str| {
        let pending = status.lines().find_map(|line| line.strip_prefix(key));
        u64::from_str_radix(pending.unwrap().trim(), 16).unwrap() == 0
    };
    status.contains("\nState:\tS") && none_pends("SigPnd:") && none_pends("ShdPnd:")
}

#[test]
fn root_sigint_ends_it_and_sighup_does_not() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    // The supervisor passes it on.
    for pid in [daemon.supervisor_pid(), daemon.daemon_pid()] {
        daemon.kill(pid, Signal::HUP);
        until("the signal is dealt with", || sleeps_without_signals(pid));
    }
    until("what was passed on is dealt with", || {
        sleeps_without_signals(daemon.daemon_pid())
    });
    assert_eq!(home.report().unwrap().pid, daemon.report.pid);
    daemon.kill(daemon.supervisor_pid(), Signal::INT);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn root_a_second_daemon_names_the_first_and_goes() {
    let home = Home::new();
    let first = Daemon::start(&home);
    let second = home.run(&["run"]);
    assert_eq!(second.status.code(), Some(5));
    let pid = first.supervisor_pid().as_raw_nonzero();
    let line = one_line(&second);
    assert!(
        line.contains(&format!("another vmigrater daemon runs, pid {pid};")),
        "{line}"
    );
    assert_eq!(
        home.report().unwrap().pid,
        first.report.pid,
        "the first must not notice"
    );

    let restore = home.run(&["restore"]);
    assert_eq!(restore.status.code(), Some(5));
    assert!(one_line(&restore).contains(&format!("pid {pid}")));
}

#[test]
fn root_another_lock_file_is_no_way_to_a_second_daemon() {
    let (home, other) = (Home::new(), Home::new());
    let first = Daemon::start(&home);
    // In the first one's network namespace, see `Home::command`.
    let pid = first.report.pid.to_string();
    let mut command = other.command(&["nsenter", "--net", "--target", &pid]);
    let second = command.arg("run").output().unwrap();
    assert_eq!(second.status.code(), Some(5));
    let line = one_line(&second);
    assert!(line.contains("with another --lock;"), "{line}");
}

#[test]
fn root_a_killed_daemon_ends_its_supervisor_with_the_signal() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    daemon.kill(daemon.daemon_pid(), Signal::KILL);
    assert_eq!(daemon.wait().code(), Some(128 + 9));
    assert!(
        fs::read_to_string(home.path("log"))
            .unwrap()
            .contains("killed by signal 9")
    );
    assert!(!home.path("socket").exists());
    assert_eq!(
        Daemon::start(&home).stop().code(),
        Some(0),
        "it starts again"
    );
}

#[test]
fn root_a_killed_supervisor_takes_the_daemon_along() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    daemon.kill(daemon.supervisor_pid(), Signal::KILL);
    daemon.wait();
    // The lock falls when the daemon has gone as well.
    until("the daemon ends", || {
        home.run(&["restore"]).status.success()
    });
    assert_eq!(home.report(), None);
}

#[test]
fn root_three_capabilities_are_enough() {
    let home = Home::new();
    let mut daemon = Daemon::spawn(&home, home.command(&THREE).arg("run"));
    let log = fs::read_to_string(home.path("log")).unwrap();
    assert!(!log.contains("WARN"), "{log}");
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn root_each_missing_capability_is_named() {
    let refused = |bounding: &str| {
        let wrapper = ["setpriv", bounding];
        let output = Home::new().command(&wrapper).arg("run").output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{bounding}");
        one_line(&output)
    };
    for bounding in [
        "--bounding-set=-all",
        "--bounding-set=-all,+perfmon,+sys_nice",
        "--bounding-set=-all,+bpf,+sys_nice",
    ] {
        let line = refused(bounding);
        assert!(
            line.contains("CAP_BPF, CAP_PERFMON and CAP_SYS_NICE"),
            "{bounding}: {line}"
        );
    }
    // Without the third it can still move tasks of its own user: it says so.
    let home = Home::new();
    let wrapper = ["setpriv", "--bounding-set=-all,+bpf,+perfmon"];
    let mut daemon = Daemon::spawn(&home, home.command(&wrapper).arg("run"));
    assert!(
        fs::read_to_string(home.path("log"))
            .unwrap()
            .contains("without CAP_SYS_NICE")
    );
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn root_doctor_without_capabilities_says_which() {
    let output = Home::new()
        .command(&["setpriv", "--bounding-set=-all"])
        .args(["doctor", "--for", "100ms"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("lacks CAP_BPF, CAP_PERFMON, CAP_SYS_NICE"),
        "{text}"
    );
}

/// `run` with a file system of one page for everything, or for the journal only.
fn on_a_full_disk(home: &Home) -> Output {
    let full = home.path("full");
    fs::create_dir(&full).unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=4k none {} && exec \"$@\"",
        full.display()
    );
    let wrapper = ["unshare", "-m", "sh", "-c", &mount, "sh"];
    let mut command = home.command(&wrapper);
    // The last one counts.
    command
        .arg("run")
        .arg("--journal")
        .arg(full.join("journal"))
        .output()
        .unwrap()
}

#[test]
fn root_a_full_disk_for_the_journal_is_one_line() {
    let home = Home::new();
    let output = on_a_full_disk(&home);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = one_line(&output);
    assert!(
        line.contains("no room for journal") && line.contains("free some space"),
        "{line}"
    );
    assert!(!home.path("socket").exists());
}

#[test]
fn root_without_btf_run_and_doctor_say_what_is_missing() {
    let home = Home::new();
    let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let wrapper = ["unshare", "-m", "sh", "-c", hide, "sh"];
    let output = home.command(&wrapper).arg("run").output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let line = one_line(&output);
    assert!(
        line.contains("no BTF at /sys/kernel/btf/vmlinux")
            && line.contains("CONFIG_DEBUG_INFO_BTF"),
        "{line}"
    );
    for left in ["socket", "journal"] {
        assert!(!home.path(left).exists(), "the {left} stays");
    }
    let mut doctor = home.command(&wrapper);
    let output = doctor.args(["doctor", "--for", "100ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}

#[test]
fn root_a_foreign_file_in_the_journals_place_is_one_line() {
    let home = Home::new();
    fs::write(home.path("journal"), "precious").unwrap();
    let output = home.run(&["run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(one_line(&output).contains("is not a journal of this version"));
    assert_eq!(
        fs::read_to_string(home.path("journal")).unwrap(),
        "precious"
    );
    assert!(!home.path("socket").exists());
}

/// Not root at all: a user with the three capabilities and a directory.
#[test]
fn root_another_user_with_three_capabilities_can_run_it() {
    let home = Home::new();
    // A copy: the build directory may be closed to others.
    let program = home.path("vmigrater");
    fs::copy(env!("CARGO_BIN_EXE_vmigrater"), &program).unwrap();
    let program = program.to_str().unwrap();
    let nobody = 65534;
    std::os::unix::fs::chown(home.path(""), Some(nobody), Some(nobody)).unwrap();
    let wrapper = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all,+bpf,+perfmon,+sys_nice",
        "--ambient-caps=-all,+bpf,+perfmon,+sys_nice",
    ];
    let mut daemon = Daemon::spawn(&home, home.command_of(program, &wrapper).arg("run"));
    let log = fs::read_to_string(home.path("log")).unwrap();
    assert!(!log.contains("WARN"), "{log}");
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn root_the_service_manager_hears_ready_watchdog_and_stopping() {
    let home = Home::new();
    let manager = UnixDatagram::bind(home.path("notify")).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut told = String::new();
    let mut hear = |what: &str| {
        let mut buffer = [0; 4096];
        while !told.contains(what) {
            let n = manager
                .recv(&mut buffer)
                .unwrap_or_else(|_| panic!("no {what} in {told}"));
            told.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
            told.push('\n');
        }
    };
    let mut command = home.command(&[]);
    command
        .arg("run")
        .env("NOTIFY_SOCKET", home.path("notify"))
        .env("WATCHDOG_USEC", "200000");
    let mut daemon = Daemon::spawn(&home, &mut command);
    hear("READY=1");
    hear("STATUS=");
    hear("WATCHDOG=1");
    assert_eq!(daemon.stop().code(), Some(0));
    hear("STOPPING=1");
}

#[test]
fn root_doctor_asks_the_daemon_that_runs() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let output = home.run(&["doctor", "--for", "300ms", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["daemon"], daemon.report.pid);
    let code = output.status.code().unwrap();
    assert!(
        code == 0 || code == 6,
        "{code}: {}",
        json["verdict"]["words"]
    );
}

#[test]
fn root_doctor_looks_with_the_daemons_own_senses_and_leaves_nothing() {
    let home = Home::new();
    let output = home.run(&["doctor", "--for", "300ms", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["engine_problem"], serde_json::Value::Null, "{json}");
    // Each source says how exact it is, or why it cannot be used; this machine is no
    // KVM guest with a steal page everywhere, but timers and /proc/stat it always has.
    let sources = json["look"]["sources"].as_array().unwrap();
    let names: Vec<&str> = sources.iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["steal-page", "heartbeat", "proc-stat"]);
    for source in sources {
        assert_ne!(
            source["accuracy_ns"].is_u64(),
            source["missing"].is_string(),
            "{source}"
        );
    }
    assert!(sources[1]["accuracy_ns"].as_u64() >= Some(300_000));
    // USER_HZ is 100, and what is booked at a kernel's tick is a little off that.
    let account = sources[2]["accuracy_ns"].as_u64().unwrap();
    assert!((5_000_000..=20_000_000).contains(&account), "{account}");
    assert!(
        json["look"]["vcpus"]
            .as_array()
            .is_some_and(|vcpus| !vcpus.is_empty())
    );
    assert_eq!(
        fs::read_dir(home.path("")).unwrap().count(),
        0,
        "files stay"
    );
}

#[test]
fn root_dry_run_says_so() {
    let home = Home::new();
    let daemon = Daemon::spawn(&home, home.command(&[]).args(["run", "--dry-run"]));
    assert!(daemon.report.dry_run);
    let text = String::from_utf8(home.run(&["status"]).stdout).unwrap();
    assert!(text.contains("would have saved"), "{text}");
}

#[test]
fn root_every_program_attaches() {
    let output = Home::new().run(&["bpf-selftest"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
