// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel's scheduler lets us do, found by trying on a thread that ends
//! right afterwards.

use serde::Serialize;
use units::Ns;

/// The wake-up levers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Scheduling {
    /// The EEVDF slice of an ordinary thread, where the kernel reports one (6.12);
    /// `None`: a slice per task cannot be set.
    pub(crate) eevdf_slice_ns: Option<Ns>,
    /// A thread may have SCHED_FIFO.
    pub(crate) fifo: bool,
}

impl Scheduling {
    /// Tries both.
    pub(crate) fn probe() -> Self {
        // A thread of its own, so that a priority that could not be taken back
        // ends with it.
        std::thread::spawn(|| Self {
            eevdf_slice_ns: slice(),
            fifo: try_fifo(),
        })
        .join()
        .unwrap_or(Self {
            eevdf_slice_ns: None,
            fifo: false,
        })
    }
}

/// `struct sched_attr` of linux/sched/types.h, first version (48 bytes).
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Kernels that know a slice per task report it as the runtime of an ordinary
/// thread; others leave that field zero.
fn slice() -> Option<Ns> {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: sched_getattr writes at most `size` bytes to `attr`, which is that
    // large, plain old data, and outlives the call. Thread 0 is the caller.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    (result == 0 && attr.runtime > 0).then_some(Ns(attr.runtime))
}

fn try_fifo() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` is initialised and only read; thread 0 is the caller.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
}
