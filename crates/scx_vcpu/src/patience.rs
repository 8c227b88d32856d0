// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel cannot do now it often can a moment later.

use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// Calls `make` until what it says `passes` no more, but not for longer than `patience`.
pub(crate) fn patiently<T>(
    patience: Duration,
    passes: impl Fn(&T) -> bool,
    mut make: impl FnMut() -> T,
) -> T {
    let give_up = Instant::now() + patience;
    loop {
        let made = make();
        if !passes(&made) || Instant::now() >= give_up {
            return made;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(patience: Duration, answers: &[i32]) -> (i32, usize) {
        let mut calls = 0;
        let passes = |errno: &i32| *errno == libc::ENOMEM;
        let said = patiently(patience, passes, || {
            let answer = answers[calls.min(answers.len() - 1)];
            calls += 1;
            answer
        });
        (said, calls)
    }

    #[test]
    fn only_what_passes_is_waited_for_and_not_for_ever() {
        let long = Duration::from_secs(60);
        assert_eq!(says(long, &[libc::ENOMEM, libc::ENOMEM, 0]), (0, 3));
        assert_eq!(says(long, &[libc::EPERM, 0]), (libc::EPERM, 1));
        let (said, calls) = says(Duration::from_millis(20), &[libc::ENOMEM]);
        assert_eq!(said, libc::ENOMEM);
        assert!((2..100).contains(&calls), "{calls}");
    }
}
