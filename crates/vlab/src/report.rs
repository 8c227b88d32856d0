// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab report` and `vlab compare`: results for people.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use experiment::reproduction::Reproduction;
use experiment::reproduction::is_reproduction;
use experiment::result::RunResult;
use experiment::result::write_whole;

use crate::run::Unusable;

/// Prints the report of a result that `vlab run --json`, `vlab sim --json` or `vlab
/// reproduce --json` wrote.
///
/// Several results of one scenario, of other days or machines, are put together: each ratio
/// stays within its round and boot, and the intervals are over the rounds of all.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// The result; several are put together.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write a page with plots and timelines to this file instead: one file that
    /// needs no network.
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
}

/// Compares two results, row by row, or two files of `vlab reproduce --json`.
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
/// [`experiment::result::ResultError`], [`Unusable`] for results that cannot be put together,
/// or the page cannot be written.
pub fn report(args: &ReportArgs) -> anyhow::Result<String> {
    if let [file] = &args.files[..]
        && let Some(reproduction) = reproduction(file)?
    {
        let Some(out) = &args.html else {
            return Ok(reproduction.text());
        };
        let page = experiment::report::html::reproduction::page(&reproduction);
        write(out, &page.context("cannot make the page")?)?;
        return Ok(format!("wrote {}\n", out.display()));
    }
    let result = together(&args.files)?;
    let Some(out) = &args.html else {
        return Ok(experiment::report::text(&result));
    };
    let page = experiment::report::html::page(&result).context("cannot make the page")?;
    write(out, &page)?;
    Ok(format!("wrote {}\n", out.display()))
}

/// The results of these files as one.
fn together(files: &[PathBuf]) -> anyhow::Result<RunResult> {
    let results: Vec<(PathBuf, RunResult)> = files
        .iter()
        .map(|file| Ok((file.clone(), RunResult::load(file)?)))
        .collect::<anyhow::Result<_>>()?;
    let pooled = RunResult::pooled(results).map_err(|error| Unusable(error.to_string()))?;
    pooled.context("no result")
}

/// The text to print.
///
/// # Errors
/// [`experiment::result::ResultError`] for either file, or [`Unusable`] for a result
/// beside a reproduction.
pub fn compare(args: &CompareArgs) -> anyhow::Result<String> {
    let names = [&args.a, &args.b].map(|path| path.display().to_string());
    let reproductions = (reproduction(&args.a)?, reproduction(&args.b)?);
    if let (Some(a), Some(b)) = &reproductions {
        return Ok(experiment::reproduction::compare(
            a,
            b,
            [&names[0], &names[1]],
        ));
    }
    if reproductions.0.is_some() || reproductions.1.is_some() {
        return Err(Unusable(format!(
            "only one of {} and {} is a reproduction: they have no row in common",
            names[0], names[1]
        ))
        .into());
    }
    let (a, b) = (RunResult::load(&args.a)?, RunResult::load(&args.b)?);
    Ok(experiment::compare::text(
        &experiment::compare::compare(&a, &b),
        [&names[0], &names[1]],
    ))
}

/// The file as a reproduction, if it is one.
fn reproduction(path: &Path) -> anyhow::Result<Option<Reproduction>> {
    // What cannot be read is not one; whoever reads it as a result says why.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    if !is_reproduction(&text) {
        return Ok(None);
    }
    Ok(Some(Reproduction::parse(&text, path)?))
}

/// Writes a file as a whole or says why not.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    write_whole(path, text).with_context(|| format!("cannot write {}", path.display()))
}
