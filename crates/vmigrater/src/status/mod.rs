// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmigrater status`: the daemon's report, for people or for programs.

mod table;

pub(crate) use table::printable;

use std::io::Write;
use std::path::Path;

use crate::cli::StatusArgs;
use crate::control;
use crate::exit::Exit;
use crate::exit::Failure;

/// Asks once, or again and again with `--watch`.
pub(crate) fn status(socket: &Path, args: &StatusArgs) -> Result<Exit, Failure> {
    loop {
        let (report, text) = control::fetch(socket)?;
        let shown = if args.json {
            text
        } else {
            table::render(&report)
        };
        let mut out = std::io::stdout().lock();
        let clear = if args.watch.is_some() && !args.json {
            "\x1b[2J\x1b[H"
        } else {
            ""
        };
        match write!(out, "{clear}{shown}").and_then(|()| out.flush()) {
            Ok(()) => {}
            // `status | head`: whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(Exit::Ok),
            Err(error) => {
                return Err(Failure::new(
                    Exit::Runtime,
                    format!("cannot print: {error}"),
                    "",
                ));
            }
        }
        match args.watch {
            Some(pause) => std::thread::sleep(pause),
            None => return Ok(Exit::Ok),
        }
    }
}
