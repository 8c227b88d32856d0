// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The second opinion.

use std::collections::BTreeMap;

use units::Time;

use super::EventQueue;
use super::Handle;
use super::Key;
use crate::event::Event;

/// A B-tree: a different structure with the same order. It exists so that a run
/// can be repeated on it and compared byte by byte.
#[derive(Debug, Default)]
pub struct Tree(BTreeMap<Key, Event>);

impl EventQueue for Tree {
    fn push(&mut self, key: Key, event: Event) -> Handle {
        let twice = self.0.insert(key, event);
        debug_assert!(twice.is_none(), "two events with one key");
        Handle(0)
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        self.0.pop_first()
    }

    fn cancel(&mut self, key: Key, _: Handle) {
        let gone = self.0.remove(&key);
        debug_assert!(gone.is_some(), "cancelled what has happened");
    }

    fn first_at(&self) -> Option<Time> {
        self.0.first_key_value().map(|(key, _)| key.at)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
