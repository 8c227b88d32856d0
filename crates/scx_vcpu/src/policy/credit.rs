// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies `credit1` and `credit2`: what the file may say, and the rules that
//! `policy::host::credit` states. Defaults are the published systems'.

use policy::host::credit::credit1;
use policy::host::credit::credit2;
use serde::Deserialize;
use units::Ns;

use super::balance;
use crate::config::Time;

/// `[credit1]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credit1 {
    /// Slice of an UNDER or OVER vCPU.
    pub slice: Option<Time>,
    /// Slice of a BOOST vCPU.
    pub boost_slice: Option<Time>,
    /// How often credit is handed out.
    pub refill_period: Option<Time>,
    /// Most credit a vCPU can hold.
    pub credit_limit: Option<Time>,
    /// Is credit 0 UNDER?
    pub zero_is_under: Option<bool>,
    /// BOOST only for a vCPU that still has credit.
    pub boost_needs_under: Option<bool>,
    /// What a pCPU without a vCPU takes from others (K7).
    pub idle_takes: Option<IdleTakes>,
}

/// See `policy::host::credit1::IdleTakes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleTakes {
    /// As K7 is worded: only who has a right to run.
    Under,
    /// Whoever waits.
    Anybody,
}

impl Credit1 {
    pub(crate) fn dilated(self, by: u32) -> Self {
        let now = self.settings();
        Self {
            slice: Time::dilated(now.slice, by),
            boost_slice: Time::dilated(now.boost_slice, by),
            refill_period: Time::dilated(now.refill_period, by),
            credit_limit: Time::dilated(now.credit_limit, by),
            ..self
        }
    }

    /// The rules with these changes.
    #[must_use]
    pub fn settings(&self) -> credit1::Settings {
        let published = credit1::Settings::default();
        let time = |own: Option<Time>, published: Ns| own.map_or(published, |time| time.0);
        credit1::Settings {
            slice: time(self.slice, published.slice),
            boost_slice: time(self.boost_slice, published.boost_slice),
            refill_period: time(self.refill_period, published.refill_period),
            credit_limit: time(self.credit_limit, published.credit_limit),
            zero_is_under: self.zero_is_under.unwrap_or(published.zero_is_under),
            boost_needs_under: self
                .boost_needs_under
                .unwrap_or(published.boost_needs_under),
            idle_takes: match self.idle_takes {
                Some(IdleTakes::Under) => credit1::IdleTakes::Under,
                Some(IdleTakes::Anybody) => credit1::IdleTakes::Anybody,
                None => published.idle_takes,
            },
            ..published
        }
    }
}

/// `[credit2]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credit2 {
    /// Longest time without a new decision.
    pub slice: Option<Time>,
    /// What a reset gives.
    pub default_credit: Option<Time>,
    /// A reset adds to debts instead of forgiving them.
    pub keeps_debt: Option<bool>,
    /// A reset is due at exactly 0 already.
    pub reset_at_zero: Option<bool>,
    /// A slice ends when the credit does.
    pub slice_ends_with_credit: Option<bool>,
    /// Load is evened out between pCPUs that are all busy (K14); it is if nothing is said.
    pub balances: Option<bool>,
    /// How often.
    pub balance_period: Option<Time>,
}

impl Credit2 {
    pub(crate) fn dilated(self, by: u32) -> Self {
        let now = self.settings();
        Self {
            slice: Time::dilated(now.slice, by),
            default_credit: Time::dilated(now.default_credit, by),
            balance_period: balance::dilated(self.balance_period, by),
            ..self
        }
    }

    /// How often load is evened out (K14); `None`: never.
    #[must_use]
    pub fn balances_every(&self) -> Option<Ns> {
        balance::every(self.balances, self.balance_period)
    }

    /// The rules with these changes.
    #[must_use]
    pub fn settings(&self) -> credit2::Settings {
        let published = credit2::Settings::default();
        let time = |own: Option<Time>, published: Ns| own.map_or(published, |time| time.0);
        credit2::Settings {
            slice: time(self.slice, published.slice),
            default_credit: time(self.default_credit, published.default_credit),
            reset: match self.keeps_debt {
                Some(true) => credit2::Reset::AddToDebt,
                Some(false) => credit2::Reset::Replace,
                None => published.reset,
            },
            reset_at_zero: self.reset_at_zero.unwrap_or(published.reset_at_zero),
            slice_ends_with_credit: self
                .slice_ends_with_credit
                .unwrap_or(published.slice_ends_with_credit),
            ..published
        }
    }
}
