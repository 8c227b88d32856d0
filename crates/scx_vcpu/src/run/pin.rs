// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps where `scx_vcpu list` finds them.

use crate::table::PINS;

/// The maps' names in the file system, for as long as we run.
pub(super) struct Pins(());

impl Pins {
    /// None has one yet: those there were left by one that was killed.
    pub(super) fn none() -> Self {
        remove();
        Self(())
    }

    /// Gives a map this one of [`PINS`]. Who opens it finds this map or the one before, at any
    /// time.
    pub(super) fn name(&self, map: &mut libbpf_rs::MapMut<'_>, path: &str) {
        let next = format!("{path}_next");
        let _ = std::fs::remove_file(&next);
        let done = map.pin(&next).map_err(anyhow::Error::from);
        let done = done.and_then(|()| Ok(std::fs::rename(&next, path)?));
        if let Err(error) = done {
            tracing::warn!("`scx_vcpu list` will not work: cannot make {path}: {error:#}");
            // Of one that is no more.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        remove();
    }
}

fn remove() {
    for path in PINS {
        let _ = std::fs::remove_file(path);
    }
}
