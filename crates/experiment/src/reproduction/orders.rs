// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do the systems of an experiment come in the published order?
//!
//! Asked of each configuration of which figures of two systems or more were published:
//! bars of one group of [`figures()`], figures that name nothing but a system, and ratios
//! of one system over another. Configurations all of whose figures went in are left out.

use std::cmp::Ordering;

use serde::Deserialize;
use serde::Serialize;

use super::Row;
use super::figures;

/// Figures that are no further apart than this are equal.
pub const TIE: f64 = 0.01;

/// Names that rows have for systems.
const SYSTEMS: [&str; 22] = [
    "vanilla",
    "vMigrater",
    "vSlicer",
    "xBalloon",
    "credit1",
    "ische",
    "credit",
    "credit2",
    "isacs",
    "blocking",
    "polling",
    "haltpoll",
    "haltpoll-enhanced",
    "enhanced HaltPoll",
    "vsmtio",
    "vSMT-IO",
    "BS",
    "CC",
    "DC",
    "JUPITER",
    "balance",
    "jupiter",
];

/// The systems of one configuration, the least figure first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which, with what is measured.
    pub configuration: String,
    /// As `a < b = c`.
    pub published: String,
    /// Likewise.
    pub simulated: String,
}

impl Order {
    /// Is the simulated order the published one?
    #[must_use]
    pub fn holds(&self) -> bool {
        self.published == self.simulated
    }

    /// `of` are systems with what was published and what was simulated.
    fn new(configuration: String, of: &[(String, f64, f64)]) -> Self {
        let by = |figure: fn(&(String, f64, f64)) -> f64| {
            let all = of.iter().map(|one| (one.0.as_str(), figure(one)));
            chain(all.collect())
        };
        Self {
            configuration,
            published: by(|one| one.1),
            simulated: by(|one| one.2),
        }
    }
}

/// The orders in these rows.
#[must_use]
pub fn orders(rows: &[Row]) -> Vec<Order> {
    let mut found = Vec::new();
    for figure in figures(rows) {
        // Rows such as "BS: slowdown": the system is all that they name.
        let mut alone = Vec::new();
        for group in &figure.groups {
            let name = joined(&group.configuration, &figure.measure);
            let alone_here = SYSTEMS.contains(&group.configuration.as_str());
            let bars = group.bars.iter();
            let named = bars.map(|(system, row)| match system.as_str() {
                "" if alone_here => (group.configuration.as_str(), *row),
                system => (system, *row),
            });
            let (own, ratios): (Vec<_>, Vec<_>) = named.partition(|(s, _)| SYSTEMS.contains(s));
            if alone_here {
                alone.extend(own);
            } else {
                found.extend(order(name, &own));
            }
            found.extend(ratios.iter().filter_map(|(_, row)| ratio(row)));
        }
        found.extend(order(figure.measure.clone(), &alone));
    }
    found
}

fn joined(a: &str, b: &str) -> String {
    let parts = [a, b].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

fn order(name: String, bars: &[(&str, &Row)]) -> Option<Order> {
    let all = bars.iter();
    let known = all.filter_map(|(system, row)| {
        let figures = row.published.filter(|_| row.simulated.is_finite());
        Some(((*system).to_owned(), figures?, row.simulated))
    });
    let known: Vec<_> = known.collect();
    let free = bars.iter().any(|(_, row)| row.counts());
    (known.len() > 1 && free).then(|| Order::new(name, &known))
}

/// A row `a over b`, as a ratio or in percent more.
fn ratio(row: &Row) -> Option<Order> {
    let (name, percent) = match row.name.strip_suffix(", %") {
        Some(name) => (name, true),
        None => (row.name.as_str(), false),
    };
    let (above, below) = name.rsplit_once(" over ")?;
    if !SYSTEMS.contains(&below) || !row.counts() || !row.simulated.is_finite() {
        return None;
    }
    let above = above.rsplit(['/', ':', ',']).next()?.trim();
    let over = |value: f64| if percent { 1.0 + value / 100.0 } else { value };
    let of = [
        (above.to_owned(), over(row.published?), over(row.simulated)),
        (below.to_owned(), 1.0, 1.0),
    ];
    Some(Order::new(row.name.clone(), &of))
}

fn chain(mut all: Vec<(&str, f64)>) -> String {
    let tied = |a: f64, b: f64| (a - b).abs() <= TIE * a.abs().max(b.abs());
    let by = |a: &(&str, f64), b: &(&str, f64)| a.1.partial_cmp(&b.1).unwrap_or(Ordering::Equal);
    all.sort_by(by);
    // Equal ones by name, or two ties would be written in two ways.
    let runs = all.chunk_by_mut(|a, b| tied(a.1, b.1));
    let runs = runs.map(|run| {
        run.sort_unstable_by_key(|one| one.0);
        run.iter().map(|one| one.0).collect::<Vec<_>>().join(" = ")
    });
    runs.collect::<Vec<_>>().join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, simulated: f64, published: f64) -> Row {
        Row::new(name, simulated, Some(published), false)
    }

    fn found(rows: &[Row]) -> Vec<(String, String, String)> {
        let all = orders(rows).into_iter();
        all.map(|o| (o.configuration, o.published, o.simulated))
            .collect()
    }

    fn three(a: &str, b: &str, c: &str) -> (String, String, String) {
        (a.to_owned(), b.to_owned(), c.to_owned())
    }

    /// By hand: 2.00 and 2.01 are within 1 %, 2.00 and 2.03 are not.
    #[test]
    fn figures_within_a_percent_are_equal() {
        let rows = [
            row("x/vanilla", 3.0, 2.00),
            row("x/vSlicer", 2.0, 2.01),
            row("x/vMigrater", 2.03, 4.0),
        ];
        let published = "vSlicer = vanilla < vMigrater";
        let simulated = "vSlicer < vMigrater < vanilla";
        assert_eq!(found(&rows), [three("x", published, simulated)]);
        let order = &orders(&rows)[0];
        assert!(!order.holds());
        let right = [row("x/vanilla", 1.0, 7.0), row("x/vSlicer", 2.0, 9.0)];
        assert!(orders(&right)[0].holds());
    }

    /// One system that is known has no order, and neither has what all went in.
    #[test]
    fn only_configurations_that_can_be_wrong_are_counted() {
        let unknown = Row::new("x/vSlicer", 2.0, None, false);
        assert!(found(&[row("x/vanilla", 1.0, 1.0), unknown]).is_empty());
        let input = |name: &str| Row {
            input: true,
            ..row(name, 1.0, 1.0)
        };
        let inputs = [input("x/credit2"), input("x/isacs")];
        assert!(found(&inputs).is_empty());
        let fitted = Row::new("x/isacs", 2.0, Some(2.0), true);
        assert_eq!(found(&[fitted, input("x/credit2")]).len(), 1);
        assert!(found(&[row("x/hot", 1.0, 1.0), row("x/cold", 2.0, 1.0)]).is_empty());
    }

    #[test]
    fn systems_alone_and_ratios_have_orders_too() {
        let rows = [
            row("BS: slowdown", 6.0, 6.65),
            row("DC: slowdown", 5.0, 5.7),
            row("all: JUPITER over DC", 0.9, 1.3),
            row(
                "mean, compute, vSMT-IO over enhanced HaltPoll, %",
                0.5,
                22.8,
            ),
            row("worst ping, 4 VMs over 2", 4.0, 2.0),
        ];
        let want = [
            three("slowdown", "DC < BS", "DC < BS"),
            three("all: JUPITER over DC", "DC < JUPITER", "JUPITER < DC"),
            three(
                "mean, compute, vSMT-IO over enhanced HaltPoll, %",
                "enhanced HaltPoll < vSMT-IO",
                "enhanced HaltPoll = vSMT-IO",
            ),
        ];
        assert_eq!(found(&rows), want);
    }
}
