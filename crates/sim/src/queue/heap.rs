// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The default queue.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::EventQueue;
use super::Key;
use crate::event::Event;

/// A binary heap in one array: the events of a run are few (some per vCPU), so
/// the heap stays in the cache and nothing cleverer has been faster.
#[derive(Debug, Default)]
pub struct Heap(BinaryHeap<Entry>);

#[derive(Debug)]
struct Entry(Key, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed: the standard heap gives its largest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.cmp(&self.0)
    }
}

impl EventQueue for Heap {
    fn push(&mut self, key: Key, event: Event) {
        self.0.push(Entry(key, event));
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        self.0.pop().map(|Entry(key, event)| (key, event))
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
