// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Native tests: does the recorder see what threads do while CPUs are taken away?

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

mod common;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::FROZEN;
use common::WATCHING;
use common::ms;
use common::one_cpu;
use common::patient;
use common::pin_to;
use common::stop;
use common::until;
use common::wait_for_gaps;
use freezer::Freezer;
use freezer::tasks::TaskEvent;
use freezer::tasks::TaskRecorder;
use freezer::tasks::What;
use units::Tid;

fn tid() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// A thread that does `step` over and over after `begin`, recorded while `meanwhile` runs.
fn record(
    log_per_cpu: u32,
    begin: impl FnOnce() + Send,
    step: impl Fn() + Send + Sync,
    meanwhile: impl FnOnce(),
) -> (Vec<TaskEvent>, u64) {
    let (id, end) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin();
            id.store(tid(), Ordering::Release);
            while !end.load(Ordering::Acquire) {
                step();
            }
        });
        until("the thread runs", || id.load(Ordering::Acquire) != 0);
        let id = id.load(Ordering::Acquire);
        let mut recorder = TaskRecorder::load(&[id], log_per_cpu).unwrap();
        recorder.start();
        meanwhile();
        recorder.stop();
        end.store(true, Ordering::Release);
        let mut events = recorder.events();
        assert!(events.keys().all(|tid| *tid == Tid(id)), "only its own");
        (
            events.remove(&Tid(id)).unwrap_or_default(),
            recorder.dropped(),
        )
    })
}

fn nap() {
    std::thread::sleep(Duration::from_micros(300));
}

#[test]
fn root_a_sleeper_goes_to_sleep_is_woken_and_runs() {
    let pause = || std::thread::sleep(Duration::from_millis(200));
    let (events, dropped) = record(1 << 14, || pin_to(WATCHING), nap, pause);
    assert_eq!(dropped, 0);
    let turns = events.iter().filter(|e| e.what == What::In).count();
    assert!(turns > 50, "only {turns} turns in 200 ms");
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let after = |what: What| {
        events
            .windows(2)
            .filter(move |pair| pair[0].what == what)
            .map(|pair| pair[1].what)
    };
    // Not all: a timer that fires while its sleeper is still on its way out, because
    // somebody else has the CPU, wakes it before it is seen to sleep.
    let odd = after(What::Sleep)
        .filter(|next| *next != What::Waking)
        .chain(after(What::Waking).filter(|next| *next != What::In))
        .count();
    assert!(odd * 20 <= turns, "{odd} of {turns}");
    assert!(events.iter().all(|e| e.cpu == WATCHING));
    // It sleeps for nothing that has to do with I/O.
    assert!(events.iter().all(|e| e.what != What::Io));
}

/// The host's log and the scheduler's events are on one clock: nothing becomes
/// current on a CPU while that is off.
#[test]
fn root_nothing_becomes_current_on_a_cpu_that_is_off() {
    let mut log = Vec::new();
    let (events, _) = record(
        1 << 14,
        || pin_to(FROZEN),
        nap,
        || {
            let mut freezer = Freezer::start(&one_cpu(ms(5), ms(5)), &patient()).unwrap();
            wait_for_gaps(&freezer, 40);
            stop(&mut freezer);
            log = freezer.log();
        },
    );
    let inside = |e: &&TaskEvent| log.iter().any(|gap| gap.out < e.at && e.at < gap.back);
    let of_frozen = events.iter().filter(|e| e.cpu == FROZEN);
    assert!(of_frozen.clone().count() > 100);
    assert_eq!(of_frozen.filter(inside).count(), 0);
    // And it sleeps into gaps: its wake-ups come late.
    let mut longest = units::Ns::ZERO;
    for pair in events.windows(2).filter(|pair| pair[0].what == What::Sleep) {
        longest = longest.max(pair[1].at.since(pair[0].at));
    }
    assert!(longest > ms(4), "the longest sleep took {longest}");
}

#[test]
fn root_a_move_is_seen_with_its_destination() {
    let (events, _) = record(
        1 << 14,
        || pin_to(FROZEN),
        || {
            pin_to(WATCHING);
            nap();
            pin_to(FROZEN);
            nap();
        },
        || std::thread::sleep(Duration::from_millis(100)),
    );
    for cpu in [FROZEN, WATCHING] {
        let moved = |e: &&TaskEvent| e.what == What::Moved && e.cpu == cpu;
        assert!(events.iter().filter(moved).count() > 10, "to CPU {cpu}");
        assert!(events.iter().any(|e| e.what == What::In && e.cpu == cpu));
    }
}

#[test]
fn root_a_full_log_counts_what_it_drops() {
    let pause = || std::thread::sleep(Duration::from_millis(100));
    let (events, dropped) = record(16, || pin_to(WATCHING), nap, pause);
    assert_eq!(events.iter().filter(|e| e.cpu == WATCHING).count(), 16);
    assert!(dropped > 100, "{dropped}");
}
