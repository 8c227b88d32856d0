// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of the I/O threads goes: per request, one bar per arm.
//!
//! Time per request and not shares alone: what a better arm does is to make the
//! bar shorter, and the picture shows which part of it went away.

use super::svg::Anchor;
use super::svg::Scale;
use super::svg::Svg;
use super::svg::short;
use crate::analysis::LoadTable;
use crate::analysis::phases_of;
use crate::result::IoTime;
use crate::result::Phase;
use crate::result::RunResult;
use crate::result::SOLO;
use crate::result::TaskState;
use crate::stats::quantile;

const WIDTH: f64 = 1000.0;
const BARS: (f64, f64) = (130.0, 770.0);
const ROW: f64 = 30.0;
const GROUP: f64 = 24.0;
const HEAD: f64 = 24.0;
/// A round of more than so many of the longest bar is at the picture's edge: one that
/// stood still would leave nothing to see of all others.
const BEYOND: f64 = 3.0;

/// One bar.
#[derive(Debug)]
pub(super) struct Bar {
    group: String,
    name: String,
    /// Microseconds of thread time per request, in the order of [`TaskState::ALL`], all
    /// rounds together: a round in which little was done counts with the little that it
    /// did. The mean of the rounds would be that of the worst one.
    parts: [f64; TaskState::ALL.len()],
    /// The same of each round, all parts together.
    rounds: Vec<f64>,
}

impl Bar {
    fn of(group: String, name: &str, phases: &[&Phase]) -> Option<Self> {
        let known: Vec<(&IoTime, f64)> = phases.iter().filter_map(|p| requests(p)).collect();
        let all: f64 = known.iter().map(|(_, requests)| requests).sum();
        let spent = |state| -> f64 {
            known
                .iter()
                .map(|(time, _)| time.of(state).as_us_f64())
                .sum()
        };
        let rounds = known.iter().filter(|(_, requests)| *requests >= 1.0);
        (all >= 1.0).then(|| Self {
            group,
            name: name.to_owned(),
            parts: TaskState::ALL.map(|state| spent(state) / all),
            rounds: rounds
                .map(|(time, requests)| time.total().as_us_f64() / requests)
                .collect(),
        })
    }

    fn total(&self) -> f64 {
        self.parts.iter().sum()
    }
}

/// Where the time of a phase went, and how many requests it completed.
fn requests(phase: &Phase) -> Option<(&IoTime, f64)> {
    let done = phase.io.as_ref()?.ops_per_s * phase.window.as_secs_f64();
    Some((phase.io_time.as_ref()?, done))
}

/// All bars of a load.
fn bars(result: &RunResult, table: &LoadTable) -> Vec<Bar> {
    let solo = phases_of(result, &table.load, 1, SOLO);
    let solo = Bar::of("no sharing".to_owned(), SOLO, &solo);
    let arms = table.rows.iter().filter_map(|row| {
        let group = result.scenario.sharing_of(row.vms_per_pcpu);
        let phases = phases_of(result, &table.load, row.vms_per_pcpu, &row.arm);
        Bar::of(group, &row.arm, &phases)
    });
    solo.into_iter().chain(arms).collect()
}

/// The picture; empty if nothing was recorded.
pub(super) fn draw(result: &RunResult, table: &LoadTable) -> String {
    let bars = bars(result, table);
    if bars.iter().all(|bar| bar.name == SOLO) {
        return String::new();
    }
    let mut groups: Vec<&str> = bars.iter().map(|bar| bar.group.as_str()).collect();
    groups.dedup();
    let height = HEAD + bars.len() as f64 * ROW + groups.len() as f64 * GROUP + 24.0;
    let mut svg = Svg::new(WIDTH, height);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let longest = most(&mut bars.iter().map(Bar::total));
    let most = most(&mut bars.iter().flat_map(|bar| &bar.rounds).copied()).min(BEYOND * longest);
    let scale = Scale::up_to(most, BARS.0, BARS.1);
    let bottom = height - 22.0;
    svg.text(
        "head",
        BARS.0,
        14.0,
        Anchor::Start,
        "microseconds of thread time per request",
    );
    for value in scale.ticks(8) {
        svg.line("grid", (scale.x(value), HEAD), (scale.x(value), bottom));
        svg.text(
            "tick",
            scale.x(value),
            bottom + 15.0,
            Anchor::Middle,
            &short(value),
        );
    }
    let mut y = HEAD;
    let mut group = "";
    for bar in &bars {
        if group != bar.group {
            group = &bar.group;
            svg.text("group", 4.0, y + 17.0, Anchor::Start, group);
            y += GROUP;
        }
        draw_bar(&mut svg, bar, scale, y);
        y += ROW;
    }
    svg.finish(&format!(
        "{}: where the time of a request goes, by arm; the table of parts below has the numbers",
        table.load
    ))
}

fn draw_bar(svg: &mut Svg, bar: &Bar, scale: Scale, y: f64) {
    svg.text("arm", 16.0, y + 19.0, Anchor::Start, &bar.name);
    let total = bar.total();
    let mut from = 0.0;
    for (state, part) in TaskState::ALL.into_iter().zip(bar.parts) {
        let (x, end) = (scale.x(from), scale.x(from + part));
        let percent = 100.0 * part / total.max(f64::MIN_POSITIVE);
        let tip = format!("{}: {} us, {percent:.1} %", state.label(), short(part));
        let letter = state.letter();
        let at = [x, y + 4.0, end - x, ROW - 8.0];
        svg.rect(&format!("part s{letter}"), at, &tip);
        if state.is_off() {
            svg.rect("hatched", at, &tip);
        }
        if end - x > 34.0 {
            let text = format!("{percent:.0} %");
            svg.text("inside", (x + end) / 2.0, y + 19.5, Anchor::Middle, &text);
        }
        from += part;
    }
    for round in &bar.rounds {
        let tip = format!("one round: {} us", short(*round));
        svg.dot("round small", scale.x(*round), y + ROW - 3.0, &tip);
    }
    let most = bar.rounds.iter().copied().fold(total, f64::max);
    let (end, text) = if most > scale.max {
        let most = short(most.round());
        let text = format!("{} us, a round beyond: {most} us", short(total.round()));
        (total, text)
    } else {
        (most, format!("{} us", short(total.round())))
    };
    svg.text("quiet", scale.x(end) + 8.0, y + 19.0, Anchor::Start, &text);
}

/// The numbers behind the picture: one row per bar, microseconds by state; the
/// last column is the spread of the sum.
pub(super) fn table(result: &RunResult, table: &LoadTable) -> Vec<Vec<String>> {
    bars(result, table)
        .iter()
        .map(|bar| {
            let at = |q| quantile(&bar.rounds, q).unwrap_or(0.0);
            let mut cells = vec![bar.group.clone(), bar.name.clone()];
            cells.extend(bar.parts.iter().map(|part| format!("{part:.0}")));
            cells.push(format!(
                "{:.0} [{:.0}..{:.0}]",
                bar.total(),
                at(0.0),
                at(1.0)
            ));
            cells
        })
        .collect()
}
