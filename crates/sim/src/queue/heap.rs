// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The default queue.

use super::EventQueue;
use super::Handle;
use super::Key;
use crate::event::Event;

/// Children of a node. Four halve the depth of two; the least of them is found
/// within two cache lines.
const WIDTH: usize = 4;

/// An indexed heap with four children per node. What is compared (24 bytes) lies
/// apart from the events, and the place of each event is known, so that one whose
/// time has changed can be taken out instead of being left behind: what waits is
/// bounded by what can happen, and what is counted as an event has happened. It is
/// not faster than the standard library's heap with dead events in it.
#[derive(Debug, Default)]
pub struct Heap {
    nodes: Vec<Node>,
    /// By handle.
    events: Vec<Event>,
    /// Where its node is, by handle: written at every step of a node, so it is apart
    /// from the events, which are six times as large.
    places: Vec<u32>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    handle: u32,
}

impl Heap {
    /// Puts `node` at a place or above it, wherever it belongs.
    fn rise(&mut self, mut place: usize, node: Node) {
        while place > 0 {
            let parent = (place - 1) / WIDTH;
            let above = self.nodes[parent];
            if above.key <= node.key {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, node);
    }

    /// Puts `node` at a place or below it, wherever it belongs.
    fn sink(&mut self, mut place: usize, node: Node) {
        loop {
            let first = place * WIDTH + 1;
            let last = (first + WIDTH).min(self.nodes.len());
            let Some(least) = (first..last).min_by_key(|child| self.nodes[*child].key) else {
                break;
            };
            let below = self.nodes[least];
            if node.key <= below.key {
                break;
            }
            self.put(place, below);
            place = least;
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: Node) {
        self.nodes[place] = node;
        self.places[node.handle as usize] = place as u32;
    }
}

impl EventQueue for Heap {
    fn push(&mut self, key: Key, event: Event) -> Handle {
        let place = self.nodes.len();
        let handle = if let Some(handle) = self.free.pop() {
            self.events[handle as usize] = event;
            handle
        } else {
            self.events.push(event);
            self.places.push(0);
            self.events.len() as u32 - 1
        };
        let node = Node { key, handle };
        self.nodes.push(node);
        self.rise(place, node);
        Handle(handle)
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        let last = self.nodes.pop()?;
        let first = match self.nodes.first() {
            Some(first) => {
                let first = *first;
                self.sink(0, last);
                first
            }
            None => last,
        };
        self.free.push(first.handle);
        Some((first.key, self.events[first.handle as usize]))
    }

    fn renew(&mut self, handle: Handle, key: Key, event: Event) {
        self.events[handle.0 as usize] = event;
        let place = self.places[handle.0 as usize] as usize;
        let old = self.nodes[place];
        debug_assert_eq!(old.handle, handle.0, "renewed what has happened");
        let node = Node {
            key,
            handle: handle.0,
        };
        if key < old.key {
            self.rise(place, node);
        } else {
            self.sink(place, node);
        }
    }

    fn first(&self) -> Option<Key> {
        self.nodes.first().map(|node| node.key)
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }
}
