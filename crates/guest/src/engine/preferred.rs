// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which vCPUs the kernel advises to use.
//!
//! Linux 7.4 has a mask of preferred CPUs (`CONFIG_PREFERRED_CPU`) that a policy
//! driver, `steal_governor`, folds and unfolds once a second as steal time rises
//! and falls (tip/sched/core, 2026-09-28, v14 of the series by S. Hegde;
//! Documentation/scheduler/sched-arch.rst). The scheduler keeps fair tasks off
//! the others, but breaks no affinity: a task that we narrow to such a vCPU
//! stays there and works against the governor. So they are bad targets.
//!
//! The mask is read from `/sys/devices/system/cpu/preferred`, a list as in
//! `online`. Nobody is told when it changes, so it is read again once a second,
//! the period of the governor, and only while tasks are moved.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use units::CpuSet;
use units::VcpuId;

/// The default period of the governor.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// The mask as last read.
#[derive(Debug)]
pub(super) struct Preferred {
    file: PathBuf,
    /// `None`: this kernel has no such mask, or it says nothing.
    mask: ArcSwapOption<CpuSet>,
    offered: bool,
}

impl Preferred {
    /// Looks whether this kernel has the mask; `sys` is usually `/sys`.
    pub(super) fn new(sys: &Path) -> Self {
        let file = sys.join("devices/system/cpu/preferred");
        let preferred = Self {
            offered: file.exists(),
            mask: ArcSwapOption::empty(),
            file,
        };
        preferred.refresh();
        preferred
    }

    /// Does this kernel have the mask?
    pub(super) const fn is_offered(&self) -> bool {
        self.offered
    }

    /// Reads it again. What cannot be read or says nothing advises nothing.
    pub(super) fn refresh(&self) {
        if !self.offered {
            return;
        }
        let mask = match read(&self.file) {
            Ok(mask) => Some(mask),
            Err(error) => {
                tracing::debug!(file = %self.file.display(), %error, "no preferred vCPUs");
                None
            }
        };
        let before = self.mask.load();
        if before.as_deref() != mask.as_ref() {
            if let Some(mask) = &mask {
                tracing::info!(%mask, "vCPUs that the kernel prefers");
            }
            self.mask.store(mask.map(Into::into));
        }
    }

    /// The mask; `None` if there is no advice.
    pub(super) fn mask(&self) -> Option<CpuSet> {
        self.mask.load().as_deref().copied()
    }

    /// Is there no advice against this vCPU?
    pub(super) fn contains(&self, vcpu: VcpuId) -> bool {
        self.mask
            .load()
            .as_deref()
            .is_none_or(|mask| mask.contains(vcpu))
    }
}

fn read(file: &Path) -> io::Result<CpuSet> {
    let text = fs::read_to_string(file)?;
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mask: CpuSet = text
        .trim()
        .parse()
        .map_err(|error| invalid(format!("{text:?} is no list of CPUs: {error}")))?;
    // The kernel keeps one core at least; an empty list is no advice.
    if mask.is_empty() {
        return Err(invalid("the list is empty".into()));
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sys: &Path, text: &str) {
        let dir = sys.join("devices/system/cpu");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("preferred"), text).unwrap();
    }

    fn advised(preferred: &Preferred) -> Vec<bool> {
        (0..4).map(|n| preferred.contains(VcpuId(n))).collect()
    }

    #[test]
    fn a_kernel_without_the_mask_advises_nothing() {
        let sys = tempfile::tempdir().unwrap();
        let preferred = Preferred::new(sys.path());
        assert!(!preferred.is_offered());
        assert_eq!(preferred.mask(), None);
        assert_eq!(advised(&preferred), [true; 4]);
        // It does not appear later either: the file is there from boot on.
        write(sys.path(), "0\n");
        preferred.refresh();
        assert_eq!(preferred.mask(), None);
    }

    #[test]
    fn the_mask_is_followed_as_it_changes() {
        let sys = tempfile::tempdir().unwrap();
        write(sys.path(), "0-3\n");
        let preferred = Preferred::new(sys.path());
        assert!(preferred.is_offered());
        assert_eq!(preferred.mask(), Some(CpuSet::first(4)));
        write(sys.path(), "0,2\n");
        assert_eq!(advised(&preferred), [true; 4], "not before it is read");
        preferred.refresh();
        assert_eq!(advised(&preferred), [true, false, true, false]);
    }

    #[test]
    fn what_says_nothing_advises_nothing() {
        let sys = tempfile::tempdir().unwrap();
        for text in ["\n", "", "all of them\n", "3-1\n"] {
            write(sys.path(), "1\n");
            let preferred = Preferred::new(sys.path());
            assert_eq!(preferred.mask(), Some(CpuSet::only(VcpuId(1))));
            write(sys.path(), text);
            preferred.refresh();
            assert_eq!(preferred.mask(), None, "{text:?}");
        }
    }
}
