// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A result for people: as text for a terminal, or as a page ([`html`]).

pub mod html;

pub(crate) mod books;
mod hosts;
mod short;
mod sources;
mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod work;

use std::fmt::Write;

use comfy_table::Cell;
use comfy_table::CellAlignment;
use comfy_table::Table;
use comfy_table::TableComponent;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use units::Ns;

use crate::analysis::Analysis;
use crate::analysis::Completion;
use crate::analysis::LoadTable;
use crate::analysis::Pooled;
use crate::analysis::Row;
use crate::analysis::analyse;
use crate::analysis::reference_of;
use crate::bound::analytic_speedup;
use crate::bound::analytic_union_share;
use crate::result::Phase;
use crate::result::RunResult;
use crate::result::TaskState;
use crate::scenario::LoadKind;
use crate::stats::DRIFT_LIMIT;
use crate::stats::MIN_PAIRS_FOR_VERDICT;
use crate::stats::Ratio;
use crate::stats::Summary;
use crate::stats::Verdict;
use crate::stats::summarise;

/// What the columns mean.
const LEGEND: &str = "
requests/s    median [min..max] of the rounds
to vanilla    geometric mean of the ratios round by round, with its 95 % interval from 3
              pairs on (the wider of bootstrap and Student's t); a verdict needs 5 pairs
              and the whole interval on one side
of bound      against (rate without sharing beside compute) x (time in which a CPU was on
              that could have served it, from the host's log); above 1 where an arm also
              makes I/O wait less behind compute
lost          share of the I/O threads' time on a vCPU that was off: their completion
              pending there, queued there, or current there
compute       work of the compute threads against vanilla
at equal I/O  the same, plus what the I/O done costs in compute";

const LEGEND_OF_NEAR: &str = "\
near          share of the I/O threads' time on the CPU where all completions arrive, median
              [min..max] of the rounds; elsewhere each needs an interrupt more";

/// What the daemon's columns mean.
const LEGEND_OF_DAEMON: &str = "\
inactive      time per second in which I/O-bound tasks could not go on because the vCPU
              they sat on, or their completion waited for, was off; can exceed 100 %
P             migrations made / slices that ended under an I/O-bound task
daemon CPU    of one CPU, as the kernel charges it: with time frozen while current";

const LEGEND_OF_STOPPED: &str = "\
stopped       that part of it: nobody's work, and late for what the daemon had to do";

/// The whole report.
#[must_use]
pub fn text(result: &RunResult) -> String {
    let analysis = analyse(result);
    let mut out = String::new();
    head(&mut out, result);
    for (table, load) in analysis.loads.iter().zip(&result.scenario.loads) {
        load_table(&mut out, table, &load.kind, result);
        books::books(&mut out, result, &load.name);
        hosts::hosts(&mut out, result, &load.name);
        steps::steps(&mut out, result, &load.name);
    }
    work::work(&mut out, result);
    pooled(&mut out, result, &analysis);
    legend(&mut out, result, &analysis);
    for warning in result.notices() {
        line(&mut out, &format!("warning: {warning}"));
    }
    short::short(&mut out, result, &analysis);
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn head(out: &mut String, result: &RunResult) {
    let (s, e) = (&result.scenario, &result.environment);
    line(out, &format!("{}: {}", s.name, s.title));
    line(
        out,
        &format!(
            "{} vCPUs, slice {}, sweep {} permille, {} compute thread(s) per CPU; {} round(s), warm-up {}, window {}; backend {}",
            s.vcpus(),
            s.sharing.slice,
            s.sharing.sweep_permille,
            s.compute.threads_per_cpu,
            s.measure.rounds,
            s.measure.warmup,
            s.measure.window,
            result.backend,
        ),
    );
    // Nothing of a machine is in a simulated result.
    if e.cpus > 0 {
        line(
            out,
            &format!(
                "{}; Linux {} ({}), {} x {}, load average {:.2} before the start",
                e.date, e.kernel, e.preemption, e.cpus, e.cpu_model, e.load_average
            ),
        );
    }
    if let Some(disk) = &e.disk {
        line(
            out,
            &format!(
                "disk {}: {} hardware queue(s), scheduler {}, file on {}",
                disk.name, disk.queues, disk.scheduler, disk.file_system
            ),
        );
    }
    let tools: Vec<String> = e
        .tools
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    if !tools.is_empty() {
        line(out, &format!("with {}", tools.join(", ")));
    }
    if let Some(text) = disturbance(&result.phases) {
        line(out, &format!("disturbed by {text}"));
    }
    for &vms in &s.sharing.vms_per_pcpu {
        if let Some(mut text) = host_line(&result.phases, vms, s.vcpus()) {
            // Of VMs that are all alike.
            if s.vms.is_empty() {
                let _ = write!(
                    text,
                    " (independent phases: {:.3}, gain at most {:.2}x)",
                    analytic_union_share(vms, s.vcpus()),
                    analytic_speedup(vms, s.vcpus()),
                );
            }
            line(out, &text);
        }
        sources::sources(out, result, vms);
    }
}

/// What the host delivered at one number of VMs.
fn host_line(phases: &[Phase], vms: u32, cpus: u32) -> Option<String> {
    let at: Vec<&Phase> = phases
        .iter()
        .filter(|p| p.vms_per_pcpu == vms && !crate::result::BASELINES.contains(&p.arm.as_str()))
        .collect();
    let of =
        |value: &dyn Fn(&Phase) -> f64| summarise(&at.iter().map(|p| value(p)).collect::<Vec<_>>());
    let union = of(&|p| p.host.union_share)?;
    let on: Vec<String> = (0..cpus as usize)
        .filter_map(|cpu| of(&|p| p.host.on_share.get(cpu).copied().unwrap_or(0.0)))
        .map(|share| format!("{:.3}", share.median))
        .collect();
    Some(format!(
        "N={vms}: CPUs on for {} of the time, at least one for {:.3} [{:.3}..{:.3}]",
        on.join(" / "),
        union.median,
        union.min,
        union.max,
    ))
}

fn load_table(out: &mut String, table: &LoadTable, kind: &LoadKind, result: &RunResult) {
    let b = &table.baseline;
    let _ = write!(out, "\n{}", table.load);
    if *kind != LoadKind::Idle {
        let path = match b.completion {
            Completion::FollowsSubmitter => "completions follow the submitter".to_owned(),
            Completion::OneCpu(cpu) => format!("all completions on CPU {cpu}"),
        };
        let _ = write!(out, ": {path}");
        if let Some(solo) = b.solo {
            let (solo, p99) = (spread(&solo), duration(b.solo_p99));
            let _ = write!(
                out,
                "; without sharing {solo} /s beside compute (p99 {p99})"
            );
        }
        if let Some(fifo) = b.solo_fifo {
            let _ = write!(out, ", {} with SCHED_FIFO", rate(fifo));
        }
        if let Some(alone) = b.alone {
            let _ = write!(out, ", {} alone", rate(alone));
        }
    }
    out.push('\n');
    for caution in cautions(table) {
        line(out, &format!("warning: {caution}"));
    }
    let columns = Columns::of(table, result);
    let mut shown = new_table();
    shown.set_header(columns.header());
    let mut last_vms = None;
    for row in &table.rows {
        let vms = if last_vms == Some(row.vms_per_pcpu) {
            String::new()
        } else {
            row.vms_per_pcpu.to_string()
        };
        last_vms = Some(row.vms_per_pcpu);
        shown.add_row(columns.texts(row, vms).into_iter().map(Cell::new));
    }
    for column in shown
        .column_iter_mut()
        .filter(|column| !columns.words().contains(&column.index))
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(out, &shown.trim_fmt());
}

/// What a reader must know before trusting a table.
fn cautions(table: &LoadTable) -> Vec<String> {
    let mut out = Vec::new();
    let percent = |share: f64| format!("{:+.0} %", share * 100.0);
    let b = &table.baseline;
    if b.drifted() {
        out.push(format!(
            "the rate without sharing moved by {} during the run (limit {:.0} %): measure again on a quieter machine",
            percent(b.drift.unwrap_or(0.0)),
            DRIFT_LIMIT * 100.0
        ));
    }
    for drift in table.drifts.iter().filter(|drift| drift.trend.is_drift()) {
        out.push(format!(
            "vanilla drifted by {} over the run at N={} (chance {:.1} %); paired ratios are not touched by that, rates are",
            percent(drift.trend.change),
            drift.vms_per_pcpu,
            drift.trend.p.unwrap_or(1.0) * 100.0
        ));
    }
    for row in &table.rows {
        let drifts = |drift: &&crate::analysis::Drift| {
            drift.vms_per_pcpu == row.vms_per_pcpu && drift.trend.is_drift()
        };
        let bias = row.drift_bias.filter(|bias| bias.abs() > 0.01);
        if let (Some(bias), true) = (bias, table.drifts.iter().any(|drift| drifts(&drift))) {
            out.push(format!(
                "{} at N={} was not measured at the same mean time as vanilla: the drift alone makes its ratio {} different",
                row.arm,
                row.vms_per_pcpu,
                percent(bias)
            ));
        }
        if row.lost > 0 {
            out.push(format!(
                "{} at N={}: {} round(s) left out, in which something that should run made no progress",
                row.arm, row.vms_per_pcpu, row.lost
            ));
        }
    }
    out
}

/// What disturbed the machine from outside while windows were open; `None` if
/// nobody looked.
fn disturbance(phases: &[Phase]) -> Option<String> {
    let share = |of: &dyn Fn(&Phase) -> Option<Ns>| {
        let shares: Vec<f64> = phases
            .iter()
            .filter(|p| p.window > Ns::ZERO)
            .filter_map(|p| Some(of(p)?.0 as f64 / p.window.0 as f64))
            .collect();
        summarise(&shares)
    };
    let mut parts = Vec::new();
    if let Some(s) = share(&|p| p.machine.stolen) {
        let (median, max) = (s.median * 100.0, s.max * 100.0);
        parts.push(format!(
            "its own host, which took {median:.1} % of a CPU (median of the windows, at most {max:.1} %)"
        ));
    }
    if let Some(s) = share(&|p| p.machine.others) {
        let (median, max) = (s.median * 100.0, s.max * 100.0);
        parts.push(format!(
            "other processes, which used {median:.1} % of a CPU (at most {max:.1} %)"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Which groups of columns a table needs: a terminal is not wide enough for
/// columns that hold nothing.
#[derive(Clone, Copy, Debug)]
struct Columns {
    verdict: bool,
    compute: bool,
    daemon: bool,
    stopped: bool,
    lost: bool,
    near: bool,
}

impl Columns {
    fn of(table: &LoadTable, result: &RunResult) -> Self {
        let knows = |row: &Row| {
            row.vs_vanilla
                .is_some_and(|ratio| ratio.verdict() != Verdict::TooFew)
        };
        Self {
            // With too few rounds throughout the legend says so, once.
            verdict: table.rows.iter().any(knows),
            compute: result.scenario.compute.threads_per_cpu > 0,
            daemon: table.rows.iter().any(|row| row.daemon_cpu.is_some()),
            stopped: table.rows.iter().any(|row| row.daemon_stopped.is_some()),
            lost: table.rows.iter().any(|row| row.io_time.is_some()),
            near: table.rows.iter().any(|row| row.near.is_some()),
        }
    }

    /// Which of them hold words; the others hold numbers.
    const fn words(self) -> &'static [usize] {
        if self.verdict { &[1, 5] } else { &[1] }
    }

    fn header(self) -> Vec<&'static str> {
        let mut header = vec!["N", "arm", "requests/s", "p99", "to vanilla"];
        if self.verdict {
            header.push("verdict");
        }
        header.push("of bound");
        if self.lost {
            header.push("lost");
        }
        if self.near {
            header.push("near");
        }
        if self.compute {
            header.extend(["compute", "at equal I/O"]);
        }
        if self.daemon {
            header.extend(["inactive", "moves/s", "P", "wake-ups/s", "daemon CPU"]);
            if self.stopped {
                header.push("stopped");
            }
        }
        header
    }

    fn texts(self, row: &Row, vms: String) -> Vec<String> {
        let optional =
            |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or("-".to_owned(), show);
        let mut cells = vec![
            vms,
            row.arm.clone(),
            row.ops_per_s.map_or("-".to_owned(), |s| spread(&s)),
            duration(row.p99),
            row.vs_vanilla.map_or("-".to_owned(), |r| ratio(&r)),
        ];
        if self.verdict {
            let verdict = row.vs_vanilla.map(|r| r.verdict().to_string());
            cells.push(verdict.unwrap_or("-".to_owned()));
        }
        cells.push(
            row.vs_bound
                .map_or("-".to_owned(), |s| format!("{:.2}", s.median)),
        );
        if self.lost {
            cells.push(optional(row.io_time.as_ref().map(lost), &|v| {
                format!("{:.1} %", v * 100.0)
            }));
        }
        if self.near {
            cells.push(row.near.map_or("-".to_owned(), |s| percents(&s)));
        }
        if self.compute {
            let centre =
                |r: Option<Ratio>| r.map_or("-".to_owned(), |r| format!("{:.3}", r.centre));
            cells.extend([centre(row.compute), centre(row.compute_at_equal_io)]);
        }
        if self.daemon {
            cells.extend([
                optional(row.inactivity, &|v| format!("{:.1} %", v * 100.0)),
                optional(row.moves_per_s, &|v| format!("{v:.0}")),
                optional(row.p, &|v| format!("{v:.2}")),
                optional(row.wakeups_per_s, &|v| format!("{v:.0}")),
                optional(row.daemon_cpu, &|v| format!("{:.2} %", v * 100.0)),
            ]);
            if self.stopped {
                let share = |v: f64| format!("{:.2} %", v * 100.0);
                cells.push(optional(row.daemon_stopped, &share));
            }
        }
        cells
    }
}

/// Shares as whole per cent.
fn percents(of: &Summary) -> String {
    let percent = |share: f64| share * 100.0;
    format!(
        "{:.0} [{:.0}..{:.0}] %",
        percent(of.median),
        percent(of.min),
        percent(of.max)
    )
}

/// The share of time lost to vCPUs that were off.
fn lost(shares: &[f64; TaskState::ALL.len()]) -> f64 {
    let with_state = TaskState::ALL.into_iter().zip(shares);
    with_state
        .filter(|(state, _)| state.is_off())
        .map(|(_, share)| share)
        .sum()
}

/// A table with lines around the header and at the end only.
pub(crate) fn new_table() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    for between_rows in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(between_rows);
    }
    table
}

fn pooled(out: &mut String, result: &RunResult, analysis: &Analysis) {
    if analysis.vanilla.is_none() {
        return;
    }
    let mut shown = new_table();
    shown.set_header([
        "completions",
        "N",
        "arm",
        "pairs",
        "to vanilla",
        "verdict",
        "of bound",
        "compute at equal I/O",
    ]);
    let rows: Vec<&Pooled> = analysis
        .pooled
        .iter()
        .filter(|p| reference_of(&result.scenario, &p.arm) != Some(p.arm.as_str()))
        .collect();
    if rows.is_empty() {
        return;
    }
    for row in rows {
        let path = if row.follows_submitter {
            "follow the submitter"
        } else {
            "on one CPU"
        };
        shown.add_row([
            path.to_owned(),
            row.vms_per_pcpu.to_string(),
            row.arm.clone(),
            row.vs_vanilla.map_or(0, |r| r.n).to_string(),
            row.vs_vanilla.map_or("-".into(), |r| ratio(&r)),
            row.vs_vanilla
                .map_or("-".into(), |r| r.verdict().to_string()),
            row.vs_bound
                .map_or("-".into(), |s| format!("{:.2}", s.median)),
            row.compute_at_equal_io.map_or("-".into(), |r| ratio(&r)),
        ]);
    }
    for column in shown
        .column_iter_mut()
        .filter(|c| [1, 3, 4, 6, 7].contains(&c.index))
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(out, "\nall loads together");
    line(out, &shown.trim_fmt());
}

fn legend(out: &mut String, result: &RunResult, analysis: &Analysis) {
    line(out, LEGEND);
    let loads = || analysis.loads.iter().flat_map(|load| &load.rows);
    if loads().any(|row| row.near.is_some()) {
        line(out, LEGEND_OF_NEAR);
    }
    if loads().any(|row| row.daemon_cpu.is_some()) {
        line(out, LEGEND_OF_DAEMON);
    }
    if loads().any(|row| row.daemon_stopped.is_some()) {
        line(out, LEGEND_OF_STOPPED);
    }
    books::legend(out, result);
    if analysis.vanilla.is_none() {
        line(out, "No arm of kind \"vanilla\": nothing to compare with.");
    }
    if (result.scenario.measure.rounds as usize) < MIN_PAIRS_FOR_VERDICT {
        line(
            out,
            &format!(
                "{} round(s) are too few for a verdict per load; --rounds {MIN_PAIRS_FOR_VERDICT} gives one.",
                result.scenario.measure.rounds
            ),
        );
    }
}

/// `1234 [1200..1290]`.
pub(crate) fn spread(s: &Summary) -> String {
    if s.n < 2 {
        return rate(s.median);
    }
    format!("{} [{}..{}]", rate(s.median), rate(s.min), rate(s.max))
}

/// With as many digits as matter.
fn rate(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `1.38 [1.30..1.45]`.
pub(crate) fn ratio(r: &Ratio) -> String {
    match r.interval {
        Some((low, high)) => format!("{:.2} [{low:.2}..{high:.2}]", r.centre),
        None => format!("{:.2}", r.centre),
    }
}

/// To three digits: a percentile is not known any better.
fn duration(value: Option<Ns>) -> String {
    let Some(Ns(ns)) = value else {
        return "-".to_owned();
    };
    let step = 10u64.pow(ns.checked_ilog10().unwrap_or(0).saturating_sub(2));
    Ns((ns + step / 2) / step * step).to_string()
}
