// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The default queue.

use std::collections::VecDeque;

use units::Time;

use super::EventQueue;
use super::Handle;
use super::Key;
use crate::event::Event;

/// The finest wheel's slot is so many ns long, as a power of two: 128 ns, about what
/// two events are apart with 10 000 vCPUs. Slots that are empty cost a bit of a word
/// each, so that finer than needed is no loss.
const SLOT_BITS: u32 = 7;
/// Slots of a wheel, as a power of two.
const WHEEL_BITS: u32 = 10;
const WHEEL: usize = 1 << WHEEL_BITS;
/// So many wheels that together they reach the end of time.
const WHEELS: usize = (u64::BITS - SLOT_BITS).div_ceil(WHEEL_BITS) as usize;
/// No entry.
const NONE: u32 = u32::MAX;
/// The wheel of an entry that is in none but near.
const NEAR: u8 = u8::MAX;

/// Hierarchical timing wheels (Varghese and Lauck 1987, scheme 7; so are the timers of
/// many kernels): an event waits in a list of the slot in which it is due, of the finest
/// wheel that has this slot and now in one turn. When the time of a slot has come its
/// events go to finer wheels; those of the finest are sorted. So an event costs the same
/// whatever else waits. A heap with four children per node, what had been here before, was
/// as fast with 96 vCPUs and cost 45 ns more per event with 9984 (docs/performance.md).
///
/// An entry stays where it is in memory while it waits, and a new one takes the place of
/// the last that has gone: what is touched is no more than what waits.
#[derive(Debug)]
pub struct Wheel {
    /// By handle.
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Due before slot `cursor`, in order.
    near: VecDeque<(Key, u32)>,
    /// The slot that is sorted next: all that is due earlier is near. The slots of the
    /// coarser wheels that it lies in are empty.
    cursor: u64,
    wheels: Vec<Slots>,
    waiting: usize,
}

/// In one line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry {
    key: Key,
    event: Event,
    /// Its neighbours in the list of its slot.
    next: u32,
    before: u32,
    wheel: u8,
}

/// One wheel.
#[derive(Debug)]
struct Slots {
    heads: Box<[u32; WHEEL]>,
    /// Which have any.
    taken: [u64; WHEEL / 64],
}

impl Slots {
    fn new() -> Self {
        Self {
            heads: Box::new([NONE; WHEEL]),
            taken: [0; WHEEL / 64],
        }
    }

    /// Empties a slot; its first entry.
    fn empty(&mut self, place: usize) -> u32 {
        self.taken[place / 64] &= !(1 << (place % 64));
        std::mem::replace(&mut self.heads[place], NONE)
    }

    /// The first slot from `from` on that has any.
    fn first(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.taken[word] & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            bits = *self.taken.get(word)?;
        }
    }
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            near: VecDeque::new(),
            cursor: 0,
            wheels: (0..WHEELS).map(|_| Slots::new()).collect(),
            waiting: 0,
        }
    }
}

/// The slot of the finest wheel in which it is due.
const fn slot_of(at: Time) -> u64 {
    at.as_ns() >> SLOT_BITS
}

impl Wheel {
    /// Puts an entry where its time belongs.
    fn place(&mut self, handle: u32) {
        let key = self.entries[handle as usize].key;
        let slot = slot_of(key.at);
        if slot < self.cursor {
            self.entries[handle as usize].wheel = NEAR;
            let place = self.near.partition_point(|(other, _)| *other < key);
            self.near.insert(place, (key, handle));
            return;
        }
        // The highest digit in which it differs from now says which wheel turns to it.
        let digit = (slot ^ self.cursor).checked_ilog2().unwrap_or(0) / WHEEL_BITS;
        let place = place_in(slot, digit);
        let slots = &mut self.wheels[digit as usize];
        let next = std::mem::replace(&mut slots.heads[place], handle);
        slots.taken[place / 64] |= 1 << (place % 64);
        if next != NONE {
            self.entries[next as usize].before = handle;
        }
        let entry = &mut self.entries[handle as usize];
        entry.next = next;
        entry.before = NONE;
        entry.wheel = digit as u8;
    }

    /// Takes an entry out of where it waits.
    fn displace(&mut self, handle: u32) {
        let Entry {
            key,
            next,
            before,
            wheel,
            ..
        } = self.entries[handle as usize];
        if wheel == NEAR {
            let place = self.near.partition_point(|(other, _)| *other < key);
            self.near.remove(place);
            return;
        }
        if next != NONE {
            self.entries[next as usize].before = before;
        }
        if before != NONE {
            self.entries[before as usize].next = next;
            return;
        }
        let place = place_in(slot_of(key.at), u32::from(wheel));
        let slots = &mut self.wheels[usize::from(wheel)];
        slots.heads[place] = next;
        if next == NONE {
            slots.taken[place / 64] &= !(1 << (place % 64));
        }
    }

    /// Sorts what is due next, if that has not been done.
    fn sort_next(&mut self) {
        while self.near.is_empty() && self.waiting > 0 {
            let Some((wheel, place)) = self.next_slot() else {
                debug_assert!(false, "what waits is in no slot");
                return;
            };
            let width = wheel * WHEEL_BITS;
            let turn = self.cursor >> width >> WHEEL_BITS << WHEEL_BITS;
            let slot = (turn | place as u64) << width;
            if wheel == 0 {
                self.turn_to(slot + 1);
                self.spread(0, place);
            } else {
                self.turn_to(slot);
            }
        }
    }

    /// The slot that is due next: of the finest wheel that has any, for what is in a
    /// coarser one is due after this one's turn.
    fn next_slot(&self) -> Option<(u32, usize)> {
        (0..WHEELS as u32).find_map(|wheel| {
            let from = place_in(self.cursor, wheel);
            let place = self.wheels[wheel as usize].first(from)?;
            Some((wheel, place))
        })
    }

    /// Where a coarser wheel turns, too, its slot goes to finer ones.
    fn turn_to(&mut self, cursor: u64) {
        self.cursor = cursor;
        let turned = (cursor.trailing_zeros() / WHEEL_BITS).min(WHEELS as u32 - 1);
        for wheel in 1..=turned {
            self.spread(wheel, place_in(cursor, wheel));
        }
    }

    /// Places the entries of a slot anew.
    fn spread(&mut self, wheel: u32, place: usize) {
        let mut handle = self.wheels[wheel as usize].empty(place);
        while handle != NONE {
            let next = self.entries[handle as usize].next;
            self.place(handle);
            handle = next;
        }
    }
}

impl EventQueue for Wheel {
    fn push(&mut self, key: Key, event: Event) -> Handle {
        let entry = Entry {
            key,
            event,
            next: NONE,
            before: NONE,
            wheel: NEAR,
        };
        let handle = if let Some(handle) = self.free.pop() {
            self.entries[handle as usize] = entry;
            handle
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.waiting += 1;
        self.place(handle);
        Handle(handle)
    }

    fn pop(&mut self) -> Option<(Key, Event)> {
        self.sort_next();
        let (key, handle) = self.near.pop_front()?;
        self.waiting -= 1;
        self.free.push(handle);
        Some((key, self.entries[handle as usize].event))
    }

    fn renew(&mut self, handle: Handle, key: Key, event: Event) {
        self.displace(handle.0);
        let entry = &mut self.entries[handle.0 as usize];
        entry.key = key;
        entry.event = event;
        self.place(handle.0);
    }

    fn first(&mut self) -> Option<Key> {
        self.sort_next();
        self.near.front().map(|(key, _)| *key)
    }

    fn len(&self) -> usize {
        self.waiting
    }
}

/// A slot's place in a wheel.
const fn place_in(slot: u64, wheel: u32) -> usize {
    (slot >> (wheel * WHEEL_BITS)) as usize % WHEEL
}
