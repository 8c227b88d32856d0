// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each VM got done, where the scenario names its VMs.

use comfy_table::Cell;
use comfy_table::CellAlignment;
use units::Ns;

use super::line;
use super::new_table;
use crate::result::LoadWork;
use crate::result::Phase;
use crate::result::RunResult;
use crate::result::VmWork;
use crate::stats::quantile;

/// The columns.
pub(crate) const HEADER: [&str; 10] = [
    "arm",
    "VM",
    "CPUs",
    "compute",
    "load",
    "per s",
    "MB/s",
    "mean ms",
    "trip ms",
    "longest ms",
];

/// Those of them that hold words; the others hold numbers.
pub(crate) const WORDS: [usize; 3] = [0, 1, 4];

/// What they mean.
pub(crate) const LEGEND: &str = "\
CPUs that the VM had, compute in CPUs at full speed; medians of the rounds, the longest trip of all; on real VMs the latency is the median of the requests";

/// A table for each load with a phase; nothing for other scenarios.
pub(super) fn work(out: &mut String, result: &RunResult) {
    for load in &result.scenario.loads {
        let rows = rows(result, &load.name);
        if rows.is_empty() {
            continue;
        }
        line(out, &format!("\nEach VM, in phases of {}", load.name));
        let mut table = new_table();
        table.set_header(HEADER);
        for row in rows {
            table.add_row(row.into_iter().map(Cell::new));
        }
        let numbers = table.column_iter_mut();
        for column in numbers.filter(|column| !WORDS.contains(&column.index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        line(out, &table.trim_fmt());
    }
    if result.phases.iter().any(|phase| !phase.work.is_empty()) {
        line(out, LEGEND);
    }
}

/// The rows of a load: each arm with its VMs, and these with their loads. Empty where the
/// scenario does not name its VMs.
pub(crate) fn rows(result: &RunResult, load: &str) -> Vec<Vec<String>> {
    let with = |phase: &&Phase| phase.load == load && !phase.work.is_empty();
    let phases: Vec<&Phase> = result.phases.iter().filter(with).collect();
    let mut arms: Vec<&str> = Vec::new();
    for phase in &phases {
        if !arms.contains(&phase.arm.as_str()) {
            arms.push(&phase.arm);
        }
    }
    let mut rows = Vec::new();
    for arm in arms {
        let of_arm: Vec<&Phase> = phases.iter().copied().filter(|p| p.arm == arm).collect();
        for (n, vm) in of_arm[0].work.iter().enumerate() {
            let vms: Vec<&VmWork> = of_arm.iter().filter_map(|p| p.work.get(n)).collect();
            rows.extend(rows_of(if n == 0 { arm } else { "" }, &vm.vm, &vms));
        }
    }
    rows
}

/// The rows of one VM: one for each of its loads.
fn rows_of(arm: &str, name: &str, rounds: &[&VmWork]) -> Vec<Vec<String>> {
    let median = |of: &dyn Fn(&VmWork) -> f64| {
        let values: Vec<f64> = rounds.iter().map(|vm| of(vm)).collect();
        quantile(&values, 0.5).unwrap_or(0.0)
    };
    let or_dash = |value: f64, digits: usize| {
        if value == 0.0 {
            "-".to_owned()
        } else {
            format!("{value:.digits$}")
        }
    };
    let mut head = vec![
        arm.to_owned(),
        name.to_owned(),
        format!("{:.2}", median(&|vm| vm.cpus)),
        or_dash(median(&|vm| vm.compute), 2),
    ];
    let count = rounds.first().map_or(0, |vm| vm.loads.len());
    let mut rows = Vec::new();
    for n in 0..count {
        let of = |of: fn(&LoadWork) -> f64| median(&|vm| vm.loads.get(n).map_or(0.0, of));
        let longest = rounds.iter().filter_map(|vm| vm.loads.get(n));
        let longest = longest.map(|load| load.trip_max).max().unwrap_or(Ns::ZERO);
        let mut row = std::mem::replace(&mut head, vec![String::new(); 4]);
        row.extend([
            rounds[0].loads[n].load.clone(),
            or_dash(of(|load| load.ops_per_s), 1),
            or_dash(of(|load| load.bytes_per_s / 1e6), 2),
            or_dash(of(|load| load.latency.as_ms_f64()), 3),
            or_dash(of(|load| load.trip.as_ms_f64()), 3),
            or_dash(longest.as_ms_f64(), 1),
        ]);
        rows.push(row);
    }
    if rows.is_empty() {
        head.resize(10, "-".to_owned());
        rows.push(head);
    }
    rows
}
