// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmigrater restore`: undo what a killed daemon left.

use guest::act::restore::restore_all;
use guest::act::task::Roots;

use crate::cli::Global;
use crate::exit::Exit;
use crate::exit::Failure;
use crate::lock::Lock;
use crate::run::journal_failure;

/// Refuses while a daemon lives, which holds its tasks for good reason; the lock
/// also keeps one from starting meanwhile.
pub(crate) fn restore(global: &Global) -> Result<Exit, Failure> {
    let _lock = Lock::take(&global.lock)?;
    let summary =
        restore_all(&global.journal, &Roots::default()).map_err(|error| journal_failure(&error))?;
    if summary.is_empty() {
        crate::print("nothing to restore: no killed daemon has left anything\n")?;
        return Ok(Exit::Ok);
    }
    crate::print(&format!("{summary}\n"))?;
    if summary.failed > 0 {
        return Err(Failure::new(
            Exit::Runtime,
            format!("{} tasks could not be restored", summary.failed),
            "run it again as root; the journal still names them",
        ));
    }
    Ok(Exit::Ok)
}
