// SPDX-License-Identifier: Apache-2.0 OR MIT
//! JUPITER (J1..J18): coscheduling that asks for as little as will do.
//!
//! Each vCPU has two private parameters, a time slice and a rescheduling latency
//! (J3). Every period (100 ms, J6) its status at the end decides (J5):
//!
//! | part | rule | paragraphs |
//! |---|---|---|
//! | [`dats`] | who used up its slice gets more, at its siblings' cost | J7..J9 |
//! | [`dasl`] | who could not use its slice in time is scheduled sooner | J10, J11 |
//! | [`rcr`] | cores that ask for too much, or for too much at once, swap vCPUs | J12..J15 |
//! | [`elb`] | a VM lends what it does not use to those with few conflicts | J16 |
//! | [`disable`] | if the future cannot be predicted, stay out of the way | J17, J18 |
//!
//! They run in this order; RCR's first half after DATS, its second after DASL.
//! ELB sets the share of each VM, the others work inside it (J2).
//!
//! vCPUs are kept off cores where a sibling is (J15); `host::cosched::balance`
//! places them and RCR's swaps respect it.

use units::Ns;

pub mod dasl;
pub mod dats;
pub mod disable;
pub mod elb;
pub mod rcr;

/// The period: 100 ms (our reading of J6).
pub const PERIOD: Ns = Ns::from_ms(100);

/// Status of a vCPU at the end of a period (J5, J10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// On a pCPU.
    Running,
    /// Could run and does not.
    Ready,
    /// Waits for an event.
    Idle,
}

impl State {
    /// Could it make progress if it were given a pCPU?
    #[must_use]
    pub const fn is_runnable(self) -> bool {
        matches!(self, Self::Running | Self::Ready)
    }
}
