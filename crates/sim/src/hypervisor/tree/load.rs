// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of the time a vCPU has wanted a pCPU of late: the load average of an
//! entity in Linux 3.8 to 5.3 (`kernel/sched/pelt.c`).

use units::Time;

/// Time is cut into periods of 2^20 ns.
const PERIOD_BITS: u32 = 20;
/// The load of one that wants a pCPU all the time.
pub(super) const FULL: u64 = 1 << PERIOD_BITS;
/// 2^32 y^n for n = 1, 2, 4, 8, 16, with y^32 = 1/2.
const DECAY: [u64; 5] = [
    4_202_935_003,
    4_112_874_773,
    3_938_502_376,
    3_611_622_603,
    3_037_000_500,
];

/// `value` after this many periods.
const fn decayed(value: u64, periods: u64) -> u64 {
    if periods >= 32 * 32 {
        return 0;
    }
    let mut value = value >> (periods / 32);
    let mut bit = 0;
    while bit < DECAY.len() {
        if periods & (1 << bit) != 0 {
            value = (value * DECAY[bit]) >> 32;
        }
        bit += 1;
    }
    value
}

/// A moving average over whole periods, half of which is from the last 32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    average: u64,
    /// Time wanted in the period under way.
    part: u64,
    since: Time,
    wants: bool,
}

impl Load {
    /// Of one that has not wanted a pCPU until `now`.
    pub(super) const fn new(now: Time) -> Self {
        Self {
            average: 0,
            part: 0,
            since: now,
            wants: false,
        }
    }

    /// Counts the time up to `now`; from then on it wants a pCPU or not. Returns its
    /// load, at most [`FULL`].
    pub(super) fn update(&mut self, now: Time, wants: bool) -> u64 {
        let (from, to) = (self.since.as_ns(), now.as_ns());
        let periods = (to >> PERIOD_BITS) - (from >> PERIOD_BITS);
        let passed = |ns: u64| if self.wants { ns } else { 0 };
        if periods == 0 {
            self.part += passed(to - from);
        } else {
            let full = self.part + passed(FULL - from % FULL);
            let before = decayed(self.average, 1) + (full - decayed(full, 1));
            let target = passed(FULL);
            self.average = decayed(before, periods - 1) + (target - decayed(target, periods - 1));
            self.part = passed(to % FULL);
        }
        self.since = now;
        self.wants = wants;
        self.average
    }

    /// As [`Load::update`], and it goes on as it is.
    pub(super) fn refresh(&mut self, now: Time) -> u64 {
        self.update(now, self.wants)
    }
}

#[cfg(test)]
mod tests {
    use units::Ns;

    use super::*;

    fn periods(n: u64) -> Time {
        Time::ZERO + Ns(n << PERIOD_BITS)
    }

    /// 32 periods bring it half of the way, 64 three quarters; so does the way back.
    #[test]
    fn half_of_it_is_from_the_last_32_periods() {
        let mut load = Load::new(Time::ZERO);
        load.update(Time::ZERO, true);
        let near = |load: u64, part: f64| (load as f64 / FULL as f64 - part).abs() < 1e-4;
        assert!(near(load.refresh(periods(32)), 0.5));
        assert!(near(load.refresh(periods(64)), 0.75));
        assert!(near(load.update(periods(2000), false), 1.0));
        assert!(near(load.refresh(periods(2032)), 0.5));
        assert_eq!(load.refresh(periods(9000)), 0);
    }

    /// One that wants a pCPU for a quarter of each period has a load of a quarter,
    /// however often it is looked at.
    #[test]
    fn looking_changes_nothing() {
        let quarter = Ns(FULL / 4);
        let mut loads = [Load::new(Time::ZERO), Load::new(Time::ZERO)];
        for n in 0..400 {
            for (looks, load) in loads.iter_mut().enumerate() {
                load.update(periods(n), true);
                if looks > 0 {
                    load.refresh(periods(n) + quarter / 3);
                }
                load.update(periods(n) + quarter, false);
                if looks > 0 {
                    load.refresh(periods(n) + quarter * 2);
                }
            }
        }
        let [seldom, often] = loads.map(|mut load| load.refresh(periods(400)));
        assert!(seldom.abs_diff(FULL / 4) < 300, "{seldom}");
        assert!(seldom.abs_diff(often) < 100, "{seldom} {often}");
    }
}
