// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with a scenario, and where.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use super::parameters::is_computed;

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("{}: cannot read the scenario; give the path of a TOML file such as scenarios/demo.toml", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not TOML, or not TOML of this shape (an unknown key, a missing one, a
    /// number where a text belongs).
    #[error("{file}:{line}: {message}")]
    Shape {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What the parser says; it names the key.
        message: String,
    },
    /// A value that makes no sense.
    #[error("{file}:{line}: `{field}` is {value}; {expected}")]
    Value {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Dotted path of the field.
        field: String,
        /// What was written.
        value: String,
        /// What would be right.
        expected: String,
    },
}

/// Turns byte offsets of a text into errors with a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locator<'a> {
    /// The name of the file.
    pub(super) file: &'a str,
    /// Its text.
    pub(super) text: &'a str,
}

impl Locator<'_> {
    /// The line, from 1, of a byte offset.
    pub(super) fn line(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// A parser's error.
    pub(super) fn shape(&self, error: &toml::de::Error) -> ScenarioError {
        ScenarioError::Shape {
            file: self.file.to_owned(),
            line: self.line(error.span().map_or(0, |span| span.start)),
            message: self.with_origin(
                error.message().trim_end().replace('\n', "; "),
                error.span().unwrap_or_default(),
            ),
        }
    }

    /// What is said about a value; if it was computed, also from what.
    fn with_origin(&self, said: String, span: Range<usize>) -> String {
        let written = self.text.get(span).unwrap_or_default();
        let written = written.trim_matches(['"', '\'']);
        if is_computed(written) && !said.contains(written) {
            format!("{said} (from {written})")
        } else {
            said
        }
    }

    /// A table that this machine alone has not.
    pub(super) fn not_here(&self, span: Range<usize>, field: &str) -> ScenarioError {
        self.value(
            span,
            field,
            "set",
            "only the simulator and real VMs have it: use `vlab sim`, `vlab sweep` or --backend kvm, or leave it out",
        )
    }

    /// A wrong value at `span`.
    pub(super) fn value(
        &self,
        span: Range<usize>,
        field: impl Into<String>,
        value: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError::Value {
            file: self.file.to_owned(),
            line: self.line(span.start),
            field: field.into(),
            value: self.with_origin(value.to_string(), span),
            expected: expected.into(),
        }
    }
}
