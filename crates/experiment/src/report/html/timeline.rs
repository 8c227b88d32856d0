// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One strip per arm: a row per vCPU, dark where it is off; on it the I/O
//! threads, coloured by what they do; arrows where somebody moved one.
//!
//! All marks of one kind are one path: thousands of elements would make the page
//! slow, and zooming is then a single transformation of a few.

use std::fmt::Write;

use super::svg::Anchor;
use super::svg::Svg;
use super::svg::escape;
use super::svg::short;
use crate::result::MoveMark;
use crate::result::TaskState;
use crate::result::TaskTrack;
use crate::result::Timeline;
use crate::result::VcpuTrack;
use units::Ns;

/// Width of the strip and of the labels at its left; the script knows both.
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 70.0;
const PLOT: f64 = WIDTH - LEFT - 4.0;
/// Above the first row, between rows and below the last: words stand there.
const TOP: f64 = 14.0;
const LANE: f64 = 18.0;
const PAD: f64 = 6.0;
const AXIS: f64 = 20.0;

/// Geometry of one strip.
#[derive(Clone, Copy, Debug)]
struct Strip<'a> {
    timeline: &'a Timeline,
    row: f64,
}

impl Strip<'_> {
    fn x(&self, at: Ns) -> f64 {
        at.0 as f64 / self.timeline.length.0.max(1) as f64 * PLOT
    }

    /// Top of a vCPU's row; a vCPU that is not shown has none.
    fn y(&self, cpu: u32) -> Option<f64> {
        let index = self
            .timeline
            .vcpus
            .iter()
            .position(|track| track.id == cpu)?;
        Some(TOP + index as f64 * (self.row + TOP))
    }

    fn height(&self) -> f64 {
        TOP + self.timeline.vcpus.len() as f64 * (self.row + TOP)
    }
}

/// The strip of one arm.
pub(super) fn draw(arm: &str, timeline: &Timeline) -> String {
    let strip = Strip {
        timeline,
        row: 2.0 * PAD + LANE * timeline.tasks.len().max(1) as f64,
    };
    let height = strip.height();
    let mut svg = Svg::new(WIDTH, height + AXIS);
    for track in &timeline.vcpus {
        if let Some(y) = strip.y(track.id) {
            let text = format!("vCPU {}", track.id);
            svg.text(
                "tick",
                LEFT - 8.0,
                y + strip.row / 2.0 + 4.0,
                Anchor::End,
                &text,
            );
            svg.rect("on", [LEFT, y, PLOT, strip.row], "");
        }
    }
    // A drawing within the drawing, so that what is zoomed is cut off at its edge.
    let _ = write!(
        Raw(&mut svg),
        r#"<svg class="plot" x="{}" y="0" width="{}" height="{}" data-ns="{}"><g class="zoom">"#,
        short(LEFT),
        short(PLOT),
        short(height + AXIS),
        timeline.length.0
    );
    svg.raw(&absences(strip, "off", |track| &track.gaps));
    svg.raw(&absences(strip, "halted", |track| &track.halts));
    for (lane, task) in timeline.tasks.iter().enumerate() {
        svg.raw(&spells(strip, lane, task));
    }
    svg.raw("</g>");
    for mark in &timeline.moves {
        svg.raw(&arrow(strip, mark));
    }
    svg.raw(&axis(strip, height));
    svg.raw("</svg>");
    svg.finish(&format!(
        "Timeline of {arm}: when each vCPU was on, what the I/O threads did on it, and {} moves",
        timeline.moves.len()
    ))
}

/// Lets `write!` append to a drawing.
struct Raw<'a>(&'a mut Svg);

impl Write for Raw<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.raw(text);
        Ok(())
    }
}

/// A rectangle as a part of a path.
fn area(d: &mut String, x: f64, y: f64, w: f64, h: f64) {
    let (x, y, w, h) = (fine(x), short(y), fine(w), short(h));
    let _ = write!(d, "M{x} {y}h{w}v{h}h-{w}z");
}

/// With three decimals: a tenth of a microsecond in a quarter of a second.
fn fine(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Areas of one class wherever vCPUs were so.
fn absences(strip: Strip<'_>, class: &str, of: impl Fn(&VcpuTrack) -> &Vec<(Ns, Ns)>) -> String {
    let mut d = String::new();
    for track in &strip.timeline.vcpus {
        let Some(y) = strip.y(track.id) else { continue };
        for (from, to) in of(track) {
            let x = strip.x(*from);
            area(&mut d, x, y, strip.x(*to) - x, strip.row);
        }
    }
    if d.is_empty() {
        return d;
    }
    format!(r#"<path class="{class}" d="{d}"/>"#)
}

/// What one thread did: a path per state, and a thin line wherever it changed its
/// vCPU.
fn spells(strip: Strip<'_>, lane: usize, task: &TaskTrack) -> String {
    let mut by_state: Vec<String> = vec![String::new(); TaskState::ALL.len()];
    let mut hops = String::new();
    let mut last: Option<u32> = None;
    let inset = PAD + lane as f64 * LANE;
    for (at, spell) in task.spells.starts() {
        let Some(y) = strip.y(spell.cpu) else {
            continue;
        };
        let x = strip.x(at);
        let index = TaskState::ALL
            .iter()
            .position(|state| *state == spell.state);
        if let Some(d) = index.and_then(|index| by_state.get_mut(index)) {
            area(d, x, y + inset, strip.x(at + spell.length) - x, LANE - 2.0);
        }
        // A completion that is pending is drawn where it pends; the thread has not
        // gone anywhere.
        if spell.state == TaskState::Pending {
            continue;
        }
        if let Some(from) = last
            .filter(|from| *from != spell.cpu)
            .and_then(|cpu| strip.y(cpu))
        {
            let middle = inset + LANE / 2.0 - 1.0;
            let _ = write!(
                hops,
                "M{} {}V{}",
                fine(x),
                short(from + middle),
                short(y + middle)
            );
        }
        last = Some(spell.cpu);
    }
    let mut out = String::new();
    for (state, d) in TaskState::ALL.iter().zip(by_state) {
        if !d.is_empty() {
            let (letter, label) = (state.letter(), escape(state.label()));
            let _ = write!(
                out,
                r#"<path class="part s{letter}" d="{d}"><title>{} {}: {label}</title></path>"#,
                escape(&task.name),
                task.tid
            );
        }
    }
    if !hops.is_empty() {
        let _ = write!(out, r#"<path class="hop" d="{hops}"/>"#);
    }
    out
}

/// An arrow at its place without zoom; the script moves it, and never stretches it.
fn arrow(strip: Strip<'_>, mark: &MoveMark) -> String {
    let lane = strip
        .timeline
        .tasks
        .iter()
        .position(|task| task.tid == mark.tid);
    let from = lane.and_then(|lane| {
        let task = &strip.timeline.tasks[lane];
        let before = mark.at - mark.cost;
        let at = task
            .spells
            .starts()
            .take_while(|(at, _)| *at <= before)
            .last();
        at.map(|(_, spell)| spell.cpu)
    });
    let inset = PAD + lane.unwrap_or(0) as f64 * LANE + LANE / 2.0 - 1.0;
    let (Some(y), Some(from)) = (strip.y(mark.to), from.and_then(|cpu| strip.y(cpu))) else {
        return String::new();
    };
    let (start, end) = (from + inset, y + inset);
    let tip = format!(
        "{} to vCPU {} at {:.3} ms, took {}",
        mark.why,
        mark.to,
        mark.at.as_ms_f64(),
        mark.cost
    );
    let head = if end >= start { -6.0 } else { 6.0 };
    // The word stands outside the row where the thread comes from, on the side
    // that the arrow does not cross.
    let word = if end >= start {
        from - 4.0
    } else {
        from + strip.row + 10.5
    };
    let x = strip.x(mark.at);
    format!(
        r#"<g class="move {}" data-x="{}" transform="translate({} 0)"><title>{}</title><path d="M0 {}V{}"/><path class="head" d="M0 {}l-3.5 {}h7z"/><text x="3" y="{}">{}</text></g>"#,
        escape(&mark.why),
        fine(x),
        fine(x),
        escape(&tip),
        short(start),
        short(end),
        short(end),
        short(head),
        short(word),
        escape(word_of(&mark.why))
    )
}

/// A word that is short enough to stand beside its neighbours; the tip has the
/// whole one.
fn word_of(why: &str) -> &str {
    match why {
        "soon-active" => "soon",
        "completion" => "home",
        other => other,
    }
}

/// The axis without zoom; the script draws it anew.
fn axis(strip: Strip<'_>, y: f64) -> String {
    let ms = strip.timeline.length.as_ms_f64();
    let scale = super::svg::Scale {
        at: 0.0,
        length: PLOT,
        max: ms.max(f64::MIN_POSITIVE),
    };
    let mut out = format!(r#"<g class="axis" data-y="{}">"#, short(y));
    for value in scale.ticks(10) {
        let x = short(scale.x(value));
        let _ = write!(
            out,
            r#"<path class="grid" d="M{x} {}v5"/><text class="tick" x="{x}" y="{}" text-anchor="{}">{} ms</text>"#,
            short(y),
            short(y + 17.0),
            if value == 0.0 { "start" } else { "middle" },
            short(value)
        );
    }
    out + "</g>"
}
