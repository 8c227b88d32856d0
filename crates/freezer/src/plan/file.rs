// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded slices in a file: CSV (`cpu,on_ns,off_ns`, one slice a line, with that
//! header) or JSON (a list of objects with those three keys).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use units::Ns;
use units::VcpuId;

use super::Pair;
use super::Plan;
use super::PlanError;

/// First line of a CSV file.
const HEADER: &str = "cpu,on_ns,off_ns";

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A line of a CSV file is not understood.
    #[error(
        "line {line}: `{text}` is not a CPU and two lengths in ns, such as 0,11000000,33000000"
    )]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
    /// The first line of a CSV file is not the header.
    #[error("line 1 is `{text}`; a record begins with the line {HEADER}")]
    Header {
        /// What it is.
        text: String,
    },
    /// A JSON file is not understood.
    #[error("not a list of objects with the keys cpu, on_ns and off_ns")]
    Json(#[source] serde_json::Error),
    /// The record is read and not valid.
    #[error(transparent)]
    Invalid(#[from] PlanError),
}

/// A slice in a JSON file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    cpu: VcpuId,
    on_ns: Ns,
    off_ns: Ns,
}

impl Plan {
    /// Reads a record, as JSON if the name ends so, else as CSV. Slices of one CPU
    /// are replayed in the order of the file.
    ///
    /// # Errors
    /// If the file cannot be read, not be understood, or asks for what is out of
    /// range.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = fs::read_to_string(path).map_err(|source| FileError::Read {
            path: path.to_owned(),
            source,
        })?;
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            Self::from_json(&text)
        } else {
            Self::from_csv(&text)
        }
    }

    /// A record as CSV.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn from_csv(text: &str) -> Result<Self, FileError> {
        let mut lines = text.lines().zip(1..);
        let header = lines.next().map_or("", |(line, _)| line.trim());
        if header != HEADER {
            return Err(FileError::Header {
                text: header.to_owned(),
            });
        }
        let records = lines
            .filter(|(text, _)| !text.trim().is_empty())
            .map(|(text, line)| {
                parse_line(text).ok_or_else(|| FileError::Line {
                    line,
                    text: text.to_owned(),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(by_cpu(records)?)
    }

    /// A record as JSON.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn from_json(text: &str) -> Result<Self, FileError> {
        Ok(by_cpu(
            serde_json::from_str(text).map_err(FileError::Json)?,
        )?)
    }
}

fn parse_line(text: &str) -> Option<Record> {
    let mut fields = text.split(',').map(str::trim);
    let record = Record {
        cpu: VcpuId(fields.next()?.parse().ok()?),
        on_ns: Ns(fields.next()?.parse().ok()?),
        off_ns: Ns(fields.next()?.parse().ok()?),
    };
    fields.next().is_none().then_some(record)
}

fn by_cpu(records: Vec<Record>) -> Result<Plan, PlanError> {
    let mut by_cpu: BTreeMap<VcpuId, Vec<Pair>> = BTreeMap::new();
    for record in records {
        by_cpu.entry(record.cpu).or_default().push(Pair {
            on: record.on_ns,
            off: record.off_ns,
        });
    }
    Plan::recorded(by_cpu.into_iter().collect())
}
