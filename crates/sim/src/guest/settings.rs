// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a guest's kernel.

use units::Ns;

/// A guest kernel's scheduler and its costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSettings {
    /// Every task of a vCPU runs once within this, while they are few.
    pub latency: Ns,
    /// No slice of a task is shorter.
    pub min_granularity: Ns,
    /// How far behind the running task a waking one has to be to preempt it.
    pub wakeup_granularity: Ns,
    /// How far back a sleeper is placed at most, as credit.
    pub sleeper_credit: Ns,
    /// Preemption by time happens at ticks of this length only; zero: exactly.
    pub tick: Ns,
    /// Changing to another task.
    pub switch: Ns,
    /// Handling an interrupt, up to the turn of the task that it wakes.
    pub interrupt: Ns,
    /// The same for a completion. `None`: as any other.
    pub completion: Option<Ns>,
    /// The same for another vCPU's interrupt, on the way included. `None`: as any other.
    pub ipi: Option<Ns>,
    /// Handling a completion whose task is awake: it is found with the one that woke it.
    /// `None`: as any other interrupt.
    pub batched: Option<Ns>,
    /// A completion whose vCPU wants to run and has no pCPU goes to the next one of its VM
    /// that has one, if any has: as if interrupts were delivered to whoever can take them.
    pub completes_where_it_runs: bool,
    /// What a vCPU does first when it is back: interrupts and softirqs that have
    /// piled up.
    pub catch_up: Ns,
    /// What a task loses when it runs on another vCPU than before (cold caches).
    pub migration: Ns,
    /// How long it is delayed then, without using the CPU: it waits for what it
    /// left behind.
    pub migration_delay: Ns,
    /// Time in which the vCPU was away is not charged to the task that was
    /// current (`PARAVIRT_TIME_ACCOUNTING` on a host that reports steal).
    pub steal_accounted: bool,
    /// How often a vCPU looks for more work; zero: only when it has none.
    pub balance_period: Ns,
    /// EEVDF with this slice (Linux 6.6 and later) instead of CFS: `latency`, the
    /// granularities and `sleeper_credit` mean nothing then.
    pub eevdf: Option<Ns>,
}

impl Default for KernelSettings {
    /// CFS as Linux sets it on 8 CPUs or more (4.4 of 13.1's guests and later),
    /// 250 ticks a second.
    fn default() -> Self {
        Self {
            latency: Ns::from_ms(24),
            min_granularity: Ns::from_ms(3),
            wakeup_granularity: Ns::from_ms(4),
            sleeper_credit: Ns::from_ms(12),
            tick: Ns::from_ms(4),
            switch: Ns::from_us(2),
            interrupt: Ns::from_us(2),
            completion: None,
            ipi: None,
            batched: None,
            completes_where_it_runs: false,
            catch_up: Ns::ZERO,
            migration: Ns::from_us(20),
            migration_delay: Ns::ZERO,
            steal_accounted: true,
            balance_period: Ns::from_ms(64),
            eevdf: None,
        }
    }
}

impl KernelSettings {
    /// The default scheduler, of which nothing costs anything and nobody balances: for
    /// results that are worked by hand.
    #[must_use]
    pub fn free() -> Self {
        Self {
            switch: Ns::ZERO,
            interrupt: Ns::ZERO,
            migration: Ns::ZERO,
            balance_period: Ns::ZERO,
            ..Self::default()
        }
    }

    /// The same scheduler on a machine of `cpus` CPUs: Linux scales its times by
    /// 1 + log2 of the number of CPUs, up to 8 of them.
    #[must_use]
    pub fn scaled(cpus: u32) -> Self {
        let factor = 1 + u64::from(cpus.clamp(1, 8).ilog2());
        Self {
            latency: Ns::from_ms(6) * factor,
            min_granularity: Ns::from_us(750) * factor,
            wakeup_granularity: Ns::from_ms(1) * factor,
            sleeper_credit: Ns::from_ms(3) * factor,
            ..Self::default()
        }
    }

    /// EEVDF on a machine of `cpus` CPUs: 0.7 ms (`sysctl_sched_base_slice`),
    /// scaled likewise.
    #[must_use]
    pub fn eevdf(cpus: u32) -> Self {
        let factor = 1 + u64::from(cpus.clamp(1, 8).ilog2());
        Self {
            eevdf: Some(Ns::from_us(700) * factor),
            ..Self::scaled(cpus)
        }
    }
}
