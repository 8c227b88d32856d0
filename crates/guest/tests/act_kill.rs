// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is left of held threads when processes are killed.
//!
//! The daemon's part is played by this test program itself, started again with
//! names in the environment. A test harness has two threads and a supervisor
//! must have one, so what is started forks first; its only child is the
//! supervisor, and it ends as that does.

#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "the helpers are tests too, and one of the processes has to end with a number"
)]

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write as _;
use std::path::Path;
use std::process::Child;
use std::process::ChildStdout;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use guest::act;
use guest::act::Actor;
use guest::act::journal::Journal;
use guest::act::supervise::Supervised;
use guest::act::supervise::supervise;
use guest::act::task::Roots;
use policy::guest::wakeup::Lever;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::WaitOptions;
use tempfile::TempDir;
use units::CpuSet;
use units::Tid;
use units::VcpuId;

const SUBJECTS: usize = 3;

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

fn mask(tid: u32) -> Option<CpuSet> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.parse().ok()
}

/// Policy and priority; nice is in neither of the tests.
fn policy(pid: u32) -> (i32, i32) {
    // SAFETY: sched_param is plain memory, filled by the second call.
    unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        assert_eq!(libc::sched_getparam(pid.cast_signed(), &raw mut param), 0);
        (
            libc::sched_getscheduler(pid.cast_signed()),
            param.sched_priority,
        )
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn settings(journal: &Path) -> act::Settings {
    act::Settings {
        journal: journal.to_owned(),
        capacity: 64,
        ..act::Settings::default()
    }
}

/// The daemon's part: holds the processes named in the environment, says so,
/// and lets go at SIGTERM.
fn hold(journal: &Path, pids: &[u32]) -> ExitCode {
    // SAFETY: a signal set is plain memory; the calls make it valid.
    let term = unsafe {
        let mut term: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut term);
        libc::sigaddset(&raw mut term, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const term, std::ptr::null_mut());
        term
    };
    let (actor, left) = Actor::start(settings(journal)).unwrap();
    let last = Roots::default().online().unwrap().iter().last().unwrap();
    for pid in pids {
        let held = actor
            .adopt(Roots::default().key(Tid(*pid)).unwrap())
            .unwrap();
        actor.move_to(&held, VcpuId(0)).unwrap();
        actor.move_to(&held, last).unwrap();
        actor.set_lever(&held, Lever::Fifo).unwrap();
    }
    let supervisor = std::os::unix::process::parent_id();
    println!(
        "\nready {supervisor} {} {}",
        std::process::id(),
        left.restored
    );
    // SAFETY: `term` is a valid set of blocked signals.
    unsafe { libc::sigwaitinfo(&raw const term, std::ptr::null_mut()) };
    actor.release_all();
    ExitCode::from(7)
}

/// The number that the harness ends with if the supervisor was killed.
const KILLED: i32 = 99;

/// Not a test: the other program.
#[test]
#[ignore = "started by the other tests"]
fn other_program() {
    let Ok(journal) = std::env::var("ACT_KILL_JOURNAL") else {
        return;
    };
    let journal = Path::new(&journal);
    let pids = std::env::var("ACT_KILL_PIDS").unwrap();
    let pids: Vec<u32> = pids
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    // SAFETY: the harness's other thread only waits for this one, without any
    // lock that the child could need.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if let Some(child) = Pid::from_raw(child) {
        let (_, status) = rustix::process::waitpid(Some(child), WaitOptions::empty())
            .unwrap()
            .unwrap();
        std::process::exit(status.exit_status().unwrap_or(KILLED));
    }
    match supervise(journal, &Roots::default(), || hold(journal, &pids)).unwrap() {
        Supervised::Child(code) => {
            assert_eq!(code, ExitCode::from(7));
            std::process::exit(7);
        }
        Supervised::Parent {
            code,
            killed_by,
            restored,
        } => {
            println!("\nended {killed_by:?} {}", restored.unwrap());
            // An ExitCode does not tell its number.
            let number = (0..=255).find(|n| ExitCode::from(*n) == code).unwrap();
            std::process::exit(i32::from(number));
        }
    }
}

/// Processes to be held, and the two that hold them.
struct Scene {
    dir: TempDir,
    subjects: Vec<Child>,
    harness: Child,
    supervisor: u32,
    daemon: u32,
    stdout: BufReader<ChildStdout>,
    before: Vec<Option<CpuSet>>,
    restored_at_start: String,
}

impl Scene {
    fn new() -> Self {
        let subjects: Vec<Child> = (0..SUBJECTS)
            .map(|_| Command::new("sleep").arg("600").spawn().unwrap())
            .collect();
        Self::with(tempfile::tempdir().unwrap(), subjects)
    }

    fn with(dir: TempDir, subjects: Vec<Child>) -> Self {
        let before: Vec<_> = subjects.iter().map(|child| mask(child.id())).collect();
        let pids: Vec<String> = subjects
            .iter()
            .map(|child| child.id().to_string())
            .collect();
        let mut harness = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "other_program",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("ACT_KILL_JOURNAL", dir.path().join("journal"))
            .env("ACT_KILL_PIDS", pids.join(" "))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(harness.stdout.take().unwrap());
        let ready = line(&mut stdout, "ready ");
        let said: Vec<&str> = ready.split(' ').collect();
        let scene = Self {
            dir,
            subjects,
            harness,
            supervisor: said[0].parse().unwrap(),
            daemon: said[1].parse().unwrap(),
            stdout,
            before,
            restored_at_start: said[2].to_owned(),
        };
        for subject in &scene.subjects {
            assert_eq!(mask(subject.id()).unwrap().len(), 1, "held");
            assert_eq!(
                policy(subject.id()).0 & 0xff,
                libc::SCHED_FIFO,
                "with a lever"
            );
        }
        scene
    }

    fn journal(&self) -> std::path::PathBuf {
        self.dir.path().join("journal")
    }

    fn assert_as_before(&self) {
        for (subject, before) in self.subjects.iter().zip(&self.before) {
            assert_eq!(mask(subject.id()), *before);
            assert_eq!(policy(subject.id()), (libc::SCHED_OTHER, 0));
        }
        assert!(!self.journal().exists());
    }
}

/// The children that a held process starts, one for each line that it reads: nobody
/// hears of them, so they keep what they have inherited until somebody looks.
struct Children {
    pids: Vec<u32>,
}

const CHILDREN: usize = 3;

impl Children {
    /// The process that will start them.
    fn parent() -> Child {
        Command::new("sh")
            .args([
                "-c",
                "while read line; do sleep 600 </dev/null >/dev/null & echo $!; done; wait",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// One scene with one subject, which starts them while it is held.
    fn scene() -> (Scene, Self) {
        let mut scene = Scene::with(tempfile::tempdir().unwrap(), vec![Self::parent()]);
        let parent = &mut scene.subjects[0];
        let mut input = parent.stdin.take().unwrap();
        let mut output = BufReader::new(parent.stdout.take().unwrap()).lines();
        let mut children = Self { pids: Vec::new() };
        for _ in 0..CHILDREN {
            writeln!(input, "one more").unwrap();
            let pid = output.next().unwrap().unwrap().parse().unwrap();
            children.pids.push(pid);
        }
        // Until its input ends it waits for more, and reaps none of them.
        parent.stdin = Some(input);
        for pid in &children.pids {
            assert_eq!(mask(*pid).unwrap().len(), 1, "inherited");
        }
        (scene, children)
    }

    fn assert_widened(&self, scene: &Scene) {
        for pid in &self.pids {
            assert_eq!(mask(*pid), scene.before[0]);
            assert_eq!(policy(*pid), (libc::SCHED_OTHER, 0));
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for pid in &self.pids {
            // SAFETY: a plain signal. Their parent does not wait for them before its
            // input ends, so the ids are theirs.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Neither can be waited for here; a test that has failed leaves them.
        if matches!(self.harness.try_wait(), Ok(None)) {
            for pid in [self.daemon, self.supervisor] {
                // SAFETY: plain signals. The harness has not been waited for,
                // so neither has the supervisor, nor the daemon before it.
                unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
            }
        }
        for child in self.subjects.iter_mut().chain([&mut self.harness]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn line(from: &mut impl BufRead, start: &str) -> String {
    for line in from.lines() {
        if let Some(rest) = line.unwrap().strip_prefix(start) {
            return rest.to_owned();
        }
    }
    panic!("it ended without saying {start:?}");
}

#[test]
fn root_when_the_daemon_is_killed_the_supervisor_restores() {
    let mut scene = Scene::new();
    signal(scene.daemon, Signal::KILL);
    let ended = line(&mut scene.stdout, "ended ");
    assert!(
        ended.starts_with(&format!("Some(9) {SUBJECTS} restored")),
        "{ended}"
    );
    let status = scene.harness.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 9));
    scene.assert_as_before();
}

#[test]
fn root_sigterm_is_passed_on_and_the_code_comes_back() {
    let mut scene = Scene::new();
    signal(scene.supervisor, Signal::TERM);
    let ended = line(&mut scene.stdout, "ended ");
    assert!(ended.starts_with("None 0 restored"), "{ended}");
    assert_eq!(scene.harness.wait().unwrap().code(), Some(7));
    scene.assert_as_before();
}

#[test]
fn root_when_the_supervisor_is_killed_the_daemon_ends_in_order() {
    let mut scene = Scene::new();
    signal(scene.supervisor, Signal::KILL);
    assert_eq!(scene.harness.wait().unwrap().code(), Some(KILLED));
    wait_for("the daemon ends", || mask(scene.daemon).is_none());
    scene.assert_as_before();
}

/// Neither can do anything for the other.
fn kill_both(scene: &mut Scene) {
    signal(scene.supervisor, Signal::STOP);
    // It has one thread, and may be on its way through a last line yet.
    wait_for("the supervisor stands still", || {
        state(scene.supervisor) == Some('T')
    });
    signal(scene.daemon, Signal::KILL);
    signal(scene.supervisor, Signal::KILL);
    assert_eq!(scene.harness.wait().unwrap().code(), Some(KILLED));
    // An orphan that has been killed is waited for by init.
    wait_for("the daemon ends", || {
        mask(scene.daemon).is_none_or(|_| state(scene.daemon).is_none_or(|state| state == 'Z'))
    });
    for subject in &scene.subjects {
        assert_eq!(
            mask(subject.id()).unwrap().len(),
            1,
            "nobody has restored yet"
        );
    }
}

/// Of a process, as in /proc: 'T' is stopped, 'Z' a zombie; `None` if it has gone.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn root_when_both_are_killed_restore_all_repairs_once() {
    let mut scene = Scene::new();
    kill_both(&mut scene);
    let roots = Roots::default();
    let listed = Journal::list(&scene.journal(), &roots).unwrap();
    assert_eq!(listed.len(), SUBJECTS);
    assert!(listed.iter().all(|entry| entry.original.comm == "sleep"));
    let summary = act::restore_all(&scene.journal(), &roots).unwrap();
    assert_eq!(
        summary,
        act::Summary {
            restored: SUBJECTS as u64,
            ..act::Summary::default()
        }
    );
    scene.assert_as_before();
    assert!(
        act::restore_all(&scene.journal(), &roots)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn root_when_both_are_killed_the_next_start_repairs() {
    let mut scene = Scene::new();
    kill_both(&mut scene);
    let (actor, left) = Actor::start(settings(&scene.journal())).unwrap();
    assert_eq!(left.restored, SUBJECTS as u64);
    drop(actor);
    scene.assert_as_before();
    assert_eq!(scene.restored_at_start, "0");
}

#[test]
fn root_children_that_inherited_a_mask_get_it_back_from_the_supervisor() {
    let (mut scene, children) = Children::scene();
    signal(scene.daemon, Signal::KILL);
    let ended = line(&mut scene.stdout, "ended ");
    assert!(ended.starts_with("Some(9) 1 restored"), "{ended}");
    assert!(ended.contains("0 failed, 3 children widened"), "{ended}");
    assert_eq!(scene.harness.wait().unwrap().code(), Some(128 + 9));
    scene.assert_as_before();
    children.assert_widened(&scene);
}

#[test]
fn root_children_that_inherited_a_mask_get_it_back_from_restore_all() {
    let (mut scene, children) = Children::scene();
    kill_both(&mut scene);
    let summary = act::restore_all(&scene.journal(), &Roots::default()).unwrap();
    assert_eq!(
        summary,
        act::Summary {
            restored: 1,
            widened: CHILDREN as u64,
            ..act::Summary::default()
        }
    );
    scene.assert_as_before();
    children.assert_widened(&scene);
}

#[test]
fn root_children_that_inherited_a_mask_get_it_back_at_the_next_start() {
    let (mut scene, children) = Children::scene();
    kill_both(&mut scene);
    let (actor, left) = Actor::start(settings(&scene.journal())).unwrap();
    assert_eq!((left.restored, left.widened), (1, CHILDREN as u64));
    drop(actor);
    scene.assert_as_before();
    children.assert_widened(&scene);
}

#[test]
fn root_restore_while_a_daemon_runs_names_it() {
    let scene = Scene::new();
    let error = act::restore_all(&scene.journal(), &Roots::default()).unwrap_err();
    assert!(
        error.to_string().contains(&scene.daemon.to_string()),
        "{error}"
    );
}

#[test]
fn root_what_ended_or_was_changed_meanwhile_is_told_apart() {
    let mut scene = Scene::new();
    kill_both(&mut scene);
    scene.subjects[0].kill().unwrap();
    scene.subjects[0].wait().unwrap();
    // The daemon had it on the last CPU.
    let pid = scene.subjects[1].id();
    let taskset = Command::new("taskset")
        .args(["-pc", "0", &pid.to_string()])
        .output()
        .unwrap();
    assert!(taskset.status.success());
    let summary = act::restore_all(&scene.journal(), &Roots::default()).unwrap();
    assert_eq!((summary.restored, summary.gone, summary.foreign), (1, 1, 1));
    assert_eq!(mask(pid), Some(CpuSet::only(VcpuId(0))));
    assert_eq!(
        policy(pid),
        (libc::SCHED_OTHER, 0),
        "the lever was still ours"
    );
    assert_eq!(mask(scene.subjects[2].id()), scene.before[2]);
}
