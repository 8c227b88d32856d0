// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's timers, before the scheduler that uses them is attached.

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use libbpf_rs::ProgramInput;
use libbpf_rs::ProgramMut;

/// `bpf_timer_init` may not wait for memory (kernel/bpf/helpers.c): it fails now and then
/// with gigabytes to spare, and not a moment later.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// Between two tries.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// Makes those of pCPUs 0..`cpus` by the program `make_timers`.
///
/// # Errors
/// The kernel refuses, or has had no memory for [`MEMORY_PATIENCE`].
pub(super) fn make(program: &ProgramMut<'_>, cpus: u32) -> anyhow::Result<()> {
    for cpu in 0..cpus {
        let cannot = || format!("cannot make the timers of pCPU {cpu}");
        let made = patiently(MEMORY_PATIENCE, || {
            // struct sv_timers
            let mut call = u64::from(cpu).to_ne_bytes();
            let input = ProgramInput {
                context_in: Some(&mut call),
                ..ProgramInput::default()
            };
            let done = program.test_run(input)?;
            anyhow::Ok(-done.return_value.cast_signed())
        });
        match made.with_context(cannot)? {
            0 => {}
            errno => {
                let error = std::io::Error::from_raw_os_error(errno);
                return Err(error).with_context(cannot);
            }
        }
    }
    Ok(())
}

/// Calls `make` until it says something else than `ENOMEM`, but not for longer than this.
fn patiently<E>(patience: Duration, mut make: impl FnMut() -> Result<i32, E>) -> Result<i32, E> {
    let give_up = Instant::now() + patience;
    loop {
        match make()? {
            libc::ENOMEM if Instant::now() < give_up => std::thread::sleep(MEMORY_PAUSE),
            errno => return Ok(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(patience: Duration, answers: &[i32]) -> (i32, usize) {
        let mut calls = 0;
        let said = patiently(patience, || {
            let answer = answers[calls.min(answers.len() - 1)];
            calls += 1;
            Ok::<_, ()>(answer)
        });
        (said.unwrap(), calls)
    }

    #[test]
    fn only_a_want_of_memory_is_waited_for_and_not_for_ever() {
        let long = Duration::from_secs(60);
        assert_eq!(says(long, &[libc::ENOMEM, libc::ENOMEM, 0]), (0, 3));
        assert_eq!(says(long, &[libc::EPERM, 0]), (libc::EPERM, 1));
        let (said, calls) = says(Duration::from_millis(20), &[libc::ENOMEM]);
        assert_eq!(said, libc::ENOMEM);
        assert!((2..100).contains(&calls), "{calls}");
    }
}
