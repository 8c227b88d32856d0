// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `vlab freeze` prints at the end.

use std::fmt::Write as _;

use freezer::Counters;
use freezer::Freezer;
use freezer::Plan;
use freezer::plan::Pair;
use freezer::trace::Delivered;
use freezer::trace::Span;
use freezer::trace::Spread;
use freezer::trace::Trace;
use freezer::trace::analytic_bound;
use units::Ns;

/// What was asked and what came of it; all lengths in ns.
#[derive(serde::Serialize)]
pub(super) struct Report {
    pub(super) span: Span,
    cpus: Vec<CpuReport>,
    /// Share of the time in which at least one CPU was on.
    any_on_permille: u16,
    /// The longest time in which none was.
    longest_all_off_ns: Ns,
    /// Most that a task can gain by always being on a running CPU: from the log.
    bound: Option<f64>,
    /// The same from the mean share alone, if the phases were independent.
    analytic_bound: Option<f64>,
}

#[derive(serde::Serialize)]
struct CpuReport {
    /// Mean lengths of the plan.
    asked: Pair,
    on_permille: u16,
    /// Missing if there were fewer than three gaps.
    delivered: Option<Delivered>,
    counters: Counters,
}

impl Report {
    pub(super) fn new(plan: &Plan, freezer: &Freezer) -> Self {
        let span = freezer.span();
        let log = freezer.log();
        let trace = Trace::new(log.iter().copied(), span);
        let set = plan.cpus();
        let cpus: Vec<CpuReport> = plan
            .lanes()
            .iter()
            .zip(freezer.counters())
            .map(|(lane, counters)| CpuReport {
                asked: lane.mean(),
                on_permille: trace.on_share(lane.cpu).get(),
                delivered: Delivered::of(&log, span, lane.cpu),
                counters,
            })
            .collect();
        let on: u32 = cpus.iter().map(|cpu| u32::from(cpu.on_permille)).sum();
        let share = f64::from(on) / f64::from(set.len()) / 1000.0;
        Self {
            span,
            cpus,
            any_on_permille: trace.any_on(&set).get(),
            longest_all_off_ns: trace.longest_all_off(&set),
            bound: trace.bound(&set),
            analytic_bound: (share > 0.0).then(|| analytic_bound(set.len(), share)),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{:.2} s; lengths in ms as median [p5..p95], lateness in us as median, p95, max",
            self.span.len().as_secs_f64()
        )?;
        writeln!(
            text,
            "{:>4} {:>15}  {:<24} {:<24} {:<18} {:<18} {:>6} {:>6}",
            "CPU", "asked on/off", "on", "off", "late away", "late back", "gaps", "on"
        )?;
        for cpu in &self.cpus {
            let asked = format!(
                "{:.2}/{:.2}",
                cpu.asked.on.as_ms_f64(),
                cpu.asked.off.as_ms_f64()
            );
            let delivered = |of: fn(&Delivered) -> Spread, show: fn(Spread) -> String| {
                cpu.delivered
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |got| show(of(got)))
            };
            writeln!(
                text,
                "{:>4} {asked:>15}  {:<24} {:<24} {:<18} {:<18} {:>6} {:>5.1}%",
                cpu.counters.cpu.0,
                delivered(|got| got.on, lengths),
                delivered(|got| got.off, lengths),
                delivered(|got| got.late_out, lateness),
                delivered(|got| got.late_back, lateness),
                cpu.counters.gaps,
                f64::from(cpu.on_permille) / 10.0,
            )?;
            for (count, what) in [
                (
                    cpu.counters.capped,
                    "gaps cut short because all CPUs were off for too long",
                ),
                (
                    cpu.counters.dropped,
                    "gaps missing from the log, which was full",
                ),
                (
                    cpu.counters.timer_errors,
                    "slices ended by the tick because their timer failed",
                ),
            ] {
                if count > 0 {
                    writeln!(text, "     {count} {what}")?;
                }
            }
        }
        write!(
            text,
            "at least one CPU on {:.1} % of the time, none for {:.1} ms at most",
            f64::from(self.any_on_permille) / 10.0,
            self.longest_all_off_ns.as_ms_f64(),
        )?;
        if let (Some(bound), Some(analytic)) = (self.bound, self.analytic_bound) {
            write!(
                text,
                "; always on a running CPU gains {bound:.2} times at most ({analytic:.2} with independent phases)"
            )?;
        }
        writeln!(text)
    }
}

fn lengths(spread: Spread) -> String {
    format!(
        "{:.2} [{:.2}..{:.2}]",
        spread.median.as_ms_f64(),
        spread.p5.as_ms_f64(),
        spread.p95.as_ms_f64()
    )
}

fn lateness(spread: Spread) -> String {
    format!(
        "{:.1} {:.1} {:.0}",
        spread.median.as_us_f64(),
        spread.p95.as_us_f64(),
        spread.max.as_us_f64()
    )
}
