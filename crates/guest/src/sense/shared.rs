// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that the BPF programs share with us, as plain copies.
//!
//! Nothing here waits: a slot is copied field by field while programs on other
//! vCPUs may be writing it. A torn copy leads to a wrong decision at worst, and
//! every decision is checked again at the next event; a lock could be held by a
//! vCPU that is away.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use policy::guest::path::Path;
use policy::guest::path::Prior;
use units::CpuSet;
use units::Ns;
use units::Permille;
use units::Time;
use units::VcpuId;

use super::MAX_DEVICES;
use super::MAX_TASKS;
use super::skel::sense::types;

/// What the daemon wants of the programs (`enum mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mode {
    Asleep = 0,
    Watching = 1,
    Active = 2,
}

/// `enum activity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Running,
    Queued,
    Waking,
    BlockedIo,
    Blocked,
}

/// `enum slot_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Free,
    Filling,
    Live,
    Left,
    Exited,
}

impl SlotState {
    const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Filling,
            2 => Self::Live,
            3 => Self::Left,
            4 => Self::Exited,
            _ => Self::Free,
        }
    }
}

/// A doorbell, decoded (`enum bell`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    Gap,
    Arrived,
    Enter(usize),
    Leave(usize),
    Fork { slot: usize, child: u32 },
    Shared,
    Quiet,
    Io,
    Calm,
}

impl Bell {
    /// From the word in the ring; `None` for a kind of a newer program.
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let slot = (word >> 8) as usize & 0xff;
        Some(match word & 0xff {
            0 => Self::Gap,
            1 => Self::Arrived,
            2 => Self::Enter(slot),
            3 => Self::Leave(slot),
            4 => Self::Fork {
                slot,
                child: (word >> 16) as u32,
            },
            5 => Self::Shared,
            6 => Self::Quiet,
            7 => Self::Io,
            8 => Self::Calm,
            _ => return None,
        })
    }
}

impl From<types::path> for Path {
    fn from(path: types::path) -> Self {
        let types::path {
            fixed_cpu,
            follows,
            same_cpus,
            contradictions,
            cross_cpu,
            crosses,
            prior,
            against,
            silent,
        } = path;
        Self {
            fixed_cpu,
            follows,
            same_cpus,
            contradictions,
            cross_cpu,
            crosses,
            prior,
            against,
            silent,
        }
    }
}

/// A copy of `struct task_slot`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskSlot {
    pub(crate) state: SlotState,
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) activity: Activity,
    pub(crate) since: Time,
    pub(crate) vcpu: VcpuId,
    pub(crate) load: Permille,
    pub(crate) latency: Ns,
    pub(crate) on_cpu: Ns,
    pub(crate) blocked_io: Ns,
    pub(crate) asleep: Ns,
    pub(crate) queued: Ns,
    pub(crate) inactive: Ns,
    pub(crate) nr_switches: u64,
    pub(crate) nr_requests: u64,
    pub(crate) taken: Time,
    pub(crate) dev: u32,
    pub(crate) by_kthread: Permille,
    pub(crate) woken_here: Permille,
    pub(crate) path: Path,
}

/// A copy of the parts of `struct vcpu_slot` that others need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VcpuSlot {
    pub(crate) seen: Time,
    pub(crate) nr_gaps: u64,
    pub(crate) stolen: Ns,
    /// Of it, with a thread of this process current; nobody knows with the source heartbeat.
    pub(crate) ours: Ns,
    pub(crate) idle: bool,
    pub(crate) idle_end: Time,
}

/// The programs' global variables.
#[derive(Clone, Copy)]
pub(crate) struct Shared(NonNull<types::bss>);

// SAFETY: the pages behind the pointer are shared with the kernel in any case;
// all accesses below are volatile or atomic, and every field is a plain integer.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Reads one integer field of the shared memory.
macro_rules! read {
    ($self:ident, $($field:tt)+) => {
        // SAFETY: the pointer is valid while the driver lives, which owns the
        // mapping and outlives every holder of a `Shared`; indices are checked
        // by the array access; volatile, because the kernel writes.
        unsafe { (&raw const (*$self.0.as_ptr()).$($field)+).read_volatile() }
    };
}

impl Shared {
    /// The caller keeps the mapping alive for as long as the copy is used.
    pub(crate) fn new(bss: &mut types::bss) -> Self {
        Self(NonNull::from(bss))
    }

    pub(crate) fn mode(&self) -> Mode {
        match read!(self, mode) {
            2 => Mode::Active,
            1 => Mode::Watching,
            _ => Mode::Asleep,
        }
    }

    fn mode_word(&self) -> &AtomicU32 {
        // SAFETY: an aligned u32 in the mapping, see `read!`.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.0.as_ptr()).mode) }
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode_word().store(mode as u32, Ordering::Release);
    }

    /// From one mode to another, if it is still the first.
    pub(crate) fn change_mode(&self, from: Mode, to: Mode) -> bool {
        self.mode_word()
            .compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// The detector's programs are attached: from now on sums have no holes.
    pub(super) fn armed(&self, now: Time) {
        self.new_epoch();
        self.stay_armed(now);
        self.armed_word().store(1, Ordering::Release);
    }

    /// They will not be much longer: a candidate has to show itself first.
    pub(super) fn disarmed(&self) {
        self.armed_word().store(0, Ordering::Release);
        // SAFETY: see `read!`; the programs only add to and compare these.
        unsafe {
            let bss = self.0.as_ptr();
            (&raw mut (*bss).cand_since_ns).write_volatile(0);
            (&raw mut (*bss).cand_waits_since_ns).write_volatile(0);
            (&raw mut (*bss).io_rung).write_volatile(0);
        }
    }

    /// Some task is I/O-bound, or may be: the next [`Bell::Calm`] is far.
    pub(crate) fn stay_armed(&self, now: Time) {
        // SAFETY: see `read!`; the programs only write and compare these.
        unsafe {
            let bss = self.0.as_ptr();
            (&raw mut (*bss).io_bound_ns).write_volatile(now.as_ns());
            (&raw mut (*bss).calm_rung).write_volatile(0);
        }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed_word().load(Ordering::Acquire) != 0
    }

    fn armed_word(&self) -> &AtomicU32 {
        // SAFETY: an aligned u32 in the mapping, see `read!`.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.0.as_ptr()).armed) }
    }

    /// Which epoch it is: what was counted in another has a hole in it.
    pub(super) fn epoch(&self) -> u32 {
        read!(self, epoch)
    }

    fn new_epoch(&self) {
        // SAFETY: see `read!`; the programs only compare it.
        unsafe {
            let bss = self.0.as_ptr();
            let epoch = (&raw const (*bss).epoch).read_volatile();
            (&raw mut (*bss).epoch).write_volatile(epoch.wrapping_add(1));
        }
    }

    /// Before each change between asleep and awake: counting starts anew.
    pub(super) fn forget(&self, now: Time) {
        self.new_epoch();
        // SAFETY: see `read!`; the programs only add to and compare these.
        unsafe {
            let bss = self.0.as_ptr();
            (&raw mut (*bss).asleep_gaps).write_volatile(0);
            (&raw mut (*bss).quiet_rung).write_volatile(0);
            (&raw mut (*bss).last_gap_ns).write_volatile(now.as_ns());
        }
    }

    pub(crate) fn vcpu(&self, vcpu: VcpuId) -> VcpuSlot {
        let i = vcpu.index();
        VcpuSlot {
            seen: Time(read!(self, vcpus[i].seen_ns)),
            nr_gaps: read!(self, vcpus[i].nr_gaps),
            stolen: Ns(read!(self, vcpus[i].stolen_ns)),
            ours: Ns(read!(self, vcpus[i].ours_ns)),
            idle: read!(self, vcpus[i].idle) != 0,
            idle_end: Time(read!(self, vcpus[i].idle_end_ns)),
        }
    }

    /// Tells the programs what wakes the thread of this vCPU: its timer, and which
    /// part of it is for tasks here, whose longest latency is the second number.
    /// Only that thread may say so.
    pub(crate) fn set_alarm(&self, vcpu: VcpuId, alarm: Option<Time>, push: Option<(Time, Ns)>) {
        let i = vcpu.index();
        let (push, latency) = push.unwrap_or_default();
        // SAFETY: see `read!`; this thread is the only writer.
        unsafe {
            let slot = &raw mut (*self.0.as_ptr()).vcpus[i];
            (&raw mut (*slot).push_ns).write_volatile(push.as_ns());
            (&raw mut (*slot).push_latency_ns).write_volatile(latency.as_ns());
            (&raw mut (*slot).alarm_ns).write_volatile(alarm.map_or(0, Time::as_ns));
        }
    }

    /// Which vCPUs were away when a program last woke the thread of this vCPU.
    pub(super) fn last_look(&self, vcpu: VcpuId) -> (Time, CpuSet) {
        let i = vcpu.index();
        let out = read!(self, vcpus[i].out);
        (
            Time(read!(self, vcpus[i].looked_ns)),
            CpuSet::from_words(&out),
        )
    }

    /// The gap with this number as (out, back); `None` if it has been
    /// overwritten meanwhile.
    pub(crate) fn gap(&self, vcpu: VcpuId, number: u64) -> Option<(Time, Time)> {
        let i = vcpu.index();
        let history = read!(self, vcpus[i].gaps).len() as u64;
        let k = (number % history) as usize;
        let gap = (
            Time(read!(self, vcpus[i].gaps[k].out_ns)),
            Time(read!(self, vcpus[i].gaps[k].back_ns)),
        );
        (read!(self, vcpus[i].nr_gaps) < number + history).then_some(gap)
    }

    /// Time since this vCPU came back from its last gap; `None` before the first.
    pub(crate) fn since_gap(&self, vcpu: VcpuId, now: Time) -> Option<Ns> {
        let last = self.vcpu(vcpu).nr_gaps.checked_sub(1)?;
        let (_, back) = self.gap(vcpu, last)?;
        Some(now.since(back))
    }

    /// Marks a task as having left its I/O phase: for one that sleeps, which no
    /// program will look at again before it wakes.
    pub(crate) fn demote(&self, slot: usize) -> bool {
        self.state_word(slot)
            .compare_exchange(
                SlotState::Live as u32,
                SlotState::Left as u32,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// How many slots have ever been in use: scans stop there.
    pub(crate) fn slots_used(&self) -> usize {
        (read!(self, slots_used) as usize).min(MAX_TASKS)
    }

    fn state_word(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: an aligned u32 in the mapping, index checked, see `read!`.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.0.as_ptr()).tasks[slot].state) }
    }

    pub(crate) fn slot_state(&self, slot: usize) -> SlotState {
        SlotState::from_raw(self.state_word(slot).load(Ordering::Acquire))
    }

    /// Gives a slot back to the programs, if its state is still the one seen.
    pub(crate) fn free_slot(&self, slot: usize, seen: SlotState) -> bool {
        self.state_word(slot)
            .compare_exchange(
                seen as u32,
                SlotState::Free as u32,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    pub(crate) fn task(&self, slot: usize) -> TaskSlot {
        TaskSlot {
            state: self.slot_state(slot),
            tid: read!(self, tasks[slot].tid),
            tgid: read!(self, tasks[slot].tgid),
            // As /proc prints it: USER_HZ is 100 everywhere.
            start_ticks: read!(self, tasks[slot].start_boottime_ns) / 10_000_000,
            activity: match read!(self, tasks[slot].activity) {
                0 => Activity::Running,
                1 => Activity::Queued,
                2 => Activity::Waking,
                3 => Activity::BlockedIo,
                _ => Activity::Blocked,
            },
            since: Time(read!(self, tasks[slot].since_ns)),
            vcpu: VcpuId(read!(self, tasks[slot].cpu)),
            load: Permille::new(read!(self, tasks[slot].load_permille) as u16),
            latency: Ns(read!(self, tasks[slot].latency_ns)),
            on_cpu: Ns(read!(self, tasks[slot].on_cpu_ns)),
            blocked_io: Ns(read!(self, tasks[slot].blocked_io_ns)),
            asleep: Ns(read!(self, tasks[slot].asleep_ns)),
            queued: Ns(read!(self, tasks[slot].queued_ns)),
            inactive: Ns(read!(self, tasks[slot].inactive_ns)),
            nr_switches: read!(self, tasks[slot].nr_switches),
            nr_requests: read!(self, tasks[slot].nr_requests),
            taken: Time(read!(self, tasks[slot].taken_ns)),
            dev: read!(self, tasks[slot].dev),
            by_kthread: Permille::new(read!(self, tasks[slot].by_kthread) as u16),
            woken_here: Permille::new(read!(self, tasks[slot].woken_here) as u16),
            path: read!(self, tasks[slot].path).into(),
        }
    }

    /// A block device by its kernel number: its slot and its completion path. `None`
    /// before its first completion.
    pub(crate) fn device(&self, dev: u32) -> Option<(usize, Path)> {
        let device = (0..MAX_DEVICES)
            .map(|i| (i, read!(self, devices[i].dev)))
            .take_while(|(_, number)| *number != 0)
            .find(|(_, number)| *number == dev)?
            .0;
        Some((device, read!(self, devices[device].path).into()))
    }

    /// Every block device seen: kernel number, completions, path.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (u32, u64, Path)> {
        let me = *self;
        (0..MAX_DEVICES).map_while(move |i| {
            let dev = read!(me, devices[i].dev);
            (dev != 0).then(|| {
                (
                    dev,
                    read!(me, devices[i].nr_completions),
                    read!(me, devices[i].path).into(),
                )
            })
        })
    }

    /// Tells the programs what Linux says of a device. What was held against another prior
    /// is not held against this one.
    pub(crate) fn set_prior(&self, device: usize, prior: Prior) {
        if read!(self, devices[device].path.prior) == prior.word() {
            return;
        }
        // SAFETY: see `read!`; the programs never write the first, and an addend to the
        // other two that is lost is one of several.
        unsafe {
            let path = &raw mut (*self.0.as_ptr()).devices[device].path;
            (&raw mut (*path).prior).write_volatile(prior.word());
            (&raw mut (*path).against).write_volatile(0);
            (&raw mut (*path).silent).write_volatile(0);
        }
    }

    pub(crate) fn lost_bells(&self) -> u64 {
        read!(self, nr_lost_bells)
    }

    pub(crate) fn lost_tasks(&self) -> u64 {
        read!(self, nr_lost_tasks)
    }

    pub(crate) fn set_steal_addr(&self, addresses: &[u64]) {
        for (i, address) in addresses.iter().enumerate() {
            // SAFETY: see `read!`; written before any program is attached.
            unsafe { (&raw mut (*self.0.as_ptr()).steal_addr[i]).write_volatile(*address) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bells_keep_slot_and_child_apart() {
        let word = 4 | 0x7f << 8 | 0x0040_0001 << 16;
        assert_eq!(
            Bell::decode(word),
            Some(Bell::Fork {
                slot: 0x7f,
                child: 0x0040_0001
            })
        );
        assert_eq!(Bell::decode(2 | 5 << 8), Some(Bell::Enter(5)));
        assert_eq!(Bell::decode(8), Some(Bell::Calm));
        assert_eq!(Bell::decode(99), None);
    }

    #[test]
    fn slot_states_survive_the_round_trip() {
        for state in [
            SlotState::Free,
            SlotState::Filling,
            SlotState::Live,
            SlotState::Left,
            SlotState::Exited,
        ] {
            assert_eq!(SlotState::from_raw(state as u32), state);
        }
    }
}
