// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event queue: what happens next.
//!
//! Events are totally ordered by (time, priority, sequence). The priority is a
//! named rank (see [`crate::event::Rank`]), so that what happens first at one
//! instant is a decision in the source and not an accident of the queue; the
//! sequence number makes the order total. Two implementations behind one trait
//! must give the same run to the last byte, which a test checks: whatever
//! depends on a queue's internals shows up there.

mod tree;
mod wheel;

use units::Time;

pub use tree::Tree;
pub use wheel::Wheel;

use crate::event::Event;
use crate::event::Rank;

/// The total order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// When.
    pub at: Time,
    /// What goes first at one instant (the rank, in the upper eight bits), then
    /// first come, first served (a sequence number): one comparison for both.
    order: u64,
}

impl Key {
    const fn new(at: Time, rank: Rank, sequence: u64) -> Self {
        Self {
            at,
            order: (rank as u64) << 56 | sequence,
        }
    }
}

/// Where a queue keeps an event; what it means is the queue's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u32);

impl Handle {
    /// Of no event.
    const NONE: Self = Self(u32::MAX);
}

/// A priority queue of events.
pub trait EventQueue: Send + std::fmt::Debug {
    /// Adds an event. Keys are never equal: the sequence differs.
    fn push(&mut self, key: Key, event: Event) -> Handle;

    /// Takes the first event out.
    fn pop(&mut self) -> Option<(Key, Event)>;

    /// Puts another event in the place of one that is waiting; the handle is as before.
    fn renew(&mut self, handle: Handle, key: Key, event: Event);

    /// The key of the first event.
    fn first(&mut self) -> Option<Key>;

    /// How many events are waiting.
    fn len(&self) -> usize;

    /// Is none waiting?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which queue a simulation uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// Hierarchical timing wheels.
    #[default]
    Wheel,
    /// A B-tree.
    Tree,
}

/// The agenda of a run: a queue, the clock, and the next sequence number.
#[derive(Debug)]
pub struct Agenda {
    queue: Queue,
    /// Events of the present instant that came up during it, the next one at the
    /// end: an interrupt of a completion, a kick. They never were in the queue.
    instant: Vec<(Key, Event)>,
    /// Pending events of which there is one at a time, by [`Event::slot`].
    slots: Vec<Handle>,
    now: Time,
    sequence: u64,
    popped: u64,
}

#[derive(Debug)]
enum Queue {
    Wheel(Wheel),
    Tree(Tree),
}

impl Agenda {
    /// An empty agenda at time zero.
    #[must_use]
    pub fn new(kind: QueueKind) -> Self {
        let queue = match kind {
            QueueKind::Wheel => Queue::Wheel(Wheel::default()),
            QueueKind::Tree => Queue::Tree(Tree::default()),
        };
        Self {
            queue,
            instant: Vec::new(),
            slots: Vec::new(),
            now: Time::ZERO,
            sequence: 0,
            popped: 0,
        }
    }

    /// The present instant.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Events that have happened.
    #[must_use]
    pub const fn happened(&self) -> u64 {
        self.popped
    }

    /// Events that are waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.instant.len()
    }

    /// Lets `event` happen at `at`, or now if that has passed. Of events with a
    /// slot the newest alone is kept.
    pub fn at(&mut self, at: Time, event: Event) {
        let key = Key::new(at.max(self.now), event.rank(), self.sequence);
        self.sequence += 1;
        let Some(slot) = event.slot() else {
            if key.at == self.now {
                let place = self.instant.partition_point(|(other, _)| *other > key);
                self.instant.insert(place, (key, event));
            } else {
                self.queue.push(key, event);
            }
            return;
        };
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Handle::NONE);
        }
        match self.slots[slot] {
            Handle::NONE => self.slots[slot] = self.queue.push(key, event),
            handle => self.queue.renew(handle, key, event),
        }
    }

    /// The next event no later than `end`; time moves on to it.
    pub fn next(&mut self, end: Time) -> Option<Event> {
        // A later one has its turn when somebody asks for a later end.
        let due = self.queue.first().filter(|key| key.at <= end);
        let first = match (self.instant.last(), due) {
            (Some((soon, _)), Some(due)) if due < *soon => self.queue.pop(),
            (Some(_), _) => self.instant.pop(),
            (None, Some(_)) => self.queue.pop(),
            (None, None) => None,
        };
        let Some((key, event)) = first else {
            self.now = self.now.max(end);
            return None;
        };
        debug_assert!(key.at >= self.now, "time runs backwards");
        if let Some(slot) = event.slot() {
            self.slots[slot] = Handle::NONE;
        }
        self.now = key.at;
        self.popped += 1;
        Some(event)
    }
}

/// Both kinds without a virtual call in the innermost loop.
impl EventQueue for Queue {
    fn push(&mut self, key: Key, event: Event) -> Handle {
        match self {
            Self::Wheel(queue) => queue.push(key, event),
            Self::Tree(queue) => queue.push(key, event),
        }
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        match self {
            Self::Wheel(queue) => queue.pop(),
            Self::Tree(queue) => queue.pop(),
        }
    }

    fn renew(&mut self, handle: Handle, key: Key, event: Event) {
        match self {
            Self::Wheel(queue) => queue.renew(handle, key, event),
            Self::Tree(queue) => queue.renew(handle, key, event),
        }
    }

    fn first(&mut self) -> Option<Key> {
        match self {
            Self::Wheel(queue) => queue.first(),
            Self::Tree(queue) => queue.first(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Wheel(queue) => queue.len(),
            Self::Tree(queue) => queue.len(),
        }
    }
}

#[cfg(test)]
mod tests;
