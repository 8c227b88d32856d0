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
    /// What goes first at one instant.
    pub rank: Rank,
    /// First come, first served.
    pub sequence: u64,
}

/// A priority queue of events.
pub trait EventQueue: Send + std::fmt::Debug {
    /// Adds an event. Keys are never equal: the sequence differs.
    fn push(&mut self, key: Key, event: Event);

    /// Takes the first event out.
    fn pop(&mut self) -> Option<(Key, Event)>;

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
    now: Time,
    sequence: u64,
    popped: u64,
}

/// Both kinds without a virtual call in the innermost loop.
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
        match &self.queue {
            Queue::Heap(queue) => queue.len(),
            Queue::Tree(queue) => queue.len(),
        }
    }

    /// Lets `event` happen at `at`, or now if that has passed.
    pub fn at(&mut self, at: Time, event: Event) {
        let key = Key {
            at: at.max(self.now),
            rank: event.rank(),
            sequence: self.sequence,
        };
        self.sequence += 1;
        match &mut self.queue {
            Queue::Heap(queue) => queue.push(key, event),
            Queue::Tree(queue) => queue.push(key, event),
        }
    }

    /// The next event no later than `end`; time moves on to it.
    pub fn next(&mut self, end: Time) -> Option<Event> {
        let first = match &mut self.queue {
            Queue::Heap(queue) => queue.pop(),
            Queue::Tree(queue) => queue.pop(),
        };
        let Some((key, event)) = first else {
            self.now = self.now.max(end);
            return None;
        };
        debug_assert!(key.at >= self.now, "time runs backwards");
        if key.at > end {
            // Its turn comes when somebody asks for a later end.
            match &mut self.queue {
                Queue::Heap(queue) => queue.push(key, event),
                Queue::Tree(queue) => queue.push(key, event),
            }
            self.now = end;
            return None;
        }
        self.now = key.at;
        self.popped += 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests;
