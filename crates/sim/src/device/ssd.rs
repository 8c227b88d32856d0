// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A solid-state disk.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use units::Ns;

use super::Device;
use super::DeviceCx;
use super::Io;

/// Settings of [`Ssd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsdSettings {
    /// Median time to the first byte.
    pub latency: Ns,
    /// Sigma of its logarithm, in thousandths.
    pub spread_permille: u32,
    /// Requests that it works on at once; others queue.
    pub channels: u32,
    /// Bytes per second, over all channels.
    pub rate: u64,
}

/// Channels that serve requests in order of arrival, and one link over which all
/// data goes. Work-conserving (C12).
#[derive(Debug)]
pub struct Ssd {
    settings: SsdSettings,
    queue: VecDeque<Io>,
    working: BTreeMap<u64, Io>,
    next: u64,
    /// The link is in use until then.
    link_free: units::Time,
}

impl Ssd {
    /// An idle disk.
    #[must_use]
    pub const fn new(settings: SsdSettings) -> Self {
        Self {
            settings,
            queue: VecDeque::new(),
            working: BTreeMap::new(),
            next: 0,
            link_free: units::Time::ZERO,
        }
    }

    fn begin(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        let now = cx.now();
        let latency = cx
            .random()
            .log_normal(self.settings.latency, self.settings.spread_permille);
        let transfer = Ns(u64::from(io.request.bytes)).scaled(1_000_000_000, self.settings.rate);
        let link = self.link_free.max(now + latency) + transfer;
        self.link_free = link;
        let token = self.next;
        self.next += 1;
        self.working.insert(token, io);
        cx.after(link.since(now), token);
    }
}

impl Device for Ssd {
    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        if self.working.len() < self.settings.channels.max(1) as usize {
            self.begin(io, cx);
        } else {
            self.queue.push_back(io);
        }
    }

    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>) {
        if let Some(io) = self.working.remove(&token) {
            cx.complete(io);
        }
        if let Some(next) = self.queue.pop_front() {
            self.begin(next, cx);
        }
    }

    fn in_flight(&self) -> u64 {
        (self.working.len() + self.queue.len()) as u64
    }
}
