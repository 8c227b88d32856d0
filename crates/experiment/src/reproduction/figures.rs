// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as the papers draw them: bars per configuration and system, one figure per
//! measure. What is which is read from the names of the rows, which are written alike:
//! `configuration/system`, `figure/configuration/system`, `configuration/system: measure`,
//! `configuration, system`, and a unit after the last comma.

use super::Row;

/// Slashes that separate nothing.
const WORDS: [&str; 4] = ["I/O", "K/s", "MB/s", "Mb/s"];

/// After the last slash these are what is measured, and not a system.
const MEASURES: [&str; 5] = ["ratio", "P", "speedup", "N_migrate", "N_min"];

/// After the last comma these are units.
const UNITS: [&str; 11] = [
    "%",
    "% less",
    "ms",
    "s",
    "K/s",
    "MB/s",
    "Mb/s",
    "GB",
    "share",
    "of solo",
    "of all CPUs",
];

/// Rows with one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure<'a> {
    /// What its axis shows; empty where the names do not say.
    pub measure: String,
    /// In the order of their appearance; a single empty one where there is no choice.
    pub systems: Vec<String>,
    /// In the order of their appearance.
    pub groups: Vec<Group<'a>>,
}

/// The bars of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<'a> {
    /// Which.
    pub configuration: String,
    /// System and row.
    pub bars: Vec<(String, &'a Row)>,
}

/// What a name says.
#[derive(Debug, PartialEq)]
struct Name {
    measure: String,
    configuration: String,
    system: String,
}

/// Every row in exactly one figure, in the order of their first rows.
#[must_use]
pub fn figures(rows: &[Row]) -> Vec<Figure<'_>> {
    let mut figures: Vec<Figure<'_>> = Vec::new();
    for row in rows {
        let name = name(&row.name);
        let at = figures.iter().position(|f| f.measure == name.measure);
        let at = at.unwrap_or_else(|| {
            figures.push(Figure {
                measure: name.measure,
                systems: Vec::new(),
                groups: Vec::new(),
            });
            figures.len() - 1
        });
        let figure = &mut figures[at];
        if !figure.systems.contains(&name.system) {
            figure.systems.push(name.system.clone());
        }
        let groups = &mut figure.groups;
        let group = groups
            .iter()
            .position(|group| group.configuration == name.configuration);
        let group = group.unwrap_or_else(|| {
            groups.push(Group {
                configuration: name.configuration,
                bars: Vec::new(),
            });
            groups.len() - 1
        });
        groups[group].bars.push((name.system, row));
    }
    figures
}

/// Takes a unit off the end.
fn unit(text: &str) -> (&str, &str) {
    match text.rsplit_once(", ") {
        Some((rest, unit)) if UNITS.contains(&unit) => (rest, unit),
        _ => (text, ""),
    }
}

/// Those that are there, with commas.
fn joined(parts: &[&str]) -> String {
    let there: Vec<&str> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
    there.join(", ")
}

fn name(text: &str) -> Name {
    let hidden = WORDS.iter().fold(text.to_owned(), |text, word| {
        text.replace(word, &word.replace('/', "\0"))
    });
    let shown = |text: &str| text.replace('\0', "/");
    let (head, tail) = match hidden.split_once(": ") {
        Some((head, tail)) => (head, Some(tail)),
        None => (hidden.as_str(), None),
    };
    let parts: Vec<&str> = head.split('/').collect();
    let (measure, configuration, system) = match (parts.as_slice(), tail) {
        ([one], Some(measure)) => (measure.to_owned(), (*one).to_owned(), ""),
        ([rest @ .., system], Some(measure)) => (measure.to_owned(), rest.join(", "), *system),
        ([one], None) => {
            let shown = shown(one);
            let (rest, unit) = unit(&shown);
            let parts: Vec<&str> = rest.split(", ").collect();
            let (measure, configuration, system) = match *parts.as_slice() {
                [configuration, measure, system] if system.contains(" over ") => {
                    (measure, configuration, system)
                }
                [configuration, system] => ("", configuration, system),
                _ => ("", rest, ""),
            };
            return Name {
                measure: joined(&[measure, unit]),
                configuration: configuration.to_owned(),
                system: system.to_owned(),
            };
        }
        ([rest @ .., last], None) if MEASURES.contains(last) || last.contains(" over ") => {
            ((*last).to_owned(), rest.join(", "), "")
        }
        ([rest @ .., last], None) => {
            let last_shown = shown(last);
            let (system, unit) = unit(&last_shown);
            // The first of three names a figure of its own.
            let (figure, rest) = match rest {
                [figure, rest @ ..] if !rest.is_empty() => (*figure, rest),
                _ => ("", rest),
            };
            return Name {
                measure: shown(&joined(&[figure, unit])),
                configuration: shown(&rest.join(", ")),
                system: system.to_owned(),
            };
        }
        ([], _) => (String::new(), String::new(), ""),
    };
    Name {
        measure: shown(&measure),
        configuration: shown(&configuration),
        system: shown(system),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_which() {
        for (text, [measure, configuration, system]) in [
            ("hdfs/vanilla", ["", "hdfs", "vanilla"]),
            ("hdfs/ratio", ["ratio", "hdfs", ""]),
            ("HDFS/2 VMs/vSlicer", ["HDFS", "2 VMs", "vSlicer"]),
            (
                "mean/8 VMs/vMigrater over vanilla",
                ["vMigrater over vanilla", "mean, 8 VMs", ""],
            ),
            ("wordpress/vanilla, ms", ["ms", "wordpress", "vanilla"]),
            (
                "4 clients/xBalloon, MB/s",
                ["MB/s", "4 clients", "xBalloon"],
            ),
            ("urandom/i1c11/isacs", ["urandom", "i1c11", "isacs"]),
            ("BS: slowdown", ["slowdown", "BS", ""]),
            (
                "Redis+PageRank/vsmtio: I/O, %",
                ["I/O, %", "Redis+PageRank", "vsmtio"],
            ),
            (
                "A+B/vanilla: switches, K/s",
                ["switches, K/s", "A+B", "vanilla"],
            ),
            (
                "mean, I/O, vSMT-IO over vanilla, %",
                ["I/O, %", "mean", "vSMT-IO over vanilla"],
            ),
            ("200 us, compute, %", ["%", "200 us", "compute"]),
            ("switches saved, %", ["%", "switches saved", ""]),
            ("8 VMs, 192 vCPUs, both", ["", "8 VMs, 192 vCPUs, both", ""]),
            ("RCR added", ["", "RCR added", ""]),
        ] {
            let want = Name {
                measure: measure.to_owned(),
                configuration: configuration.to_owned(),
                system: system.to_owned(),
            };
            assert_eq!(name(text), want, "{text}");
        }
    }

    #[test]
    fn every_row_is_drawn_once() {
        let names = ["a/x", "a/y", "b/x", "a/ratio", "alone, %", "b/y"];
        let rows: Vec<Row> = names
            .iter()
            .map(|name| Row::new(name, 1.0, None, false))
            .collect();
        let figures = figures(&rows);
        let measures: Vec<&str> = figures.iter().map(|f| f.measure.as_str()).collect();
        assert_eq!(measures, ["", "ratio", "%"]);
        assert_eq!(figures[0].systems, ["x", "y"]);
        let groups = figures.iter().flat_map(|f| &f.groups);
        let mut drawn: Vec<&str> = groups
            .flat_map(|g| &g.bars)
            .map(|(_, row)| row.name.as_str())
            .collect();
        drawn.sort_unstable();
        let mut all = names;
        all.sort_unstable();
        assert_eq!(drawn, all);
    }
}
