// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task that reads from a device.

use units::Ns;
use units::Time;

use super::Cx;
use super::Program;
use super::Request;
use super::Step;
use crate::ids::DeviceId;

/// Reading and pausing in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Reads for so long.
    pub on: Ns,
    /// Then sleeps for so long.
    pub off: Ns,
}

/// Settings of [`Reader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderSettings {
    /// From which device.
    pub device: DeviceId,
    /// Requests in flight.
    pub depth: u32,
    /// Bytes of one.
    pub bytes: u32,
    /// Where it reads: from `start` on, `span` bytes.
    pub start: u64,
    /// See `start`.
    pub span: u64,
    /// One block after the other, or anywhere.
    pub sequential: bool,
    /// CPU time to make and submit one request.
    pub submit: Ns,
    /// CPU time to take its completion and do what is to be done with the data.
    pub process: Ns,
    /// Spread of `process`: sigma of its logarithm in thousandths.
    pub process_spread: u32,
    /// It writes, or sends.
    pub write: bool,
    /// Bursts with pauses between them, if any.
    pub phases: Option<Phases>,
}

/// A task that keeps requests in flight and works on what they bring.
#[derive(Clone, Debug)]
pub struct Reader {
    settings: ReaderSettings,
    state: State,
    in_flight: u32,
    position: u64,
    phase_began: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Decide: submit more, or wait.
    Fill,
    /// The CPU time of a submission has been spent: submit.
    Submit,
    /// Has waited: one completion is there.
    Taken,
    /// The completion's CPU time has been spent: it counts. Since then.
    Count(Time),
}

impl Reader {
    /// A reader with these settings.
    #[must_use]
    pub const fn new(settings: ReaderSettings) -> Self {
        Self {
            settings,
            state: State::Fill,
            in_flight: 0,
            position: 0,
            phase_began: None,
        }
    }

    fn request(&mut self, cx: &mut Cx<'_>) -> Request {
        let bytes = u64::from(self.settings.bytes.max(1));
        let blocks = (self.settings.span / bytes).max(1);
        let block = if self.settings.sequential {
            self.position = (self.position + 1) % blocks;
            self.position
        } else {
            cx.random.below(blocks)
        };
        Request {
            device: self.settings.device,
            bytes: self.settings.bytes,
            offset: self.settings.start + block * bytes,
            write: self.settings.write,
        }
    }

    /// Is a burst over?
    fn pause(&mut self, now: Time) -> Option<Ns> {
        let phases = self.settings.phases?;
        let began = *self.phase_began.get_or_insert(now);
        (now.since(began) >= phases.on).then_some(phases.off)
    }
}

impl Program for Reader {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        loop {
            match self.state {
                State::Fill => {
                    if self.in_flight < self.settings.depth.max(1) {
                        if let Some(off) = self.pause(cx.now) {
                            if self.in_flight > 0 {
                                self.state = State::Taken;
                                return Step::Await;
                            }
                            self.phase_began = None;
                            return Step::Sleep(off);
                        }
                        self.state = State::Submit;
                        if self.settings.submit > Ns::ZERO {
                            return Step::Compute(self.settings.submit);
                        }
                    } else {
                        self.state = State::Taken;
                        return Step::Await;
                    }
                }
                State::Submit => {
                    self.in_flight += 1;
                    self.state = State::Fill;
                    return Step::Submit(self.request(cx));
                }
                State::Taken => {
                    self.in_flight -= 1;
                    self.state = State::Count(cx.since);
                    let process = cx
                        .random
                        .log_normal(self.settings.process, self.settings.process_spread);
                    if process > Ns::ZERO {
                        return Step::Compute(process);
                    }
                }
                State::Count(since) => {
                    cx.complete(u64::from(self.settings.bytes), cx.now.since(since));
                    self.state = State::Fill;
                }
            }
        }
    }
}
