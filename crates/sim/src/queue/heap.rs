// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The default queue.

use units::Time;

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
    events: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    handle: u32,
}

#[derive(Debug)]
struct Entry {
    event: Event,
    place: u32,
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
        self.events[node.handle as usize].place = place as u32;
    }

    /// Takes the node at a place out.
    fn take(&mut self, place: usize) -> Option<(Key, Event)> {
        let last = self.nodes.pop()?;
        let gone = if place < self.nodes.len() {
            let gone = self.nodes[place];
            if place > 0 && last.key < self.nodes[(place - 1) / WIDTH].key {
                self.rise(place, last);
            } else {
                self.sink(place, last);
            }
            gone
        } else {
            last
        };
        self.free.push(gone.handle);
        Some((gone.key, self.events[gone.handle as usize].event))
    }
}

impl EventQueue for Heap {
    fn push(&mut self, key: Key, event: Event) -> Handle {
        let place = self.nodes.len();
        let entry = Entry {
            event,
            place: place as u32,
        };
        let handle = if let Some(handle) = self.free.pop() {
            self.events[handle as usize] = entry;
            handle
        } else {
            self.events.push(entry);
            self.events.len() as u32 - 1
        };
        let node = Node { key, handle };
        self.nodes.push(node);
        self.rise(place, node);
        Handle(handle)
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        self.take(0)
    }

    fn cancel(&mut self, key: Key, handle: Handle) {
        let place = self.events[handle.0 as usize].place as usize;
        debug_assert_eq!(self.nodes[place].key, key, "cancelled what has happened");
        self.take(place);
    }

    fn first_at(&self) -> Option<Time> {
        self.nodes.first().map(|node| node.key.at)
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }
}
