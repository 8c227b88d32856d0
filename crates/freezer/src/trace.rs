// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arithmetic on a log: who was on when, and what a task could have got from it.
//! Pure: no clock, no BPF.

mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use units::CpuSet;
use units::Ns;
use units::Permille;
use units::Time;
use units::VcpuId;

pub use spread::Delivered;
pub use spread::Spread;

use crate::plan::Pair;

/// One gap of one CPU, as planned and as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    /// Which CPU.
    pub cpu: VcpuId,
    /// When the slice should have ended.
    pub planned_out: Time,
    /// When the CPU was taken away; never before `planned_out`.
    pub out: Time,
    /// When the CPU should have come back. Earlier than `out` plus the gap asked
    /// for by the lateness of `out`, so that the period is kept.
    pub planned_back: Time,
    /// When it came back.
    pub back: Time,
}

impl Event {
    /// Length of the gap.
    #[must_use]
    pub const fn gap(&self) -> Ns {
        self.back.since(self.out)
    }

    /// How late the CPU was taken away.
    #[must_use]
    pub const fn late(&self) -> Ns {
        self.out.since(self.planned_out)
    }

    /// How late it came back.
    #[must_use]
    pub const fn overrun(&self) -> Ns {
        self.back.since(self.planned_back)
    }
}

/// A stretch of time, `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// Its beginning.
    pub from: Time,
    /// Its end, not included.
    pub to: Time,
}

impl Span {
    /// How long it is; zero if it ends before it begins.
    #[must_use]
    pub const fn len(&self) -> Ns {
        self.to.since(self.from)
    }

    /// Is it of length zero?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len().0 == 0
    }
}

/// A log and the stretch of time that it covers. Outside of the logged gaps a CPU
/// is taken to be on.
#[derive(Clone, Debug)]
pub struct Trace {
    span: Span,
    /// Per CPU in the log, its gaps in order, clipped to the span.
    gaps: BTreeMap<VcpuId, Vec<Span>>,
}

impl Trace {
    /// Of the events, those parts that lie within `span`, in any order.
    #[must_use]
    pub fn new(log: impl IntoIterator<Item = Event>, span: Span) -> Self {
        let mut gaps: BTreeMap<VcpuId, Vec<Span>> = BTreeMap::new();
        for event in log {
            let gap = Span {
                from: event.out.max(span.from),
                to: event.back.min(span.to),
            };
            if !gap.is_empty() {
                gaps.entry(event.cpu).or_default().push(gap);
            }
        }
        for gaps in gaps.values_mut() {
            gaps.sort_by_key(|gap| gap.from);
        }
        Self { span, gaps }
    }

    /// The stretch of time that it covers.
    #[must_use]
    pub const fn span(&self) -> Span {
        self.span
    }

    /// The gaps of a CPU, in order, clipped to the span.
    #[must_use]
    pub fn gaps(&self, cpu: VcpuId) -> &[Span] {
        self.gaps.get(&cpu).map_or(&[], Vec::as_slice)
    }

    /// The slices of a CPU, in order; the first and the last may be cut off by the
    /// span.
    #[must_use]
    pub fn slices(&self, cpu: VcpuId) -> Vec<Span> {
        let mut slices = Vec::new();
        let mut from = self.span.from;
        for gap in self.gaps(cpu) {
            slices.push(Span { from, to: gap.from });
            from = gap.to;
        }
        slices.push(Span {
            from,
            to: self.span.to,
        });
        slices.retain(|slice| !slice.is_empty());
        slices
    }

    /// For how long the CPU was on.
    #[must_use]
    pub fn on_time(&self, cpu: VcpuId) -> Ns {
        self.span.len() - self.gaps(cpu).iter().map(Span::len).sum()
    }

    /// The share of the time in which the CPU was on.
    #[must_use]
    pub fn on_share(&self, cpu: VcpuId) -> Permille {
        Permille::of(self.on_time(cpu), self.span.len())
    }

    /// For how long at least one of the CPUs was on: what a task gets that always
    /// sits on a running CPU. Zero for an empty set.
    #[must_use]
    pub fn any_on_time(&self, cpus: &CpuSet) -> Ns {
        if cpus.is_empty() {
            return Ns::ZERO;
        }
        self.span.len() - self.time_with_off(cpus, cpus.len())
    }

    /// As a share of the time; see [`Trace::any_on_time`].
    #[must_use]
    pub fn any_on(&self, cpus: &CpuSet) -> Permille {
        Permille::of(self.any_on_time(cpus), self.span.len())
    }

    /// For how long exactly `off` of the CPUs were off at once.
    #[must_use]
    pub fn time_with_off(&self, cpus: &CpuSet, off: u32) -> Ns {
        let levels = self.levels(cpus).into_iter();
        levels
            .filter(|(_, n)| *n == off)
            .map(|(span, _)| span.len())
            .sum()
    }

    /// The longest stretch in which all the CPUs were off at once.
    #[must_use]
    pub fn longest_all_off(&self, cpus: &CpuSet) -> Ns {
        let levels = self.levels(cpus).into_iter();
        let all_off = levels.filter(|(_, n)| *n > 0 && *n == cpus.len());
        all_off
            .map(|(span, _)| span.len())
            .max()
            .unwrap_or_default()
    }

    /// The span cut into stretches, each with the number of CPUs that were off.
    fn levels(&self, cpus: &CpuSet) -> Vec<(Span, u32)> {
        let gaps = cpus.iter().flat_map(|cpu| self.gaps(cpu));
        // At one instant returns come first (-1 before 1), so that gaps which
        // merely touch do not overlap.
        let mut edges: Vec<(Time, i32)> =
            gaps.flat_map(|gap| [(gap.from, 1), (gap.to, -1)]).collect();
        edges.sort_unstable();
        edges.push((self.span.to, 0));
        let mut off = 0i32;
        let mut from = self.span.from;
        let mut levels = Vec::with_capacity(edges.len());
        for (to, change) in edges {
            if to > from {
                levels.push((Span { from, to }, off.unsigned_abs()));
            }
            from = to;
            off += change;
        }
        levels
    }

    /// How many times more than vanilla a task can get that always sits on a
    /// running CPU: the union's share over the mean share of the CPUs, on which a
    /// task that stays where it is depends. `None` if no CPU was ever on.
    #[must_use]
    pub fn bound(&self, cpus: &CpuSet) -> Option<f64> {
        let on: Ns = cpus.iter().map(|cpu| self.on_time(cpu)).sum();
        let mean = on.0 as f64 / f64::from(cpus.len());
        (on > Ns::ZERO).then(|| self.any_on_time(cpus).0 as f64 / mean)
    }

    /// The whole slices of a CPU, each with the gap after it: what a plan can
    /// replay. The first slice counts if the span begins with it.
    #[must_use]
    pub fn pairs(&self, cpu: VcpuId) -> Vec<Pair> {
        let mut from = self.span.from;
        let mut pairs = Vec::new();
        for gap in self.gaps(cpu) {
            pairs.push(Pair {
                on: gap.from.since(from),
                off: gap.len(),
            });
            from = gap.to;
        }
        pairs
    }
}

/// The analytic bound for CPUs with independent phases: a task that always sits on
/// a running one of `cpus` CPUs, each on for `share` of the time, gains at most
/// `(1 - (1 - share)^cpus) / share`. `share` is above 0 and at most 1.
#[must_use]
pub fn analytic_bound(cpus: u32, share: f64) -> f64 {
    (1.0 - (1.0 - share).powf(f64::from(cpus))) / share
}
