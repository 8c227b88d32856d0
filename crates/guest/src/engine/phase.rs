// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long some task was I/O-bound: a stopwatch that nobody waits for.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use units::Ns;
use units::Time;

/// A stopwatch whose state is one word, since whoever starts or stops it may be descheduled at any
/// instruction. Stopped, the word is the sum; running, it is the sum less the instant
/// of the start (modulo 2^63, 292 years of nanoseconds), and its top bit is set.
#[derive(Debug, Default)]
pub(super) struct Phase {
    word: AtomicU64,
    /// The most that was ever told. Whoever stops the watch may be descheduled between
    /// his look at the clock and the change of the word; who asks meanwhile is told more
    /// than the sum will be, and must not be told less afterwards.
    told: AtomicU64,
}

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
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// The time so far; never less than before.
    pub(super) fn total(&self, clock: impl Fn() -> Time) -> Ns {
        let word = self.word.load(Ordering::Acquire);
        let now = sum(word, clock());
        Ns(self.told.fetch_max(now, Ordering::AcqRel).max(now))
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
        // From the clock's zero on.
        let phase = Phase::default();
        phase.begin(at(0));
        assert_eq!(phase.total(at(7_000)), Ns(7_000));
    }

    /// A clock is where a thread is descheduled here: others act meanwhile.
    #[test]
    fn whoever_is_descheduled_at_the_clock_never_turns_it_back() {
        let at = |time: u64| move || Time(time);
        // It is started while somebody asks: for him it has not been.
        let phase = Phase::default();
        let asked = phase.total(|| {
            phase.begin(at(5_000));
            Time(4_000)
        });
        assert_eq!(asked, Ns::ZERO);
        // It is asked for while somebody stops it.
        let told = std::cell::Cell::new(Ns::ZERO);
        phase.end(|| {
            told.set(phase.total(at(9_000)));
            Time(8_000)
        });
        assert_eq!(told.get(), Ns(4_000));
        assert_eq!(phase.total(at(10_000)), told.get());
        phase.begin(at(10_000));
        assert_eq!(phase.total(at(10_500)), told.get());
        assert_eq!(
            phase.total(at(12_000)),
            Ns(5_000),
            "no time is counted twice"
        );
        // It is started by two at once.
        let phase = Phase::default();
        let first = std::cell::Cell::new(true);
        phase.begin(|| {
            if first.replace(false) {
                phase.begin(at(1_000));
            }
            Time(900)
        });
        assert_eq!(phase.total(at(2_000)), Ns(1_000));
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
            let wrong = (0..100_000).find_map(|_| {
                let total = phase.total(now);
                let right = total >= last && total <= now().since(began);
                let before = std::mem::replace(&mut last, total);
                (!right).then_some((before, total))
            });
            // First, or the others never end.
            stop.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None);
        });
    }
}
