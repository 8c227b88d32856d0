// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab report` and `vlab compare`: results for people.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use experiment::result::RunResult;
use experiment::result::write_whole;

/// Prints the report of a result that `vlab run --json` wrote.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// The result.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a page with plots and timelines to this file instead: one file that
    /// needs no network.
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
}

/// Compares two results that `vlab run --json` wrote, row by row.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The first result: what the other one is compared with.
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The second result.
    #[arg(value_name = "B")]
    pub b: PathBuf,
}

/// The text to print.
///
/// # Errors
/// [`experiment::result::ResultError`], or the page cannot be written.
pub fn report(args: &ReportArgs) -> anyhow::Result<String> {
    let result = RunResult::load(&args.file)?;
    let Some(out) = &args.html else {
        return Ok(experiment::report::text(&result));
    };
    let page = experiment::report::html::page(&result).context("cannot make the page")?;
    write(out, &page)?;
    Ok(format!("wrote {}\n", out.display()))
}

/// The text to print.
///
/// # Errors
/// [`experiment::result::ResultError`] for either file.
pub fn compare(args: &CompareArgs) -> anyhow::Result<String> {
    let (a, b) = (RunResult::load(&args.a)?, RunResult::load(&args.b)?);
    let names = [&args.a, &args.b].map(|path| path.display().to_string());
    Ok(experiment::compare::text(
        &experiment::compare::compare(&a, &b),
        [&names[0], &names[1]],
    ))
}

/// Writes a file as a whole or says why not.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    write_whole(path, text).with_context(|| format!("cannot write {}", path.display()))
}
