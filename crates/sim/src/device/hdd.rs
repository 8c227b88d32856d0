// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hard disk under an I/O scheduler (C12 to C18).
//!
//! One request at a time. A request right behind the last one of the disk costs
//! its transfer alone; any other costs a seek before it. The scheduler decides
//! which queued request is next:
//!
//! * work-conserving: the oldest;
//! * not work-conserving (CFQ): after a request of one task the disk waits for the
//!   next one of the same task, up to 8 ms, even if others are queued (C13, C15);
//!   when the wait is over, or the task has had its time, it goes to the task that
//!   has had the least (C14).

use std::collections::BTreeMap;
use std::collections::VecDeque;

use units::Ns;
use units::Time;

use super::Device;
use super::DeviceCx;
use super::Io;

/// Which request is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elevator {
    /// The oldest.
    WorkConserving,
    /// CFQ.
    Cfq {
        /// How long it waits for the next request of the same task. 8 ms (C15).
        wait: Ns,
        /// After so long another task has its turn. 100 ms, Linux' `slice_sync`;
        /// not stated in the papers.
        slice: Ns,
    },
}

/// Settings of [`Hdd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HddSettings {
    /// Mean seek and rotation. Not stated (C16); 8 ms is usual at 7200/min.
    pub seek: Ns,
    /// Bytes per second under the head.
    pub rate: u64,
    /// The I/O scheduler.
    pub elevator: Elevator,
}

/// A task, as the disk knows it: VM and task.
type Owner = (u32, u32);

/// A hard disk.
#[derive(Debug)]
pub struct Hdd {
    settings: HddSettings,
    queues: BTreeMap<Owner, VecDeque<(Time, Io)>>,
    /// Disk time that each task has had.
    served: BTreeMap<Owner, Ns>,
    /// What those that were there had had at least: with that a task begins that comes
    /// new or back.
    floor: Ns,
    busy: Option<Io>,
    /// Whose turn it is, and since when.
    turn: Option<(Owner, Time)>,
    /// The disk waits for the next request of whose turn it is.
    waiting: bool,
    head: u64,
    /// Makes wait timers that are out of date void; even: service, odd: wait.
    epoch: u64,
    /// Time wasted waiting while others were queued (C16).
    pub wasted: Ns,
    wait_began: Time,
}

impl Hdd {
    /// An idle disk.
    #[must_use]
    pub const fn new(settings: HddSettings) -> Self {
        Self {
            settings,
            queues: BTreeMap::new(),
            served: BTreeMap::new(),
            floor: Ns::ZERO,
            busy: None,
            turn: None,
            waiting: false,
            head: 0,
            epoch: 0,
            wasted: Ns::ZERO,
            wait_began: Time::ZERO,
        }
    }

    fn owner(io: &Io) -> Owner {
        (io.vm.0, io.task.0)
    }

    /// Serves the next request, waits for one, or does nothing.
    fn go_on(&mut self, wait_over: bool, cx: &mut DeviceCx<'_>) {
        if self.busy.is_some() {
            return;
        }
        let now = cx.now();
        let next = match self.settings.elevator {
            Elevator::WorkConserving => self
                .queues
                .iter()
                .filter_map(|(owner, queue)| queue.front().map(|(at, io)| (*at, io.number, *owner)))
                .min()
                .map(|(_, _, owner)| owner),
            Elevator::Cfq { wait, slice } => {
                let mine = self.turn.filter(|(_, since)| now.since(*since) < slice);
                match mine {
                    Some((owner, _)) if self.has(owner) => Some(owner),
                    Some(_) if !wait_over => {
                        if !self.waiting {
                            self.waiting = true;
                            self.wait_began = now;
                            self.epoch += 1;
                            cx.after(wait, self.epoch << 1 | 1);
                        }
                        return;
                    }
                    _ => self
                        .queues
                        .iter()
                        .filter(|(_, queue)| !queue.is_empty())
                        .map(|(owner, _)| *owner)
                        .min_by_key(|owner| self.served.get(owner).copied().unwrap_or(Ns::ZERO)),
                }
            }
        };
        let Some(owner) = next else {
            if wait_over {
                self.raise_floor(None);
                self.turn = None;
            }
            return;
        };
        if self.waiting {
            self.waiting = false;
            self.epoch += 1;
        }
        if self.turn.is_none_or(|(turn, _)| turn != owner) {
            // A task that comes new or back does not get what it has not asked for.
            self.raise_floor(Some(owner));
            let had = self.served.entry(owner).or_default();
            *had = (*had).max(self.floor);
            self.turn = Some((owner, now));
        }
        let Some((_, io)) = self.queues.get_mut(&owner).and_then(VecDeque::pop_front) else {
            return;
        };
        let transfer = Ns(u64::from(io.request.bytes)).scaled(1_000_000_000, self.settings.rate);
        let seek = if io.request.offset == self.head {
            Ns::ZERO
        } else {
            self.settings.seek
        };
        self.head = io.request.offset + u64::from(io.request.bytes);
        *self.served.entry(owner).or_default() += seek + transfer;
        self.busy = Some(io);
        cx.after(seek + transfer, self.epoch << 1);
    }

    /// Brings the floor up to the least that those have had who are there: with requests,
    /// or with the turn. One that is long gone is none of them, nor is the one that comes.
    fn raise_floor(&mut self, comes: Option<Owner>) {
        let queued = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let there = queued.map(|(owner, _)| *owner);
        let there = there.chain(self.turn.map(|(owner, _)| owner));
        let had = there
            .filter(|owner| Some(*owner) != comes)
            .filter_map(|owner| self.served.get(&owner).copied());
        if let Some(least) = had.min() {
            self.floor = self.floor.max(least);
        }
    }

    fn has(&self, owner: Owner) -> bool {
        self.queues
            .get(&owner)
            .is_some_and(|queue| !queue.is_empty())
    }
}

impl Device for Hdd {
    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        let now = cx.now();
        let owner = Self::owner(&io);
        self.queues.entry(owner).or_default().push_back((now, io));
        self.go_on(false, cx);
    }

    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>) {
        if token & 1 == 0 {
            if let Some(io) = self.busy.take() {
                cx.complete(io);
            }
            self.go_on(false, cx);
        } else if self.waiting && token >> 1 == self.epoch {
            if self.queues.values().any(|queue| !queue.is_empty()) {
                self.wasted += cx.now().since(self.wait_began);
            }
            self.waiting = false;
            self.go_on(true, cx);
        }
    }

    fn in_flight(&self) -> u64 {
        let queued: usize = self.queues.values().map(VecDeque::len).sum();
        queued as u64 + u64::from(self.busy.is_some())
    }
}

#[cfg(test)]
mod tests;
