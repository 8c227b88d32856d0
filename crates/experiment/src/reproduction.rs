// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `vlab reproduce` found: the papers' experiments simulated, beside what was
//! published. One versioned JSON document; `text` is what a terminal shows of it, `tally`
//! counts over experiments, `figures` groups rows as the papers draw them, `orders` asks
//! whether systems come in the published order, `compare` says what a change has moved.

mod compare;
mod figures;
mod orders;
mod tally;
mod text;

use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use units::Ns;

pub use compare::compare;
pub use figures::Figure;
pub use figures::Group;
pub use figures::figures;
pub use orders::Order;
pub use orders::TIE;
pub use orders::orders;
pub use tally::Errors;
pub use tally::NEAR;
pub use tally::Tally;
pub use text::figure;
pub use text::percent;

use crate::result::ResultError;
use crate::result::write_whole;

/// [`Reproduction::kind`]: tells the document from a result of `vlab run`.
pub const KIND: &str = "reproduction";

/// Version of the document; changes when a field changes its meaning or a reader of the
/// old one would misread the new one.
pub const FORMAT: u32 = 1;

/// A whole run of `vlab reproduce`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// [`KIND`].
    pub kind: String,
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// Which program that was. Nothing of the machine is in simulated figures.
    pub vlab: String,
    /// One short round instead of several long ones.
    pub quick: bool,
    /// What was open, and what it was set to.
    pub parameters: Vec<Parameter>,
    /// In the order of the sources.
    pub experiments: Vec<Experiment>,
}

/// One open parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name in parameters.toml.
    pub name: String,
    /// The value that was used.
    pub value: f64,
    /// Was it replaced on the command line (`--set`)?
    pub set: bool,
    /// Rows that fixed it, or from which a fit began, as `experiment/row`.
    pub fixed_by: Vec<String>,
    /// Where its value comes from.
    #[serde(default)]
    pub origin: String,
    /// Why it is what it is.
    pub why: String,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its name, for instance `fig9`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What was simulated before anything was counted.
    pub warmup: Ns,
    /// What was counted, per seed.
    pub window: Ns,
    /// Rounds, each with a seed of its own; figures are of their mean.
    pub seeds: u64,
    /// Its figures.
    pub rows: Vec<Row>,
    /// Published figures that have no row, by name.
    pub not_simulated: Vec<String>,
    /// Statements of 13.6 that hold or do not.
    pub shapes: Vec<Shape>,
    /// Orders of systems, published and simulated; files of before have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// In the unit of its name; NaN (`null` in the file) where nothing came out.
    #[serde(deserialize_with = "or_nan")]
    pub simulated: f64,
    /// The same of each seed by itself, if that was asked for (`--spread`); seeds that
    /// gave nothing are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_seed: Vec<f64>,
    /// What was published; `None`: nothing is known here.
    pub published: Option<f64>,
    /// Simulated over published less 1; `None` where nothing, or zero, was published, and
    /// where nothing came out.
    pub error: Option<f64>,
    /// Parameters are fitted to the published figure, or it alone has fixed one: its error
    /// says how well that went, and nothing about figures that are not known here.
    pub fixed: bool,
    /// The published figure, or one that follows from it, went into the simulation:
    /// that it comes out again says less than nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub input: bool,
}

/// One statement about the shape of an experiment's figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What is claimed.
    pub claim: String,
    /// Does it hold?
    pub holds: bool,
    /// It fixed a parameter: that it holds says nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fixed: bool,
}

// serde hands over a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

// JSON has no NaN: it is written as null.
fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Row {
    /// A row beside what was published.
    #[must_use]
    pub fn new(name: &str, simulated: f64, published: Option<f64>, fixed: bool) -> Self {
        Self {
            name: name.to_owned(),
            simulated,
            by_seed: Vec::new(),
            published,
            error: published
                .filter(|value| *value != 0.0)
                .map(|value| simulated / value - 1.0)
                .filter(|error| error.is_finite()),
            fixed,
            input: false,
        }
    }

    /// Was it published, and did it not go in?
    #[must_use]
    pub const fn counts(&self) -> bool {
        self.published.is_some() && !self.input
    }

    /// Does it say anything about figures that are not known here: does it count, and has
    /// no parameter seen it?
    #[must_use]
    pub const fn tells(&self) -> bool {
        self.counts() && !self.fixed
    }

    /// Least and most of the seeds, if there are several.
    #[must_use]
    pub fn spread(&self) -> Option<(f64, f64)> {
        let fold = |f: fn(f64, f64) -> f64| self.by_seed.iter().copied().reduce(f);
        let both = fold(f64::min).zip(fold(f64::max));
        both.filter(|_| self.by_seed.len() > 1)
    }
}

/// Is this text such a document, of whatever version?
#[must_use]
pub fn is_reproduction(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
    }
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.kind == KIND)
}

impl Reproduction {
    /// Parses a document; `path` is for errors.
    ///
    /// # Errors
    /// Not such a document, or one of another format.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ResultError> {
        let shape = |source| ResultError::Reproduction {
            path: path.to_owned(),
            source,
        };
        #[derive(Deserialize)]
        struct Head {
            format: u64,
        }
        let head: Head = serde_json::from_str(text).map_err(shape)?;
        if head.format != u64::from(FORMAT) {
            return Err(ResultError::ReproductionVersion {
                path: path.to_owned(),
                found: head.format,
            });
        }
        serde_json::from_str(text).map_err(shape)
    }

    /// As JSON, indented, with a final newline.
    ///
    /// # Errors
    /// Never for a value that this workspace made: all keys are strings.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes it as a whole or not at all.
    ///
    /// # Errors
    /// Cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ResultError> {
        let error = |source: io::Error| ResultError::Io {
            path: path.to_owned(),
            action: "write",
            source,
        };
        let json = self.to_json().map_err(|e| error(e.into()))?;
        write_whole(path, &json).map_err(error)
    }

    /// Errors and checks over all its experiments.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.experiments.iter().for_each(|one| tally.count(one));
        tally
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Reproduction {
        Reproduction {
            kind: KIND.to_owned(),
            format: FORMAT,
            vlab: "0".to_owned(),
            quick: true,
            parameters: vec![Parameter {
                name: "kvm.switch_us".to_owned(),
                value: 2.5,
                set: true,
                fixed_by: vec!["figx/a/ours".to_owned()],
                origin: "fitted from 1 to 9".to_owned(),
                why: "so".to_owned(),
            }],
            experiments: vec![Experiment {
                name: "figx".to_owned(),
                title: "a sample".to_owned(),
                warmup: Ns::from_secs(1),
                window: Ns::from_secs(4),
                seeds: 2,
                rows: vec![
                    Row::new("a/vanilla", 1.0, Some(2.0), false),
                    Row {
                        by_seed: vec![2.9, 3.3],
                        ..Row::new("a/ours", 3.1, Some(3.0), true)
                    },
                    Row::new("b/vanilla", 1.5, None, false),
                    Row::new("b/ours", f64::NAN, Some(0.0), false),
                ],
                not_simulated: vec!["c".to_owned()],
                shapes: vec![
                    Shape {
                        claim: "ours is first".to_owned(),
                        holds: true,
                        fixed: true,
                    },
                    Shape {
                        claim: "by far".to_owned(),
                        holds: false,
                        fixed: false,
                    },
                ],
                orders: vec![Order {
                    configuration: "a".to_owned(),
                    published: "vanilla < ours".to_owned(),
                    simulated: "ours = vanilla".to_owned(),
                }],
            }],
        }
    }

    #[test]
    fn a_document_survives_its_file() {
        let sample = sample();
        let json = sample.to_json().unwrap();
        assert!(is_reproduction(&json));
        let back = Reproduction::parse(&json, Path::new("x")).unwrap();
        // NaN is not itself.
        assert_eq!(format!("{back:?}"), format!("{sample:?}"));
    }

    #[test]
    fn where_nothing_came_out_there_is_no_error_in_memory_or_in_a_file() {
        let mut sample = sample();
        sample.experiments[0].rows[0] = Row::new("a/vanilla", f64::NAN, Some(2.0), false);
        let json = sample.to_json().unwrap();
        let back = Reproduction::parse(&json, Path::new("x")).unwrap();
        for one in [&sample, &back] {
            assert_eq!(one.experiments[0].rows[0].error, None);
            let text = one.text();
            assert!(!text.contains("NaN"), "{text}");
            assert_eq!(one.tally().predicted(), None);
        }
    }

    #[test]
    fn the_median_of_two_errors_is_between_them() {
        let mut sample = sample();
        sample.experiments[0].rows[2] = Row::new("b/vanilla", 1.2, Some(1.0), false);
        let errors = sample.tally().predicted().unwrap();
        assert!((errors.median - 0.35).abs() < 1e-12, "{errors:?}");
        assert_eq!((errors.near, errors.count), (0, 2));
    }

    /// What went in and comes out again must not better either median.
    #[test]
    fn an_input_counts_in_no_median() {
        let mut sample = sample();
        let tally = |sample: &Reproduction| {
            let tally = sample.tally();
            (tally.predicted(), tally.calibrated())
        };
        let before = tally(&sample);
        for fixed in [false, true] {
            sample.experiments[0].rows.push(Row {
                input: true,
                ..Row::new("b/least", 7.0, Some(7.0), fixed)
            });
        }
        assert_eq!(tally(&sample), before);
        assert_eq!(sample.tally().inputs(), 2);
        let text = sample.text();
        assert!(text.contains("+0.0 % =\n"), "{text}");
        assert!(
            text.contains("rows that are inputs (=): 2, not counted"),
            "{text}"
        );
    }

    #[test]
    fn other_documents_are_named() {
        let json = sample().to_json().unwrap();
        let error = |text: &str| {
            let path = Path::new("r.json");
            Reproduction::parse(text, path).unwrap_err().to_string()
        };
        let newer = json.replacen("\"format\": 1", "\"format\": 9", 1);
        assert!(error(&newer).contains("format 9"), "{}", error(&newer));
        assert!(error("{}").contains("r.json"));
        assert!(!is_reproduction(r#"{"format": 2, "backend": "sim"}"#));
    }
}
