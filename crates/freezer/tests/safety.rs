// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Native tests: does the machine come back, whatever happens to the owner?

mod common;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use common::FROZEN;
use common::WATCHING;
use common::ms;
use common::now;
use common::one_cpu;
use common::patient;
use common::pin_to;
use common::stop;
use common::until;
use common::wait_for_gaps;
use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::plan::Lane;
use freezer::plan::Pair;
use freezer::plan::Pattern;
use freezer::trace::Trace;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::query::ProgInfoIter;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

/// Looks for this long that something does not happen: many periods of 5 / 5 ms.
const QUIET: Duration = Duration::from_millis(200);

/// That `value` does not change for [`QUIET`].
#[track_caller]
fn assert_still<T: PartialEq + std::fmt::Debug>(mut value: impl FnMut() -> T) {
    let first = value();
    let end = Instant::now() + QUIET;
    while Instant::now() < end {
        assert_eq!(value(), first);
        std::thread::yield_now();
    }
}

#[test]
fn root_nothing_is_frozen_after_the_deadline() {
    let options = Options {
        deadline: ms(300),
        ..patient()
    };
    let freezer = Freezer::start(&one_cpu(ms(5), ms(40)), &options).unwrap();
    let deadline = freezer.span().from + ms(300);
    wait_for_gaps(&freezer, 3);
    until("the deadline", || !freezer.is_running());
    until("the CPU is back", || !freezer.is_off(FROZEN));
    // The owner lives and has not stopped it.
    assert_still(|| freezer.counters()[0].gaps);
    let log = freezer.log();
    assert!(log.iter().all(|event| event.out < deadline));
    // The gap that was cut by the deadline: the spin ends there, up to noise.
    assert!(
        log.iter().all(|event| event.back < deadline + ms(20)),
        "{log:?}"
    );
    assert_eq!(freezer.span().to, deadline);
}

#[test]
fn root_stopping_gives_the_cpu_back_in_the_middle_of_a_gap() {
    pin_to(WATCHING);
    let mut cut = Vec::new();
    for _ in 0..5 {
        let mut freezer = Freezer::start(&one_cpu(ms(5), ms(300)), &patient()).unwrap();
        until("the CPU is off", || freezer.is_off(FROZEN));
        let called = now();
        freezer.stop();
        stop(&mut freezer);
        let last = freezer.log().pop().unwrap();
        assert!(
            last.planned_back > called + ms(200),
            "not in the middle: {last:?}"
        );
        cut.push(last.back.since(called));
        assert_still(|| freezer.counters()[0].gaps);
    }
    cut.sort_unstable();
    // The median of five: the real host may delay some of them.
    assert!(cut[2] < Ns::from_us(200), "{cut:?}");
}

#[test]
fn root_freezing_begins_at_once_and_the_first_gap_comes_as_asked() {
    pin_to(WATCHING);
    let (mut returned, mut late) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let ready = Freezer::ready(&one_cpu(ms(5), ms(10)), &patient()).unwrap();
        let called = now();
        let mut freezer = ready.begin();
        returned.push(now().since(called));
        wait_for_gaps(&freezer, 1);
        stop(&mut freezer);
        let first = freezer.log()[0];
        let began = freezer.span().from;
        assert!(began >= called);
        assert_eq!(first.planned_out, began + ms(5));
        assert!(first.out >= first.planned_out, "{first:?}");
        late.push(first.out.since(first.planned_out));
    }
    // Medians of five, as above.
    returned.sort_unstable();
    late.sort_unstable();
    println!("returned after {returned:?}, the first gap late by {late:?}");
    assert!(returned[2] < Ns::from_us(200), "{returned:?}");
    assert!(late[2] < Ns::from_us(500), "{late:?}");
}

#[test]
fn root_dropping_it_stops_it() {
    pin_to(WATCHING);
    let freezer = Freezer::start(&one_cpu(ms(5), ms(300)), &patient()).unwrap();
    let map = MapHandle::from_map_id(freezer.steal_map_id().unwrap()).unwrap();
    let page = || {
        map.lookup(&FROZEN.0.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap()
    };
    until("the CPU is off", || freezer.is_off(FROZEN));
    let dropped = Instant::now();
    drop(freezer);
    until("the CPU is back", || page()[16] == 0);
    assert!(
        dropped.elapsed() < Duration::from_millis(150),
        "{:?}",
        dropped.elapsed()
    );
    assert_still(page);
}

/// Both CPUs would be off together for 60 ms in each period.
#[test]
fn root_all_cpus_are_never_off_for_longer_than_the_limit() {
    let lane = |cpu| Lane {
        cpu: VcpuId(cpu),
        first_on: ms(10),
        pattern: Pattern::Fixed(Pair {
            on: ms(10),
            off: ms(60),
        }),
    };
    let plan = Plan::new(vec![lane(0), lane(1)]).unwrap();
    let cpus = CpuSet::first(2);
    let run = |limit| {
        let options = Options {
            all_off_limit: limit,
            ..patient()
        };
        let mut freezer = Freezer::start(&plan, &options).unwrap();
        wait_for_gaps(&freezer, 20);
        let counters = stop(&mut freezer);
        let longest = Trace::new(freezer.log(), freezer.span()).longest_all_off(&cpus);
        (longest, counters.iter().map(|c| c.capped).sum::<u64>())
    };
    let (longest, capped) = run(Some(ms(10)));
    assert!(capped > 0);
    // 10 ms asked for; the rest of the room is for the real host's doings.
    assert!(longest < ms(30), "{longest}");
    // And the limit is what did it.
    let (longest, capped) = run(None);
    assert!(
        capped == 0 && longest > ms(30),
        "{longest}, {capped} capped"
    );
}

/// The freezers' program ids; ids are not used twice.
fn programs() -> Vec<u32> {
    ProgInfoIter::default()
        .filter(|program| program.name.as_encoded_bytes() == b"freeze_cpu")
        .map(|program| program.id)
        .collect()
}

#[test]
fn root_a_killed_owner_leaves_nothing_behind() {
    pin_to(WATCHING);
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "freezes_until_it_is_killed",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let id = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("steal map ")?.1.trim().parse().ok())
        .expect("the owner tells the id of its map");
    let map = MapHandle::from_map_id(id).unwrap();
    let page = || {
        map.lookup(&FROZEN.0.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap()
    };
    let start = page();
    until("it freezes", || page()[8..12] != start[8..12]);
    let loaded = programs();
    assert!(!loaded.is_empty());
    // In the middle of a gap, where it is worst.
    until("the CPU is off", || page()[16] == 1);
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("its program is gone", || {
        !programs().iter().any(|id| loaded.contains(id))
    });
    until("the CPU is back", || page()[16] == 0);
    assert_still(page);
}

/// Not a test: the owner that the one above kills. Ends by itself if nobody does.
#[test]
#[ignore = "run by root_a_killed_owner_leaves_nothing_behind"]
fn freezes_until_it_is_killed() {
    let options = Options {
        deadline: Ns::from_secs(30),
        ..patient()
    };
    let freezer = Freezer::start(&one_cpu(ms(5), ms(40)), &options).unwrap();
    println!("steal map {}", freezer.steal_map_id().unwrap());
    std::io::stdout().flush().unwrap();
    while freezer.is_running() {
        std::thread::park_timeout(Duration::from_millis(100));
    }
}
