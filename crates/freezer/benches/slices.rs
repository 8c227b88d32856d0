// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asked against delivered slices, and how soon a freeze begins and ends:
//! `cargo bench -p freezer`, as root, on a machine that does nothing else. Every CPU computes meanwhile, as in the experiments;
//! `-- idle` leaves them idle, `-- 10` gives each plan ten seconds.

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use freezer::Event;
use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::trace::Delivered;
use freezer::trace::Spread;
use units::CpuSet;
use units::Ns;
use units::Time;

/// Asked (on, off) in ms.
const PLANS: [(u64, u64); 5] = [(11, 11), (11, 33), (11, 77), (5, 25), (11, 165)];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let idle = arguments.iter().any(|argument| argument == "idle");
    let seconds = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(6);
    let cpus = freezer::probe()?.online;
    let load = if idle { "idle" } else { "all computing" };
    println!(
        "CPUs {cpus}, {load}, {seconds} s per plan; on, off in ms, lateness in us: p5 / median / p95 (max)"
    );
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in cpus.iter().filter(|_| !idle) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let measure = |&(on, off)| {
            measure(
                Ns::from_ms(on),
                Ns::from_ms(off),
                &cpus,
                Ns::from_secs(seconds),
            )
        };
        let done = PLANS
            .iter()
            .try_for_each(measure)
            .and_then(|()| starts_and_stops(&cpus));
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Runs one plan, without a sweep so that all CPUs are asked the same, and prints
/// a line for each CPU.
fn measure(on: Ns, off: Ns, cpus: &CpuSet, span: Ns) -> Result<(), Box<dyn Error>> {
    let plan = Plan::fixed(on, off, 0, cpus)?;
    let options = Options {
        wait: Ns::from_secs(30),
        ..Options::new(span + Ns::from_secs(1))
    };
    let mut freezer = Freezer::start(&plan, &options)?;
    std::thread::sleep(span.to_std());
    freezer.stop();
    let log = freezer.log();
    for counters in freezer.counters() {
        let Some(got) = Delivered::of(&log, freezer.span(), counters.cpu) else {
            return Err(format!("CPU {}: too few gaps in {span}", counters.cpu).into());
        };
        println!(
            "{on} / {off} CPU {}: on {}  off {}  late out {}  late back {}  n={} capped={} dropped={}",
            counters.cpu,
            show(got.on, Ns::as_ms_f64),
            show(got.off, Ns::as_ms_f64),
            show(got.late_out, Ns::as_us_f64),
            show(got.late_back, Ns::as_us_f64),
            got.on.count,
            counters.capped,
            counters.dropped,
        );
    }
    Ok(())
}

/// Begins and ends so many runs.
const STARTS: usize = 30;

/// How long the call takes that begins to freeze, with the programs loaded; how late the
/// first gap is; how long the call takes that ends it, in the middle of that gap; and how
/// soon after that the CPU is back. All CPUs but the last are frozen, from there.
fn starts_and_stops(cpus: &CpuSet) -> Result<(), Box<dyn Error>> {
    let Some(here) = cpus.iter().last().filter(|_| cpus.len() > 1) else {
        println!("start and stop: not measured on one CPU");
        return Ok(());
    };
    let mut mine = rustix::thread::CpuSet::new();
    mine.set(here.index());
    rustix::thread::sched_setaffinity(None, &mine)?;
    let frozen: CpuSet = cpus.iter().filter(|cpu| *cpu != here).collect();
    let plan = Plan::fixed(Ns::from_ms(11), Ns::from_ms(77), 0, &frozen)?;
    let options = Options {
        wait: Ns::from_secs(30),
        ..Options::new(Ns::from_secs(5))
    };
    let (mut load, mut begin, mut first) = (Vec::new(), Vec::new(), Vec::new());
    let (mut end, mut back) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let called = now();
        let ready = Freezer::ready(&plan, &options)?;
        load.push(now().since(called));
        let called = now();
        let mut freezer = ready.begin();
        begin.push(now().since(called));
        while freezer.is_running() && !frozen.iter().all(|cpu| freezer.is_off(cpu)) {
            std::thread::sleep(Ns::from_ms(1).to_std());
        }
        let called = now();
        freezer.stop();
        end.push(now().since(called));
        while frozen.iter().any(|cpu| freezer.is_off(cpu)) {
            std::thread::sleep(Ns::from_ms(1).to_std());
        }
        let log = freezer.log();
        let first_of = |cpu| log.iter().find(|gap| gap.cpu == cpu);
        first.extend(
            frozen
                .iter()
                .filter_map(first_of)
                .map(|gap| gap.out.since(gap.planned_out)),
        );
        let cut = |gap: &&Event| gap.out < called && gap.back >= called;
        back.extend(log.iter().filter(cut).map(|gap| gap.back.since(called)));
    }
    for (what, values) in [
        ("load and attach", load),
        ("begin", begin),
        ("first gap late", first),
        ("stop", end),
        ("back after stop", back),
    ] {
        match Spread::of(values) {
            Some(spread) => {
                println!(
                    "{what}: {} us n={}",
                    show(spread, Ns::as_us_f64),
                    spread.count
                );
            }
            None => println!("{what}: never seen"),
        }
    }
    Ok(())
}

/// On the clock of the log.
fn now() -> Time {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
}

fn show(spread: Spread, unit: fn(Ns) -> f64) -> String {
    let Spread {
        p5,
        median,
        p95,
        max,
        ..
    } = spread;
    format!(
        "{:.3} / {:.3} / {:.3} ({:.3})",
        unit(p5),
        unit(median),
        unit(p95),
        unit(max)
    )
}
