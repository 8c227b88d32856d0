// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table where `scx_vcpu list` finds it.

use crate::table::PIN;

/// The table's name in the file system, for `scx_vcpu list`.
pub(super) struct Pin;

impl Pin {
    pub(super) fn new(table: &mut libbpf_rs::MapMut<'_>) -> Self {
        // One that was killed has left its own.
        let _ = std::fs::remove_file(PIN);
        if let Err(error) = table.pin(PIN) {
            tracing::warn!(%error, "`scx_vcpu list` will not work: cannot make {PIN}");
        }
        Self
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(PIN);
    }
}
