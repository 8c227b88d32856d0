// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tasks do: programs, as sequences of steps.
//!
//! A program is asked for its next step whenever the last one is done and its
//! task runs. Steps take no time of their own except [`Step::Compute`] and
//! spinning at a barrier or lock; whatever a system call costs is a `Compute` of
//! its own. What a program has got done it counts itself ([`Done`]).

mod adversary;
mod compute;
mod locked;
mod net;
mod parallel;
mod reader;

use units::Ns;
use units::Time;

pub use adversary::Dodger;
pub use adversary::FakeIo;
pub use compute::Compute;
pub use locked::Locked;
pub use net::Backend;
pub use net::Echo;
pub use parallel::Alone;
pub use parallel::Later;
pub use parallel::Parallel;
pub use parallel::Until;
pub use reader::Phases;
pub use reader::Reader;
pub use reader::ReaderSettings;

use crate::ids::DeviceId;
use crate::random::Random;

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Uses the CPU for so long, at full speed.
    Compute(Ns),
    /// Gives a request to a device and goes on.
    Submit(Request),
    /// Waits until one of its requests has completed. Each completion is taken
    /// by one `Await`.
    Await,
    /// Sleeps, not for I/O.
    Sleep(Ns),
    /// Waits at a barrier of its VM until all have come: spins for `spin`, then
    /// blocks.
    Barrier {
        /// Number of the barrier in its VM.
        barrier: u32,
        /// Spins for so long before it blocks.
        spin: Ns,
    },
    /// Takes a lock of its VM: spins for `spin`, then blocks.
    Lock {
        /// Number of the lock in its VM.
        lock: u32,
        /// Spins for so long before it blocks.
        spin: Ns,
    },
    /// Gives a lock back.
    Unlock {
        /// Number of the lock in its VM.
        lock: u32,
    },
    /// Waits for a message in its mailbox (from a client or another task).
    Receive,
    /// Puts a message into the mailbox of another task of its VM.
    Send {
        /// The number of that task in its VM.
        task: u32,
    },
    /// For a task of a driver domain: hands on the oldest entry of its ring (6.1).
    /// Each message that it receives is one entry.
    Serve,
    /// Ends.
    Exit,
}

/// A request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which device.
    pub device: DeviceId,
    /// How much data.
    pub bytes: u32,
    /// Where on the device, in bytes.
    pub offset: u64,
    /// Direction.
    pub write: bool,
}

/// What a program sees at a step.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The present instant.
    pub now: Time,
    /// The task's own generator.
    pub random: &'a mut Random,
    /// What the task has got done.
    pub done: &'a mut Done,
    /// When its earliest unfinished request was submitted, or its message sent:
    /// set before the step after an `Await` or `Receive`.
    pub since: Time,
    /// Data that the message last received carries, for the receiver to copy.
    pub bytes: u32,
    /// Its requests that have completed and wait to be taken: so many [`Step::Await`]
    /// return at once.
    pub ready: usize,
}

impl Cx<'_> {
    /// One request or unit of work is done; `latency` since it began.
    pub fn complete(&mut self, bytes: u64, latency: Ns) {
        self.done.operations += 1;
        self.done.bytes += bytes;
        self.done.latency.record(latency);
    }
}

/// What a task has got done since the counters were last cleared.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Done {
    /// Requests, units of work or messages.
    pub operations: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Their latencies.
    pub latency: Latencies,
}

/// Latencies in logarithmic buckets of 1/32: each percentile is at most 3 % too
/// high.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Latencies {
    count: u64,
    max: Ns,
    /// In ns: enough for 584 years of all of them.
    sum: u64,
    counts: Counts,
    /// The bucket of the first count.
    first: u32,
}

/// Counts from the first bucket with any to the last one. Of two bytes each until one of
/// them needs more: there is such an array for each task, most of the memory that a run
/// touches would be zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Counts {
    Narrow(Vec<u16>),
    Wide(Box<WideCounts>),
}

/// In a box, so that those of which there are many are no larger than an array.
type WideCounts = Vec<u64>;

impl Default for Counts {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

/// Buckets per doubling, as a power of two.
const FINE: u32 = 5;
/// So many more buckets are made at once: a doubling.
const MORE: usize = 1 << FINE;

impl Counts {
    fn len(&self) -> usize {
        match self {
            Self::Narrow(counts) => counts.len(),
            Self::Wide(counts) => counts.len(),
        }
    }

    fn get(&self, at: usize) -> u64 {
        match self {
            Self::Narrow(counts) => u64::from(counts[at]),
            Self::Wide(counts) => counts[at],
        }
    }

    fn add(&mut self, at: usize, more: u64) {
        let Self::Narrow(counts) = self else {
            return self.add_wide(at, more);
        };
        let sum = u64::from(counts[at]) + more;
        if let Ok(sum) = u16::try_from(sum) {
            counts[at] = sum;
        } else {
            let wide = counts.iter().copied().map(u64::from).collect();
            *self = Self::Wide(Box::new(wide));
            self.add_wide(at, more);
        }
    }

    fn add_wide(&mut self, at: usize, more: u64) {
        if let Self::Wide(counts) = self {
            counts[at] += more;
        }
    }

    /// So many more buckets before or after those that there are.
    fn grow(&mut self, before: usize, after: usize) {
        match self {
            Self::Narrow(counts) => grow(counts, before, after),
            Self::Wide(counts) => grow(counts, before, after),
        }
    }
}

fn grow<T: Copy + Default>(counts: &mut Vec<T>, before: usize, after: usize) {
    let length = counts.len() + before + after;
    if length > counts.capacity() {
        counts.reserve_exact(length.next_multiple_of(MORE) - counts.len());
    }
    counts.splice(0..0, std::iter::repeat_n(T::default(), before));
    counts.resize(length, T::default());
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Ns) {
        let at = self.place(bucket(latency.0));
        self.counts.add(at, 1);
        self.count += 1;
        self.max = self.max.max(latency);
        self.sum += latency.0;
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        // Both ends of the other one's counts are not zero: these are not either.
        for n in 0..other.counts.len() {
            let at = self.place(other.first + n as u32);
            self.counts.add(at, other.counts.get(n));
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// The place of one bucket's count, made if need be.
    fn place(&mut self, bucket: u32) -> usize {
        let length = self.counts.len();
        if length == 0 {
            self.first = bucket;
        }
        let before = self.first.saturating_sub(bucket);
        self.first -= before;
        let at = (bucket - self.first) as usize;
        let length = length + before as usize;
        if before > 0 || at >= length {
            self.counts
                .grow(before as usize, (at + 1).saturating_sub(length));
        }
        at
    }

    /// How many.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    #[must_use]
    pub const fn max(&self) -> Ns {
        self.max
    }

    /// The mean; zero without any.
    #[must_use]
    pub fn mean(&self) -> Ns {
        Ns(self.sum / self.count.max(1))
    }

    /// At least `permille` of 1000 latencies are no longer than this.
    #[must_use]
    pub fn percentile(&self, permille: u64) -> Ns {
        let wanted = (u128::from(self.count) * u128::from(permille)).div_ceil(1000) as u64;
        let mut seen = 0;
        for n in 0..self.counts.len() {
            seen += self.counts.get(n);
            if seen >= wanted.max(1) {
                return Ns(upper(self.first + n as u32)).min(self.max);
            }
        }
        Ns::ZERO
    }
}

/// The bucket of a value: its leading bits.
fn bucket(value: u64) -> u32 {
    let bits = u64::BITS - value.leading_zeros();
    if bits <= FINE + 1 {
        return value as u32;
    }
    let shift = bits - FINE - 1;
    (shift << (FINE)) + (value >> shift) as u32
}

/// The largest value in a bucket.
fn upper(bucket: u32) -> u64 {
    if bucket < 2 << FINE {
        return u64::from(bucket);
    }
    let shift = (bucket >> FINE) - 1;
    let leading = u64::from(bucket - (shift << FINE));
    ((leading + 1) << shift) - 1
}

/// A program.
pub trait Program: Send + std::fmt::Debug {
    /// The next step. Called only when the last one is done.
    fn next(&mut self, cx: &mut Cx<'_>) -> Step;

    /// The device to which its requests go, if it has any. Who says nothing and asks one
    /// nevertheless stops a simulation of several parts.
    fn device(&self) -> Option<DeviceId> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_three_percent_too_high() {
        let mut latencies = Latencies::default();
        for us in 1..=1000 {
            latencies.record(Ns::from_us(us));
        }
        for (permille, us) in [(500, 500), (990, 990), (999, 999), (1000, 1000)] {
            let got = latencies.percentile(permille);
            let exact = Ns::from_us(us);
            assert!(
                got >= exact && got.0 <= exact.0 * 104 / 100,
                "{permille}: {got}"
            );
        }
        assert_eq!(latencies.mean(), Ns(500_500));
        assert_eq!(Latencies::default().percentile(500), Ns::ZERO);
    }

    /// In whatever order they come and are put together.
    #[test]
    fn latencies_add_up_in_any_order() {
        let of = |all: &[u64]| {
            let mut latencies = Latencies::default();
            for us in all {
                latencies.record(Ns::from_us(*us));
            }
            latencies
        };
        let all = of(&[7, 300, 2, 90_000, 15]);
        assert_eq!(all, of(&[90_000, 15, 7, 2, 300]));
        let mut merged = of(&[300, 90_000]);
        merged.merge(&of(&[2, 7, 15]));
        merged.merge(&Latencies::default());
        assert_eq!(merged, all);
        let mut empty = Latencies::default();
        empty.merge(&all);
        assert_eq!(empty, all);
    }

    /// 70 000 of one and 3 of another: the first needs more than two bytes, recorded one by
    /// one, or put together of halves that do not.
    #[test]
    fn counts_grow_beyond_two_bytes() {
        let of = |many: u64| {
            let mut latencies = Latencies::default();
            let long = std::iter::repeat_n(Ns::from_ms(5), 3);
            for latency in std::iter::repeat_n(Ns(40), many as usize).chain(long) {
                latencies.record(latency);
            }
            latencies
        };
        let mut halves = of(35_000);
        assert!(matches!(halves.counts, Counts::Narrow(_)));
        halves.merge(&of(35_000));
        let mut whole = of(70_000);
        assert!(matches!(whole.counts, Counts::Wide(_)));
        whole.merge(&of(0));
        assert_eq!(halves, whole);
        assert_eq!(whole.count(), 70_006);
        assert_eq!(whole.percentile(999), Ns(40));
        assert_eq!(whole.percentile(1000), Ns::from_ms(5));
    }

    #[test]
    fn buckets_are_ordered_and_hold_their_values() {
        let mut last = 0;
        for value in (0..200).chain((8..63).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 1])) {
            let b = bucket(value);
            assert!(b >= last, "{value}");
            assert!(upper(b) >= value, "{value} in {b} up to {}", upper(b));
            last = b;
        }
    }
}
