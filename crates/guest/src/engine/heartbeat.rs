// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published heartbeat (V7, V8): where no steal page says when a vCPU was away,
//! its monitor wakes often, and one that wakes late has been away with its vCPU.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use policy::guest::heartbeat::Pace;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::core::Core;

/// One vCPU's heartbeat, as the others see it.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// The last beat, ns of `CLOCK_MONOTONIC`; zero while there is none.
    last: AtomicU64,
    /// From one to the next, ns; zero before the first.
    period: AtomicU64,
    /// The longest time to the next that is no gap, ns.
    limit: AtomicU64,
}

impl Pulse {
    pub(super) fn last(&self) -> Time {
        Time(self.last.load(Ordering::Acquire))
    }

    fn limit(&self) -> Ns {
        Ns(self.limit.load(Ordering::Relaxed))
    }

    fn is_silent(&self, now: Time) -> bool {
        let last = self.last();
        last != Time::ZERO && now.since(last) > self.limit()
    }
}

/// vCPUs whose heartbeat has stopped (V8).
pub(super) fn silent(core: &Core, now: Time) -> CpuSet {
    core.vcpus()
        .filter(|vcpu| core.pulses[vcpu.index()].is_silent(now))
        .collect()
}

/// The typical error of an instant now: what was measured at the start, and what the
/// slowest heartbeat has been stretched by since.
pub(super) fn accuracy(core: &Core) -> Ns {
    let periods = core.pulses.iter().map(|pulse| &pulse.period);
    let slowest = periods.map(|period| Ns(period.load(Ordering::Relaxed)));
    core.accuracy + (slowest.max().unwrap_or(Ns::ZERO) - core.settings.heartbeat.period)
}

/// What beats: part of a vCPU's monitor.
#[derive(Debug)]
pub(super) struct Heart {
    me: VcpuId,
    beating: bool,
    /// The period that was told last.
    told: Ns,
}

impl Heart {
    pub(super) fn new(core: &Core, me: VcpuId) -> Self {
        Self {
            me,
            beating: false,
            told: core.settings.heartbeat.period,
        }
    }

    /// Is the monitor's alarm a heartbeat?
    pub(super) const fn is_beating(&self) -> bool {
        self.beating
    }

    /// The alarm went off: a late beat means that we were away.
    pub(super) fn beat(&self, core: &Core, pace: &Pace, now: Time) {
        let pulse = &core.pulses[self.me.index()];
        let (last, limit) = (pulse.last(), pulse.limit());
        pulse.last.store(now.as_ns(), Ordering::Release);
        if last == Time::ZERO || now.since(last) <= limit {
            return;
        }
        // A vCPU that was idle when its timer was due slept; to be woken late is
        // not the end of a slice.
        let shared = core.sense.shared();
        let idled = shared.vcpu(self.me).idle_end;
        if idled.since(last) > Ns::ZERO && now.since(idled) < pace.period() {
            return;
        }
        if let Err(error) = core.sense.late_beat(self.me, last, now) {
            core.fail(format!("cannot book a gap: {error}"));
        }
    }

    /// When the next beat is due, asked at the end of each look. A look in between,
    /// for a bell, does not put it off: to the others it would be missing.
    pub(super) fn next(&mut self, core: &Core, pace: &Pace, now: Time) -> Time {
        self.beating = true;
        let (period, limit) = (pace.period(), pace.limit());
        self.tell(period);
        let pulse = &core.pulses[self.me.index()];
        pulse.period.store(period.as_ns(), Ordering::Relaxed);
        pulse.limit.store(limit.as_ns(), Ordering::Relaxed);
        let last = pulse.last();
        let from = if last == Time::ZERO { now } else { last };
        from + period
    }

    /// No beat is due any more.
    pub(super) fn stop(&mut self, core: &Core) {
        self.beating = false;
        core.pulses[self.me.index()]
            .last
            .store(0, Ordering::Release);
    }

    /// Says when beats have become dear, or cheap again: twice as seldom as last told,
    /// or as often.
    fn tell(&mut self, period: Ns) {
        if period >= self.told * 2 || period * 2 <= self.told {
            self.told = period;
            tracing::info!(vcpu = %self.me, %period, "the heartbeat's period follows what a beat costs here");
        }
    }
}
