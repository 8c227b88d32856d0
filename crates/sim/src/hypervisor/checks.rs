// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the checks of several policies have in common.

use super::Host;
use crate::ids::Vcpu;
use crate::machine::State;

/// Is everybody who wants a pCPU in these queues exactly once, and nobody else?
pub(super) fn ready_once(
    host: &Host<'_>,
    queued: impl IntoIterator<Item = Vcpu>,
) -> Result<(), String> {
    let mut times = vec![0_u32; host.machine().vcpus.len()];
    for vcpu in queued {
        times[vcpu.index()] += 1;
    }
    for (vcpu, times) in host.vcpus().zip(times) {
        let state = host.vcpu(vcpu).state;
        if times != u32::from(state == State::Queued) {
            return Err(format!("vCPU {vcpu} is {state:?} and queued {times} times"));
        }
    }
    Ok(())
}

/// An error with this text unless it holds.
pub(super) fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}
