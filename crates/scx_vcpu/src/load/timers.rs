// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's timers, before the scheduler that uses them is attached.

use std::time::Duration;

use anyhow::Context;
use libbpf_rs::ProgramInput;
use libbpf_rs::ProgramMut;

use crate::patience::patiently;

/// `bpf_timer_init` may not wait for memory (kernel/bpf/helpers.c): it fails now and then
/// with gigabytes to spare, and not a moment later.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// Makes those of pCPUs 0..`cpus` by the program `make_timers`.
///
/// # Errors
/// The kernel refuses, or has had no memory for [`MEMORY_PATIENCE`].
pub(super) fn make(program: &ProgramMut<'_>, cpus: u32) -> anyhow::Result<()> {
    for cpu in 0..cpus {
        let cannot = || format!("cannot make the timers of pCPU {cpu}");
        let no_memory = |made: &anyhow::Result<i32>| matches!(made, Ok(libc::ENOMEM));
        let made = patiently(MEMORY_PATIENCE, no_memory, || {
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

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::time::Instant;

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
}
