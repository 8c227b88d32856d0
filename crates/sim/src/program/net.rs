// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks at the two ends of a network path.

use units::Ns;

use super::Cx;
use super::Program;
use super::Request;
use super::Step;
use crate::ids::DeviceId;

/// Receives a message and answers it: ping, Sockperf, a server.
#[derive(Debug)]
pub struct Echo {
    device: DeviceId,
    bytes: u32,
    work: Ns,
    step: u8,
}

impl Echo {
    /// Answers with so many bytes after so much work.
    #[must_use]
    pub const fn new(device: DeviceId, bytes: u32, work: Ns) -> Self {
        Self {
            device,
            bytes,
            work,
            step: 0,
        }
    }

    fn request(&self, write: bool) -> Step {
        Step::Submit(Request {
            device: self.device,
            bytes: self.bytes,
            offset: 0,
            write,
        })
    }
}

impl Program for Echo {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        let step = self.step;
        self.step = (self.step + 1) % 5;
        match step {
            0 => self.request(false),
            1 | 4 => Step::Await,
            2 => Step::Compute(self.work.max(Ns(1))),
            _ => {
                cx.complete(u64::from(self.bytes), cx.now.since(cx.since));
                self.request(true)
            }
        }
    }

    fn device(&self) -> Option<DeviceId> {
        Some(self.device)
    }
}

/// The driver domain's half of a device: takes one entry after the other off its
/// ring (6.1 c and d).
#[derive(Debug)]
pub struct Backend {
    work: Ns,
    copies: Option<u64>,
    step: u8,
}

impl Backend {
    /// So much work for each entry, requests and responses alike, and for those of a
    /// network the time to copy their data at so many bytes per second.
    #[must_use]
    pub const fn new(work: Ns, copies: Option<u64>) -> Self {
        Self {
            work,
            copies,
            step: 0,
        }
    }

    fn copy(&self, bytes: u32) -> Ns {
        match self.copies {
            Some(rate) => Ns(u64::from(bytes)).scaled(1_000_000_000, rate.max(1)),
            None => Ns::ZERO,
        }
    }
}

impl Program for Backend {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        let step = self.step;
        self.step = (self.step + 1) % 3;
        match step {
            0 => Step::Receive,
            1 => Step::Compute((self.work + self.copy(cx.bytes)).max(Ns(1))),
            _ => {
                cx.done.operations += 1;
                Step::Serve
            }
        }
    }
}
