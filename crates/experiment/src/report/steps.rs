// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of a load that changes within the window.

use comfy_table::CellAlignment;

use super::line;
use super::new_table;
use super::rate;
use super::spread;
use crate::recovery::NEAR;
use crate::recovery::rows;
use crate::result::RunResult;
use crate::stats::Summary;

/// What its columns mean.
const LEGEND: &str = "\
before, then  requests/s in the steady half before and after more threads came
lowest        over 0.3 s, until it was steady again";

/// Appends it, if the load has steps.
pub(super) fn steps(out: &mut String, result: &RunResult, load: &str) {
    let rows = rows(result, load);
    if rows.is_empty() {
        return;
    }
    let mut table = new_table();
    table.set_header(vec![
        "N",
        "arm",
        "at",
        "threads",
        "before",
        "lowest",
        "then",
        "steady after",
    ]);
    for row in &rows {
        let steady = match (row.recovery_s, row.never) {
            (None, _) => "never".to_owned(),
            (Some(seconds), 0) => times(&seconds),
            (Some(seconds), never) => format!("{}, never in {never}", times(&seconds)),
        };
        table.add_row(vec![
            row.vms_per_pcpu.to_string(),
            row.arm.clone(),
            row.at.to_string(),
            row.threads.to_string(),
            rate(row.before.median),
            spread(&row.lowest),
            spread(&row.level),
            steady,
        ]);
    }
    for column in table.column_iter_mut().filter(|column| column.index != 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(out, &format!("{load}, step by step:"));
    line(out, &table.trim_fmt());
    line(out, LEGEND);
    let percent = NEAR * 100.0;
    line(
        out,
        &format!(
            "steady after  until the rate stays above {percent:.0} % of the one then, in seconds"
        ),
    );
}

fn times(seconds: &Summary) -> String {
    format!(
        "{:.1} [{:.1}..{:.1}]",
        seconds.median, seconds.min, seconds.max
    )
}
