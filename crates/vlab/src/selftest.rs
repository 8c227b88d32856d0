// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab bpf-selftest`: the freezer's BPF objects on this kernel.

use anyhow::Error;
use freezer::tasks::TaskRecorder;

/// Loads and attaches each object and undoes it. Prints a line for each that works.
///
/// # Errors
/// Why the first one does not work, with [`freezer::Unsupported`] as a cause where the
/// machine cannot be frozen. The others are tried all the same.
pub fn run() -> anyhow::Result<()> {
    let freezer = freezer::probe().map_err(Error::from);
    let tasks = TaskRecorder::load(&[], 1).map_err(Error::from);
    if freezer.is_ok() {
        println!("freezer loads, attaches and sets a timer");
    }
    if tasks.is_ok() {
        println!("tasks loads and attaches");
    }
    freezer?;
    tasks?;
    Ok(())
}
