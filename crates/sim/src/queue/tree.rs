// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The second opinion.

use std::collections::BTreeMap;

use super::EventQueue;
use super::Key;
use crate::event::Event;

/// A B-tree: a different structure with the same order. It exists so that a run
/// can be repeated on it and compared byte by byte.
#[derive(Debug, Default)]
pub struct Tree(BTreeMap<Key, Event>);

impl EventQueue for Tree {
    fn push(&mut self, key: Key, event: Event) {
        let twice = self.0.insert(key, event);
        debug_assert!(twice.is_none(), "two events with one key");
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        self.0.pop_first()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
