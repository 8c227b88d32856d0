// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that come and go.

use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;

use super::lock;
use crate::cgroup;
use crate::config;
use crate::roster::Roster;
use crate::roster::Told;
use crate::seat;
use crate::seat::Found;
use crate::seat::Seats;
use crate::tell::Teller;

/// Who has to know of them. Threads get their labels back when it is dropped.
pub(super) struct Joins<'a> {
    pub(super) roster: &'a Mutex<Roster>,
    pub(super) teller: &'a Teller<'a>,
    pub(super) seats: Mutex<Seats>,
    /// Why the last one could not be taken; the caller is called by libbpf.
    pub(super) refused: Mutex<Option<anyhow::Error>>,
}

impl Joins<'_> {
    /// Makes it SCHED_EXT, with what its VM is worth. It may have been seen before.
    pub(super) fn seat(&self, found: Found) {
        if seat::is_real_time(found.tid) {
            tracing::info!(
                vm = found.vm,
                vcpu = found.vcpu,
                tid = found.tid,
                "a real-time thread, which stays one"
            );
            return;
        }
        match self.take(found) {
            Ok(true) => tracing::info!(vm = found.vm, vcpu = found.vcpu, tid = found.tid, "vCPU"),
            Ok(false) => {}
            Err(error) => *lock(&self.refused) = Some(error),
        }
    }

    fn take(&self, found: Found) -> anyhow::Result<bool> {
        let line = config::command_line_of(found.vm);
        let mut roster = lock(self.roster);
        let mut told = roster.add(found, line, seat::allowed(found.tid));
        told.extend(roster.weigh(|pid| cgroup::factor(Path::new("/"), pid)));
        drop(roster);
        self.teller.tell(told)?;
        let cannot = "cannot make a vCPU thread SCHED_EXT";
        lock(&self.seats).take(found).context(cannot)
    }

    /// Forgets threads that have gone; their siblings are to be told.
    pub(super) fn forget_gone(&self) -> Told {
        let is_there = |tid| seat::policy_of(tid).is_some();
        let told = lock(self.roster).retain(is_there);
        self.teller.retain(is_there);
        lock(&self.seats).retain(is_there);
        told
    }
}
