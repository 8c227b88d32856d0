// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs that have been made already: a run follows from its machine, its policy and its
//! seeds alone, so one that is the same in all of them is not made again.
//!
//! With a directory they are kept in a file there, a line each, and whoever was ended goes on.

use std::collections::HashMap;
use std::fs::File;
use std::fs::OpenOptions;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::run::Unusable;

const FILE: &str = "runs.jsonl";

/// The first line of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Hash of the program: another one may simulate the same otherwise.
    program: u64,
}

/// A finished run: a hash of all that it follows from, and what came out.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    run: u64,
    gave: Value,
}

/// What has been made.
#[derive(Debug, Default)]
pub(in crate::reproduce) struct Memo {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    found: HashMap<u64, Value>,
    made: usize,
    file: Option<File>,
}

impl Memo {
    /// With what is kept in this directory, if any; finished runs are added to it.
    ///
    /// # Errors
    /// It cannot be read or written, or another program has written it.
    pub(in crate::reproduce) fn of(dir: Option<&Path>) -> anyhow::Result<Self> {
        let Some(dir) = dir else {
            return Ok(Self::default());
        };
        let program = std::env::current_exe().and_then(std::fs::read);
        let program = hash(&program.context("cannot read this program")?);
        Self::kept(dir, program)
    }

    fn kept(dir: &Path, program: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = dir.join(FILE);
        let told = || path.display().to_string();
        let mut found = HashMap::new();
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(told)?;
        let text = std::fs::read_to_string(&path).with_context(told)?;
        let mut lines = text.lines();
        match lines.next() {
            None => {
                let header = serde_json::to_string(&Header { program })?;
                writeln!(file, "{header}").with_context(told)?;
            }
            Some(first) => {
                let header = serde_json::from_str::<Header>(first).ok();
                if header != Some(Header { program }) {
                    let told = told();
                    let text = format!(
                        "{told} was written by another vlab, which may simulate otherwise; choose another --keep"
                    );
                    return Err(Unusable(text).into());
                }
            }
        }
        // The last line may be torn: that run is made again, on a line of its own.
        found.extend(lines.filter_map(|line| {
            let line = serde_json::from_str::<Line>(line).ok()?;
            Some((line.run, line.gave))
        }));
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file).with_context(told)?;
        }
        let inner = Inner {
            found,
            made: 0,
            file: Some(file),
        };
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    /// What this run gave, if need be by making it. Two threads that ask for the same at
    /// once both make it: waiting for the other would hold up its work.
    pub(super) fn of_run<T: Serialize + DeserializeOwned>(
        &self,
        run: &impl Hash,
        make: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let run = hash(run);
        let known = self.lock().found.get(&run).cloned();
        // A figure that is no number is not kept as one: that run is made again.
        if let Some(gave) = known.and_then(|gave| serde_json::from_value(gave).ok()) {
            return Ok(gave);
        }
        let made = make()?;
        let gave = serde_json::to_value(&made)?;
        let mut inner = self.lock();
        inner.made += 1;
        let line = Line { run, gave };
        if let Some(file) = &mut inner.file {
            let text = serde_json::to_string(&line)? + "\n";
            file.write_all(text.as_bytes())
                .context("cannot keep a run")?;
        }
        inner.found.insert(run, line.gave);
        Ok(made)
    }

    /// How many runs have been made here.
    pub(in crate::reproduce) fn made(&self) -> usize {
        self.lock().made
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What is in it is whole after each statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 64 bits are enough: ten thousand runs share one by a chance of 3 in 10^12.
fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(memo: &Memo, run: &str, value: f64) -> f64 {
        memo.of_run(&run, || Ok(value)).unwrap()
    }

    #[test]
    fn a_run_is_made_once() {
        let memo = Memo::default();
        let asked = [("a", 1.5), ("b", 2.0), ("a", 3.0)];
        let got = asked.map(|(run, value)| ask(&memo, run, value));
        assert_eq!(got, [1.5, 2.0, 1.5]);
        assert_eq!(memo.made(), 2);
    }

    #[test]
    fn kept_runs_are_there_again_but_for_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let kept = |program| Memo::kept(dir.path(), program);
        let first = kept(7).unwrap();
        ask(&first, "a", 1.5);
        ask(&first, "b", 2.0);
        drop(first);
        let path = dir.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 3]).unwrap();
        let second = kept(7).unwrap();
        assert_eq!((ask(&second, "a", 9.0), ask(&second, "b", 3.0)), (1.5, 3.0));
        assert_eq!(second.made(), 1);
        drop(second);
        let third = kept(7).unwrap();
        assert_eq!((ask(&third, "a", 9.0), ask(&third, "b", 9.0)), (1.5, 3.0));
        let error = kept(8).unwrap_err().to_string();
        assert!(error.contains("another vlab"), "{error}");
    }
}
