// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of a reproduction: figures as the papers draw them, ours beside what was
//! published, and which statements hold.

use askama::Template;

use super::svg::Anchor;
use super::svg::Svg;
use super::svg::short;
use crate::reproduction::Errors;
use crate::reproduction::Experiment;
use crate::reproduction::Figure;
use crate::reproduction::Parameter;
use crate::reproduction::Reproduction;
use crate::reproduction::Row;
use crate::reproduction::figure;
use crate::reproduction::figures;
use crate::reproduction::percent;

const WIDTH: f64 = 1000.0;
/// Where configurations, systems, bars and numbers begin.
const CONFIGURATION: f64 = 4.0;
const SYSTEM: f64 = 190.0;
const BARS: (f64, f64) = (330.0, 440.0);
const NUMBERS: f64 = 786.0;
const ROW: f64 = 17.0;
const GAP: f64 = 9.0;
const AXIS: f64 = 24.0;
/// So many colours there are.
const COLOURS: usize = 7;
/// The overview's axis: as far below and above what was published, as a factor.
const FACTOR: f64 = 4.0;

/// The page.
#[derive(Template)]
#[template(path = "reproduction.html")]
struct Page<'a> {
    lead: String,
    sums: Vec<(&'static str, String)>,
    overview: String,
    experiments: Vec<Section<'a>>,
    parameters: &'a [Parameter],
    vlab: &'a str,
    any_spread: bool,
}

/// One experiment.
struct Section<'a> {
    one: &'a Experiment,
    shapes: String,
    figures: Vec<Picture>,
    rows: Vec<[String; 5]>,
}

/// One figure.
struct Picture {
    caption: String,
    systems: Vec<(usize, String)>,
    /// Is anything published of it known here?
    any_published: bool,
    svg: String,
}

/// The whole page.
///
/// # Errors
/// Never for the templates of this crate; a formatter that fails is an error.
pub fn page(reproduction: &Reproduction) -> Result<String, askama::Error> {
    let tally = reproduction.tally();
    let errors = |errors: Option<Errors>| errors.map_or("none".to_owned(), |e| e.text());
    let rows = || reproduction.experiments.iter().flat_map(|one| &one.rows);
    Page {
        lead: lead(reproduction),
        sums: vec![
            ("Published rows", errors(tally.all())),
            ("Of them fitted to", errors(tally.calibrated())),
            ("Of them kept out of the fit", errors(tally.predicted())),
            (
                "Statements about shapes",
                format!("{} hold", tally.shapes()),
            ),
            (
                "Orders of systems",
                format!("{} as published", tally.orderings()),
            ),
        ],
        overview: overview(&reproduction.experiments),
        experiments: reproduction.experiments.iter().map(section).collect(),
        parameters: &reproduction.parameters,
        vlab: &reproduction.vlab,
        any_spread: rows().any(|row| row.spread().is_some()),
    }
    .render()
}

fn lead(reproduction: &Reproduction) -> String {
    let effort = if reproduction.quick {
        "one short round each, so differences of a few percent are chance"
    } else {
        "several rounds each, of which the mean is shown"
    };
    let set: Vec<String> = reproduction
        .parameters
        .iter()
        .filter(|parameter| parameter.set)
        .map(|parameter| format!("{} = {}", parameter.name, parameter.value))
        .collect();
    let set = if set.is_empty() {
        String::new()
    } else {
        format!(" Not as they are fitted: {}.", set.join(", "))
    };
    let experiments = match reproduction.experiments.len() {
        1 => "1 experiment".to_owned(),
        count => format!("{count} experiments"),
    };
    format!("{experiments}, simulated with one set of parameters: {effort}.{set}")
}

fn shapes_of(one: &Experiment) -> String {
    let holds = one.shapes.iter().filter(|shape| shape.holds).count();
    format!("{holds} of {}", one.shapes.len())
}

fn section(one: &Experiment) -> Section<'_> {
    let pictures = figures(&one.rows);
    Section {
        one,
        shapes: shapes_of(one),
        figures: pictures.iter().map(|f| picture(one, f)).collect(),
        rows: one.rows.iter().map(cells).collect(),
    }
}

fn cells(row: &Row) -> [String; 5] {
    let dash = || "-".to_owned();
    [
        row.name.clone(),
        row.published.map_or_else(dash, figure),
        figure(row.simulated),
        row.error.map_or_else(dash, percent),
        row.spread().map_or_else(String::new, |(low, high)| {
            format!("{}..{}", figure(low), figure(high))
        }),
    ]
}

/// Values to positions, zero being on the axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    min: f64,
    max: f64,
}

impl Axis {
    fn of(figure: &Figure<'_>) -> Self {
        let bars = figure.groups.iter().flat_map(|group| &group.bars);
        let values = bars.flat_map(|(_, row)| {
            let (low, high) = row.spread().unwrap_or((row.simulated, row.simulated));
            [Some(low), Some(high), Some(row.simulated), row.published]
        });
        let (min, max) = values
            .flatten()
            .filter(|value| value.is_finite())
            .fold((0.0, 0.0), |(min, max): (f64, f64), value| {
                (min.min(value), max.max(value))
            });
        if max > min {
            Self { min, max }
        } else {
            Self { min: 0.0, max: 1.0 }
        }
    }

    fn x(&self, value: f64) -> f64 {
        let part = (value - self.min) / (self.max - self.min);
        BARS.0 + part.clamp(0.0, 1.0) * BARS.1
    }

    /// Round values: 1, 2 or 5 times a power of ten apart, about five of them.
    fn ticks(&self) -> Vec<f64> {
        let rough = (self.max - self.min) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0];
        let step = steps.into_iter().map(|factor| factor * power);
        let step = step
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.min / step).ceil() as i64;
        (first..first + 12)
            .map(|n| n as f64 * step)
            .take_while(|value| *value <= self.max * (1.0 + 1e-9))
            .collect()
    }
}

fn picture(one: &Experiment, drawn: &Figure<'_>) -> Picture {
    let several = drawn.systems.len() > 1;
    let all = || drawn.groups.iter().flat_map(|group| &group.bars);
    let height = all().count() as f64 * ROW + drawn.groups.len() as f64 * GAP + AXIS;
    let bottom = height - AXIS;
    let mut svg = Svg::new(WIDTH, height);
    let axis = Axis::of(drawn);
    for value in axis.ticks() {
        svg.line("grid", (axis.x(value), 0.0), (axis.x(value), bottom));
        let text = short(value);
        svg.text("tick", axis.x(value), bottom + 15.0, Anchor::Middle, &text);
    }
    svg.line("one", (axis.x(0.0), 0.0), (axis.x(0.0), bottom));
    let mut y = GAP / 2.0;
    for group in &drawn.groups {
        let label = &group.configuration;
        svg.text("group", CONFIGURATION, y + 12.5, Anchor::Start, label);
        for (system, row) in &group.bars {
            let colour = drawn.systems.iter().position(|other| other == system);
            if several {
                svg.text("arm", SYSTEM, y + 12.5, Anchor::Start, system);
            }
            // Grey is the first of several; where there is one it is ours.
            let colour = colour.filter(|_| several).unwrap_or(1);
            bar(&mut svg, axis, colour, row, y);
            y += ROW;
        }
        y += GAP;
    }
    let caption = if drawn.measure.is_empty() {
        one.title.clone()
    } else {
        drawn.measure.clone()
    };
    let label = format!("{}: {caption}; the table below has the numbers", one.name);
    let systems = drawn.systems.iter().cloned().enumerate();
    Picture {
        caption,
        systems: if several {
            let named = systems.filter(|(_, name)| !name.is_empty());
            named.map(|(n, name)| (n % COLOURS, name)).collect()
        } else {
            Vec::new()
        },
        any_published: all().any(|(_, row)| row.published.is_some()),
        svg: svg.finish(&label),
    }
}

fn bar(svg: &mut Svg, axis: Axis, colour: usize, row: &Row, y: f64) {
    let middle = y + ROW / 2.0;
    let (zero, end) = (axis.x(0.0), axis.x(row.simulated));
    if row.simulated.is_finite() {
        let class = format!("bar c{}", colour % COLOURS);
        let tip = format!("{}: simulated {}", row.name, figure(row.simulated));
        let at = [zero.min(end), y + 3.0, (end - zero).abs(), ROW - 6.0];
        svg.rect(&class, at, &tip);
    }
    if let Some((low, high)) = row.spread() {
        let (a, b) = (axis.x(low), axis.x(high));
        svg.line("whisker", (a, middle), (b, middle));
        svg.line("whisker", (a, middle - 3.0), (a, middle + 3.0));
        svg.line("whisker", (b, middle - 3.0), (b, middle + 3.0));
    }
    if let Some(published) = row.published {
        let tip = format!("{}: published {}", row.name, figure(published));
        diamond(svg, axis.x(published), middle, !row.tells(), &tip);
    }
    let (published, error) = match (row.published, row.error) {
        (Some(published), Some(error)) => (figure(published), percent(error)),
        (Some(published), None) => (figure(published), String::new()),
        _ => (String::new(), String::new()),
    };
    let own = figure(row.simulated);
    svg.text("num", NUMBERS + 62.0, y + 12.5, Anchor::End, &own);
    svg.text("quiet", NUMBERS + 130.0, y + 12.5, Anchor::End, &published);
    let class = if row.tells() { "num" } else { "quiet" };
    svg.text(class, WIDTH - 2.0, y + 12.5, Anchor::End, &error);
}

fn diamond(svg: &mut Svg, x: f64, y: f64, fixed: bool, tip: &str) {
    let class = if fixed {
        "published fixed"
    } else {
        "published"
    };
    let d = format!(
        "M{} {}l4.5 5.5l-4.5 5.5l-4.5 -5.5z",
        short(x),
        short(y - 5.5)
    );
    svg.path(class, &d, tip);
}

/// Every published row as a dot where it came out, experiment by experiment.
fn overview(experiments: &[Experiment]) -> String {
    const LINE: f64 = 22.0;
    const TOP: f64 = 22.0;
    let height = TOP + experiments.len() as f64 * LINE + AXIS;
    let bottom = height - AXIS;
    let (from, length) = (250.0, 560.0);
    let x = |ratio: f64| {
        let part = (ratio.max(1e-9).ln() / FACTOR.ln() + 1.0) / 2.0;
        from + part.clamp(0.0, 1.0) * length
    };
    let mut svg = Svg::new(WIDTH, height);
    let near = crate::reproduction::NEAR;
    let (low, high) = (x(1.0 - near), x(1.0 + near));
    let tip = "within 10 % of what was published";
    svg.rect("same", [low, TOP, high - low, bottom - TOP], tip);
    for (ratio, label) in [
        (0.25, "1/4 or less"),
        (0.5, "1/2"),
        (1.0, "as published"),
        (2.0, "2 x"),
        (4.0, "4 x or more"),
    ] {
        let class = if ratio == 1.0 { "one" } else { "grid" };
        svg.line(class, (x(ratio), TOP), (x(ratio), bottom));
        svg.text("tick", x(ratio), bottom + 15.0, Anchor::Middle, label);
    }
    svg.text(
        "head",
        from,
        12.0,
        Anchor::Start,
        "simulated over published",
    );
    svg.text(
        "head",
        WIDTH - 4.0,
        12.0,
        Anchor::End,
        "statements that hold",
    );
    for (n, one) in experiments.iter().enumerate() {
        let y = TOP + n as f64 * LINE;
        svg.text("group", CONFIGURATION, y + 15.0, Anchor::Start, &one.name);
        for row in &one.rows {
            let Some(error) = row.error else { continue };
            let tip = format!("{}: {}", row.name, percent(error));
            let class = if row.tells() {
                "round"
            } else {
                "round quietdot"
            };
            svg.dot(class, x(error + 1.0), y + 11.0, &tip);
        }
        if one.rows.iter().all(|row| row.error.is_none()) {
            let text = "nothing published is known here";
            svg.text("quiet", from + 8.0, y + 15.0, Anchor::Start, text);
        }
        if !one.shapes.is_empty() {
            let all = one.shapes.iter().all(|shape| shape.holds);
            let class = if all { "better" } else { "worse" };
            let text = shapes_of(one);
            svg.text(class, WIDTH - 4.0, y + 15.0, Anchor::End, &text);
        }
    }
    svg.finish("Every published figure: how far the simulated one is from it, by experiment")
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_balanced;
    use super::*;
    use crate::reproduction::tests::sample;

    #[test]
    fn the_page_shows_every_row_and_needs_nothing_else() {
        let page = page(&sample()).unwrap();
        assert_balanced(&page);
        for outside in ["http:", "https:", " src=", "@import", "url(h", "fetch("] {
            assert!(!page.contains(outside), "{outside}");
        }
        // Three of four came out, two were published, one has a spread.
        assert_eq!(page.matches(r#"<rect class="bar"#).count(), 3);
        assert_eq!(page.matches(r#"<path class="published"#).count(), 3);
        assert_eq!(page.matches(r#"class="whisker""#).count(), 3);
        for shown in [
            "1 experiment, simulated",
            "ours is first",
            "by far",
            "1 of 2 hold",
            "kvm.switch_us = 2.5",
        ] {
            assert!(page.contains(shown), "{shown}");
        }
    }

    /// What went in is drawn as what fixed a parameter: it is no prediction.
    #[test]
    fn inputs_are_drawn_as_what_says_nothing() {
        let quiet = |input: bool| {
            let mut sample = sample();
            sample.experiments[0].rows[0].input = input;
            page(&sample).unwrap().matches("round quietdot\"").count()
        };
        assert_eq!(quiet(true), quiet(false) + 1);
    }

    #[test]
    fn names_cannot_become_markup() {
        let mut bad = sample();
        bad.experiments[0].rows[0].name = "<script>alert(1)</script>/x".to_owned();
        bad.experiments[0].title = "<b>&".to_owned();
        let page = page(&bad).unwrap();
        assert!(!page.contains("<script>alert") && !page.contains("<b>&<"));
        assert_balanced(&page);
    }

    #[test]
    fn losses_are_drawn_to_the_left_of_zero() {
        let row = Row::new("a/x: ready, %", -40.0, Some(60.0), false);
        let rows = [row];
        let drawn = figures(&rows);
        let axis = Axis::of(&drawn[0]);
        assert!((axis.x(0.0) - (BARS.0 + 0.4 * BARS.1)).abs() < 1e-9);
        assert_eq!(axis.ticks(), [-40.0, -20.0, 0.0, 20.0, 40.0, 60.0]);
    }
}
