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

/// Settings of [`Reader`]. Laid out as written: see there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ReaderSettings {
    /// Requests in flight.
    pub depth: u32,
    /// Bytes of one.
    pub bytes: u32,
    /// From which device.
    pub device: DeviceId,
    /// Spread of `process`: sigma of its logarithm in thousandths.
    pub process_spread: u32,
    /// CPU time to make and submit one request.
    pub submit: Ns,
    /// CPU time to take its completion and do what is to be done with the data.
    pub process: Ns,
    /// CPU time of each completion after the first that it finds without waiting again,
    /// its interrupt and the next submission included: it takes all of them before it
    /// submits as many, and `process` and `submit` are paid once for each wait. `None`: every
    /// completion costs them, and is followed by a submission.
    pub further: Option<Ns>,
    /// Where it reads: from `start` on, `span` bytes.
    pub start: u64,
    /// See `start`.
    pub span: u64,
    /// One block after the other, or anywhere.
    pub sequential: bool,
    /// It writes, or sends.
    pub write: bool,
    /// Bursts with pauses between them, if any.
    pub phases: Option<Phases>,
}

/// A task that keeps requests in flight and works on what they bring. Laid out as written:
/// two lines of the cache have all that a request needs.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Reader {
    state: State,
    position: u64,
    in_flight: u32,
    /// It has taken a completion since it waited last.
    has_taken: bool,
    /// It has submitted a request since then.
    has_submitted: bool,
    settings: ReaderSettings,
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
            has_taken: false,
            has_submitted: false,
        }
    }

    /// CPU time of the next submission.
    fn submission(&mut self) -> Ns {
        let had = std::mem::replace(&mut self.has_submitted, true);
        if had && self.settings.further.is_some() {
            Ns::ZERO
        } else {
            self.settings.submit
        }
    }

    /// CPU time of the completion that it has just taken.
    fn processing(&mut self, cx: &mut Cx<'_>) -> Ns {
        let had = std::mem::replace(&mut self.has_taken, true);
        match self.settings.further {
            Some(further) if had => further,
            _ => cx
                .random
                .log_normal(self.settings.process, self.settings.process_spread),
        }
    }

    /// Takes the next completion, or waits for one.
    fn wait(&mut self, cx: &Cx<'_>) -> Step {
        if cx.ready == 0 {
            self.has_taken = false;
            self.has_submitted = false;
        }
        self.state = State::Taken;
        Step::Await
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
                    if self.settings.further.is_some() && cx.ready > 0 {
                        // All of a batch are taken before any is submitted again.
                        return self.wait(cx);
                    }
                    if self.in_flight < self.settings.depth.max(1) {
                        if let Some(off) = self.pause(cx.now) {
                            if self.in_flight > 0 {
                                return self.wait(cx);
                            }
                            self.phase_began = None;
                            self.has_submitted = false;
                            return Step::Sleep(off);
                        }
                        self.state = State::Submit;
                        let submission = self.submission();
                        if submission > Ns::ZERO {
                            return Step::Compute(submission);
                        }
                    } else {
                        return self.wait(cx);
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
                    let processing = self.processing(cx);
                    if processing > Ns::ZERO {
                        return Step::Compute(processing);
                    }
                }
                State::Count(since) => {
                    cx.complete(u64::from(self.settings.bytes), cx.now.since(since));
                    self.state = State::Fill;
                }
            }
        }
    }

    fn device(&self) -> Option<DeviceId> {
        Some(self.settings.device)
    }
}
