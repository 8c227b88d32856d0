// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit handed out where it is burned: one pool for each pCPU.
//!
//! # Problem
//!
//! K5 says "to each vCPU in the run queue in proportion to weight", and not how much.
//! [`super::refill`] hands out what all pCPUs could have given. On a host whose own
//! threads take part of that, everybody is given too much, is UNDER, and turns are equal
//! whatever the weights are. And it needs a limit on credit at each hand-out, since idle
//! time is handed out too. That limit loses shares: with weights 4 : 1 the light vCPU's
//! turn of 30 ms gives the heavy one 24 ms, and one that its timer ends 7.5 ms late or
//! more gives it more than a limit of 30 ms lets it have.
//!
//! # Approach
//!
//! What the vCPUs of a pCPU have burned is what they are given, those that run or wait.
//! So the sum of all credits stays what it was: nobody's credit grows but by another's
//! debt, and who has credit and does not sleep is about to run. There is nothing to limit
//! but what a vCPU may keep *while it sleeps* ([`super::Settings::credit_limit`]); what is
//! above goes back into the pool, or the others' debts would grow for ever, and a debt of
//! minutes is minutes in which a new weight has no effect.
//!
//! Shares are exact then: what a vCPU ran is its part of all that was burned, less its
//! credit, and that stays within some turns.
//!
//! # Limits
//!
//! For [`super::Charging::Exact`]. A vCPU that moves takes its credit along.
//! `scx_vcpu`'s `rule_credit1.h` does the same in the kernel, and a differential test
//! compares every credit; the formulas are one copy, `include/credit1.h`.

use units::Ns;
use units::Time;

use super::Settings;
use super::Vcpu;
use crate::host::credit::ffi;

/// The pool of one pCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Weights of those that run or wait there.
    weight: u64,
    /// What they have burned since the last hand-out.
    burned: Ns,
    /// What a unit of weight was given since the start, as `credit1_unit()` counts.
    given: u64,
    /// The last hand-out.
    given_at: Time,
}

/// A vCPU's part in the pool of its pCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The weight with which it counts; 0: it sleeps and is given nothing.
    counted: u32,
    /// [`Pool::given`] when it took its last part.
    taken: u64,
}

impl Part {
    /// Does it count among those that are given credit?
    #[must_use]
    pub fn counts(&self) -> bool {
        self.counted > 0
    }
}

impl Pool {
    /// It can run from now on, here.
    pub fn join(&mut self, vcpu: &Vcpu, part: &mut Part) {
        part.counted = vcpu.weight.get();
        part.taken = self.given;
        self.weight += u64::from(part.counted);
    }

    /// It goes to another pCPU, with all its credit.
    pub fn leave(&mut self, vcpu: &mut Vcpu, part: &mut Part) {
        self.take(vcpu, part);
        self.weight -= u64::from(part.counted);
        part.counted = 0;
    }

    /// It sleeps, with no more credit than [`Settings::credit_limit`].
    pub fn sleep(&mut self, vcpu: &mut Vcpu, part: &mut Part, settings: &Settings) {
        self.leave(vcpu, part);
        let limit = settings.credit_limit.as_ns();
        let excess = Ns(ffi::policy_credit1_excess(vcpu.credit.0, limit));
        vcpu.credit = vcpu.credit.burn(excess);
        self.burned += excess;
    }

    /// It ran for `ran` here.
    pub fn on_charge(&mut self, vcpu: &mut Vcpu, part: &mut Part, ran: Ns, settings: &Settings) {
        vcpu.on_charge(ran, settings);
        self.burned += ran;
        self.take(vcpu, part);
    }

    /// Takes what was handed out since it last did. A new weight counts from now on.
    pub fn take(&mut self, vcpu: &mut Vcpu, part: &mut Part) {
        let unit = self.given.wrapping_sub(part.taken);
        part.taken = self.given;
        vcpu.credit = vcpu
            .credit
            .plus(Ns(ffi::policy_credit1_part(unit, part.counted)));
        if part.counts() && part.counted != vcpu.weight.get() {
            self.weight -= u64::from(part.counted);
            part.counted = vcpu.weight.get();
            self.weight += u64::from(part.counted);
        }
    }

    /// Hands out what was burned, if [`Settings::refill_period`] has passed since it last
    /// was; each vCPU has it when it [takes](Self::take) it. Whether it was.
    pub fn hand_out(&mut self, now: Time, settings: &Settings) -> bool {
        if now.since(self.given_at) < settings.refill_period || self.weight == 0 {
            return false;
        }
        self.given_at = now;
        let unit = ffi::policy_credit1_unit(self.burned.as_ns(), self.weight);
        self.given = self.given.wrapping_add(unit);
        self.burned = Ns::ZERO;
        true
    }
}
