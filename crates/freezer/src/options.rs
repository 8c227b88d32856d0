// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a run is bounded, and why it could not be started.

use std::io;

use units::CpuSet;
use units::Ns;
use units::VcpuId;

use crate::MAX_GAP;
use crate::MAX_RUN;
use crate::load::Failure;
use crate::plan::PlanError;
use crate::probe::Unsupported;

/// Shortest limit for all CPUs at once: below it the limit would cut every gap.
const MIN_ALL_OFF_LIMIT: Ns = Ns::from_ms(1);

/// How a run is bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// From this long after the start on nothing is frozen any more, whatever
    /// the owner does. At most [`MAX_RUN`].
    pub deadline: Ns,
    /// How long all CPUs of the plan may be off at once: 1 ms to [`MAX_GAP`].
    /// `None`: [`Plan::all_off_limit`](crate::Plan::all_off_limit).
    pub all_off_limit: Option<Ns>,
    /// How many gaps the log holds for each CPU; 32 bytes each. Further gaps are
    /// counted as dropped. `None`: enough for the plan up to the deadline, at
    /// most 262144.
    pub log_per_cpu: Option<u32>,
    /// How long to wait for another freezer on this machine to end. Zero: fail at
    /// once with [`StartError::AlreadyRunning`].
    pub wait: Ns,
}

impl Options {
    /// The usual options. A deadline is the one thing that has no default.
    #[must_use]
    pub const fn new(deadline: Ns) -> Self {
        Self {
            deadline,
            all_off_limit: None,
            log_per_cpu: None,
            wait: Ns::ZERO,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        if self.deadline == Ns::ZERO || self.deadline > MAX_RUN {
            return Err(PlanError::new(
                "deadline",
                self.deadline,
                format_args!("above 0, at most {MAX_RUN}"),
            ));
        }
        if let Some(limit) = self.all_off_limit
            && !(MIN_ALL_OFF_LIMIT..=MAX_GAP).contains(&limit)
        {
            return Err(PlanError::new(
                "all_off_limit",
                limit,
                format_args!("{MIN_ALL_OFF_LIMIT} to {MAX_GAP}"),
            ));
        }
        if let Some(events) = self.log_per_cpu
            && !(1..=1 << 22).contains(&events)
        {
            return Err(PlanError::new(
                "log_per_cpu",
                events,
                format_args!("1 to {}", 1 << 22),
            ));
        }
        Ok(())
    }
}

/// Why a run could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The plan or an option is out of range.
    #[error(transparent)]
    Invalid(#[from] PlanError),
    /// This machine cannot be frozen.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A CPU of the plan is not online.
    #[error("CPU {cpu} is not online; online are {online}")]
    Offline {
        /// The CPU.
        cpu: VcpuId,
        /// Those that are.
        online: Box<CpuSet>,
    },
    /// Another freezer runs on this machine.
    #[error("another freezer is running on this machine; wait for it to end or stop it")]
    AlreadyRunning,
    /// The socket that keeps freezers apart cannot be had.
    #[error("cannot bind the abstract socket that keeps two freezers apart")]
    Exclusive(#[source] io::Error),
    /// This process may not run on a CPU of the plan.
    #[error("cannot run a thread on CPU {cpu} to prepare it; does a cpuset exclude it?")]
    Pin {
        /// The CPU.
        cpu: VcpuId,
        /// What the kernel said.
        source: io::Error,
    },
    /// A CPU's slice timer could not be set.
    #[error("cannot set the slice timer of CPU {cpu}")]
    Timer {
        /// The CPU.
        cpu: VcpuId,
        /// What the kernel said.
        source: io::Error,
    },
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsupported(why) => Self::Unsupported(why),
            Failure::Pin(cpu, source) => Self::Pin { cpu, source },
            Failure::Timer(_, source) if source.raw_os_error() == Some(libc::EINVAL) => {
                Self::Unsupported(Unsupported::NoTimerPinning)
            }
            Failure::Timer(cpu, source) => Self::Timer { cpu, source },
        }
    }
}
