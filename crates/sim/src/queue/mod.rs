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
    here: Part,
    /// Pending events of which there is one at a time, by [`Event::slot`].
    slots: [Vec<Handle>; Event::SLOTS],
    sequence: u64,
    popped: u64,
    kind: QueueKind,
    /// Parts of the machine by number; the one at `part` is `here`, and empty.
    parts: Vec<Part>,
    part: usize,
}

/// What waits in a part of the machine, and how far it has come.
#[derive(Debug)]
struct Part {
    queue: Queue,
    /// Events of the present instant that came up during it, the next one at the
    /// end: an interrupt of a completion, a kick. They never were in the queue.
    instant: Vec<(Key, Event)>,
    now: Time,
}

impl Part {
    fn new(kind: QueueKind) -> Self {
        let queue = match kind {
            QueueKind::Wheel => Queue::Wheel(Wheel::default()),
            QueueKind::Tree => Queue::Tree(Tree::default()),
        };
        Self {
            queue,
            instant: Vec::new(),
            now: Time::ZERO,
        }
    }
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
        Self {
            here: Part::new(kind),
            slots: [const { Vec::new() }; Event::SLOTS],
            sequence: 0,
            popped: 0,
            kind,
            parts: Vec::new(),
            part: 0,
        }
    }

    /// The present instant.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.here.now
    }

    /// Events that have happened.
    #[must_use]
    pub const fn happened(&self) -> u64 {
        self.popped
    }

    /// Events that are waiting here.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.here.queue.len() + self.here.instant.len()
    }

    /// From now on there are so many parts, each with a clock and events of its own;
    /// nothing is waiting yet.
    pub(crate) fn divide(&mut self, parts: usize) {
        debug_assert_eq!(self.waiting(), 0, "whose events are these?");
        if parts > 1 {
            self.parts = (0..parts).map(|_| Part::new(self.kind)).collect();
        }
    }

    /// Goes to a part: `now`, `at` and `next` are about it.
    pub(crate) fn turn_to(&mut self, part: usize) {
        if part != self.part {
            std::mem::swap(&mut self.here, &mut self.parts[self.part]);
            std::mem::swap(&mut self.here, &mut self.parts[part]);
            self.part = part;
        }
    }

    /// Lets `event` happen at `at`, or now if that has passed. Of events with a
    /// slot the newest alone is kept.
    pub fn at(&mut self, at: Time, event: Event) {
        let key = Key::new(at.max(self.here.now), event.rank(), self.sequence);
        self.sequence += 1;
        let Some((kind, slot)) = event.slot() else {
            if key.at == self.here.now {
                let place = self.here.instant.partition_point(|(other, _)| *other > key);
                self.here.instant.insert(place, (key, event));
            } else {
                self.here.queue.push(key, event);
            }
            return;
        };
        let slots = &mut self.slots[kind];
        if slot >= slots.len() {
            slots.resize(slot + 1, Handle::NONE);
        }
        match slots[slot] {
            Handle::NONE => slots[slot] = self.here.queue.push(key, event),
            handle => self.here.queue.renew(handle, key, event),
        }
    }

    /// The next event no later than `end`; time moves on to it.
    pub fn next(&mut self, end: Time) -> Option<Event> {
        // A later one has its turn when somebody asks for a later end.
        let due = self.here.queue.first().filter(|key| key.at <= end);
        let first = match (self.here.instant.last(), due) {
            (Some((soon, _)), Some(due)) if due < *soon => self.here.queue.pop(),
            (Some(_), _) => self.here.instant.pop(),
            (None, Some(_)) => self.here.queue.pop(),
            (None, None) => None,
        };
        let Some((key, event)) = first else {
            self.here.now = self.here.now.max(end);
            return None;
        };
        debug_assert!(key.at >= self.here.now, "time runs backwards");
        if let Some((kind, slot)) = event.slot() {
            self.slots[kind][slot] = Handle::NONE;
        }
        self.here.now = key.at;
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
