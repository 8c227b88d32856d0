// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks Linux where a device's completions arrive, and tells the programs.
//!
//! Without it a device is known only by requests that complete elsewhere than they were
//! submitted, and a reader that has always been where its completions arrive gives none: it
//! was sent away, and in short bursts took seconds to be brought back
//! (docs/decisions/0016). What is seen comes first all the same: `policy::guest::path`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use units::Ns;
use units::Time;

use super::core::Core;
use crate::act::task::Roots;
use crate::disks::Disks;
use crate::sense::MAX_DEVICES;
use crate::sense::now;

/// How long an answer is good for. Somebody may bind the interrupt elsewhere: irqbalance
/// looks every ten seconds whether it should.
const GOOD_FOR: Ns = Ns::from_secs(10);

/// When each device was asked for last, by its slot; 0: never.
#[derive(Debug)]
pub(super) struct Priors {
    wanted: bool,
    roots: Roots,
    asked: Vec<AtomicU64>,
}

impl Priors {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            roots: Roots::default(),
            asked: (0..MAX_DEVICES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Is it time to ask for this device (0: none)?
    pub(super) fn is_due(&self, core: &Core, dev: u32, now: Time) -> bool {
        self.wanted
            && dev != 0
            && core
                .sense
                .shared()
                .device(dev)
                .is_some_and(|(device, _)| self.last(device, now).is_some())
    }

    /// When it was asked for last, if that is too long ago.
    fn last(&self, device: usize, now: Time) -> Option<u64> {
        let last = self.asked.get(device)?.load(Ordering::Relaxed);
        (last == 0 || now.since(Time(last)) >= GOOD_FOR).then_some(last)
    }

    /// Asks if it is time to, some hundred microseconds; of several that want to know it
    /// at once, one does.
    pub(super) fn ask(&self, core: &Core, dev: u32) {
        if !self.wanted || dev == 0 {
            return;
        }
        let shared = core.sense.shared();
        let now = now();
        let Some((device, _)) = shared.device(dev) else {
            return;
        };
        let Some(last) = self.last(device, now) else {
            return;
        };
        let mine = self.asked[device].compare_exchange(
            last,
            now.as_ns(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if mine.is_err() {
            return;
        }
        let completions = Disks::of(&self.roots).by_number(dev);
        tracing::debug!(dev = %format_args!("{}:{}", dev >> 20, dev & 0xf_ffff), ?completions, "asked Linux");
        shared.set_prior(device, completions.prior());
    }
}
