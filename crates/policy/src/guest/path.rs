// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a device's completions arrive: what has been seen, and before that what Linux
//! says.
//!
//! The rules are in `include/path.h`, because they run inside the BPF programs; this module
//! calls the very same C functions. The header says what counts as evidence and why.

use units::VcpuId;

use crate::guest::view::Completion;

/// The C side.
mod ffi {
    use super::Path;

    // SAFETY: the signatures are those of shim.c. Each function touches the structure that
    // the reference stands for and nothing else, keeps no pointer, and accepts every value.
    unsafe extern "C" {
        pub(super) safe fn policy_path_reset(path: &mut Path, prior: u32);
        pub(super) safe fn policy_path_of(path: &Path) -> u32;
        pub(super) safe fn policy_path_learn(path: &mut Path, s: u32, c: u32, absent: u32);
    }
}

/// `PATH_NONE` of path.h.
const NONE: u32 = u32::MAX;
/// `PATH_FOLLOWS`.
const FOLLOWS: u32 = u32::MAX - 1;
/// `PATH_UNASKED`.
const UNASKED: u32 = u32::MAX - 2;
/// `PATH_SENT_ON`.
const SENT_ON: u32 = 1 << 30;

/// What Linux says of a device's completions before any has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior {
    /// Nothing, or nothing that can be understood.
    None,
    /// Each vCPU has a queue, and its interrupt, of its own.
    Follows,
    /// All interrupts arrive on one vCPU, which completes the requests.
    At(VcpuId),
    /// All interrupts arrive on one vCPU, which sends the completions on to where the
    /// requests were submitted.
    SentOnFrom(VcpuId),
}

impl Prior {
    /// As it stands in `struct path`.
    #[must_use]
    pub const fn word(self) -> u32 {
        match self {
            Self::None => NONE,
            Self::Follows => FOLLOWS,
            Self::At(vcpu) => vcpu.0,
            Self::SentOnFrom(vcpu) => vcpu.0 | SENT_ON,
        }
    }
}

/// `struct path`, which says what each field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs, reason = "documented in path.h")]
pub struct Path {
    pub fixed_cpu: u32,
    pub follows: u32,
    pub same_cpus: u32,
    pub contradictions: u32,
    pub cross_cpu: u32,
    pub crosses: u32,
    pub prior: u32,
    pub against: u32,
    pub silent: u32,
}

const _: () = assert!(size_of::<Path>() == 36, "as in shim.c");

impl Path {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn new(prior: Prior) -> Self {
        let mut path = Self {
            fixed_cpu: NONE,
            follows: 0,
            same_cpus: 0,
            contradictions: 0,
            cross_cpu: NONE,
            crosses: 0,
            prior: NONE,
            against: 0,
            silent: 0,
        };
        ffi::policy_path_reset(&mut path, prior.word());
        path
    }

    /// A request that was submitted on one vCPU has completed on another, or the same.
    /// `absent`: the vCPU that the prior names was away all the while.
    pub fn learn(&mut self, submitted: VcpuId, completed: VcpuId, absent: bool) {
        ffi::policy_path_learn(self, submitted.0, completed.0, u32::from(absent));
    }

    /// Where completions arrive, as far as that is known.
    #[must_use]
    pub fn completion(&self) -> Completion {
        match ffi::policy_path_of(self) {
            NONE => Completion::Unknown,
            FOLLOWS => Completion::FollowsTask,
            vcpu => Completion::On(VcpuId(vcpu)),
        }
    }

    /// Does what is believed stand on what was seen?
    #[must_use]
    pub fn is_learnt(&self) -> bool {
        let without = Self {
            prior: NONE,
            ..*self
        };
        self.completion() != Completion::Unknown && self.completion() == without.completion()
    }

    /// Has nobody asked what Linux says yet?
    #[must_use]
    pub const fn is_unasked(&self) -> bool {
        self.prior == UNASKED
    }
}

#[cfg(test)]
mod tests;
