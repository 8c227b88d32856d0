// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's books of a load, where somebody kept them: one row per arm.

use comfy_table::CellAlignment;

use super::line;
use super::new_table;
use super::rate;
use crate::analysis::phases_of;
use crate::result::Books;
use crate::result::Phase;
use crate::result::RunResult;
use crate::stats::summarise;

/// So many VMs are shown one by one.
const SINGLY: usize = 4;

/// The columns.
pub(crate) const HEADER: [&str; 11] = [
    "N",
    "arm",
    "CPU per VM",
    "active",
    "ready",
    "waiting",
    "switches/s",
    "vCPU moves/s",
    "task moves/s",
    "inactive",
    "fairness",
];

/// Columns that hold words; the others hold numbers.
pub(crate) const WORDS: [usize; 2] = [1, 2];

/// What they mean.
const LEGEND: &str = "\
CPU per VM    of the pCPUs' time, the VM under test first; what is missing to 1 was idle or
              went to VMs that are not simulated
active, ...   of the time of its vCPUs: with a pCPU (polling and retaining included), ready
              without one, waiting for an event without one; together all
switches/s    of the host on all pCPUs, to and from idle included; vCPU moves: its vCPUs to
              another pCPU; task moves: its I/O threads to another vCPU, whoever did it
inactive      time per second for which I/O threads were ready, current or waiting for I/O
              on a vCPU that was off; can exceed 100 %
fairness      Jain's index of CPU time over weight, over the VMs: (sum x)^2 / (n sum x^2);
              1 is what the weights promise, 1/n all for one. A VM that wants less than its
              share lowers it too";

/// The books of the phases of one arm: medians over the rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) shares: Vec<f64>,
    /// Of the VM under test: active, ready, waiting.
    pub(crate) parts: [f64; 3],
    pub(crate) switches_per_s: f64,
    pub(crate) vcpu_moves_per_s: f64,
    pub(crate) task_moves_per_s: f64,
    pub(crate) inactivity: f64,
    pub(crate) fairness: Option<f64>,
}

impl Row {
    /// `None` if nobody kept books.
    pub(crate) fn of(phases: &[&Phase]) -> Option<Self> {
        let kept: Vec<(&Phase, &Books)> = phases
            .iter()
            .filter_map(|phase| Some((*phase, phase.books.as_ref()?)))
            .filter(|(phase, _)| phase.window > units::Ns::ZERO)
            .collect();
        let median = |value: &dyn Fn(&Phase, &Books) -> Option<f64>| {
            let values: Vec<f64> = kept.iter().filter_map(|(p, b)| value(p, b)).collect();
            Some(summarise(&values)?.median)
        };
        let per_s =
            |value: &dyn Fn(&Books) -> f64| median(&|p, b| Some(value(b) / p.window.as_secs_f64()));
        let part = |of: fn(&crate::result::VcpuBooks) -> units::Ns| {
            median(&|_, b| b.part(0, of)).unwrap_or(0.0)
        };
        let vms = kept.iter().map(|(_, b)| b.vms.len()).max()?;
        Some(Self {
            shares: (0..vms)
                .filter_map(|vm| median(&|p, b| b.shares(p.window).get(vm).copied()))
                .collect(),
            parts: [part(|v| v.active), part(|v| v.ready), part(|v| v.waiting)],
            switches_per_s: per_s(&|b| b.switches as f64)?,
            vcpu_moves_per_s: per_s(&|b| {
                let vcpus = b.vms.first().map_or(&[][..], |vm| &vm.vcpus);
                vcpus.iter().map(|v| v.migrations).sum::<u64>() as f64
            })?,
            task_moves_per_s: per_s(&|b| b.task_moves as f64)?,
            inactivity: per_s(&|b| b.io_inactivity.as_secs_f64())?,
            fairness: median(&|_, b| b.fairness()),
        })
    }

    /// The VM under test, then each other one, or their least and most.
    fn shares_text(&self) -> String {
        let two = |share: &f64| format!("{share:.2}");
        match self.shares.split_first() {
            Some((own, others)) if others.len() >= SINGLY => {
                let (low, high) = others
                    .iter()
                    .fold((f64::MAX, 0.0), |(low, high), x| (x.min(low), x.max(high)));
                format!("{own:.2}, {} x {low:.2}..{high:.2}", others.len())
            }
            _ => {
                let shares: Vec<String> = self.shares.iter().map(two).collect();
                shares.join(" ")
            }
        }
    }

    fn cells(&self, vms: String, arm: &str) -> Vec<String> {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut cells = vec![vms, arm.to_owned(), self.shares_text()];
        cells.extend(self.parts.map(percent));
        cells.extend([
            rate(self.switches_per_s),
            rate(self.vcpu_moves_per_s),
            rate(self.task_moves_per_s),
            percent(self.inactivity),
            self.fairness.map_or("-".to_owned(), |j| format!("{j:.3}")),
        ]);
        cells
    }
}

/// The rows of a load: number of VMs, arm, and the rest; empty if nobody kept books.
pub(crate) fn rows(result: &RunResult, load: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for &vms in &result.scenario.sharing.vms_per_pcpu {
        for arm in &result.scenario.arms {
            let phases = phases_of(result, load, vms, &arm.name);
            rows.extend(Row::of(&phases).map(|row| row.cells(vms.to_string(), &arm.name)));
        }
    }
    rows
}

/// Appends the table, if somebody kept books.
pub(super) fn books(out: &mut String, result: &RunResult, load: &str) {
    let rows = rows(result, load);
    if rows.is_empty() {
        return;
    }
    let mut table = new_table();
    table.set_header(HEADER);
    let mut last = None;
    for mut row in rows {
        let vms = row[0].clone();
        if last.as_ref() == Some(&vms) {
            row[0].clear();
        }
        last = Some(vms);
        table.add_row(row);
    }
    for column in table
        .column_iter_mut()
        .filter(|c| !WORDS.contains(&c.index))
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(
        out,
        &format!("{load}, the host's books (medians of the rounds):"),
    );
    line(out, &table.trim_fmt());
}

/// Appends what the columns mean, if there was a table.
pub(super) fn legend(out: &mut String, result: &RunResult) {
    if result.phases.iter().any(|phase| phase.books.is_some()) {
        line(out, LEGEND);
    }
}
