// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual disk that one thread of the host serves.

use std::collections::VecDeque;

use units::Ns;

use super::Device;
use super::DeviceCx;
use super::Io;

/// The token that ends its sleep; any other ends a request.
const BEGIN: u64 = u64::MAX;

/// Settings of [`Served`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedSettings {
    /// From the first request until the thread works, and from its last one until the
    /// guest is told.
    pub begin: Ns,
    /// Median time of one request.
    pub latency: Ns,
    /// Sigma of its logarithm, in thousandths.
    pub spread_permille: u32,
}

/// The thread sleeps until the guest kicks it, serves one request after the other, and
/// tells the guest of all of them, with one interrupt, when it finds no more: virtio-blk
/// over synchronous reads. Requests that come meanwhile lengthen the batch.
#[derive(Debug)]
pub struct Served {
    settings: ServedSettings,
    queue: VecDeque<Io>,
    /// Done, and the guest does not know.
    untold: Vec<Io>,
    /// It does not sleep.
    awake: bool,
}

impl Served {
    /// An idle disk.
    #[must_use]
    pub const fn new(settings: ServedSettings) -> Self {
        Self {
            settings,
            queue: VecDeque::new(),
            untold: Vec::new(),
            awake: false,
        }
    }

    fn serve(&self, cx: &mut DeviceCx<'_>) {
        let length = cx
            .random()
            .log_normal(self.settings.latency, self.settings.spread_permille);
        cx.after(length, 0);
    }
}

impl Device for Served {
    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        self.queue.push_back(io);
        if !self.awake {
            self.awake = true;
            cx.after(self.settings.begin, BEGIN);
        }
    }

    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>) {
        if token != BEGIN {
            self.untold.extend(self.queue.pop_front());
        }
        if !self.queue.is_empty() {
            self.serve(cx);
            return;
        }
        self.awake = false;
        for io in self.untold.drain(..) {
            cx.complete(io);
        }
    }

    fn in_flight(&self) -> u64 {
        (self.queue.len() + self.untold.len()) as u64
    }
}
