// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one slot of the journal holds: 64 words of 64 bits.
//!
//! | word | content |
//! |---|---|
//! | 0 | commit: checksum of the body, 0 if the slot is free |
//! | 1 | position: see [`Position`] |
//! | 2 | lever: see `lever::pack` |
//! | 3..19 | every CPU that the thread was ever narrowed to |
//! | 19..44 | body: the thread and what its owner had given it |
//!
//! Words 1, 2 and 3..19 change while the thread is held. Each is one aligned
//! 64-bit store, so none can be torn, and none is under the checksum.

use policy::guest::wakeup::Lever;
use units::CpuSet;
use units::TaskKey;
use units::Tid;
use units::VcpuId;

/// Words in a slot.
pub(super) const WORDS: usize = 64;
/// The commit word.
pub(super) const COMMIT: usize = 0;
/// The position word.
pub(super) const POSITION: usize = 1;
/// The lever word.
pub(super) const LEVER: usize = 2;
/// First word of the CPUs ever used.
pub(super) const TOUCHED: usize = 3;
/// First word of the body.
pub(super) const BODY: usize = 19;
/// Words in the body.
pub(super) const BODY_WORDS: usize = 25;

/// A thread and what its owner had given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// The thread.
    pub key: TaskKey,
    /// Its process.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
    /// Its mask, offline CPUs included.
    pub mask: CpuSet,
    /// The mask was all that its cpuset permitted. Then "every CPU" is given
    /// back: the kernel cuts that down to the cpuset, today's and any later
    /// one, as it did before. The exact mask would, from 6.2 on, be remembered
    /// as the owner's wish and outlive a widening of the cpuset.
    pub whole_cpuset: bool,
    /// `SCHED_*`.
    pub policy: u32,
    /// Of real-time policies.
    pub priority: u32,
    /// -20..=19.
    pub nice: i32,
    /// `SCHED_FLAG_RESET_ON_FORK` was set.
    pub reset_on_fork: bool,
    /// EEVDF slice; 0 if it is the kernel's default or cannot be told.
    pub slice_ns: u64,
    /// When it was adopted, in clock ticks since boot: threads that started
    /// earlier have not inherited anything from us.
    pub adopted_ticks: u64,
}

const FLAG_WHOLE_CPUSET: u32 = 1;
const FLAG_RESET_ON_FORK: u32 = 2;

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Original {
    /// As the words of a slot's body.
    pub(super) fn encode(&self) -> [u64; BODY_WORDS] {
        let mut flags = 0;
        if self.whole_cpuset {
            flags |= FLAG_WHOLE_CPUSET;
        }
        if self.reset_on_fork {
            flags |= FLAG_RESET_ON_FORK;
        }
        let mut comm = [0u8; 16];
        for (to, from) in comm.iter_mut().zip(self.comm.bytes()) {
            *to = from;
        }
        let comm = u128::from_le_bytes(comm);
        let mut body = [0; BODY_WORDS];
        body[0] = pair(self.key.tid.0, flags);
        body[1] = self.key.start_ticks;
        body[2] = pair(self.policy, self.priority);
        body[3] = pair(self.nice.cast_unsigned(), self.tgid);
        body[4] = self.slice_ns;
        body[5] = self.adopted_ticks;
        body[6] = comm as u64;
        body[7] = (comm >> 64) as u64;
        body[9..].copy_from_slice(self.mask.words());
        body
    }

    /// From the words of a slot's body.
    pub(super) fn decode(body: &[u64; BODY_WORDS]) -> Self {
        let comm = u128::from(body[6]) | u128::from(body[7]) << 64;
        let comm = comm.to_le_bytes();
        let length = comm
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(comm.len());
        let flags = high(body[0]);
        Self {
            key: TaskKey {
                tid: Tid(low(body[0])),
                start_ticks: body[1],
            },
            tgid: high(body[3]),
            comm: String::from_utf8_lossy(&comm[..length]).into_owned(),
            mask: CpuSet::from_words(&body[9..]),
            whole_cpuset: flags & FLAG_WHOLE_CPUSET != 0,
            policy: low(body[2]),
            priority: high(body[2]),
            nice: low(body[3]).cast_signed(),
            reset_on_fork: flags & FLAG_RESET_ON_FORK != 0,
            slice_ns: body[4],
            adopted_ticks: body[5],
        }
    }
}

/// FNV-1a over whole words; never 0, which stands for "free".
pub(super) fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    }) | 1
}

/// Where a held thread is, as one word: this is what makes moves free of locks.
///
/// `at` is the CPU that it was last narrowed to. A mover enters its target as
/// a `flight` before its system call and takes it out afterwards: a mover may
/// be descheduled at any instruction, so another one must be able to overtake
/// it, and must then know which mask the first may still set. Hence a mask is
/// ours if and only if it is `at` or one of the flights, and this holds for
/// the next process as well, should this one be killed between any two steps.
///
/// ```text
/// 0..12 at | 12..24, 24..36, 36..48 flights | 48 ended | 49..64 sequence
/// ```
/// A CPU field of 0xfff is empty. The sequence number makes an update fail if
/// anything has changed in between, even back and forth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position(pub(crate) u64);

/// Movers that may work on one thread at once: one, the one that overtakes it
/// when it is descheduled, and one more.
const FLIGHTS: u32 = 3;
const FIELD: u64 = 0xfff;
const ENDED: u64 = 1 << 48;
const SEQUENCE: u64 = 1 << 49;

impl Position {
    /// Never moved.
    pub(crate) const START: Self = Self((1 << 48) - 1);

    fn field(self, n: u32) -> Option<VcpuId> {
        match (self.0 >> (12 * n)) & FIELD {
            FIELD => None,
            cpu => Some(VcpuId(cpu as u32)),
        }
    }

    fn with_field(self, n: u32, cpu: Option<VcpuId>) -> Self {
        let value = cpu.map_or(FIELD, |cpu| u64::from(cpu.0) & FIELD);
        let cleared = self.0 & !(FIELD << (12 * n));
        Self((cleared | value << (12 * n)).wrapping_add(SEQUENCE))
    }

    /// The CPU that it was last narrowed to.
    pub(crate) fn at(self) -> Option<VcpuId> {
        self.field(0)
    }

    /// Is the hold over?
    pub(crate) const fn ended(self) -> bool {
        self.0 & ENDED != 0
    }

    /// Is some mover between its two updates?
    #[cfg(test)]
    pub(crate) fn in_flight(self) -> bool {
        (1..=FLIGHTS).any(|n| self.field(n).is_some())
    }

    /// With one more flight; `None` if there are too many already.
    pub(crate) fn take_off(self, to: VcpuId) -> Option<Self> {
        let free = (1..=FLIGHTS).find(|n| self.field(*n).is_none())?;
        Some(self.with_field(free, Some(to)))
    }

    /// Without this flight; the thread is `at` now.
    pub(crate) fn land(self, to: VcpuId, at: Option<VcpuId>) -> Self {
        let gone = (1..=FLIGHTS).find(|n| self.field(*n) == Some(to));
        gone.map_or(self, |n| self.with_field(n, None))
            .with_field(0, at)
    }

    /// The hold is over; what we set is to be taken back now.
    pub(crate) const fn end(self) -> Self {
        Self((self.0 | ENDED).wrapping_add(SEQUENCE))
    }

    /// It could not be taken back: the hold goes on.
    pub(crate) const fn revive(self) -> Self {
        Self((self.0 & !ENDED).wrapping_add(SEQUENCE))
    }

    /// It has been taken back.
    pub(crate) fn settle(self) -> Self {
        self.with_field(0, None)
    }

    /// The hold is over and nothing of ours is or will be in force.
    pub(crate) fn is_settled(self) -> bool {
        self.ended() && self.cpus().is_empty()
    }

    /// Have we set this mask, or may we still?
    pub(crate) fn owns(self, mask: &CpuSet) -> bool {
        mask.len() == 1
            && (0..=FLIGHTS).any(|n| self.field(n).is_some_and(|cpu| mask.contains(cpu)))
    }

    /// Every CPU that we may have narrowed it to.
    pub(crate) fn cpus(self) -> CpuSet {
        (0..=FLIGHTS).filter_map(|n| self.field(n)).collect()
    }
}

/// One entry as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The thread and what its owner had given it.
    pub original: Original,
    /// The CPU that it was last narrowed to; `None` if it was never moved.
    pub at: Option<VcpuId>,
    /// Every CPU that it was ever narrowed to: what its children may have.
    pub touched: CpuSet,
    /// What was done to its wake-ups.
    pub lever: Lever,
    /// The thread itself has been released; its children have not been looked
    /// at yet.
    pub released: bool,
    pub(crate) position: u64,
    pub(crate) slot: usize,
}
