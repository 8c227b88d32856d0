// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of an I/O-bound thread went. Pure.
//!
//! # Problem
//! A thread that waits for I/O beside compute, on vCPUs that come and go, loses
//! time in six ways (see [`TaskState`]), of which placement can change some and
//! a wake-up lever others. Rates alone do not tell them apart.
//!
//! # Approach
//! Two records on one clock: what the thread did, as the guest's scheduler saw it
//! ([`TaskEvent`]), and when each vCPU was off, as the host saw it ([`Gaps`]).
//! While a thread is current or queued, its vCPU being off is what counts. While it
//! waits for I/O, the vCPU that will wake it counts, from the instant at which
//! the device is done:
//!
//! ```text
//! waits ├──── device ────┤├── pending: that vCPU is off ──┤ woken
//!       blocked          + device time
//! ```
//!
//! No scheduler event says when the device was done. It is taken to be one
//! *device time* after the thread fell asleep: the median of those waits that no
//! gap of the waking vCPU touches.
//!
//! # Limits
//! A device whose times vary makes the border between device and pending wrong
//! by as much, in single waits; in sums that mostly cancels. A request that the
//! device completes within the call that submits it never shows as waiting: it is
//! the thread's own CPU time.

use serde::Deserialize;
use serde::Serialize;
use units::Ns;
use units::Time;

use crate::result::IoTime;
use crate::result::Spell;
use crate::result::Spells;
use crate::result::TaskState;

#[cfg(test)]
mod tests;

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It became current.
    In,
    /// It stopped being current but wants to go on.
    Ready,
    /// It stopped being current and waits for I/O.
    Io,
    /// It stopped being current and waits for something else.
    Sleep,
    /// Something on that vCPU wakes it.
    Waking,
    /// It is queued on that vCPU from now on.
    Moved,
}

/// One event of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// When.
    pub at: Time,
    /// On which vCPU.
    pub cpu: u32,
    /// What.
    pub what: What,
}

/// When each vCPU was off: by vCPU number, from and to, in order.
#[derive(Clone, Debug, Default)]
pub struct Gaps(pub Vec<Vec<(Time, Time)>>);

impl Gaps {
    /// The gaps of a vCPU that overlap a stretch, clipped to it.
    fn within(&self, cpu: u32, from: Time, to: Time) -> impl Iterator<Item = (Time, Time)> + '_ {
        let gaps = self.0.get(cpu as usize).map_or(&[][..], Vec::as_slice);
        let first = gaps.partition_point(|gap| gap.1 <= from);
        gaps[first..]
            .iter()
            .take_while(move |gap| gap.0 < to)
            .map(move |gap| (gap.0.max(from), gap.1.min(to)))
    }
}

/// What a thread did between two events, before gaps are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Current,
    Queued,
    /// Woken in the end on that vCPU.
    Io {
        waker: u32,
    },
    Sleep,
}

/// A stretch of a thread's life.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: Time,
    to: Time,
    cpu: u32,
    base: Base,
}

/// A thread's events as stretches, from the first event to `end`.
fn stretches(events: &[TaskEvent], end: Time) -> Vec<Stretch> {
    let mut out = Vec::with_capacity(events.len());
    let mut cpu = events.first().map_or(0, |event| event.cpu);
    for (n, event) in events.iter().enumerate() {
        let next = events.get(n + 1);
        let before: Option<Base> = out.last().map(|last: &Stretch| last.base);
        let base = match event.what {
            What::In => Base::Current,
            What::Ready => Base::Queued,
            What::Io | What::Sleep => {
                // What it waits for is only known from what wakes it: the next
                // event that is not a change of its queue.
                let ends = events[n + 1..].iter().find(|e| e.what != What::Moved);
                match ends.map(|e| e.what) {
                    // A waker stamps before it waits for the sleeper to be off
                    // its vCPU, so its event may precede the sleeper's: then the
                    // thread does not sleep at all.
                    Some(What::In) => Base::Queued,
                    _ if event.what == What::Sleep => Base::Sleep,
                    Some(What::Waking) => Base::Io {
                        waker: ends.map_or(event.cpu, |e| e.cpu),
                    },
                    // Still waiting at the end.
                    _ => Base::Io { waker: event.cpu },
                }
            }
            What::Waking => match before {
                // A wake-up of a thread that has not fallen asleep.
                Some(Base::Current) => Base::Current,
                _ => Base::Queued,
            },
            What::Moved => before.unwrap_or(Base::Queued),
        };
        // The event of a waker says where the waker was, not the thread.
        if event.what != What::Waking {
            cpu = event.cpu;
        }
        out.push(Stretch {
            from: event.at,
            to: next.map_or(end, |next| next.at),
            cpu,
            base,
        });
    }
    out
}

/// What a thread must have been doing before its first event.
fn before_first(first: &TaskEvent, from: Time) -> Option<Stretch> {
    let base = match first.what {
        What::In | What::Moved => Base::Queued,
        What::Ready | What::Io | What::Sleep => Base::Current,
        What::Waking => Base::Io { waker: first.cpu },
    };
    (first.at > from).then_some(Stretch {
        from,
        to: first.at,
        cpu: first.cpu,
        base,
    })
}

/// The usual time that the device takes, from waits that no gap disturbs: their
/// median; if all were disturbed, the shortest; zero without any.
fn device_time(threads: &[Vec<Stretch>], gaps: &Gaps) -> Ns {
    let waits = threads.iter().flatten().filter_map(|s| match s.base {
        Base::Io { waker } => Some((waker, s)),
        _ => None,
    });
    let (mut calm, mut disturbed) = (Vec::new(), Vec::new());
    for (waker, s) in waits {
        let list = match gaps.within(waker, s.from, s.to).next() {
            None => &mut calm,
            Some(_) => &mut disturbed,
        };
        list.push(s.to.since(s.from));
    }
    calm.sort_unstable();
    match calm.get(calm.len() / 2) {
        Some(median) => *median,
        None => disturbed.into_iter().min().unwrap_or_default(),
    }
}

/// Cuts a stretch where its vCPU goes off and comes back.
fn cut(out: &mut Spells, s: &Stretch, gaps: &Gaps, device: Ns) {
    let (on, off, judge, since) = match s.base {
        Base::Current => (TaskState::Running, TaskState::CurrentOff, s.cpu, s.from),
        Base::Queued => (TaskState::Queued, TaskState::QueuedOff, s.cpu, s.from),
        Base::Io { waker } => (
            TaskState::Device,
            TaskState::Pending,
            waker,
            s.from + device,
        ),
        Base::Sleep => (TaskState::Asleep, TaskState::Asleep, s.cpu, s.from),
    };
    let mut push = |state, cpu, from: Time, to: Time| {
        out.push(Spell {
            state,
            cpu,
            length: to.since(from),
        });
    };
    let mut at = s.from;
    for (from, to) in gaps.within(judge, since.min(s.to), s.to) {
        push(on, s.cpu, at, from);
        push(off, judge, from, to);
        at = to;
    }
    push(on, s.cpu, at, s.to);
}

/// What each thread did from `from` to `to`, without a hole. Each thread's events
/// are in the order of time; those before `from` tell how it begins. A thread
/// without any event is left out: nobody knows what it does.
#[must_use]
pub fn spells(
    threads: &[Vec<TaskEvent>],
    gaps: &Gaps,
    from: Time,
    to: Time,
) -> Vec<Option<Spells>> {
    let cut_off = |mut s: Stretch| {
        s.from = s.from.max(from);
        s.to = s.to.min(to);
        (s.from < s.to).then_some(s)
    };
    let whole: Vec<Vec<Stretch>> = threads
        .iter()
        .map(|events| {
            let before = events.first().and_then(|first| before_first(first, from));
            before.into_iter().chain(stretches(events, to)).collect()
        })
        .collect();
    let device = device_time(&whole, gaps);
    whole
        .into_iter()
        .map(|stretches| {
            if stretches.is_empty() {
                return None;
            }
            let mut spells = Spells::default();
            for s in stretches {
                // A wait is judged from its own beginning, which may be before
                // `from`: so cut first, then clip.
                clipped(&mut spells, &s, gaps, device, &cut_off);
            }
            Some(spells)
        })
        .collect()
}

/// [`cut`], of which only the part within the window is kept.
fn clipped(
    out: &mut Spells,
    s: &Stretch,
    gaps: &Gaps,
    device: Ns,
    cut_off: &impl Fn(Stretch) -> Option<Stretch>,
) {
    let Some(kept) = cut_off(*s) else { return };
    let mut whole = Spells::default();
    cut(&mut whole, s, gaps, device);
    for (at, spell) in whole.starts() {
        let (from, to) = (s.from + at, s.from + at + spell.length);
        out.push(Spell {
            length: to.min(kept.to).since(from.max(kept.from)),
            ..spell
        });
    }
}

/// The sums of some threads' stretches.
#[must_use]
pub fn sum<'a>(threads: impl IntoIterator<Item = &'a Spells>) -> IoTime {
    let mut time = IoTime::default();
    for spells in threads {
        time.threads += 1;
        let mut place = None;
        for spell in &spells.0 {
            time.add(spell.state, spell.length);
            let at = match place {
                // Its vCPU is the one that the completion waits for, not where the thread is.
                Some(place) if spell.state == TaskState::Pending => place,
                _ => spell.cpu,
            };
            place = Some(at);
            time.add_at(at, spell.length);
        }
    }
    time
}

/// The part of a thread's stretches from `from` to `to`, both counted from their
/// beginning.
#[must_use]
pub fn part(spells: &Spells, from: Ns, to: Ns) -> Spells {
    let mut out = Spells::default();
    for (at, spell) in spells.starts() {
        let end = (at + spell.length).min(to);
        out.push(Spell {
            length: end - at.max(from),
            ..spell
        });
    }
    out
}
