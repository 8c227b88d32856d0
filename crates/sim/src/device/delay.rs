// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that is never busy.

use std::collections::BTreeMap;

use units::Ns;

use super::Device;
use super::DeviceCx;
use super::Io;

/// Every request takes as long, however many there are: the timers of `vlab load
/// pulse`.
#[derive(Debug)]
pub struct Delay {
    length: Ns,
    /// Sigma of the logarithm of the length, in thousandths.
    spread_permille: u32,
    waiting: BTreeMap<u64, Io>,
    next: u64,
}

impl Delay {
    /// A device with this latency.
    #[must_use]
    pub const fn new(length: Ns, spread_permille: u32) -> Self {
        Self {
            length,
            spread_permille,
            waiting: BTreeMap::new(),
            next: 0,
        }
    }
}

impl Device for Delay {
    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        let token = self.next;
        self.next += 1;
        self.waiting.insert(token, io);
        let length = cx.random().log_normal(self.length, self.spread_permille);
        cx.after(length, token);
    }

    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>) {
        if let Some(io) = self.waiting.remove(&token) {
            cx.complete(io);
        }
    }

    fn in_flight(&self) -> u64 {
        self.waiting.len() as u64
    }
}
