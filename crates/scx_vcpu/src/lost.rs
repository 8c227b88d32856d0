// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs for which the kernel's side had no room or no memory: nothing stops for them, so
//! somebody has to be told.

use std::fmt;

use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;

use crate::skel::main::types::bss;
use crate::table::Plain;
use crate::table::plain;

impl Plain for bss {}

/// How often, since the scheduler was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// vCPU threads that found no free entry in the table (`account.h`). They have no share.
    pub entries: u64,
    /// Times that there was no memory for what is known of a thread (`vcpu.h`).
    pub memory: u64,
    /// New vCPUs that did not fit into the ring (`vcpu.h`).
    pub told: u64,
}

impl Lost {
    /// What the counters of the programs say.
    pub(crate) fn of(bss: &bss) -> Self {
        Self {
            entries: bss.nr_table_full,
            memory: bss.nr_no_storage,
            told: bss.nr_found_lost,
        }
    }

    /// The same, by the map that has them; none if it is of another version.
    pub(crate) fn read(map: &impl MapCore) -> Self {
        let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let bytes = bytes.ok().flatten().unwrap_or_default();
        plain::<bss>(&bytes).map_or_else(Self::default, |bss| Self::of(&bss))
    }

    /// Is there anything that `before` had not?
    #[must_use]
    pub fn is_more(&self, before: &Self) -> bool {
        self.entries > before.entries || self.memory > before.memory || self.told > before.told
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.entries > 0 {
            parts.push(format!(
                "{} vCPU threads found no free entry in the table: they have no share, and run for 1 ms after a turn of another vCPU",
                self.entries
            ));
        }
        for (count, why) in [
            (self.memory, "there was no memory for it"),
            (self.told, "there were too many at once"),
        ] {
            if count > 0 {
                parts.push(format!(
                    "{count} times a new vCPU was not found at once, but within 5 s, because {why}"
                ));
            }
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_told_once_and_by_its_cause() {
        let none = Lost::default();
        let some = Lost {
            entries: 3,
            told: 2,
            ..none
        };
        assert!(some.is_more(&none) && !some.is_more(&some) && !none.is_more(&some));
        let text = some.to_string();
        assert!(
            text.starts_with("3 vCPU threads found no free entry"),
            "{text}"
        );
        assert!(text.contains("; 2 times") && text.contains("too many at once"));
        assert!(!text.contains("memory"), "{text}");
    }
}
