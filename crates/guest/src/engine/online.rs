// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which vCPUs are online.
//!
//! The engine has a place for each vCPU that may ever be there. One that is absent
//! or offline is no target, and to the programs it looks idle for ever. Nobody is
//! told when the set changes, so it is read again when a thread finds itself driven
//! off its vCPU, when a move is refused, and twice a second while tasks are held.

use arc_swap::ArcSwapOption;
use units::CpuSet;
use units::VcpuId;

use crate::act::task::Roots;

/// The set as last read.
#[derive(Debug)]
pub(super) struct Online {
    roots: Roots,
    /// `None`: the machine does not say, and all count as online.
    set: ArcSwapOption<CpuSet>,
}

impl Online {
    pub(super) fn new(roots: Roots) -> Self {
        let online = Self {
            roots,
            set: ArcSwapOption::empty(),
        };
        online.refresh();
        online
    }

    /// Reads it again.
    pub(super) fn refresh(&self) {
        let set = self.roots.online();
        if self.set.load().as_deref() != set.as_ref() {
            self.set.store(set.map(Into::into));
        }
    }

    pub(super) fn contains(&self, vcpu: VcpuId) -> bool {
        self.set
            .load()
            .as_deref()
            .is_none_or(|set| set.contains(vcpu))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_set_is_followed_as_it_changes() {
        let sys = tempfile::tempdir().unwrap();
        let roots = Roots {
            sys: sys.path().to_owned(),
            ..Roots::default()
        };
        let dir = sys.path().join("devices/system/cpu");
        fs::create_dir_all(&dir).unwrap();
        let online = Online::new(roots);
        let seen = || {
            (0..4)
                .map(|n| online.contains(VcpuId(n)))
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(), [true; 4], "unknown");
        fs::write(dir.join("online"), "0-2\n").unwrap();
        online.refresh();
        assert_eq!(seen(), [true, true, true, false]);
        fs::write(dir.join("online"), "0,3\n").unwrap();
        online.refresh();
        assert_eq!(seen(), [true, false, false, true]);
    }
}
