// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asked against delivered slices: `cargo bench -p freezer`, as root, on a machine
//! that does nothing else. Every CPU computes meanwhile, as in the experiments.
//! `-- idle` leaves them idle; `-- 10` gives each plan ten seconds.

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::trace::Trace;
use freezer::trace::quantile;
use units::CpuSet;
use units::Ns;
use units::Permille;

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
    println!(
        "CPUs {cpus}, {}, {seconds} s per plan; lengths in ms, lateness in us; p5 / median / p95",
        if idle { "idle" } else { "all computing" }
    );
    println!(
        "asked on/off | on                       | off                      | late out (max)             | late back (max)"
    );
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in cpus.iter().filter(|_| !idle) {
            scope.spawn(|| while !over.load(Ordering::Relaxed) {});
        }
        let done = PLANS.iter().try_for_each(|&(on, off)| {
            measure(
                Ns::from_ms(on),
                Ns::from_ms(off),
                &cpus,
                Ns::from_secs(seconds),
            )
        });
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Runs one plan, without a sweep so that all CPUs are asked the same, and prints
/// its line.
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
    let trace = Trace::new(log.iter().copied(), freezer.span());
    // The first slice of a CPU is its phase, not a slice of the plan, and its last
    // gap may have been ended by the stop.
    let pairs = cpus.iter().flat_map(|cpu| {
        let pairs = trace.pairs(cpu);
        let whole = pairs.len().saturating_sub(1);
        pairs.into_iter().take(whole).skip(1)
    });
    let (ons, offs): (Vec<Ns>, Vec<Ns>) = pairs.map(|pair| (pair.on, pair.off)).unzip();
    let late: Vec<Ns> = log.iter().map(|event| event.late()).collect();
    let overrun: Vec<Ns> = log.iter().map(|event| event.overrun()).collect();
    let three = |values: &[Ns], show: fn(Ns) -> f64| {
        let at = |permille| quantile(values, Permille::new(permille)).map_or(f64::NAN, show);
        format!("{:7.3} /{:7.3} /{:7.3}", at(50), at(500), at(950))
    };
    let max = |values: &[Ns]| values.iter().max().copied().unwrap_or_default().as_us_f64();
    println!(
        "{:>5} /{:>5} | {} | {} | {} ({:.0}) | {} ({:.0})   n={} capped={} dropped={}",
        on.as_ms_f64(),
        off.as_ms_f64(),
        three(&ons, Ns::as_ms_f64),
        three(&offs, Ns::as_ms_f64),
        three(&late, Ns::as_us_f64),
        max(&late),
        three(&overrun, Ns::as_us_f64),
        max(&overrun),
        log.len(),
        freezer.counters().iter().map(|c| c.capped).sum::<u64>(),
        freezer.counters().iter().map(|c| c.dropped).sum::<u64>(),
    );
    Ok(())
}
