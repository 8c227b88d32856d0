// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates and ratios of one load: one row per arm, every round a dot.

use super::svg::Anchor;
use super::svg::Scale;
use super::svg::Svg;
use crate::analysis::Baseline;
use crate::analysis::LoadTable;
use crate::analysis::Row;
use crate::analysis::bound_of;
use crate::analysis::gains;
use crate::analysis::ops;
use crate::analysis::phases_of;
use crate::report::rate;
use crate::report::ratio;
use crate::result::RunResult;
use crate::stats::SAME_WITHIN;
use crate::stats::Verdict;
use crate::stats::quantile;

const WIDTH: f64 = 1000.0;
/// Where the panel of rates and that of ratios begin, and how wide they are.
const RATES: (f64, f64) = (130.0, 400.0);
const RATIOS: (f64, f64) = (570.0, 270.0);
const VERDICT: f64 = 856.0;
const ROW: f64 = 26.0;
const HEAD: f64 = 34.0;
const GROUP: f64 = 24.0;

/// The picture; empty for a load without I/O.
pub(super) fn draw(result: &RunResult, table: &LoadTable, vanilla: Option<&str>) -> String {
    let rows: Vec<&Row> = table
        .rows
        .iter()
        .filter(|row| row.ops_per_s.is_some())
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let groups = group_count(&rows);
    let height = HEAD + rows.len() as f64 * ROW + groups as f64 * GROUP + 26.0;
    let mut svg = Svg::new(WIDTH, height);
    let baseline = &table.baseline;
    let most = rows
        .iter()
        .filter_map(|row| row.ops_per_s)
        .map(|s| s.max)
        .chain(baseline.solo.map(|solo| solo.max))
        .fold(0.0, f64::max);
    let rates = Scale::up_to(most, RATES.0, RATES.1);
    let most = rows
        .iter()
        .flat_map(|row| gains(result, &table.load, row.vms_per_pcpu, &row.arm));
    let most = most
        .chain(rows.iter().filter_map(|row| Some(row.vs_vanilla?.centre)))
        .fold(1.4, f64::max);
    let ratios = Scale::up_to(most, RATIOS.0, RATIOS.1);
    axes(&mut svg, baseline, rates, ratios, height);
    let mut y = HEAD;
    let mut vms = None;
    for row in rows {
        if vms != Some(row.vms_per_pcpu) {
            vms = Some(row.vms_per_pcpu);
            let text = result.scenario.sharing_of(row.vms_per_pcpu);
            svg.text("group", 4.0, y + 17.0, Anchor::Start, &text);
            y += GROUP;
        }
        draw_row(&mut svg, result, table, row, vanilla, (rates, ratios), y);
        y += ROW;
    }
    svg.finish(&format!(
        "{}: requests per second and ratio to vanilla of each arm; the table below has the numbers",
        table.load
    ))
}

fn group_count(rows: &[&Row]) -> usize {
    let mut vms: Vec<u32> = rows.iter().map(|row| row.vms_per_pcpu).collect();
    vms.dedup();
    vms.len()
}

fn axes(svg: &mut Svg, baseline: &Baseline, rates: Scale, ratios: Scale, height: f64) {
    let bottom = height - 22.0;
    svg.text("head", RATES.0, 14.0, Anchor::Start, "requests per second");
    svg.text(
        "head",
        RATIOS.0,
        14.0,
        Anchor::Start,
        "times vanilla, round by round",
    );
    for value in rates.ticks(5) {
        svg.line("grid", (rates.x(value), HEAD), (rates.x(value), bottom));
        svg.text(
            "tick",
            rates.x(value),
            bottom + 15.0,
            Anchor::Middle,
            &rate_tick(value),
        );
    }
    for value in ratios.ticks(5) {
        svg.line("grid", (ratios.x(value), HEAD), (ratios.x(value), bottom));
        let text = super::svg::short(value);
        svg.text(
            "tick",
            ratios.x(value),
            bottom + 15.0,
            Anchor::Middle,
            &text,
        );
    }
    let (low, high) = (ratios.x(1.0 - SAME_WITHIN), ratios.x(1.0 + SAME_WITHIN));
    svg.rect(
        "same",
        [low, HEAD, high - low, bottom - HEAD],
        "the same, for any practical purpose",
    );
    svg.line("one", (ratios.x(1.0), HEAD), (ratios.x(1.0), bottom));
    if let Some(solo) = baseline.solo {
        let x = rates.x(solo.median);
        svg.line("solo", (x, HEAD - 8.0), (x, bottom));
        svg.text("tick", x, HEAD - 10.0, Anchor::End, "without sharing");
    }
}

fn rate_tick(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{} k", super::svg::short(value / 1000.0))
    } else {
        super::svg::short(value)
    }
}

fn draw_row(
    svg: &mut Svg,
    result: &RunResult,
    table: &LoadTable,
    row: &Row,
    vanilla: Option<&str>,
    (rates, ratios): (Scale, Scale),
    y: f64,
) {
    let middle = y + ROW / 2.0;
    svg.text("arm", 16.0, middle + 4.0, Anchor::Start, &row.arm);
    let phases = phases_of(result, &table.load, row.vms_per_pcpu, &row.arm);
    let bounds: Vec<f64> = phases
        .iter()
        .filter_map(|p| bound_of(p, &table.baseline))
        .collect();
    if let Some(bound) = quantile(&bounds, 0.5) {
        let x = rates.x(bound);
        let tip = format!("bound for placement: {} /s", rate(bound));
        let d = format!("M{:.1} {:.1}h10l-5 7z", x - 5.0, middle - 12.0);
        svg.path("bound", &d, &tip);
        svg.line("boundline", (x, middle - 6.0), (x, middle + 10.0));
    }
    if let Some(summary) = row.ops_per_s {
        if let Some((low, high)) = summary.interval {
            let (low, high) = (rates.x(low), rates.x(high));
            svg.rect(
                "interval",
                [low, middle - 3.0, high - low, 6.0],
                "95 % interval of the median",
            );
        }
        let x = rates.x(summary.median);
        let tip = format!("median {} /s", rate(summary.median));
        svg.rect("median", [x - 1.5, middle - 9.0, 3.0, 18.0], &tip);
    }
    for phase in &phases {
        if let Some(ops) = ops(phase) {
            let tip = format!("round {}: {} /s", phase.round + 1, rate(ops));
            svg.dot("round", rates.x(ops), middle, &tip);
        }
    }
    let Some(r) = row.vs_vanilla else {
        if vanilla == Some(row.arm.as_str()) {
            svg.text(
                "quiet",
                ratios.x(1.0) + 8.0,
                middle + 4.0,
                Anchor::Start,
                "reference",
            );
        }
        return;
    };
    if let Some((low, high)) = r.interval {
        let beyond = high > ratios.max;
        let (low, high) = (ratios.x(low), ratios.x(high));
        let tip = format!(
            "{}{}",
            ratio(&r),
            if beyond { ", beyond this picture" } else { "" }
        );
        svg.rect("interval", [low, middle - 3.0, high - low, 6.0], &tip);
    }
    svg.rect(
        "median",
        [ratios.x(r.centre) - 1.5, middle - 9.0, 3.0, 18.0],
        &format!("geometric mean {:.2}", r.centre),
    );
    for value in gains(result, &table.load, row.vms_per_pcpu, &row.arm) {
        svg.dot("round", ratios.x(value), middle, &format!("{value:.2}"));
    }
    let word = format!("{} {:.2}x {}", mark(r.verdict()), r.centre, r.verdict());
    svg.text(
        class(r.verdict()),
        VERDICT,
        middle + 4.0,
        Anchor::Start,
        &word,
    );
}

/// A sign beside the word, for those who do not see the colour.
pub(super) fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "\u{25b2}",
        Verdict::Worse => "\u{25bc}",
        Verdict::Same => "=",
        Verdict::Unclear => "?",
        Verdict::TooFew => "\u{2026}",
    }
}

/// Its class in the style sheet.
pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Same | Verdict::Unclear | Verdict::TooFew => "open",
    }
}
