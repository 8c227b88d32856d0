// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The detector finds every kind of I/O wait and where it ends, and the part of it that
//! every context switch pays for is attached while somebody does I/O, and not for longer.
//! As root, `--test-threads=1`.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

#[path = "engine/bed.rs"]
#[allow(dead_code, reason = "shared with the tests of the engine")]
mod bed;
#[path = "engine/disk.rs"]
mod disk;
#[path = "engine/subject.rs"]
#[allow(dead_code, reason = "shared with the tests of the engine")]
mod subject;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use bed::Bed;
use bed::eventually;
use bed::moving;
use guest::engine::Engine;
use guest::report::Mode;
use guest::settings::Settings;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process_group;
use subject::Order;
use subject::Subject;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

const SECOND: Duration = Duration::from_secs(1);

/// Not a test: the program that the engine moves.
#[test]
#[ignore = "started by the tests"]
fn subject_program() {
    subject::run();
}

/// An engine that watches, after its first minute as it were: a second here.
fn watching(bed: &Bed) -> Engine {
    let engine = bed.engine(Settings {
        calm_after: Ns::from_secs(1),
        ..bed.settings()
    });
    assert!(engine.report().detector_attached, "attached at the start");
    // Others on this machine may do some I/O, so not at once perhaps.
    eventually(20 * SECOND, "watching, detached", || {
        let report = engine.report();
        report.mode == Mode::Watching && !report.detector_attached
    });
    engine
}

#[test]
fn root_waits_that_no_block_request_announces_attach_the_detector() {
    let bed = Bed::new();
    let engine = watching(&bed);
    let subject = Subject::start();
    subject.order(Order::Io);
    eventually(8 * SECOND, "attached", || engine.report().detector_attached);
    moving(&engine, 10);
    // For as long as there is somebody, however long that is.
    bed::throughout(2 * SECOND, || {
        assert!(engine.report().detector_attached);
    });
    drop(subject);
    eventually(20 * SECOND, "detached again", || {
        !engine.report().detector_attached
    });
    engine.stop();
}

/// Reads a file past the page cache, again and again; ended by being dropped.
struct Reader(Child);

impl Reader {
    fn start(file: &std::path::Path) -> Self {
        let script = "while dd if=\"$0\" of=/dev/null bs=4k iflag=direct 2>/dev/null; do :; done";
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(file)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The shell and its dd.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn root_block_requests_attach_the_detector() {
    // In the checkout's target directory: memory has no block requests.
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&vec![1; 8 << 20]).unwrap();
    file.as_file().sync_all().unwrap();
    let bed = Bed::new();
    let engine = watching(&bed);
    let reader = Reader::start(file.path());
    eventually(8 * SECOND, "attached", || engine.report().detector_attached);
    drop(reader);
    eventually(20 * SECOND, "detached again", || {
        !engine.report().detector_attached
    });
    engine.stop();
}

fn is_found(engine: &Engine, subject: &Subject) -> bool {
    let report = engine.report();
    report.tasks.iter().any(|task| task.tid == subject.tid())
}

fn is_let_go_once_it_computes(engine: &Engine, subject: &Subject) {
    subject.order(Order::Compute);
    // A busy disk may take seconds for the last request, and until then its task waits
    // for it as before.
    eventually(60 * SECOND, "the disk's last request is complete", || {
        subject.has_taken(Order::Compute)
    });
    eventually(4 * SECOND, "not I/O-bound any more", || {
        !is_found(engine, subject)
    });
}

#[test]
fn root_each_way_of_waiting_for_a_disk_is_found() {
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    let subject = Subject::start();
    let ways = [
        Order::Direct,
        Order::Buffered,
        Order::Fsync,
        Order::Uring,
        Order::Aio,
        Order::Adjacent,
    ];
    for way in ways {
        let before = subject.done();
        subject.order(way);
        let found = bed::becomes(8 * SECOND, || is_found(&engine, &subject));
        let done = subject.done() - before;
        assert!(found, "{way:?}, {done} requests: {:#?}", engine.report());
        println!("{way:?}: found after {done} requests at most");
        // Gone before the next: each is found by itself.
        is_let_go_once_it_computes(&engine, &subject);
    }
    engine.stop();
}

/// Nobody sees a request complete while the daemon is asleep: its thread would wait for it
/// for good.
#[test]
fn root_requests_that_complete_while_it_sleeps_are_not_in_flight() {
    let bed = Bed::new();
    let subject = Subject::start();
    let stat = tempfile::NamedTempFile::new().unwrap();
    let mut ticks = 0;
    let mut steal = || {
        ticks += 1;
        let line = format!("cpu  1 2 3 4 5 6 7 {ticks:08} 0 0\n");
        stat.as_file().write_all_at(line.as_bytes(), 0).unwrap();
    };
    steal();
    let engine = bed.engine(Settings {
        steal_stat: Some(stat.path().to_owned()),
        quiet_after: Ns::from_secs(1),
        ..bed.settings()
    });
    subject.order(Order::Adjacent);
    eventually(8 * SECOND, "awake, and it is found", || {
        steal();
        is_found(&engine, &subject)
    });
    // Some of its requests are in flight at any time.
    eventually(8 * SECOND, "asleep", || {
        engine.report().mode == Mode::Asleep
    });
    subject.order(Order::Naps);
    eventually(60 * SECOND, "the disk's last request is complete", || {
        subject.has_taken(Order::Naps)
    });
    eventually(8 * SECOND, "awake again", || {
        steal();
        engine.report().mode != Mode::Asleep && engine.report().detector_attached
    });
    bed::throughout(SECOND, || {
        steal();
        assert!(!is_found(&engine, &subject), "{:#?}", engine.report());
    });
    engine.stop();
}

/// What is not followed to its completion must not seem to be on its way for good.
#[test]
fn root_requests_that_are_too_many_to_follow_are_not_in_flight() {
    let bed = Bed::new();
    // Of 64.
    let engine = bed.engine(Settings {
        bios_in_flight: 16,
        ..bed.settings()
    });
    let subject = Subject::start();
    subject.order(Order::Adjacent);
    eventually(8 * SECOND, "found", || is_found(&engine, &subject));
    is_let_go_once_it_computes(&engine, &subject);
    engine.stop();
}

/// Counts completions of block requests by the CPU that handles them, as the kernel's
/// own tracer sees them. Its files are mounted for this: on a machine without systemd
/// nobody has.
struct Completions {
    mounted: tempfile::TempDir,
    counting: PathBuf,
}

impl Completions {
    fn count() -> Self {
        let mounted = tempfile::tempdir().unwrap();
        let status = Command::new("mount")
            .args(["-t", "tracefs", "nodev"])
            .arg(mounted.path())
            .status();
        assert!(status.unwrap().success(), "no tracefs in this kernel");
        let name = format!("instances/vmigrater-test-{}", std::process::id());
        let counting = mounted.path().join(name);
        // From here on it is unmounted, whatever happens.
        let all = Self { mounted, counting };
        std::fs::create_dir(&all.counting).unwrap();
        all.switch("1");
        all
    }

    fn switch(&self, on: &str) {
        let file = "events/block/block_rq_complete/enable";
        std::fs::write(self.counting.join(file), on).unwrap();
    }

    /// So far, by CPU.
    fn by_cpu(&self) -> Vec<u64> {
        let of = |cpu| {
            let file = self.counting.join(format!("per_cpu/cpu{cpu}/stats"));
            let stats = std::fs::read_to_string(file).unwrap();
            let number = |what: &str| -> u64 {
                let line = stats.lines().find_map(|line| line.strip_prefix(what));
                line.unwrap().trim().parse().unwrap()
            };
            number("entries:") + number("overrun:")
        };
        (0..bed::CPUS).map(of).collect()
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // An instance ends with its directory.
        let _ = std::fs::remove_dir(&self.counting);
        // Lazily: what is still mounted would be emptied with the directory.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.mounted.path())
            .status();
    }
}

/// Two readers who stay on one CPU each submit; the report of a third one, whom
/// nobody moves, says what the kernel's own tracer says.
#[test]
fn root_where_a_disks_requests_complete_is_learnt() {
    let bed = Bed::new();
    let engine = bed.engine(Settings {
        dry_run: true,
        ..bed.settings()
    });
    let pinned = [0, 1].map(|cpu| {
        let subject = Subject::start();
        subject.set_mask(&CpuSet::only(VcpuId(cpu)));
        subject.order(Order::Direct);
        subject
    });
    let free = Subject::start();
    free.order(Order::Direct);
    let completions = Completions::count();
    eventually(10 * SECOND, "200 requests from each CPU", || {
        pinned.iter().all(|subject| subject.done() > 200)
    });
    let (before, then) = (completions.by_cpu(), pinned.each_ref().map(Subject::done));
    eventually(10 * SECOND, "200 more from each CPU", || {
        let mut both = pinned.iter().zip(then);
        both.all(|(subject, then)| subject.done() > then + 200)
    });
    let after = completions.by_cpu();
    let seen: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let all: u64 = seen.iter().sum();
    let only = seen.iter().position(|count| count * 100 >= all * 95);
    println!("completions by CPU: {seen:?}");
    assert!(
        only.is_some() || seen.iter().all(|count| count * 100 >= all * 20),
        "this disk neither completes on one CPU nor where a request comes from: {seen:?}"
    );
    let expected = only.map_or("follows-task".to_owned(), |cpu| format!("vcpu {cpu}"));
    let mut told = None;
    bed::becomes(8 * SECOND, || {
        let report = engine.report();
        let task = report.tasks.into_iter().find(|task| task.tid == free.tid());
        told = task.map(|task| task.completion);
        told.as_ref() == Some(&expected)
    });
    assert_eq!(told, Some(expected), "{seen:?}");
    engine.stop();
}

#[test]
fn root_who_ends_a_tasks_waits_is_told() {
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    let subject = Subject::start();
    let tid = subject.tid();
    let completion = |order: Order| {
        subject.order(order);
        let before = subject.done();
        eventually(10 * SECOND, "I/O-bound, after 200 requests", || {
            let ours = |task: &guest::report::Task| task.tid == tid;
            subject.done() > before + 200 && engine.report().tasks.iter().any(ours)
        });
        let report = engine.report();
        let task = report.tasks.iter().find(|task| task.tid == tid);
        task.map(|task| task.completion.clone())
    };
    assert_ne!(completion(Order::Io).as_deref(), Some("by-kernel-thread"));
    eventually(10 * SECOND, "a kernel thread ends its waits", || {
        completion(Order::Terminal).as_deref() == Some("by-kernel-thread")
    });
    // And interrupts again.
    eventually(10 * SECOND, "timers end its waits", || {
        completion(Order::Io).is_some_and(|path| path != "by-kernel-thread")
    });
    engine.stop();
}
