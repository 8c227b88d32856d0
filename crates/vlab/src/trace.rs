// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab trace`: what was recorded, for ui.perfetto.dev.

use std::path::PathBuf;

use clap::Args;
use experiment::result::RunResult;

use crate::part::Part;

/// Writes the recorded timelines of a result as a trace that ui.perfetto.dev opens.
///
/// One process per arm; in it a track per vCPU (on, off), one per I/O thread with
/// the daemon's decisions, and counters. The format is Chrome's JSON, whatever the
/// name of the file. The Perfetto UI shows processes collapsed, those with most slices
/// first: name the load and the arms that you want to compare.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The result.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The trace.
    #[arg(long, value_name = "OUT")]
    pub out: PathBuf,
    /// What of the result.
    #[command(flatten)]
    pub part: Part,
}

/// The text to print.
///
/// # Errors
/// [`experiment::result::ResultError`], a result without timelines, or the trace
/// cannot be written.
pub fn run(args: &TraceArgs) -> anyhow::Result<String> {
    let mut result = RunResult::load(&args.file)?;
    args.part.of_result(&mut result)?;
    let Some(trace) = experiment::chrome::trace(&result) else {
        anyhow::bail!(
            "{}: no timeline was recorded; measure or simulate again with `--timeline 250ms`",
            args.file.display()
        );
    };
    crate::report::write(&args.out, &serde_json::to_string(&trace)?)?;
    Ok(format!(
        "wrote {}, {} events; open it in https://ui.perfetto.dev\n",
        args.out.display(),
        trace.events.len()
    ))
}
