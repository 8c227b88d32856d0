// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two results against each other: before and after a change, two machines, two
//! backends. Pure.
//!
//! Rows belong together by load, number of VMs and arm. Rounds of two runs share
//! nothing, so they are not paired: each side is resampled by itself. Beside the
//! ratio of the rates stands the ratio of the *ratios to vanilla*: a machine that
//! has become faster changes the first and not the second.

use comfy_table::CellAlignment;

use crate::analysis::gains;
use crate::analysis::ops;
use crate::analysis::phases_of;
use crate::report::books;
use crate::report::new_table;
use crate::report::ratio as show;
use crate::report::spread;
use crate::result::BASELINES;
use crate::result::Phase;
use crate::result::RunResult;
use crate::result::SOLO;
use crate::stats::Ratio;
use crate::stats::Summary;
use crate::stats::independent_ratio;
use crate::stats::summarise;

#[cfg(test)]
mod tests;

/// What makes a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The load.
    pub load: String,
    /// VMs per pCPU; 1: no sharing.
    pub vms_per_pcpu: u32,
    /// The arm.
    pub arm: String,
}

/// One row of both results.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which.
    pub key: Key,
    /// Requests per second of the first.
    pub a: Option<Summary>,
    /// And of the second.
    pub b: Option<Summary>,
    /// Second over first.
    pub rates: Option<Ratio>,
    /// The same of the ratios to vanilla, each within its own run.
    pub gains: Option<Ratio>,
    /// Compute, second over first.
    pub compute: Option<Ratio>,
    /// The host's books of both, if both kept them.
    books: Option<[books::Row; 2]>,
}

/// Two results.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Rows of either, in the order of the first.
    pub rows: Vec<Row>,
    /// What is not the same and may be why.
    pub differences: Vec<String>,
}

/// Compares two results.
#[must_use]
pub fn compare(a: &RunResult, b: &RunResult) -> Comparison {
    let mut keys = keys(a);
    keys.extend(keys_only_in(b, &keys));
    let rows = keys
        .into_iter()
        .map(|key| {
            let gain = |result| gains(result, &key.load, key.vms_per_pcpu, &key.arm);
            let (rates_a, rates_b) = (rates(a, &key), rates(b, &key));
            Row {
                a: summarise(&rates_a),
                b: summarise(&rates_b),
                rates: independent_ratio(&rates_a, &rates_b),
                gains: independent_ratio(&gain(a), &gain(b)),
                compute: independent_ratio(&work(a, &key), &work(b, &key)),
                books: books::Row::of(&phases(a, &key))
                    .zip(books::Row::of(&phases(b, &key)))
                    .map(|(a, b)| [a, b]),
                key,
            }
        })
        .collect();
    Comparison {
        rows,
        differences: differences(a, b),
    }
}

/// Rows of a result: its arms with sharing, and the rate without.
fn keys(result: &RunResult) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for phase in &result.phases {
        let key = key_of(phase);
        let shown = phase.arm == SOLO || !BASELINES.contains(&phase.arm.as_str());
        if shown && phase.io.is_some() && !keys.contains(&key) {
            keys.push(key);
        }
    }
    // By load and number of VMs, arms as they come.
    keys.sort_by(|a, b| (&a.load, a.vms_per_pcpu).cmp(&(&b.load, b.vms_per_pcpu)));
    keys
}

fn keys_only_in(result: &RunResult, known: &[Key]) -> Vec<Key> {
    let mut keys = keys(result);
    keys.retain(|key| !known.contains(key));
    keys
}

fn key_of(phase: &Phase) -> Key {
    Key {
        load: phase.load.clone(),
        vms_per_pcpu: phase.vms_per_pcpu,
        arm: phase.arm.clone(),
    }
}

fn phases<'a>(result: &'a RunResult, key: &Key) -> Vec<&'a Phase> {
    phases_of(result, &key.load, key.vms_per_pcpu, &key.arm)
}

fn rates(result: &RunResult, key: &Key) -> Vec<f64> {
    phases(result, key).into_iter().filter_map(ops).collect()
}

fn work(result: &RunResult, key: &Key) -> Vec<f64> {
    let phases = phases(result, key).into_iter();
    let sums = phases.map(|p| p.compute_per_s.iter().sum());
    sums.filter(|sum: &f64| *sum > 0.0).collect()
}

fn differences(a: &RunResult, b: &RunResult) -> Vec<String> {
    let (ea, eb) = (&a.environment, &b.environment);
    let (sa, sb) = (&a.scenario, &b.scenario);
    let pairs = [
        ("scenario", sa.name.clone(), sb.name.clone()),
        ("backend", a.backend.clone(), b.backend.clone()),
        ("kernel", ea.kernel.clone(), eb.kernel.clone()),
        ("preemption", ea.preemption.clone(), eb.preemption.clone()),
        ("CPU", ea.cpu_model.clone(), eb.cpu_model.clone()),
        ("CPUs", ea.cpus.to_string(), eb.cpus.to_string()),
        (
            "slice",
            sa.sharing.slice.to_string(),
            sb.sharing.slice.to_string(),
        ),
        (
            "sweep",
            format!("{} permille", sa.sharing.sweep_permille),
            format!("{} permille", sb.sharing.sweep_permille),
        ),
        (
            "window",
            sa.measure.window.to_string(),
            sb.measure.window.to_string(),
        ),
        (
            "compute threads per CPU",
            sa.compute.threads_per_cpu.to_string(),
            sb.compute.threads_per_cpu.to_string(),
        ),
        ("tools", tools(a), tools(b)),
    ];
    let mut out: Vec<String> = pairs
        .into_iter()
        .filter(|(_, a, b)| a != b)
        .map(|(what, a, b)| format!("{what}: {a} / {b}"))
        .collect();
    for load in &sa.loads {
        let other = sb.loads.iter().find(|other| other.name == load.name);
        if other.is_some_and(|other| other.kind != load.kind) {
            out.push(format!(
                "load {}: not the same under the same name",
                load.name
            ));
        }
    }
    for arm in &sa.arms {
        let other = sb.arms.iter().find(|other| other.name == arm.name);
        if other.is_some_and(|other| other.kind != arm.kind) {
            out.push(format!(
                "arm {}: not the same under the same name",
                arm.name
            ));
        }
    }
    out
}

fn tools(result: &RunResult) -> String {
    let tools = &result.environment.tools;
    let tools: Vec<String> = tools
        .iter()
        .map(|(name, v)| format!("{name} {v}"))
        .collect();
    tools.join(", ")
}

/// What the columns mean.
const LEGEND: &str = "
A, B       requests/s, median [min..max] of the rounds
B/A        ratio of the geometric means, 95 % interval; rounds of two runs are not paired
gain B/A   the same of the ratios to vanilla, each within its own run: what is left when
           the machine itself is faster or slower
compute    B/A of the work of the compute threads";

/// As text for a terminal; `names` are those of the two files.
#[must_use]
pub fn text(comparison: &Comparison, names: [&str; 2]) -> String {
    let mut table = new_table();
    table.set_header([
        "load", "N", "arm", "A", "B", "B/A", "verdict", "gain B/A", "verdict", "compute",
    ]);
    let mut last = None;
    for row in &comparison.rows {
        let group = (row.key.load.clone(), row.key.vms_per_pcpu);
        let (load, vms) = if last.as_ref() == Some(&group) {
            (String::new(), String::new())
        } else {
            (row.key.load.clone(), row.key.vms_per_pcpu.to_string())
        };
        last = Some(group);
        let rate = |s: Option<Summary>| s.map_or("-".to_owned(), |s| spread(&s));
        let ratio = |r: Option<Ratio>| r.map_or("-".to_owned(), |r| show(&r));
        let verdict = |r: Option<Ratio>| r.map_or("-".to_owned(), |r| r.verdict().to_string());
        table.add_row([
            load,
            vms,
            row.key.arm.clone(),
            rate(row.a),
            rate(row.b),
            ratio(row.rates),
            verdict(row.rates),
            ratio(row.gains),
            verdict(row.gains),
            ratio(row.compute),
        ]);
    }
    for column in table
        .column_iter_mut()
        .filter(|c| [1, 3, 4, 5, 7, 9].contains(&c.index))
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut out = format!("A: {}\nB: {}\n", names[0], names[1]);
    if comparison.differences.is_empty() {
        out.push_str("same scenario, backend, kernel and tools\n");
    }
    for difference in &comparison.differences {
        out.push_str(&format!("not the same: {difference}\n"));
    }
    out.push_str(&table.trim_fmt());
    out.push('\n');
    out.push_str(LEGEND);
    out.push('\n');
    books_text(&mut out, comparison);
    out
}

/// What the columns of the books mean.
const LEGEND_OF_BOOKS: &str = "\
CPU        of the pCPUs' time, the VM under test; ready: of the time of its vCPUs
fairness   Jain's index of CPU time over weight, over the VMs
           the other columns are explained in `vlab report`";

/// Appends the host's books of rows where both sides kept them: A / B.
fn books_text(out: &mut String, comparison: &Comparison) {
    let mut table = new_table();
    table.set_header([
        "load",
        "N",
        "arm",
        "CPU",
        "ready",
        "inactive",
        "task moves/s",
        "switches/s",
        "fairness",
    ]);
    for row in &comparison.rows {
        let Some([a, b]) = &row.books else { continue };
        let both = |of: &dyn Fn(&books::Row) -> String| format!("{} / {}", of(a), of(b));
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        table.add_row([
            row.key.load.clone(),
            row.key.vms_per_pcpu.to_string(),
            row.key.arm.clone(),
            both(&|r| r.shares.first().map_or("-".into(), |s| format!("{s:.3}"))),
            both(&|r| percent(r.parts[1])),
            both(&|r| percent(r.inactivity)),
            both(&|r| format!("{:.0}", r.task_moves_per_s)),
            both(&|r| format!("{:.0}", r.switches_per_s)),
            both(&|r| r.fairness.map_or("-".into(), |j| format!("{j:.3}"))),
        ]);
    }
    if table.row_count() == 0 {
        return;
    }
    for column in table
        .column_iter_mut()
        .filter(|c| c.index != 0 && c.index != 2)
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    out.push_str("\nThe host's books, A / B (medians of the rounds)\n");
    out.push_str(&table.trim_fmt());
    out.push('\n');
    out.push_str(LEGEND_OF_BOOKS);
    out.push('\n');
}
