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
//! # Limits
//!
//! Nothing is done for a vCPU that is not scheduled (SL6). A vCPU that sleeps
//! keeps what is left of its T until the round ends, then it lapses.

use units::Ns;

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
        (self.slice.as_ns() / self.micro.as_ns().max(1)).max(1)
    }
}

/// One vCPU of a pCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// Does its VM get micro slices?
    pub latency_sensitive: bool,
    /// What it may still run in this round.
    pub left: Ns,
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
        self.due_turn(table, &ready, settings)
            .or_else(|| self.ordinary_turn(table, &ready, settings))
            .or_else(|| self.early_turn(table, &ready, settings))
    }

    /// `vcpu` ran for `ran`.
    pub fn on_charge(&mut self, vcpu: &mut Vcpu, ran: Ns) {
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
        !running.latency_sensitive && self.is_due(waking, table_len, settings)
    }

    fn begin(&mut self, table: &mut [Vcpu], settings: &Settings) {
        self.used = Ns::ZERO;
        self.cursor = (self.cursor + 1) % table.len().max(1);
        for vcpu in table {
            vcpu.left = settings.slice;
        }
    }

    /// Length of a full round.
    fn length(table_len: usize, settings: &Settings) -> Ns {
        settings.slice * table_len as u64
    }

    /// When the next turn of this latency-sensitive vCPU comes due, as time used
    /// in the round: turn k of m at k/m of the round.
    fn due(vcpu: &Vcpu, table_len: usize, settings: &Settings) -> Ns {
        let had = (settings.slice - vcpu.left).as_ns() / settings.micro.as_ns().max(1);
        Self::length(table_len, settings).scaled(had, settings.turns())
    }

    fn is_due(&self, vcpu: &Vcpu, table_len: usize, settings: &Settings) -> bool {
        vcpu.latency_sensitive
            && vcpu.left > Ns::ZERO
            && Self::due(vcpu, table_len, settings) <= self.used
    }

    /// A latency-sensitive vCPU whose turn is due, the longest overdue first.
    fn due_turn(
        &self,
        table: &[Vcpu],
        ready: &impl Fn(usize) -> bool,
        settings: &Settings,
    ) -> Option<Turn> {
        (0..table.len())
            .filter(|&v| ready(v) && self.is_due(&table[v], table.len(), settings))
            .min_by_key(|&v| (Self::due(&table[v], table.len(), settings), v))
            .map(|vcpu| Turn {
                vcpu,
                slice: self.micro_left(&table[vcpu], settings),
            })
    }

    /// The rest of the present micro slice.
    fn micro_left(&self, vcpu: &Vcpu, settings: &Settings) -> Ns {
        let micro = settings.micro.as_ns().max(1);
        let into = (settings.slice - vcpu.left).as_ns() % micro;
        Ns(micro - into).min(vcpu.left)
    }

    /// The next ordinary vCPU, until its slice ends or a micro slice is due.
    fn ordinary_turn(
        &mut self,
        table: &[Vcpu],
        ready: &impl Fn(usize) -> bool,
        settings: &Settings,
    ) -> Option<Turn> {
        let n = table.len();
        let vcpu = (0..n)
            .map(|i| (self.cursor + i) % n)
            .find(|&v| !table[v].latency_sensitive && table[v].left > Ns::ZERO && ready(v))?;
        // It is continued after the micro slice that cuts it.
        self.cursor = vcpu;
        let next_due = table
            .iter()
            .filter(|v| v.latency_sensitive && v.left > Ns::ZERO)
            .map(|v| Self::due(v, n, settings))
            .filter(|&due| due > self.used)
            .min();
        let until = next_due.map_or(Ns::MAX, |due| due - self.used);
        Some(Turn {
            vcpu,
            slice: table[vcpu].left.min(until),
        })
    }

    /// Nobody is due and no ordinary vCPU is left: the next turn comes early.
    fn early_turn(
        &self,
        table: &[Vcpu],
        ready: &impl Fn(usize) -> bool,
        settings: &Settings,
    ) -> Option<Turn> {
        (0..table.len())
            .filter(|&v| ready(v) && table[v].left > Ns::ZERO)
            .min_by_key(|&v| (Self::due(&table[v], table.len(), settings), v))
            .map(|vcpu| Turn {
                vcpu,
                slice: self.micro_left(&table[vcpu], settings),
            })
    }
}

#[cfg(test)]
mod tests;
