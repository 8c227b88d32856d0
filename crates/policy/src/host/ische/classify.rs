// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which VM is I/O-intensive, from its counters (our option for S4).
//!
//! The published model leaves it to the administrator; one sentence of it says
//! that the model monitors the type. A VM is I/O-intensive if it waits for
//! responses often and does not need much CPU time: both, because many events
//! beside a saturated CPU belong on a general core, where the CPU time is.

use units::Ns;
use units::Permille;

use super::Kind;

/// When a VM changes its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// I/O response events per second and vCPU that make it I/O-intensive. 100:
    /// one per slice of 10 ms.
    pub events_per_s: u64,
    /// At half of that it is still I/O-intensive, if it was (hysteresis).
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
}

impl Classifier {
    /// A VM of this type.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind, against: 0 }
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
        let seen = self.seen(period, settings);
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

    fn seen(&self, period: &Period, settings: &Settings) -> Kind {
        let vcpu_time = period.length * u64::from(period.vcpus);
        if Permille::of(period.demand, vcpu_time) > settings.cpu_max {
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
