// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asked against delivered slices: `cargo bench -p freezer`, as root, on a machine
//! that does nothing else. Every CPU computes meanwhile, as in the experiments;
//! `-- idle` leaves them idle, `-- 10` gives each plan ten seconds.

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::trace::Delivered;
use freezer::trace::Spread;
use units::CpuSet;
use units::Ns;

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
        let done = PLANS.iter().try_for_each(measure);
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
