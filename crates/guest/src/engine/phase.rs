// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long some task was I/O-bound: a stopwatch that nobody waits for.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use units::Ns;
use units::Time;

/// A stopwatch in one word, since whoever starts or stops it may be descheduled at any
/// instruction. Stopped, the word is the sum; running, it is the sum less the instant
/// of the start (modulo 2^63, 292 years of nanoseconds), and its top bit is set.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU64);

const RUNS: u64 = 1 << 63;

const fn runs(word: u64) -> bool {
    word & RUNS != 0
}

/// The sum, if that is the word and this the time.
const fn sum(word: u64, now: Time) -> u64 {
    if runs(word) {
        word.wrapping_add(now.as_ns()) & !RUNS
    } else {
        word
    }
}

/// The clock is read after the word that it is used with: a start by somebody else then
/// lies before it.
impl Phase {
    /// Starts it, unless it runs.
    pub(super) fn begin(&self, clock: impl Fn() -> Time) {
        self.change(|word| (!runs(word)).then(|| word.wrapping_sub(clock().as_ns()) | RUNS));
    }

    /// Stops it, if it runs.
    pub(super) fn end(&self, clock: impl Fn() -> Time) {
        self.change(|word| runs(word).then(|| sum(word, clock())));
    }

    fn change(&self, next: impl FnMut(u64) -> Option<u64>) {
        // An error says that there is nothing to change.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// The time so far.
    pub(super) fn total(&self, clock: impl Fn() -> Time) -> Ns {
        let word = self.0.load(Ordering::Acquire);
        Ns(sum(word, clock()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::sense::now;

    #[test]
    fn it_adds_up_what_lies_between_start_and_end() {
        let phase = Phase::default();
        let at = |time: u64| move || Time(time);
        assert_eq!(phase.total(at(1_000)), Ns::ZERO);
        phase.end(at(1_000));
        phase.begin(at(5_000));
        assert_eq!(phase.total(at(5_000)), Ns::ZERO);
        assert_eq!(phase.total(at(7_000)), Ns(2_000));
        phase.begin(at(6_000));
        phase.end(at(8_000));
        assert_eq!(
            phase.total(at(9_000)),
            Ns(3_000),
            "the second start is none"
        );
        phase.end(at(9_000));
        phase.begin(at(10_000));
        assert_eq!(phase.total(at(10_500)), Ns(3_500));
        phase.end(at(11_000));
        assert_eq!(phase.total(at(99_000)), Ns(4_000));
    }

    #[test]
    fn threads_that_start_and_stop_it_at_once_never_turn_it_back() {
        let phase = Phase::default();
        let stop = AtomicBool::new(false);
        let began = now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        phase.begin(now);
                        phase.end(now);
                    }
                });
            }
            let mut last = Ns::ZERO;
            for _ in 0..100_000 {
                let total = phase.total(now);
                assert!(
                    total >= last && total <= now().since(began),
                    "{last} {total}"
                );
                last = total;
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
