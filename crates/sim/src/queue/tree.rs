// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The second opinion.

use std::collections::BTreeMap;

use super::EventQueue;
use super::Handle;
use super::Key;
use crate::event::Event;

/// A B-tree: a different structure with the same order. It exists so that a run
/// can be repeated on it and compared byte by byte.
#[derive(Debug, Default)]
pub struct Tree {
    waiting: BTreeMap<Key, (Event, u32)>,
    /// By handle, which are counted.
    keys: BTreeMap<u32, Key>,
    handles: u32,
}

impl Tree {
    fn insert(&mut self, handle: u32, key: Key, event: Event) {
        let twice = self.waiting.insert(key, (event, handle));
        debug_assert!(twice.is_none(), "two events with one key");
        self.keys.insert(handle, key);
    }
}

impl EventQueue for Tree {
    fn push(&mut self, key: Key, event: Event) -> Handle {
        // The last number means none.
        self.handles = (self.handles + 1) % u32::MAX;
        self.insert(self.handles, key, event);
        Handle(self.handles)
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        let (key, (event, handle)) = self.waiting.pop_first()?;
        self.keys.remove(&handle);
        Some((key, event))
    }

    fn renew(&mut self, handle: Handle, key: Key, event: Event) {
        let old = self.keys.remove(&handle.0);
        debug_assert!(old.is_some(), "renewed what has happened");
        if let Some(old) = old {
            self.waiting.remove(&old);
        }
        self.insert(handle.0, key, event);
    }

    fn first(&mut self) -> Option<Key> {
        self.waiting.first_key_value().map(|(key, _)| *key)
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}
