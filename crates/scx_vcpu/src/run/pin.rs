// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table where `scx_vcpu list` finds it.

use std::path::PathBuf;

/// A map's name in the file system, for `scx_vcpu list`.
pub(super) struct Pin(PathBuf);

impl Pin {
    pub(super) fn new(map: &mut libbpf_rs::MapMut<'_>, path: &str) -> Self {
        // One that was killed has left its own.
        let _ = std::fs::remove_file(path);
        if let Err(error) = map.pin(path) {
            tracing::warn!(%error, "`scx_vcpu list` will not work: cannot make {path}");
        }
        Self(PathBuf::from(path))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
