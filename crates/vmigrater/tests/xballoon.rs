// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmigrater run --mode xballoon` on this machine under the freezer: it does what
//! XB1 to XB5 say, and everything is as before when it has ended, however it ended.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use common::Daemon;
use common::program::Program;
use common::program::State;
use common::program::one_request_after_another;
use common::program::state;
use common::scene::CPUS;
use common::scene::Scene;
use common::until;
use guest::report::Report;
use rustix::process::Signal;
use units::CpuSet;
use vlab::load::compute::ComputeArgs;

/// Longer than any test here.
const SECONDS: f64 = 120.0;

/// Not a test: computes on every CPU.
#[test]
#[ignore = "started by the tests"]
fn compute_program() {
    let args = ComputeArgs {
        cpus: CpuSet::first(CPUS),
        threads_per_cpu: 1,
        seconds: Some(SECONDS),
    };
    vlab::load::compute::run(&args).unwrap();
}

/// Not a test: one request after another.
#[test]
#[ignore = "started by the tests"]
fn io_program() {
    one_request_after_another();
}

/// Does a line `Cpus_allowed_list:` name a single CPU?
fn is_one_cpu(mask: &str) -> bool {
    let list = mask.split_whitespace().next_back();
    list.is_some_and(|list| list.parse::<u32>().is_ok())
}

/// CPU time of a thread so far.
fn used(tid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// The task of the others' scene, and computation beside it.
struct Balloons {
    scene: Scene,
    compute: Vec<u32>,
    /// Of the computing threads.
    before: Vec<State>,
    _program: Program,
}

impl Balloons {
    fn new() -> Self {
        let program = Program::start("compute_program");
        let compute = program.threads("compute-", CPUS as usize);
        let states = || -> Vec<State> { compute.iter().map(|tid| state(*tid)).collect() };
        // A thread has its name a little before it binds itself to its CPU.
        let mut before = Vec::new();
        until("each computing thread is bound to a CPU", || {
            before = states();
            before.iter().all(|state| is_one_cpu(&state.mask))
        });
        Self {
            before,
            compute,
            scene: Scene::new("io_program"),
            _program: program,
        }
    }

    /// Starts the daemon and waits until it holds computation.
    fn daemon(&self) -> (Daemon, Report) {
        let home = &self.scene.home;
        let mut command = home.command(&[]);
        command.args(["run", "--mode", "xballoon"]).arg(format!(
            "--steal-map-id={}",
            self.scene.freezer.steal_map_id().unwrap()
        ));
        let daemon = Daemon::spawn(home, &mut command);
        let mut report = None;
        until("a balloon is inflated again and again", || {
            report = home.report();
            report.as_ref().is_some_and(|report| {
                report
                    .balloons
                    .iter()
                    .any(|balloon| balloon.threads > 0 && balloon.inflations > 20)
            })
        });
        (daemon, report.unwrap())
    }

    /// The balloons' cgroups that there are.
    fn balloons(&self) -> Vec<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let root = line.unwrap().split_whitespace().nth(4).unwrap();
        let group = self.before[0].cgroup.trim_start_matches("0::/");
        let entries = fs::read_dir(Path::new(root).join(group)).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_str().unwrap().contains("vmigrater-balloon-"))
            .collect()
    }

    fn all_is_restored(&self, how: &str) {
        // Shown if it fails.
        let now: Vec<State> = self.compute.iter().map(|tid| state(*tid)).collect();
        println!(
            "{how}: {now:?} {:?}, before {:?}",
            self.balloons(),
            self.before
        );
        until(&format!("{how}: all computation is as before"), || {
            let now = self.compute.iter().map(|tid| state(*tid));
            now.eq(self.before.iter().cloned()) && self.balloons().is_empty()
        });
        self.scene.all_is_restored(how);
        let then: Vec<u64> = self.compute.iter().map(|tid| used(*tid)).collect();
        until("all compute threads run", || {
            self.compute
                .iter()
                .zip(&then)
                .all(|(tid, then)| used(*tid) > then + 1_000_000)
        });
    }
}

#[test]
fn root_xballoon_holds_computation_raises_io_and_moves_nothing() {
    let balloons = Balloons::new();
    let scene = &balloons.scene;
    let (mut daemon, report) = balloons.daemon();
    assert_eq!(report.does, "xballoon");
    // XB5: no other vCPU is used; XB1: the I/O-bound thread goes first.
    assert_eq!(report.moves.values().sum::<u64>(), 0, "{report:#?}");
    until("the I/O-bound thread goes first", || {
        state(scene.io).attr != scene.before.attr
    });
    let io = state(scene.io);
    assert_eq!(
        (&io.cgroup, &io.mask),
        (&scene.before.cgroup, &scene.before.mask)
    );

    // A held thread stands still while its vCPU runs on for others: between two
    // looks that both find it held it has used nothing. What the kernel charges
    // for a freeze, or a balloon that was deflated in between, may spoil some.
    const LOOKS: u32 = 100;
    let (mut looks, mut still) = (0, 0);
    let end = Instant::now() + Duration::from_secs(60);
    while looks < LOOKS && Instant::now() < end {
        for dir in balloons.balloons() {
            let held = || {
                fs::read_to_string(dir.join("cgroup.events"))
                    .is_ok_and(|events| events.contains("frozen 1"))
            };
            let members = fs::read_to_string(dir.join("cgroup.threads")).unwrap_or_default();
            let Some(tid) = members.lines().next().and_then(|line| line.parse().ok()) else {
                continue;
            };
            let first = held().then(|| used(tid));
            std::thread::sleep(Duration::from_micros(100));
            if let Some(first) = first
                && held()
            {
                looks += 1;
                still += u32::from(used(tid) == first);
            }
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    println!("{still} of {looks} looks found a held thread still");
    let report = scene.home.report();
    assert!(looks >= LOOKS, "{looks} looks: {report:#?}");
    assert!(still * 10 >= looks * 9, "{still} of {looks}");

    // Computation is not starved: it keeps at least half of each slice.
    let then: Vec<u64> = balloons.compute.iter().map(|tid| used(*tid)).collect();
    let text = String::from_utf8(scene.home.run(&["status"]).stdout).unwrap();
    assert!(
        text.contains("xballoon") && text.contains("balloons"),
        "{text}"
    );
    until("all computation goes on", || {
        let now = balloons.compute.iter().map(|tid| used(*tid));
        now.zip(&then).all(|(now, then)| now > then + 50_000_000)
    });
    assert_eq!(daemon.stop().code(), Some(0));
    balloons.all_is_restored("after SIGTERM");
}

#[test]
fn root_xballoon_leaves_nothing_when_it_is_killed() {
    let balloons = Balloons::new();
    let (mut daemon, _) = balloons.daemon();
    daemon.kill(daemon.daemon_pid(), Signal::KILL);
    assert_eq!(daemon.wait().code(), Some(128 + 9));
    balloons.all_is_restored("after SIGKILL of the daemon");

    // Both at once: `restore` has to.
    let (mut daemon, _) = balloons.daemon();
    daemon.kill_both();
    assert!(balloons.scene.home.restore().status.success());
    balloons.all_is_restored("after SIGKILL of both and restore");
}
