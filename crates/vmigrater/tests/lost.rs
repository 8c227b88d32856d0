// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that does not read its rings for seconds: what did not fit is counted and
//! shown, and found when it reads again.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use common::Daemon;
use common::Home;
use common::compute::Compute;
use common::freeze;
use common::program::Program;
use common::program::one_request_after_another;
use common::program::state;
use common::until;
use freezer::Freezer;
use freezer::Plan;
use freezer::plan::MIN_OFF;
use guest::report::Mode;
use io_uring::IoUring;
use io_uring::opcode;
use io_uring::types::Timespec;
use libbpf_rs::MapHandle;
use libbpf_rs::query::MapInfoIter;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::process::Signal;
use units::CpuSet;
use units::Ns;

const CPUS: u32 = 2;

/// A gap every 8 ms.
const SLICE: Ns = Ns::from_ms(4);

/// A ring has room for 255 bells (`RING_BYTES`), and each gap rings one.
const GAPS: u64 = 400;

/// Never lets a task go to compare.
const CONFIG: &str = "[trial]\nenabled = false\n";

/// Names the file whose existence has the parent start children.
const GO: &str = "LOST_GO";
const CHILDREN: usize = 8;

/// Not a test: one request after another.
#[test]
#[ignore = "started by the tests"]
fn io_program() {
    one_request_after_another();
}

/// Not a test: the same by a thread that starts others, once it is told to.
#[test]
#[ignore = "started by the tests"]
fn parent_program() {
    let go = std::env::var_os(GO).unwrap();
    rustix::thread::set_name(c"parent").unwrap();
    let mut ring = IoUring::new(2).unwrap();
    let length = Timespec::new().nsec(100_000);
    let mut started = 0;
    loop {
        // SAFETY: the length outlives the request, which is waited for here.
        unsafe {
            ring.submission()
                .push(&opcode::Timeout::new(&length).build())
        }
        .unwrap();
        // Interrupted: the next round waits for it as well.
        let _ = ring.submit_and_wait(1);
        ring.completion().for_each(drop);
        if started < CHILDREN && Path::new(&go).exists() {
            started += 1;
            let child = std::thread::Builder::new().name("child".to_owned());
            child
                .spawn(|| {
                    loop {
                        std::thread::park();
                    }
                })
                .unwrap();
        }
    }
}

fn gaps(freezer: &Freezer) -> Vec<u64> {
    freezer.counters().iter().map(|cpu| cpu.gaps).collect()
}

#[test]
fn root_what_a_full_ring_lost_is_counted_and_found_again() {
    let home = Home::new();
    let go = home.path("go");
    let parents = Program::start_with("parent_program", GO, &go);
    let parent = parents.threads("parent", 1)[0];
    let before = state(parent);
    let compute = Compute::start(CPUS);
    let mut freezer = freeze(SLICE, CPUS);
    let mut daemon = Daemon::start_under(&freezer, &home, CONFIG);
    until("the task is held", || state(parent).mask != before.mask);
    assert_eq!(home.report().unwrap().lost_events, 0);

    // Nobody reads until every ring is full.
    daemon.hold(daemon.daemon_pid());
    let from = gaps(&freezer);
    until("as many gaps as no ring has room for", || {
        gaps(&freezer)
            .iter()
            .zip(&from)
            .all(|(now, from)| now - from > GAPS)
    });
    let narrow = state(parent).mask;
    assert_ne!(narrow, before.mask, "it must still be held");
    // Now bells that say more than "look": of children that inherit a mask, and of a
    // task that has become I/O-bound.
    fs::write(&go, "").unwrap();
    let children = parents.threads("child", CHILDREN);
    for child in &children {
        assert_eq!(state(*child).mask, narrow, "a child inherits");
    }
    let late = Program::start("io_program");
    let tid = late.threads("pulse-", 1)[0];
    let wide = state(tid);
    // Some hundred windows of the detector.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(state(tid), wide, "nobody can have moved it");
    daemon.kill(daemon.daemon_pid(), Signal::CONT);

    until("the late task is held", || {
        let report = home.report();
        report.is_some_and(|report| report.tasks.iter().any(|task| task.tid.0 == tid))
    });
    until("all children have the owner's mask", || {
        children
            .iter()
            .all(|child| state(*child).mask == before.mask)
    });
    let report = home.report().unwrap();
    println!("{} events were lost", report.lost_events);
    // Of each CPU more than a hundred gaps beyond its ring's room.
    assert!(report.lost_events > 2 * (GAPS - 255), "{report:#?}");
    let text = String::from_utf8(home.run(&["status"]).stdout).unwrap();
    let shown = text.lines().find(|line| line.starts_with("lost ")).unwrap();
    assert!(
        shown.contains(&format!("{} events", report.lost_events)),
        "{text}"
    );

    assert_eq!(daemon.stop().code(), Some(0));
    freezer.stop();
    drop(compute);
    assert_eq!((state(parent), state(tid)), (before, wide));
    assert!(!home.path("journal").exists(), "the journal stays");
}

/// Bytes of each ring, and of a page.
const RING: usize = 4096;

/// The control thread's ring, made to look full: as if its reader had got no further
/// than a whole ring ago. Nobody may read it meanwhile. As before on drop.
struct Full {
    consumer: *mut u64,
    was: u64,
}

impl Full {
    /// Stops its reader first.
    fn of(daemon: &Daemon) -> Self {
        let mut full = None;
        until("everything on the ring has been read", || {
            daemon.hold(daemon.daemon_pid());
            full = Self::if_empty();
            if full.is_none() {
                daemon.kill(daemon.daemon_pid(), Signal::CONT);
            }
            full.is_some()
        });
        full.unwrap()
    }

    fn if_empty() -> Option<Self> {
        // The newest of that name is the daemon's last one.
        let rings = MapInfoIter::default().filter(|map| map.name == "vmg_bells");
        let ring = MapHandle::from_map_id(rings.map(|map| map.id).max().unwrap()).unwrap();
        let page = |at: u64, access| {
            // SAFETY: a new mapping, which touches nothing that exists.
            let page = unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    RING,
                    access,
                    MapFlags::SHARED,
                    ring.as_fd(),
                    at,
                )
            };
            page.unwrap().cast::<u64>()
        };
        let consumer = page(0, ProtFlags::READ | ProtFlags::WRITE);
        let producer = page(RING as u64, ProtFlags::READ);
        // SAFETY: both pages are mapped and begin with these positions; the other side
        // writes its own only.
        let (was, written) = unsafe { (consumer.read_volatile(), producer.read_volatile()) };
        if was != written {
            return None;
        }
        // SAFETY: as above; this side is ours while the reader stands still.
        unsafe { consumer.write_volatile(written.wrapping_sub(RING as u64)) };
        Some(Self { consumer, was })
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        // SAFETY: mapped until the end of the process.
        unsafe { self.consumer.write_volatile(self.was) };
    }
}

/// Nothing wakes the daemon but a word on this ring that is rung once.
#[test]
fn root_a_word_to_the_control_thread_that_was_lost_is_said_again() {
    let home = Home::new();
    let compute = Compute::start(CPUS);
    let shared = Plan::shared(2, SLICE, &CpuSet::first(CPUS)).unwrap();
    // Gaps that are too short to be any.
    let calm = Plan::fixed(SLICE, MIN_OFF, 0, &CpuSet::first(CPUS)).unwrap();
    let mut freezer = freeze(SLICE, CPUS);
    let config = "quiet_after = \"1s\"\n[slice]\nmin_gap = \"2ms\"\n";
    let mut daemon = Daemon::start_under(&freezer, &home, config);
    let mode = || home.report().unwrap().mode;
    let lost = || home.report().unwrap().lost_events;
    until("it is awake", || mode() != Mode::Asleep);

    freezer.replan(&calm).unwrap();
    until("it is asleep", || mode() == Mode::Asleep);
    let before = lost();

    // What tells it to get up does not fit.
    let full = Full::of(&daemon);
    freezer.replan(&shared).unwrap();
    let from = gaps(&freezer);
    until("more gaps than wake it", || {
        gaps(&freezer)
            .iter()
            .zip(&from)
            .all(|(now, from)| now - from > 50)
    });
    drop(full);
    daemon.kill(daemon.daemon_pid(), Signal::CONT);
    until("it is awake again", || mode() != Mode::Asleep);
    assert!(lost() > before, "the word was not lost");

    assert_eq!(daemon.stop().code(), Some(0));
    freezer.stop();
    drop(compute);
}
