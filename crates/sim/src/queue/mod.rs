// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event queue: what happens next.
//!
//! Events are totally ordered by (time, priority, sequence). The priority is a
//! named rank (see [`crate::event::Rank`]), so that what happens first at one
//! instant is a decision in the source and not an accident of the queue; the
//! sequence number makes the order total. Two implementations behind one trait
//! must give the same run to the last byte, which a test checks: whatever
//! depends on a queue's internals shows up there.

mod heap;
mod tree;

use units::Time;

pub use heap::Heap;
pub use tree::Tree;

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

/// A priority queue of events.
pub trait EventQueue: Send + std::fmt::Debug {
    /// Adds an event. Keys are never equal: the sequence differs.
    fn push(&mut self, key: Key, event: Event) -> Handle;

    /// Takes the first event out.
    fn pop(&mut self) -> Option<(Key, Event)>;

    /// Takes out an event that is waiting.
    fn cancel(&mut self, key: Key, handle: Handle);

    /// When the first event happens.
    fn first_at(&self) -> Option<Time>;

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
    /// A binary heap in one array.
    #[default]
    Heap,
    /// A B-tree.
    Tree,
}

/// The agenda of a run: a queue, the clock, and the next sequence number.
#[derive(Debug)]
pub struct Agenda {
    queue: Queue,
    /// Pending events of which there is one at a time, by [`Event::slot`].
    slots: Vec<Option<(Key, Handle)>>,
    now: Time,
    sequence: u64,
    popped: u64,
}

#[derive(Debug)]
enum Queue {
    Heap(Heap),
    Tree(Tree),
}

impl Agenda {
    /// An empty agenda at time zero.
    #[must_use]
    pub fn new(kind: QueueKind) -> Self {
        let queue = match kind {
            QueueKind::Heap => Queue::Heap(Heap::default()),
            QueueKind::Tree => Queue::Tree(Tree::default()),
        };
        Self {
            queue,
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
        self.queue.len()
    }

    /// Lets `event` happen at `at`, or now if that has passed. Of events with a
    /// slot the newest alone is kept.
    pub fn at(&mut self, at: Time, event: Event) {
        let key = Key::new(at.max(self.now), event.rank(), self.sequence);
        self.sequence += 1;
        let Some(slot) = event.slot() else {
            self.queue.push(key, event);
            return;
        };
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        if let Some((old, handle)) = self.slots[slot].take() {
            self.queue.cancel(old, handle);
        }
        let handle = self.queue.push(key, event);
        self.slots[slot] = Some((key, handle));
    }

    /// The next event no later than `end`; time moves on to it.
    pub fn next(&mut self, end: Time) -> Option<Event> {
        // A later one has its turn when somebody asks for a later end.
        let due = self.queue.first_at().is_some_and(|at| at <= end);
        let first = if due { self.queue.pop() } else { None };
        let Some((key, event)) = first else {
            self.now = self.now.max(end);
            return None;
        };
        debug_assert!(key.at >= self.now, "time runs backwards");
        if let Some(slot) = event.slot() {
            self.slots[slot] = None;
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
            Self::Heap(queue) => queue.push(key, event),
            Self::Tree(queue) => queue.push(key, event),
        }
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        match self {
            Self::Heap(queue) => queue.pop(),
            Self::Tree(queue) => queue.pop(),
        }
    }

    fn cancel(&mut self, key: Key, handle: Handle) {
        match self {
            Self::Heap(queue) => queue.cancel(key, handle),
            Self::Tree(queue) => queue.cancel(key, handle),
        }
    }

    fn first_at(&self) -> Option<Time> {
        match self {
            Self::Heap(queue) => queue.first_at(),
            Self::Tree(queue) => queue.first_at(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Heap(queue) => queue.len(),
            Self::Tree(queue) => queue.len(),
        }
    }
}

#[cfg(test)]
mod tests;
