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
    use std::mem::MaybeUninit;

    use libbpf_rs::skel::OpenSkel;
    use libbpf_rs::skel::SkelBuilder;

    use super::*;
    use crate::skel::replay as skel;

    /// What [`make`] says for 3 pCPUs when the kernel's side has no memory so often and then
    /// says this; and how often it was called for each pCPU.
    fn made(refusals: u32, says: i32) -> (anyhow::Result<()>, [u32; 8]) {
        let mut storage = MaybeUninit::uninit();
        let open = skel::ReplaySkelBuilder::default().open(&mut storage);
        let mut skel = open.unwrap().load().unwrap();
        let bss = skel.maps.bss_data.as_deref_mut().unwrap();
        bss.stub_refusals = refusals;
        bss.stub_says = says;
        let done = make(&skel.progs.stub_timers, 3);
        (done, skel.maps.bss_data.as_deref().unwrap().stub_calls)
    }

    /// The error's number and its text.
    fn error(done: anyhow::Result<()>) -> (Option<i32>, String) {
        let error = done.unwrap_err();
        let source = error.downcast_ref::<std::io::Error>();
        let number = source.and_then(std::io::Error::raw_os_error);
        (number, format!("{error:#}"))
    }

    #[test]
    fn root_timers_are_made_for_each_cpu_as_soon_as_there_is_memory() {
        let (done, calls) = made(5, 0);
        done.unwrap();
        assert_eq!(calls, [6, 6, 6, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn root_what_is_no_want_of_memory_is_told_at_once_with_the_cpu() {
        let (done, calls) = made(1, -libc::EPERM);
        let (number, text) = error(done);
        assert_eq!(number, Some(libc::EPERM), "{text}");
        assert!(
            text.starts_with("cannot make the timers of pCPU 0: "),
            "{text}"
        );
        assert_eq!(calls[..2], [2, 0]);
    }

    #[test]
    fn root_a_want_of_memory_that_stays_is_told_after_a_second() {
        let begin = Instant::now();
        let (done, calls) = made(u32::MAX, 0);
        let (number, text) = error(done);
        assert_eq!(number, Some(libc::ENOMEM), "{text}");
        assert!(text.contains("pCPU 0"), "{text}");
        assert!(begin.elapsed() >= MEMORY_PATIENCE);
        assert!(calls[0] > 1 && calls[1] == 0, "{calls:?}");
    }

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
