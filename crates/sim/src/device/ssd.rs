// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A solid-state disk.

use std::collections::VecDeque;

use units::Ns;
use units::Time;

use super::Device;
use super::DeviceCx;
use super::Io;
use crate::ids::TaskId;
use crate::ids::VmId;

/// With a token: the request is on the link.
const LINK: u64 = 1 << 63;

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
    /// Lost when a request is not of the stream (VM and task) of the one before:
    /// what is not adjacent is not merged.
    pub turn: Ns,
}

/// Channels that serve requests in order of arrival, and one link over which all
/// data goes as it is ready: a slow request does not hold up the others.
/// Work-conserving (C12).
#[derive(Debug)]
pub struct Ssd {
    settings: SsdSettings,
    queue: VecDeque<Io>,
    /// What it works on, by the place that a token names.
    working: Vec<Option<Io>>,
    /// Places that are free.
    free: Vec<u64>,
    /// The stream of the last request.
    last: Option<(VmId, TaskId)>,
    /// The link is in use until then.
    link_free: Time,
}

impl Ssd {
    /// An idle disk.
    #[must_use]
    pub const fn new(settings: SsdSettings) -> Self {
        Self {
            settings,
            queue: VecDeque::new(),
            working: Vec::new(),
            free: Vec::new(),
            last: None,
            link_free: Time::ZERO,
        }
    }

    fn begin(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        let latency = cx
            .random()
            .log_normal(self.settings.latency, self.settings.spread_permille);
        let place = self.free.pop().unwrap_or_else(|| {
            self.working.push(None);
            self.working.len() as u64 - 1
        });
        self.working[place as usize] = Some(io);
        cx.after(latency, place);
    }

    fn busy(&self) -> usize {
        self.working.len() - self.free.len()
    }

    /// The data of a request is ready: it takes its turn on the link. When it will
    /// be over it, if that takes any time.
    fn link(&mut self, io: &Io, now: Time) -> Option<Time> {
        let transfer = Ns(u64::from(io.request.bytes)).scaled(1_000_000_000, self.settings.rate);
        let stream = Some((io.vm, io.task));
        let turn = if self.last.is_some() && self.last != stream {
            self.settings.turn
        } else {
            Ns::ZERO
        };
        self.last = stream;
        self.link_free = self.link_free.max(now) + transfer + turn;
        Some(self.link_free).filter(|at| *at > now)
    }
}

impl Device for Ssd {
    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>) {
        if self.busy() < self.settings.channels.max(1) as usize {
            self.begin(io, cx);
        } else {
            self.queue.push_back(io);
        }
    }

    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>) {
        let place = token & !LINK;
        let Some(io) = self.working.get(place as usize).copied().flatten() else {
            debug_assert!(false, "no request in place {place}");
            return;
        };
        if token & LINK == 0
            && let Some(at) = self.link(&io, cx.now())
        {
            cx.after(at.since(cx.now()), token | LINK);
            return;
        }
        self.working[place as usize] = None;
        self.free.push(place);
        cx.complete(io);
        if let Some(next) = self.queue.pop_front() {
            self.begin(next, cx);
        }
    }

    fn in_flight(&self) -> u64 {
        (self.busy() + self.queue.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::ids::DeviceId;
    use crate::ids::Vcpu;
    use crate::program::Request;
    use crate::queue::Agenda;
    use crate::queue::QueueKind;
    use crate::random::Random;
    use crate::random::Stream;

    const SETTINGS: SsdSettings = SsdSettings {
        latency: Ns::from_us(100),
        spread_permille: 0,
        channels: 64,
        // 65 536 bytes take 64 us.
        rate: 1_024_000_000,
        turn: Ns::ZERO,
    };

    fn io(vm: u32, number: u64) -> Io {
        Io {
            vm: VmId(vm),
            vcpu: Vcpu(vm),
            task: TaskId(0),
            number,
            request: Request {
                device: DeviceId(0),
                bytes: 65_536,
                offset: 0,
                write: false,
            },
        }
    }

    /// When the requests complete that are given to a disk at once, by number.
    fn completions(settings: SsdSettings, requests: &[Io]) -> Vec<(u64, Ns)> {
        let mut agenda = Agenda::new(QueueKind::default());
        let mut random = Random::child(1, Stream::Device, 0, 0);
        let mut disk = Ssd::new(settings);
        let mut done = Vec::new();
        let mut act = |agenda: &mut Agenda, what: &mut dyn FnMut(&mut Ssd, &mut DeviceCx<'_>)| {
            let mut completed = Vec::new();
            what(
                &mut disk,
                &mut DeviceCx {
                    id: DeviceId(0),
                    agenda,
                    random: &mut random,
                    completed: &mut completed,
                },
            );
            done.extend(
                completed
                    .iter()
                    .map(|io| (io.number, agenda.now().since(Time::ZERO))),
            );
        };
        for request in requests {
            act(&mut agenda, &mut |disk, cx| disk.submit(*request, cx));
        }
        while let Some(event) = agenda.next(Time(u64::MAX)) {
            if let Event::Device { token, .. } = event {
                act(&mut agenda, &mut |disk, cx| disk.event(token, cx));
            }
        }
        done
    }

    /// Two streams in turn: each request but the first loses the turn.
    #[test]
    fn streams_that_alternate_lose_turns() {
        let turn = Ns::from_us(36);
        let settings = SsdSettings { turn, ..SETTINGS };
        let two: Vec<Io> = (0..4).map(|n| io(n % 2, u64::from(n))).collect();
        let one: Vec<Io> = (0..4).map(|n| io(0, n)).collect();
        let last = |done: Vec<(u64, Ns)>| done.last().map(|(_, at)| *at);
        assert_eq!(
            last(completions(settings, &one)),
            Some(Ns::from_us(100 + 4 * 64))
        );
        assert_eq!(
            last(completions(settings, &two)),
            Some(Ns::from_us(100 + 4 * 64 + 3 * 36))
        );
    }

    /// A slow request does not hold up those that are ready before it.
    #[test]
    fn data_goes_over_the_link_as_it_is_ready() {
        let settings = SsdSettings {
            spread_permille: 2000,
            ..SETTINGS
        };
        let all: Vec<Io> = (0..64).map(|n| io(0, n)).collect();
        let done = completions(settings, &all);
        assert_eq!(done.len(), 64);
        let order: Vec<u64> = done.iter().map(|(number, _)| *number).collect();
        assert!(!order.is_sorted(), "{order:?}");
        // The link is never idle while the median is ready.
        let half = done[31].1;
        assert!(half < Ns::from_us(100 + 40 * 64), "{half}");
    }
}
