// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading the published steal page, as a guest reads KVM's.

use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

use units::Ns;
use units::VcpuId;

use crate::shared::Shared;
use crate::skel::types;

/// One CPU's steal page at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StealEntry {
    /// Which CPU.
    pub cpu: VcpuId,
    /// For how long the CPU has been off so far, without the present gap.
    pub steal: Ns,
    /// Grows by 2 with every gap; odd only while the counter is being written.
    pub version: u32,
    /// Is the CPU off now?
    pub preempted: bool,
}

/// Reads an entry by the guest's half of KVM's protocol: again, until the version
/// is even and the same before and after.
pub(crate) fn read(page: &Shared<types::fz_steal>, cpu: VcpuId) -> StealEntry {
    loop {
        let before = page.get(cpu.index());
        fence(Ordering::Acquire);
        let entry = page.get(cpu.index());
        fence(Ordering::Acquire);
        let after = page.get(cpu.index());
        if before.version == after.version && before.version.is_multiple_of(2) {
            return StealEntry {
                cpu,
                steal: Ns(entry.steal),
                version: entry.version,
                preempted: entry.preempted != 0,
            };
        }
        std::hint::spin_loop();
    }
}
