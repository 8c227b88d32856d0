// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vSlicer (SL1..SL7): latency-sensitive VMs run more often, in smaller slices.
//!
//! # Approach
//!
//! The sources give the idea and its effect but neither the length of the small
//! slice nor who gets it (SL7); the system's own abstract adds that each VM keeps
//! its CPU share. Our reading, per pCPU: time is divided into rounds. In a round
//! each vCPU assigned to the pCPU may run for one slice T. A latency-sensitive
//! vCPU takes its T in m = T / micro turns that come due at equal distances over
//! the round; the others take theirs in between, cut where a micro slice is due
//! and continued after it.
//!
//! So a latency-sensitive vCPU waits about 1/m of what it waited (SL2: shorter
//! gaps, but more of them), everyone's share stays T per round, and the number
//! of switches grows by m per latency-sensitive vCPU and round (SL3).
//!
//! What a turn lasts beyond its T is owed, and the next round begins with less: the share
//! that each VM keeps is one of what it ran, not of what it was meant to run.
//!
//! When a turn is due and who comes first is computed by `include/vslicer.h`, which
//! the host scheduler's BPF programs call at each dispatch.
//!
//! # Limits
//!
//! Nothing is done for a vCPU that is not scheduled (SL6). A vCPU that sleeps
//! keeps what is left of its T until the round ends, then it lapses.

use units::Ns;

mod ffi;

/// Both lengths are ours to choose (SL7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// T: what each vCPU gets per round. 30 ms, Xen's slice (K6).
    pub slice: Ns,
    /// The micro slice. 5 ms: below the 8 ms wait of a non-work-conserving I/O
    /// scheduler, whose consequence is C17 and SL4.
    pub micro: Ns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice: Ns::from_ms(30),
            micro: Ns::from_ms(5),
        }
    }
}

impl Settings {
    /// m: the turns of a latency-sensitive vCPU per round, at least one.
    #[must_use]
    pub fn turns(&self) -> u64 {
        ffi::policy_vslicer_turns(self.slice.as_ns(), self.micro.as_ns())
    }
}

/// One vCPU of a pCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// Does its VM get micro slices?
    pub latency_sensitive: bool,
    /// What it may still run in this round.
    pub left: Ns,
    /// What it ran beyond that, not paid yet; a slice at most.
    pub owed: Ns,
}

/// The round of one pCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// What has been run in this round by all.
    used: Ns,
    /// Where the search for an ordinary vCPU begins: they take turns.
    cursor: usize,
}

/// What runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Position in the table.
    pub vcpu: usize,
    /// For how long at most.
    pub slice: Ns,
}

impl Round {
    /// Who runs next of the table of this pCPU. `ready(v)` tells whether `v` can
    /// run. Begins a new round when every ready vCPU has had its slice. None if
    /// nobody is ready.
    pub fn pick(
        &mut self,
        table: &mut [Vcpu],
        ready: impl Fn(usize) -> bool,
        settings: &Settings,
    ) -> Option<Turn> {
        let most_left = (0..table.len())
            .filter(|&v| ready(v))
            .map(|v| table[v].left)
            .max()?;
        if most_left == Ns::ZERO {
            self.begin(table, settings);
        }
        let n = table.len();
        let rank = |v: usize| {
            let vcpu = &table[v];
            ffi::policy_vslicer_rank(
                u32::from(vcpu.latency_sensitive),
                vcpu.left.as_ns(),
                Self::due(vcpu, n, settings),
                self.used.as_ns(),
                ((v + n - self.cursor % n) % n) as u64,
            )
        };
        let vcpu = (0..n).filter(|&v| ready(v)).min_by_key(|&v| (rank(v), v))?;
        if !table[vcpu].latency_sensitive {
            // It is continued after the micro slice that cuts it.
            self.cursor = vcpu;
        }
        let cut = table.iter().map(|v| {
            ffi::policy_vslicer_cut(
                u32::from(v.latency_sensitive),
                v.left.as_ns(),
                Self::due(v, n, settings),
                self.used.as_ns(),
            )
        });
        let slice = ffi::policy_vslicer_length(
            u32::from(table[vcpu].latency_sensitive),
            table[vcpu].left.as_ns(),
            cut.min().unwrap_or(u64::MAX),
            settings.slice.as_ns(),
            settings.micro.as_ns(),
        );
        Some(Turn {
            vcpu,
            slice: Ns(slice),
        })
    }

    /// What has been run in this round by all.
    #[must_use]
    pub const fn used(&self) -> Ns {
        self.used
    }

    /// `vcpu` ran for `ran`.
    pub fn on_charge(&mut self, vcpu: &mut Vcpu, ran: Ns, settings: &Settings) {
        vcpu.owed = Ns(ffi::policy_vslicer_owes(
            vcpu.left.as_ns(),
            vcpu.owed.as_ns(),
            ran.as_ns(),
            settings.slice.as_ns(),
        ));
        vcpu.left = vcpu.left - ran;
        self.used += ran;
    }

    /// Does a vCPU that wakes preempt an ordinary one? Yes, if it is latency
    /// sensitive and one of its turns is due.
    #[must_use]
    pub fn preempts(
        &self,
        waking: &Vcpu,
        running: &Vcpu,
        table_len: usize,
        settings: &Settings,
    ) -> bool {
        ffi::policy_vslicer_preempts(
            u32::from(running.latency_sensitive),
            u32::from(waking.latency_sensitive),
            waking.left.as_ns(),
            Self::due(waking, table_len, settings),
            self.used.as_ns(),
        ) != 0
    }

    fn begin(&mut self, table: &mut [Vcpu], settings: &Settings) {
        self.used = Ns::ZERO;
        self.cursor = (self.cursor + 1) % table.len().max(1);
        for vcpu in table {
            let pays = Ns(ffi::policy_vslicer_pays(
                vcpu.owed.as_ns(),
                settings.slice.as_ns(),
            ));
            vcpu.owed = vcpu.owed - pays;
            vcpu.left = settings.slice - pays;
        }
    }

    /// When the next turn of this vCPU comes due, as time used in the round: turn
    /// k of m at k/m of the round.
    fn due(vcpu: &Vcpu, table_len: usize, settings: &Settings) -> u64 {
        ffi::policy_vslicer_due(
            vcpu.left.as_ns(),
            table_len as u64,
            settings.slice.as_ns(),
            settings.micro.as_ns(),
        )
    }
}

#[cfg(test)]
mod tests;
