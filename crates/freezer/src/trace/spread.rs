// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was delivered of what was asked.

use units::Ns;
use units::VcpuId;

use super::Event;
use super::Span;
use super::Trace;

/// Where values lie, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Spread {
    /// How many values there are.
    pub count: usize,
    /// The smallest.
    pub min: Ns,
    /// A twentieth of them is not above it.
    pub p5: Ns,
    /// Half of them is not above it.
    pub median: Ns,
    /// All but a twentieth of them are not above it.
    pub p95: Ns,
    /// The largest.
    pub max: Ns,
}

impl Spread {
    /// `None` if there are no values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = Ns>) -> Option<Self> {
        let mut sorted: Vec<Ns> = values.into_iter().collect();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied()
        };
        Some(Self {
            count: sorted.len(),
            min: at(0)?,
            p5: at(5)?,
            median: at(50)?,
            p95: at(95)?,
            max: at(100)?,
        })
    }
}

/// What one CPU got. Its first slice, which is its phase, and its last gap, which
/// the stop or the deadline may have ended, are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Delivered {
    /// Which CPU.
    pub cpu: VcpuId,
    /// Lengths of the slices.
    pub on: Spread,
    /// Lengths of the gaps.
    pub off: Spread,
    /// How late the CPU was taken away.
    pub late_out: Spread,
    /// How late it came back.
    pub late_back: Spread,
}

impl Delivered {
    /// From a log. `None` if the CPU has fewer than three gaps in it.
    #[must_use]
    pub fn of(log: &[Event], span: Span, cpu: VcpuId) -> Option<Self> {
        let events: Vec<Event> = log
            .iter()
            .filter(|event| event.cpu == cpu)
            .copied()
            .collect();
        let pairs = Trace::new(events.iter().copied(), span).pairs(cpu);
        let whole = pairs.get(1..pairs.len().checked_sub(1)?)?;
        let events = events.get(1..events.len().checked_sub(1)?)?;
        Some(Self {
            cpu,
            on: Spread::of(whole.iter().map(|pair| pair.on))?,
            off: Spread::of(whole.iter().map(|pair| pair.off))?,
            late_out: Spread::of(events.iter().map(Event::late))?,
            late_back: Spread::of(events.iter().map(Event::overrun))?,
        })
    }
}
