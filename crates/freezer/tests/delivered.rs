// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Native tests: are the slices those that were asked for? Lateness is bounded
//! generously, since the real host may take the CPU as well; the accounting is
//! exact whatever the lateness.

mod common;

use common::FROZEN;
use common::gaps;
use common::ms;
use common::now;
use common::one_cpu;
use common::patient;
use common::pin_to;
use common::recorded;
use common::stop;
use common::wait_for_gaps;
use freezer::Event;
use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::StartError;
use freezer::plan::Pair;
use freezer::trace::Delivered;
use freezer::trace::Trace;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

/// First of all, so that no other test passes by comparing nothing.
#[test]
fn root_this_machine_can_be_frozen() {
    let support = freezer::probe().unwrap();
    assert!(
        support.online.contains(FROZEN) && support.online.len() >= 2,
        "{support:?}"
    );
}

#[test]
fn root_without_capabilities_the_refusal_says_so() {
    let done = std::thread::spawn(|| {
        // Of this thread only; the one that loads inherits them.
        let none = rustix::thread::CapabilitySet::empty();
        let sets = rustix::thread::CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        rustix::thread::set_capabilities(None, sets).unwrap();
        freezer::probe()
    });
    let error = done.join().unwrap().unwrap_err();
    assert!(
        matches!(error, freezer::Unsupported::NotPermitted),
        "{error:?}"
    );
    assert!(error.to_string().contains("CAP_BPF"));
}

#[test]
fn root_slices_and_gaps_are_as_long_as_asked() {
    let cpus = CpuSet::first(2);
    let plan = Plan::shared(4, ms(5), &cpus).unwrap();
    let mut freezer = Freezer::start(&plan, &patient()).unwrap();
    wait_for_gaps(&freezer, 60);
    let counters = stop(&mut freezer);
    let log = freezer.log();
    for lane in plan.lanes() {
        let asked = lane.mean();
        let got = Delivered::of(&log, freezer.span(), lane.cpu).unwrap();
        assert!(
            got.on.min >= asked.on,
            "CPU {} was taken early: {got:?}",
            lane.cpu
        );
        assert!(got.on.median < asked.on + ms(1), "{got:?}");
        assert!(got.off.median.abs_diff(asked.off) < ms(1), "{got:?}");
        assert!(
            got.late_out.median < ms(1) && got.late_back.median < Ns::from_us(100),
            "{got:?}"
        );
    }
    assert!(
        counters
            .iter()
            .all(|c| c.capped == 0 && c.dropped == 0 && c.timer_errors == 0),
        "{counters:?}"
    );
    // A quarter each, and in between as many CPUs as independent phases give.
    let trace = Trace::new(log, freezer.span());
    for cpu in cpus.iter() {
        assert!(
            (200..330).contains(&trace.on_share(cpu).get()),
            "{}",
            trace.on_share(cpu)
        );
    }
}

/// What a CPU is behind its plan, as the freezer counts it.
#[derive(Default)]
struct Behind(Ns);

impl Behind {
    /// Was this gap of a length of `off` shortened as it should be? A gap's lateness is
    /// counted before it, its overrun after it. `period` if whole ones are forgotten.
    fn agrees(&mut self, event: &Event, off: Ns, period: Option<Ns>) -> bool {
        let less = |behind: Ns| period.map_or(behind, |period| Ns(behind.0 % period.0));
        let due = less(self.0 + event.late());
        let shorter = due.min(off / 4);
        self.0 = less(due - shorter + event.overrun());
        event.planned_back == event.out + (off - shorter)
    }
}

/// Every slice ends where the return before it and the plan say, every gap where
/// its start, what came late before it and the plan say.
#[test]
fn root_the_accounting_has_no_drift() {
    let asked = [(3, 5), (7, 2), (4, 9)];
    let mut freezer = Freezer::start(&recorded(&asked), &patient()).unwrap();
    wait_for_gaps(&freezer, 30);
    stop(&mut freezer);
    let log = freezer.log();
    let mut back = freezer.span().from;
    let mut behind = Behind::default();
    for (event, (on, off)) in log.iter().zip(asked.into_iter().cycle()) {
        assert_eq!(event.planned_out, back + ms(on));
        assert!(event.out >= event.planned_out);
        assert!(behind.agrees(event, ms(off), None), "{event:?}");
        back = event.back;
    }
    // All but the last, which the stop has ended.
    assert!(
        log.iter()
            .rev()
            .skip(1)
            .all(|event| event.back >= event.planned_back)
    );
    assert!(log.len() >= 30);
}

/// Every return is a little late, and some are late by milliseconds when the machine was
/// busy: none of that may move a CPU's phase for good, or CPUs of a recorded host would
/// not be off together as they were.
#[test]
fn root_phases_stay_as_planned() {
    let cpus = CpuSet::first(2);
    let half = ms(10);
    let pair = Pair {
        on: half,
        off: half,
    };
    let plan = Plan::recorded(cpus.iter().map(|cpu| (cpu, vec![pair])).collect()).unwrap();
    let mut freezer = Freezer::start(&plan, &patient()).unwrap();
    wait_for_gaps(&freezer, 60);
    stop(&mut freezer);
    let log = freezer.log();
    for cpu in cpus.iter() {
        let mut behind = Behind::default();
        let mut nth = 0;
        for event in log.iter().filter(|event| event.cpu == cpu) {
            // Where the plan has the end of this slice, counted from the start.
            let planned = freezer.span().from + half + (half + half) * nth;
            assert_eq!(event.planned_out.since(planned), behind.0, "{event:?}");
            assert!(behind.agrees(event, half, None), "{event:?}");
            nth += 1;
        }
        assert!(nth >= 60);
    }
}

#[test]
fn root_a_new_plan_counts_within_one_slice() {
    let (first, second) = (one_cpu(ms(11), ms(11)), one_cpu(ms(5), ms(25)));
    let mut freezer = Freezer::start(&first, &patient()).unwrap();
    wait_for_gaps(&freezer, 5);
    let before = now();
    freezer.replan(&second).unwrap();
    let after = now();
    let seen = gaps(&freezer);
    wait_for_gaps(&freezer, seen + 10);
    stop(&mut freezer);
    let log = freezer.log();
    let on = |[a, b]: [Event; 2]| b.planned_out.since(a.back);
    let mut kinds = [0, 0];
    for pair in log.windows(2).map(|pair| [pair[0], pair[1]]) {
        // Come back before: an old slice.
        if pair[0].back < before {
            assert_eq!(on(pair), ms(11));
            kinds[0] += 1;
        }
        if pair[0].back > after {
            assert_eq!(on(pair), ms(5));
            kinds[1] += 1;
        }
    }
    let mut behind = Behind::default();
    for event in &log {
        // Taken away before: an old gap. Between, either.
        let new =
            event.out > after || (event.out > before && event.planned_back > event.out + ms(12));
        let off = if new { ms(25) } else { ms(11) };
        let period = if new { ms(30) } else { ms(22) };
        assert!(behind.agrees(event, off, Some(period)), "{event:?}");
    }
    assert!(kinds[0] >= 3 && kinds[1] >= 8, "{kinds:?}");
}

#[test]
fn root_a_new_plan_for_other_cpus_is_refused() {
    let mut freezer = Freezer::start(&one_cpu(ms(5), ms(5)), &patient()).unwrap();
    let other = Plan::shared(2, ms(5), &CpuSet::first(2)).unwrap();
    let error = freezer.replan(&other).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cpus is 0-1; allowed: 0, as at the start"
    );
    let many = recorded(&[(1, 1); 5000]);
    let error = freezer.replan(&many).unwrap_err();
    assert_eq!(
        error.to_string(),
        "recorded pairs is 5000; allowed: at most 4096"
    );
    freezer.stop();
}

#[test]
fn root_the_log_counts_what_it_drops() {
    let options = Options {
        log_per_cpu: Some(4),
        ..patient()
    };
    let mut freezer = Freezer::start(&one_cpu(ms(2), ms(2)), &options).unwrap();
    wait_for_gaps(&freezer, 10);
    let counters = stop(&mut freezer)[0];
    assert_eq!(freezer.log().len(), 4);
    assert_eq!((counters.logged, counters.dropped), (4, counters.gaps - 4));
    // The sum does not depend on the log.
    assert!(counters.frozen >= ms(1) * counters.gaps, "{counters:?}");
}

#[test]
fn root_what_cannot_run_is_refused_before_anything_freezes() {
    let offline = Plan::shared(2, ms(5), &CpuSet::only(VcpuId(1000))).unwrap();
    assert!(matches!(
        Freezer::start(&offline, &patient()),
        Err(StartError::Offline {
            cpu: VcpuId(1000),
            ..
        })
    ));

    let plan = one_cpu(ms(5), ms(5));
    for deadline in [Ns::ZERO, freezer::MAX_RUN + Ns(1)] {
        let options = Options {
            deadline,
            ..patient()
        };
        let error = Freezer::start(&plan, &options).err().unwrap();
        assert!(error.to_string().starts_with("deadline is "), "{error}");
    }
    let options = Options {
        all_off_limit: Some(ms(501)),
        ..patient()
    };
    let error = Freezer::start(&plan, &options).err().unwrap();
    assert_eq!(
        error.to_string(),
        "all_off_limit is 501 ms; allowed: 1 ms to 500 ms"
    );
}

#[test]
fn root_a_second_freezer_is_refused() {
    let plan = one_cpu(ms(5), ms(5));
    let mut first = Freezer::start(&plan, &patient()).unwrap();
    let at_once = Options {
        wait: Ns::ZERO,
        ..patient()
    };
    assert!(matches!(
        Freezer::start(&plan, &at_once),
        Err(StartError::AlreadyRunning)
    ));
    first.stop();
}

/// The machine is the freezer's user too: what runs on the frozen CPU goes on in
/// its slices.
#[test]
fn root_a_task_on_the_frozen_cpu_runs_in_its_slices_only() {
    let mut freezer = Freezer::start(&one_cpu(ms(5), ms(20)), &patient()).unwrap();
    let stamps = std::thread::scope(|scope| {
        let stamps = scope.spawn(|| {
            pin_to(FROZEN);
            let mut stamps = Vec::new();
            while gaps(&freezer) < 20 {
                stamps.push(now());
            }
            stamps
        });
        stamps.join().unwrap()
    });
    stop(&mut freezer);
    let log = freezer.log();
    let inside = |stamp: &&units::Time| {
        log.iter()
            .any(|gap| gap.out < **stamp && **stamp < gap.back)
    };
    assert!(stamps.len() > 1000);
    assert_eq!(
        stamps.iter().filter(inside).count(),
        0,
        "ran while its CPU was off"
    );
}
