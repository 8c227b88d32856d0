// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which VM is I/O-intensive, from its counters (our option for S4).
//!
//! The published model leaves it to the administrator; one sentence of it says
//! that the model monitors the type. A VM is I/O-intensive if it waits for
//! responses often and does not need much CPU time: both, because many events
//! beside a saturated CPU belong on a general core, where the CPU time is.
//!
//! # Weakness
//!
//! Events can be faked, and a VM that wants much and is taken for I/O-intensive has an
//! I/O core to itself where others share theirs. [`Classifier::on_period_of_share`] is
//! the fix: an I/O core is for who wants no more than its share, over all the periods
//! that are looked at together, so that there is no CPU time to gain.

use std::collections::VecDeque;

use units::Ns;
use units::Permille;

use super::Kind;

/// When a VM changes its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// I/O response events per second and vCPU that make it I/O-intensive. 100:
    /// one per slice of 10 ms. At half of that it is still I/O-intensive, if it was
    /// (hysteresis).
    pub events_per_s: u64,
    /// CPU demand per vCPU above which it is CPU-intensive whatever it does.
    pub cpu_max: Permille,
    /// Periods in a row that must say the same before the type changes. A change
    /// relabels and moves all its vCPUs, so it must be worth it.
    pub periods: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            events_per_s: 100,
            cpu_max: Permille::new(700),
            periods: 5,
        }
    }
}

/// Counters of one VM over one period, all vCPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// How long the period was.
    pub length: Ns,
    /// vCPUs of the VM.
    pub vcpus: u32,
    /// I/O response events (I2's definition).
    pub events: u64,
    /// CPU time used plus time ready but not running: what it wanted.
    pub demand: Ns,
}

/// The type of one VM over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classifier {
    kind: Kind,
    against: u32,
    /// The latest periods, where they are judged together.
    recent: VecDeque<Period>,
}

impl Classifier {
    /// A VM of this type.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            against: 0,
            recent: VecDeque::new(),
        }
    }

    /// Its type now.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// After one more period; true if the type has changed. DOM0 never does (S3).
    pub fn on_period(&mut self, period: &Period, settings: &Settings) -> bool {
        if self.kind == Kind::Dom0 || period.length == Ns::ZERO || period.vcpus == 0 {
            return false;
        }
        let seen = self.seen(period, settings.cpu_max, settings);
        if seen == self.kind {
            self.against = 0;
            return false;
        }
        self.against += 1;
        if self.against < settings.periods {
            return false;
        }
        self.kind = seen;
        self.against = 0;
        true
    }

    /// The same with our fix: the last [`Settings::periods`] periods are judged by their
    /// sums, which no pattern of good and bad ones hides from, and a VM that wants more
    /// than `share` of a pCPU for each vCPU is CPU-intensive: what one would have if all
    /// VMs took what is theirs by weight.
    pub fn on_period_of_share(
        &mut self,
        period: &Period,
        share: Permille,
        settings: &Settings,
    ) -> bool {
        if self.kind == Kind::Dom0 || period.length == Ns::ZERO || period.vcpus == 0 {
            return false;
        }
        self.recent.push_back(*period);
        let wanted = settings.periods.max(1) as usize;
        while self.recent.len() > wanted {
            self.recent.pop_front();
        }
        let mut all = Period {
            vcpus: period.vcpus,
            ..Period::default()
        };
        for one in &self.recent {
            all.length += one.length;
            all.events = all.events.saturating_add(one.events);
            all.demand += one.demand;
        }
        let seen = self.seen(&all, settings.cpu_max.min(share), settings);
        // One of which little is known is CPU-intensive: that has nothing to give away.
        let known = self.recent.len() == wanted || seen == Kind::Cpu;
        let changes = known && seen != self.kind;
        if changes {
            self.kind = seen;
        }
        changes
    }

    fn seen(&self, period: &Period, cpu_max: Permille, settings: &Settings) -> Kind {
        let vcpu_time = period.length * u64::from(period.vcpus);
        if Permille::of(period.demand, vcpu_time) > cpu_max {
            return Kind::Cpu;
        }
        let limit = match self.kind {
            Kind::Io => settings.events_per_s / 2,
            Kind::Cpu | Kind::Dom0 => settings.events_per_s,
        };
        // events / vcpu_time >= limit per second, without losing a remainder.
        let enough = vcpu_time.scaled(limit, 1_000_000_000).as_ns();
        if period.events > 0 && period.events >= enough {
            Kind::Io
        } else {
            Kind::Cpu
        }
    }
}
