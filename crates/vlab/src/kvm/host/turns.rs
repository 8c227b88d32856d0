// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host's trace says about a window. Pure.

use std::collections::BTreeMap;

use experiment::lab::Turns;
use experiment::result::Host;
use scx_vcpu::trace::Event;
use scx_vcpu::trace::Kind;
use units::Ns;
use units::Time;

/// A window on the host's clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its begin.
    pub from: Time,
    /// Its end.
    pub to: Time,
}

impl Span {
    pub(super) fn length(self) -> Ns {
        self.to.since(self.from)
    }

    /// The part of `from..to` that lies in the window.
    fn part(self, from: Time, to: Time) -> (Time, Time) {
        let from = from.max(self.from);
        (from, to.min(self.to).max(from))
    }

    /// From when the first of these windows opens until the last one closes.
    pub(super) fn around(windows: &[Self]) -> Option<Self> {
        let from = windows.iter().map(|window| window.from).min()?;
        let to = windows.iter().map(|window| window.to).max()?;
        Some(Self { from, to })
    }
}

/// Spans of a vCPU in a state, over the window.
#[derive(Debug, Default)]
struct Spans(Vec<(Time, Time)>);

impl Spans {
    fn total(&self) -> Ns {
        self.0
            .iter()
            .fold(Ns::ZERO, |sum, (from, to)| sum + to.since(*from))
    }
}

/// What a vCPU does.
#[derive(Clone, Copy, PartialEq)]
enum State {
    On,
    Waits,
    Sleeps,
}

/// A vCPU's present state with its begin, and when it was on and waited.
type Vcpu = (Option<(State, Time)>, Spans, Spans);

/// When each vCPU of `vm` was on and when it waited, cut to the window.
fn states(events: &[Event], vm: u32, window: Span) -> BTreeMap<u16, (Spans, Spans)> {
    let mut vcpus: BTreeMap<u16, Vcpu> = BTreeMap::new();
    let close = |entry: &mut Vcpu, until: Time| {
        if let Some((state, since)) = entry.0 {
            let part = window.part(since, until);
            if part.0 == part.1 {
                return;
            }
            match state {
                State::On => entry.1.0.push(part),
                State::Waits => entry.2.0.push(part),
                State::Sleeps => {}
            }
        }
    };
    for event in events.iter().filter(|event| event.vm == vm) {
        let entry = vcpus.entry(event.vcpu).or_default();
        let next = match event.kind {
            Kind::On => State::On,
            Kind::OffVcpu | Kind::OffHost => State::Waits,
            Kind::OffBlocked => State::Sleeps,
            // A wake-up that comes before the vCPU was off changes nothing.
            Kind::Wake if matches!(entry.0, Some((State::On | State::Waits, _))) => continue,
            Kind::Wake => State::Waits,
        };
        close(entry, event.at);
        entry.0 = Some((next, event.at));
    }
    vcpus
        .into_iter()
        .map(|(vcpu, mut entry)| {
            close(&mut entry, window.to);
            (vcpu, (entry.1, entry.2))
        })
        .collect()
}

/// How long each vCPU of a VM waited for a pCPU, by its number.
pub(super) fn waited(events: &[Event], vm: u32, window: Span) -> BTreeMap<u16, Ns> {
    states(events, vm, window)
        .into_iter()
        .map(|(vcpu, (_, waits))| (vcpu, waits.total()))
        .collect()
}

/// CPU time that the vCPUs of a VM had together.
pub(super) fn ran(events: &[Event], vm: u32, window: Span) -> Ns {
    let states = states(events, vm, window);
    states.values().map(|(on, _)| on.total()).sum()
}

/// When each vCPU of a VM was kept waiting for a pCPU, by its number.
pub(super) fn gaps(events: &[Event], vm: u32, window: Span) -> BTreeMap<u16, Vec<(Time, Time)>> {
    states(events, vm, window)
        .into_iter()
        .map(|(vcpu, (_, waits))| (vcpu, waits.0))
        .collect()
}

/// When the vCPUs of a VM were on or asleep by their own choice, that is: not
/// kept waiting. That is what `on` means for the other backends too.
pub(super) fn host(events: &[Event], vm: u32, window: Span) -> Host {
    let states = states(events, vm, window);
    let length = window.length().0.max(1) as f64;
    let on_share = states
        .values()
        .map(|(_, waits)| 1.0 - waits.total().0 as f64 / length)
        .collect();
    let all_wait = states
        .values()
        .map(|(_, waits)| waits.0.clone())
        .reduce(|a, b| intersect(&a, &b))
        .unwrap_or_default();
    let slices = states.values().map(|(on, _)| on.0.len() as u64).sum();
    Host {
        on_share,
        union_share: 1.0 - Spans(all_wait).total().0 as f64 / length,
        slices,
        ..Host::default()
    }
}

/// The instants that are in both lists of disjoint spans in order.
fn intersect(a: &[(Time, Time)], b: &[(Time, Time)]) -> Vec<(Time, Time)> {
    let (mut i, mut j) = (0, 0);
    let mut both = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (from, to) = (x.0.max(y.0), x.1.min(y.1));
        if from < to {
            both.push((from, to));
        }
        if x.1 < y.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

/// The turns of vCPUs on one pCPU.
///
/// A turn begins when a vCPU gets the pCPU from another one (or from nobody) and
/// ends when it sleeps or another vCPU gets it; a host thread that runs in
/// between does not end it.
pub fn turns(events: &[Event], cpu: u16, asked: Ns, window: Span) -> Turns {
    let mut lengths: Vec<Ns> = Vec::new();
    let mut given_up = 0;
    let mut running: Option<(u32, Time)> = None;
    let on_cpu = events
        .iter()
        .filter(|event| event.cpu == cpu && event.kind != Kind::Wake);
    for event in on_cpu {
        let ended = match (event.kind, running) {
            (Kind::On, Some((tid, _))) if tid == event.tid => None,
            (Kind::On, last) => {
                running = Some((event.tid, event.at));
                // Its end was not seen: a preempted vCPU that another followed.
                last.map(|(_, since)| (since, false))
            }
            (Kind::OffHost | Kind::Wake, _) | (_, None) => None,
            (kind, Some((_, since))) => {
                running = None;
                Some((since, kind == Kind::OffBlocked))
            }
        };
        if let Some((since, gave_up)) = ended
            && since >= window.from
            && event.at <= window.to
        {
            lengths.push(event.at.since(since));
            given_up += u64::from(gave_up);
        }
    }
    lengths.sort_unstable();
    let at = |percent: usize| {
        lengths
            .get((lengths.len().saturating_sub(1)) * percent / 100)
            .copied()
            .unwrap_or(Ns::ZERO)
    };
    Turns {
        asked,
        count: lengths.len() as u64,
        given_up,
        p05: at(5),
        p50: at(50),
        p95: at(95),
    }
}

/// How often in the window the events of a pCPU contradict each other: it gets a vCPU while
/// it has one, or loses one that it does not have. Then events between are missing.
#[must_use]
pub fn holes(events: &[Event], window: Span) -> u64 {
    // What each pCPU has, once it is known.
    let mut on: BTreeMap<u16, Option<u32>> = BTreeMap::new();
    let mut holes = 0;
    for event in events.iter().take_while(|event| event.at <= window.to) {
        let (had, has) = match event.kind {
            Kind::On => (None, Some(event.tid)),
            Kind::OffBlocked | Kind::OffVcpu | Kind::OffHost => (Some(event.tid), None),
            Kind::Wake => continue,
        };
        let known = on.insert(event.cpu, has);
        if event.at >= window.from && known.is_some_and(|known| known != had) {
            holes += 1;
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, vm: u32, vcpu: u16, cpu: u16, kind: Kind) -> Event {
        Event {
            at: Time(at),
            vm,
            tid: vm * 10 + u32::from(vcpu),
            vcpu,
            cpu,
            kind,
        }
    }

    const WINDOW: Span = Span {
        from: Time(0),
        to: Time(1000),
    };

    /// Two VMs with two vCPUs take turns of 100 on each pCPU, in step.
    fn in_step() -> Vec<Event> {
        let mut events = Vec::new();
        for turn in 0..10 {
            for cpu in 0..2 {
                let (from, vm) = (turn * 100, 1 + (turn % 2) as u32);
                events.push(event(from, vm, cpu, cpu, Kind::On));
                events.push(event(from + 100, vm, cpu, cpu, Kind::OffVcpu));
            }
        }
        events.sort_by_key(|event| event.at);
        events
    }

    #[test]
    fn turns_in_step_leave_a_vm_half_of_the_time_without_any_vcpu() {
        let events = in_step();
        let host = host(&events, 1, WINDOW);
        assert_eq!(host.on_share, [0.5, 0.5]);
        assert!((host.union_share - 0.5).abs() < 1e-9);
        assert_eq!(waited(&events, 1, WINDOW)[&0], Ns(500));
        // Half of two pCPUs.
        assert_eq!(ran(&events, 1, WINDOW), Ns(1000));
    }

    #[test]
    fn what_is_around_windows_is_from_the_first_to_the_last() {
        let span = |from, to| Span {
            from: Time(from),
            to: Time(to),
        };
        let around = Span::around(&[span(2, 10), span(4, 14), span(20, 21)]);
        let around = around.map(|around| (around.from, around.to));
        assert_eq!(around, Some((Time(2), Time(21))));
        assert!(Span::around(&[]).is_none());
    }

    #[test]
    fn a_turn_survives_a_host_thread_and_ends_when_the_vcpu_sleeps() {
        let events = [
            event(0, 1, 0, 0, Kind::On),
            event(40, 1, 0, 0, Kind::OffHost),
            event(45, 1, 0, 0, Kind::On),
            event(100, 1, 0, 0, Kind::OffVcpu),
            event(100, 2, 0, 0, Kind::On),
            event(130, 2, 0, 0, Kind::OffBlocked),
            event(140, 2, 0, 0, Kind::Wake),
            event(150, 2, 0, 0, Kind::On),
            event(1200, 2, 0, 0, Kind::OffVcpu),
        ];
        let turns = turns(&events, 0, Ns(100), WINDOW);
        assert_eq!((turns.count, turns.given_up), (2, 1));
        assert_eq!((turns.p05, turns.p95), (Ns(30), Ns(30)));
        // 2 waited from its wake-up to its turn; 1 while the host's thread ran.
        assert_eq!(waited(&events, 2, WINDOW)[&0], Ns(10));
        let gaps = gaps(&events, 1, WINDOW);
        assert_eq!(gaps[&0], [(Time(40), Time(45)), (Time(100), Time(1000))]);
        assert_eq!(waited(&events, 1, WINDOW)[&0], Ns(5 + 900));
    }

    #[test]
    fn a_trace_with_a_hole_is_seen_to_have_one() {
        let whole = in_step();
        assert_eq!(holes(&whole, WINDOW), 0);
        // Whatever single event is lost, but the first and the last of a pCPU.
        for lost in 2..whole.len() - 2 {
            let mut cut = whole.clone();
            let event = cut.remove(lost);
            assert_eq!(holes(&cut, WINDOW), 1, "{event:?}");
            let later = Span {
                from: Time(event.at.0 + 101),
                ..WINDOW
            };
            assert_eq!(holes(&cut, later), 0, "{event:?}");
        }
    }

    #[test]
    fn a_window_cuts_what_began_before_it() {
        let window = Span {
            from: Time(150),
            to: Time(250),
        };
        let host = host(&in_step(), 1, window);
        assert!((host.on_share[0] - 0.5).abs() < 1e-9, "{host:?}");
        assert_eq!(turns(&in_step(), 0, Ns(100), window).count, 0);
    }
}
