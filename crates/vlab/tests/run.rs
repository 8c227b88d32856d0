// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program as a user starts it. Tests whose names begin with `root_` stop
//! this machine's CPUs for milliseconds and need root.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use common::wait_for;
use experiment::result::Phase;
use experiment::result::RunResult;
use serde_json::Value;

/// Tests that freeze CPUs or measure times must not run beside each other.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn vlab() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("vlab"))
}

/// Runs it to its end: its exit code, what it printed, and its errors.
fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A scenario with one load of the given kind; its file.
fn scenario(dir: &Path, load: &str, window: &str) -> std::path::PathBuf {
    let cpus = freezer::online_cpus().unwrap().len();
    let path = dir.join("scenario.toml");
    let text = format!(
        r#"
        name = "small"
        title = "A small run"
        topology = {{ cpus = {cpus} }}
        sharing = {{ vms_per_pcpu = [2], slice = "5 ms" }}
        measure = {{ rounds = 1, warmup = "200 ms", window = "{window}" }}
        load = [{load}]
        arm = [{{ name = "vanilla" }}]
        "#
    );
    fs::write(&path, text).unwrap();
    path
}

const PULSE: &str = r#"{ name = "pulse", kind = "pulse" }"#;

/// Ids of the processes whose parent is `pid`.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let lists = tasks.into_iter().flatten().flatten();
    lists
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// Is a process (not a zombie of ours) there?
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// A pulse load that waits for its window, and the ids of its threads.
fn pulse(queue_depth: u32) -> (Child, Vec<u32>) {
    let mut child = vlab()
        .args(["load", "pulse", &format!("--queue-depth={queue_depth}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let tids = ready["tids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tid| tid.as_u64().unwrap() as u32);
    (child, tids.collect())
}

/// Idle time of all CPUs during which a thread waited with `in_iowait` set, in
/// ticks of 10 ms.
fn iowait_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let cpu = stat.lines().next().unwrap();
    cpu.split_whitespace().nth(5).unwrap().parse().unwrap()
}

#[test]
fn help_teaches_and_bad_use_is_told_apart() {
    let help = vlab().arg("--help").output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    for part in [
        "vlab run scenarios/demo.toml",
        "Exit codes",
        "report",
        "freeze",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let walk = vlab().arg("walk").output().unwrap();
    assert_eq!(walk.status.code(), Some(2));
    let said = String::from_utf8_lossy(&walk.stderr).into_owned();
    assert!(
        said.starts_with("vlab: unrecognized subcommand 'walk'"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let missing = vlab().args(["run", "/nonexistent.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nonexistent.toml"));
    let old = [
        "run",
        "/nonexistent.toml",
        "--backend",
        "kvm",
        "--guest-kernel",
        "5.10",
    ];
    let old = vlab().args(old).output().unwrap();
    assert_eq!(old.status.code(), Some(2));
    let said = String::from_utf8_lossy(&old.stderr).into_owned();
    assert!(
        said.contains("'5.10'") && said.contains("6.1, 6.12, 7.3"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_bad_scenario_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = scenario(dir.path(), r#"{ name = "pulse", kind = "tape" }"#, "300 ms");
    let output = vlab().arg("run").arg(&path).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("scenario.toml:7: `load[0].kind` is \"tape\""),
        "{message}"
    );
}

#[test]
fn a_load_ends_when_nobody_listens_any_more() {
    let (mut child, _) = pulse(1);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_pulse_load_reports_exactly_the_window_it_is_asked_for() {
    let _alone = machine();
    let (mut child, _) = pulse(1);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // A window that is over before the first request can be in it.
    child.stdin.as_mut().unwrap().write_all(b"1 2\n").unwrap();
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let report: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(report["ops_per_s"], 0.0, "{line}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn root_a_waiting_pulse_load_is_in_iowait() {
    let _alone = machine();
    // A thread that only sleeps leaves the CPUs idle; with an I/O wait pending
    // the kernel books that idle time as iowait instead. One second in steps of
    // 10 ms per CPU: a sleeper would add next to nothing.
    let (mut child, tids) = pulse(1);
    assert_eq!(tids.len(), 1);
    let (from, before) = (Instant::now(), iowait_ticks());
    wait_for("a second", || from.elapsed() > Duration::from_secs(1));
    let ticks = iowait_ticks() - before;
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(
        ticks >= 20,
        "only {ticks} ticks of iowait in a second of waiting for I/O"
    );
}

#[test]
fn root_a_short_run_leaves_nothing_behind() {
    let _alone = machine();
    let dir = tempfile::tempdir().unwrap();
    let tmp = dir.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    let path = scenario(dir.path(), PULSE, "1 s");
    let json = dir.path().join("result.json");
    let output = vlab()
        .env("TMPDIR", &tmp)
        .arg("run")
        .arg(&path)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{errors}");
    assert!(
        text.contains("vanilla") && text.contains("of bound"),
        "{text}"
    );
    assert_eq!(entries(&tmp), Vec::<String>::new());

    let result = RunResult::load(&json).unwrap();
    let by_arm: BTreeMap<&str, _> = result
        .phases
        .iter()
        .map(|phase| (phase.arm.as_str(), phase))
        .collect();
    let rate = |arm: &str| by_arm[arm].io.as_ref().unwrap().ops_per_s;
    let vanilla = by_arm["vanilla"];
    assert!(
        rate("solo") > 2000.0,
        "{} requests/s without sharing",
        rate("solo")
    );
    assert!(
        rate("vanilla") < 0.9 * rate("solo"),
        "sharing costs nothing?"
    );
    for share in &vanilla.host.on_share {
        assert!(
            (0.4..0.6).contains(share),
            "two VMs, but a CPU was on for {share} of the time"
        );
    }
    assert!(
        vanilla.host.union_share < 1.0 && vanilla.host.slices > 50,
        "{:?}",
        vanilla.host
    );
    assert_eq!(vanilla.compute_per_s.len(), vanilla.host.on_share.len());
    assert!(by_arm["compute-only"].io.is_none() && by_arm["alone"].compute_per_s.is_empty());
    assert!(
        result
            .phases
            .iter()
            .all(|p| p.is_alive() && p.machine.stolen.is_some())
    );
    the_records_explain_the_rates(&by_arm);

    let again = vlab().arg("report").arg(&json).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&again.stdout), text);
}

/// All of the I/O thread's time is accounted for, without sharing none of it on a
/// descheduled CPU, with two VMs a good part.
fn the_records_explain_the_rates(by_arm: &BTreeMap<&str, &Phase>) {
    let lost = |arm: &str| {
        let time = by_arm[arm].io_time.as_ref().unwrap();
        assert_eq!(time.threads, 1);
        assert_eq!(time.total(), by_arm[arm].window, "{arm}");
        let placed: units::Ns = time.by_vcpu.iter().copied().sum();
        assert_eq!(placed, time.total(), "{arm}: each moment is on some vCPU");
        let off = time.pending + time.queued_off + time.current_off;
        (off.as_secs_f64() / time.total().as_secs_f64(), time.clone())
    };
    let (solo, _) = lost("solo");
    let (vanilla, time) = lost("vanilla");
    assert!(solo == 0.0, "{solo} lost without sharing");
    assert!(
        (0.3..0.7).contains(&vanilla),
        "{vanilla} lost with two VMs: {time:?}"
    );
    assert!(
        time.pending > time.current_off,
        "a thread that mostly waits: {time:?}"
    );

    let timeline = by_arm["vanilla"].timeline.as_ref().unwrap();
    assert!(by_arm["solo"].timeline.is_none());
    assert_eq!(timeline.length, units::Ns::from_ms(250));
    let spells = timeline.tasks[0].spells.starts();
    let end = spells.last().map(|(at, spell)| at + spell.length);
    assert_eq!(end, Some(timeline.length));
    for track in &timeline.vcpus {
        let off: units::Ns = track.gaps.iter().map(|(from, to)| *to - *from).sum();
        assert!(
            (80..170).contains(&(off.0 / 1_000_000)),
            "off for {off} of 250 ms"
        );
    }
}

/// Two boots of a lab that had time for three rounds each.
#[test]
fn results_of_one_scenario_are_one_report() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let file = |name: &str| docs.join(format!("{name}.json"));
    let (one, two) = (
        file("host-policies-kvm-2026-11-26"),
        file("host-policies-kvm-2026-11-27"),
    );
    let report = |files: &[&Path]| run(vlab().arg("report").args(files));
    let (code, text, error) = report(&[&one, &two]);
    assert_eq!(code, Some(0), "{error}");
    for part in [
        "; 6 round(s), ",
        "2 results put together",
        "host-policies-kvm-2026-11-26.json (2026-11-26T12:15:32Z, 3 round(s), ",
        "better",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let others = file("kvm-what-helps-2-vms-2026-11-26");
    for (files, why) in [
        (
            [&one, &one],
            "host-policies-kvm-2026-11-26.json: its phase ",
        ),
        ([&one, &others], "is \"name\": \"kvm-what-helps\" here and "),
    ] {
        let (code, text, error) = report(&files.map(|file| file.as_path()));
        assert_eq!((code, text.as_str()), (Some(2), ""), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

/// A result of the format before: what it lacks is said, what it has is shown.
#[test]
fn results_are_shown_compared_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiment/testdata/format1.json");
    let page = dir.path().join("page.html");
    let (code, text, _) = run(vlab().arg("report").arg(&old).arg("--html").arg(&page));
    assert_eq!(
        (code, text),
        (Some(0), format!("wrote {}\n", page.display()))
    );
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .trim_end()
            .ends_with("</html>")
    );

    let (code, text, _) = run(vlab().arg("compare").arg(&old).arg(&old));
    assert_eq!(code, Some(0));
    assert!(
        text.contains("same scenario") && text.contains("B/A"),
        "{text}"
    );

    let out = dir.path().join("trace.json");
    let (code, _, error) = run(vlab().arg("trace").arg(&old).arg("--out").arg(&out));
    assert_eq!(code, Some(1));
    assert!(
        error.contains("format1.json: no timeline was recorded"),
        "{error}"
    );
    assert!(!out.exists());

    let nowhere = dir.path().join("nowhere/page.html");
    let (code, _, error) = run(vlab().arg("report").arg(&old).arg("--html").arg(&nowhere));
    assert_eq!(code, Some(1));
    assert!(
        error.contains("cannot write") && error.contains("nowhere"),
        "{error}"
    );
}

#[test]
fn a_timeline_has_a_sensible_length() {
    for bad in ["5", "1h", "-1s", "x"] {
        let output = vlab()
            .args(["run", "x.toml", &format!("--timeline={bad}")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("from 0s to 5 s"), "{error}");
    }
}

#[test]
fn root_ctrl_c_ends_everything_within_seconds() {
    let _alone = machine();
    let dir = tempfile::tempdir().unwrap();
    let tmp = dir.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    let load = r#"{ name = "disk", kind = "disk", pattern = "random-read", file_mib = 16 }"#;
    let path = scenario(dir.path(), load, "30 s");
    let mut run = vlab()
        .env("TMPDIR", &tmp)
        .arg("run")
        .arg(&path)
        .arg("--dir")
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The compute threads of the first baseline.
    wait_for("a child of the run", || !children(run.id()).is_empty());
    let started = children(run.id());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&run),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let asked = Instant::now();
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    for child in started {
        assert!(!lives(child), "process {child} survived");
    }
    assert_eq!(entries(&tmp), Vec::<String>::new());
    assert_eq!(
        entries(dir.path()).len(),
        2,
        "only the scenario and our own directory: {:?}",
        entries(dir.path())
    );
}

#[test]
fn root_ctrl_c_in_the_middle_of_sharing_gives_the_cpus_back() {
    let _alone = machine();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scenario.toml");
    let cpus = freezer::online_cpus().unwrap().len();
    // Without compute and I/O there are no baselines: the first phase is frozen.
    let text = format!(
        r#"
        name = "sleeper"
        title = "A command that ends by itself only much later"
        topology = {{ cpus = {cpus} }}
        sharing = {{ vms_per_pcpu = [4], slice = "5 ms" }}
        measure = {{ rounds = 1, window = "30 s" }}
        compute = {{ threads_per_cpu = 0 }}
        load = [{{ name = "none", kind = "idle" }}]
        arm = [{{ name = "sleeper", kind = "command", command = ["sleep", "1000"] }}]
        "#
    );
    fs::write(&path, text).unwrap();
    let mut run = vlab()
        .env("TMPDIR", dir.path())
        .arg("run")
        .arg(&path)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the sleeper", || !children(run.id()).is_empty());
    let sleeper = children(run.id())[0];
    let asked = Instant::now();
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&run),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    assert!(!lives(sleeper));
    assert_eq!(entries(dir.path()), ["scenario.toml"]);
    // Only one freezer can exist: this one could not start beside another.
    let plan =
        freezer::Plan::shared(2, units::Ns::from_ms(5), &freezer::online_cpus().unwrap()).unwrap();
    drop(freezer::Freezer::start(&plan, &freezer::Options::new(units::Ns::from_ms(100))).unwrap());
}

#[test]
fn root_an_interrupted_run_keeps_its_phases_and_another_goes_on_with_them() {
    let _alone = machine();
    let dir = tempfile::tempdir().unwrap();
    let tmp = dir.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    let path = dir.path().join("scenario.toml");
    let cpus = freezer::online_cpus().unwrap().len();
    let text = format!(
        r#"
        name = "small"
        title = "A small run"
        topology = {{ cpus = {cpus} }}
        sharing = {{ vms_per_pcpu = [2], slice = "5 ms" }}
        measure = {{ rounds = 3, warmup = "100 ms", window = "1 s", baselines = "none" }}
        load = [{PULSE}]
        arm = [{{ name = "vanilla" }}, {{ name = "fifo" }}]
        "#
    );
    fs::write(&path, text).unwrap();
    let json = dir.path().join("result.json");
    let run = |words: &[&str]| {
        let mut command = vlab();
        command
            .env("TMPDIR", &tmp)
            .arg("run")
            .arg(&path)
            .args(words);
        command.arg("--json").arg(&json).arg("--dir").arg(&tmp);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let child = run(&[]).spawn().unwrap();
    // In the middle of the second phase, or of a later one.
    wait_for("a phase that is kept", || json.exists());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{error}");
    let before = RunResult::load(&json).unwrap();
    let done = before.phases.len();
    assert!((1..6).contains(&done), "{done} phases");
    let says = format!("{done} of 6 phases");
    assert!(
        error.contains(&says) && error.contains("--resume"),
        "{error}"
    );
    let warning = before.warnings.last().unwrap();
    assert!(warning.starts_with(&format!("incomplete: {says}: interrupted")));
    assert_eq!(entries(&tmp), Vec::<String>::new());

    // Something else is refused, with the exit code of a wrong command line.
    let other = run(&["--resume", "--quick"]).output().unwrap();
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2), "{error}");
    assert!(error.contains("another scenario"), "{error}");

    let output = run(&["--resume"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let whole = RunResult::load(&json).unwrap();
    assert_eq!(whole.phases[..done], before.phases[..]);
    assert!(whole.warnings.iter().all(|w| !w.contains("incomplete")));
    let boots: Vec<u32> = whole.phases.iter().map(|phase| phase.boot).collect();
    let expected: Vec<u32> = (0..6).map(|n| u32::from(n >= done)).collect();
    assert_eq!(boots, expected);
    assert!(whole.phases.is_sorted_by_key(|phase| phase.at));
    assert_eq!(entries(&tmp), Vec::<String>::new());
}

#[test]
fn root_children_die_with_a_killed_run() {
    let _alone = machine();
    let dir = tempfile::tempdir().unwrap();
    let path = scenario(dir.path(), PULSE, "30 s");
    let mut run = vlab()
        .env("TMPDIR", dir.path())
        .arg("run")
        .arg(&path)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("a child of the run", || !children(run.id()).is_empty());
    let started = children(run.id());
    run.kill().unwrap();
    run.wait().unwrap();
    for child in started {
        wait_for("the end of an orphan", || !lives(child));
    }
}
