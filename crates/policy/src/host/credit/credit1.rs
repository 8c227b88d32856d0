// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit1, Xen's "credit scheduler" (K1..K8).
//!
//! Each pCPU has a [`RunQ`] sorted by [`Priority`], first come first served
//! within a class (K2). Running burns credit; every 30 ms it is handed out again by
//! weight (K5): all that the pCPUs can give, to all together ([`refill`], the
//! simulator), or on each pCPU what was burned there ([`Pool`], the host scheduler). A vCPU that an
//! I/O response wakes is boosted above all others for 10 ms (K4). A pCPU without
//! UNDER work takes some from another ([`steal_from`], K7).
//!
//! # Weaknesses
//!
//! As published, every wake-up by I/O boosts, whatever the vCPU owes: one that
//! sleeps for a moment before its 10 ms are over runs for ever
//! ([`Settings::boost_needs_under`] is the fix, and Xen's own code has it).
//! Many boosted vCPUs at once are round robin again (K8).

mod pool;

use units::Ns;

pub use pool::Part;
pub use pool::Pool;

use super::Credit;
use super::Wake;
use super::Weight;
use super::ffi;

/// What the published text fixes and what it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Slice of an UNDER or OVER vCPU: 30 ms (K6).
    pub slice: Ns,
    /// Time in BOOST after a wake-up: 10 ms (K4).
    pub boost_slice: Ns,
    /// How often credit is handed out: 30 ms (K5).
    pub refill_period: Ns,
    /// Most credit a vCPU can hold; `Ns::ZERO`: no limit. Not stated. 30 ms: one
    /// slice, so that a vCPU that slept for a minute does not then run for one.
    /// [`refill`] heeds it at each hand-out, [`Pool`] for those that go to sleep.
    pub credit_limit: Ns,
    /// Is credit 0 UNDER? Not stated (K3). No: there is nothing left to spend.
    pub zero_is_under: bool,
    /// Our fix, off as published: BOOST only for a vCPU that still has credit.
    pub boost_needs_under: bool,
    /// When running time is charged. Exactly, as K5 reads; sampled is how Xen
    /// does it, which the gaming tests show to be gameable.
    pub charging: Charging,
    /// What a pCPU whose own queue is empty takes from others (K7).
    pub idle_takes: IdleTakes,
}

/// K7 speaks of UNDER vCPUs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleTakes {
    /// As worded: a pCPU may idle while OVER vCPUs wait elsewhere.
    Under,
    /// Whoever is there: what Xen does, where the idle class is below OVER.
    Anybody,
}

/// How running burns credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charging {
    /// Each nanosecond, when the vCPU stops running.
    Exact,
    /// Whoever runs at a tick pays for the whole tick; who sleeps then, nothing.
    Sampled {
        /// The tick; Xen's is 10 ms.
        tick: Ns,
    },
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice: Ns::from_ms(30),
            boost_slice: Ns::from_ms(10),
            refill_period: Ns::from_ms(30),
            credit_limit: Ns::from_ms(30),
            zero_is_under: false,
            boost_needs_under: false,
            charging: Charging::Exact,
            idle_takes: IdleTakes::Anybody,
        }
    }
}

impl Settings {
    /// With our fix, as the gaming tests need it.
    #[must_use]
    pub fn hardened() -> Self {
        Self {
            boost_needs_under: true,
            ..Self::default()
        }
    }
}

/// The three classes (K3), in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Credit used up.
    Over,
    /// Credit left.
    Under,
    /// Just woken by I/O (K4).
    Boost,
}

/// One vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// May run before others do.
    pub credit: Credit,
    /// Woken by I/O and not yet through with its boost slice.
    pub boosted: bool,
    /// Its part of each refill.
    pub weight: Weight,
    /// Upper bound of its CPU time in thousandths of a pCPU; 0: none (K1). The
    /// cap of a domain is spread over its vCPUs by the caller.
    pub cap_permille: u32,
    /// Ran since the last refill, for the cap.
    pub used: Ns,
}

impl Vcpu {
    /// The class it is in now.
    #[must_use]
    pub fn priority(&self, settings: &Settings) -> Priority {
        match ffi::policy_credit1_priority(
            self.credit.0,
            u32::from(self.boosted),
            u32::from(settings.zero_is_under),
        ) {
            0 => Priority::Over,
            1 => Priority::Under,
            _ => Priority::Boost,
        }
    }

    /// It became runnable (K4).
    pub fn on_wake(&mut self, wake: Wake, settings: &Settings) {
        self.boosted = ffi::policy_credit1_wakes_boosted(
            self.credit.0,
            u32::from(wake == Wake::Io),
            u32::from(settings.boost_needs_under),
            u32::from(settings.zero_is_under),
        ) != 0;
    }

    /// It ran for `ran` and stops, for whatever reason. The boost ends with the
    /// run that it caused.
    pub fn on_charge(&mut self, ran: Ns, settings: &Settings) {
        self.used += ran;
        if settings.charging == Charging::Exact {
            self.credit = self.credit.burn(ran);
        }
    }

    /// It ran at a tick of [`Charging::Sampled`].
    pub fn on_tick(&mut self, settings: &Settings) {
        if let Charging::Sampled { tick } = settings.charging {
            self.credit = self.credit.burn(tick);
        }
    }

    /// Its slice is over (or it was preempted, or sleeps): no longer boosted.
    pub fn on_stop(&mut self) {
        self.boosted = false;
    }

    /// Does it preempt `running` when it wakes? Only a higher class does (K4).
    #[must_use]
    pub fn preempts(&self, running: &Self, settings: &Settings) -> bool {
        ffi::policy_credit1_preempts(
            self.priority(settings) as u32,
            running.priority(settings) as u32,
        ) != 0
    }

    /// How long it may run now (K4, K6).
    #[must_use]
    pub fn slice(&self, settings: &Settings) -> Ns {
        Ns(ffi::policy_credit1_slice(
            self.priority(settings) as u32,
            settings.slice.as_ns(),
            settings.boost_slice.as_ns(),
        ))
    }

    /// Has it used up its cap of this period (K1)? Then it must not run until
    /// the next refill.
    #[must_use]
    pub fn is_capped(&self, settings: &Settings) -> bool {
        ffi::policy_credit1_capped(
            self.used.as_ns(),
            self.cap_permille,
            settings.refill_period.as_ns(),
        ) != 0
    }
}

/// Hands out one period's worth of `pcpus` pCPUs to the `active` vCPUs by
/// weight (K5). The caller says who is active: those in a run queue or running,
/// as the source words it. Run queues must be [`RunQ::resort`]ed afterwards.
pub fn refill(table: &mut [Vcpu], active: &[usize], pcpus: u32, settings: &Settings) {
    let pool = settings.refill_period * u64::from(pcpus);
    let weights = active
        .iter()
        .filter_map(|&v| table.get(v))
        .map(|v| u64::from(v.weight.get()))
        .sum();
    for vcpu in table.iter_mut() {
        vcpu.used = Ns::ZERO;
    }
    for &position in active {
        let Some(vcpu) = table.get_mut(position) else {
            continue;
        };
        let share = ffi::policy_credit1_share(pool.as_ns(), vcpu.weight.get(), weights);
        vcpu.credit = Credit(ffi::policy_credit1_refill(
            vcpu.credit.0,
            share,
            settings.credit_limit.as_ns(),
        ));
    }
}

/// The run queue of one pCPU: positions in the table, head first (K2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQ(Vec<usize>);

impl RunQ {
    /// Puts `vcpu` behind all others of its class (K2).
    pub fn insert(&mut self, vcpu: usize, table: &[Vcpu], settings: &Settings) {
        let class = |v: usize| table.get(v).map(|v| v.priority(settings));
        let mine = class(vcpu);
        let at = self.0.partition_point(|&v| class(v) >= mine);
        self.0.insert(at, vcpu);
    }

    /// Takes `vcpu` out; false if it was not in.
    pub fn remove(&mut self, vcpu: usize) -> bool {
        let before = self.0.len();
        self.0.retain(|&v| v != vcpu);
        self.0.len() < before
    }

    /// The head: who runs next (K2). Capped vCPUs stay where they are (K1).
    #[must_use]
    pub fn head(&self, table: &[Vcpu], settings: &Settings) -> Option<usize> {
        let ready = |&v: &usize| table.get(v).is_some_and(|v| !v.is_capped(settings));
        self.0.iter().copied().find(ready)
    }

    /// Sorts again after credits have changed; the order within a class stays.
    pub fn resort(&mut self, table: &[Vcpu], settings: &Settings) {
        self.0
            .sort_by_key(|&v| std::cmp::Reverse(table.get(v).map(|v| v.priority(settings))));
    }

    /// Head first.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }
}

/// K7: a pCPU whose next vCPU is not UNDER or better looks at the `others` in
/// the given order and takes the first that is; one that has nobody at all takes
/// what [`Settings::idle_takes`] says. `may(v)`: can `v` run on this pCPU?
/// Returns (queue, vCPU).
#[must_use]
pub fn steal_from(
    own: &RunQ,
    others: &[&RunQ],
    table: &[Vcpu],
    may: impl Fn(usize) -> bool,
    settings: &Settings,
) -> Option<(usize, usize)> {
    let find = |queue: &RunQ, least: Priority| {
        let fits = |&v: &usize| {
            may(v)
                && table
                    .get(v)
                    .is_some_and(|v| !v.is_capped(settings) && v.priority(settings) >= least)
        };
        queue.as_slice().iter().copied().find(fits)
    };
    let first = |least: Priority| {
        others
            .iter()
            .enumerate()
            .find_map(|(queue, other)| find(other, least).map(|v| (queue, v)))
    };
    let own = own
        .head(table, settings)
        .map(|v| table[v].priority(settings));
    match own {
        Some(Priority::Under | Priority::Boost) => None,
        None if settings.idle_takes == IdleTakes::Anybody => {
            first(Priority::Under).or_else(|| first(Priority::Over))
        }
        _ => first(Priority::Under),
    }
}
