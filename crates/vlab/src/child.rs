// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes that do not outlive this one, whatever ends it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::Signal;
use rustix::process::getpid;
use rustix::process::getppid;
use rustix::process::set_parent_process_death_signal;

/// The child gets this signal when the thread that starts it ends (`PR_SET_PDEATHSIG`), so one
/// that lives as long as the process has to do that. A process group alone would not help
/// after a SIGKILL.
pub(crate) fn ends_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(signal))?;
        // It may have ended before that; then nobody waits for this start.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(Errno::SRCH.into())
        }
    };
    // SAFETY: between fork and exec only two system calls are made, which allocate nothing and
    // take no lock.
    unsafe { command.pre_exec(prepare) }
}
