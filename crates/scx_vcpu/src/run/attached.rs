// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler in the kernel.

use std::path::Path;
use std::time::Instant;

use super::kept::Kept;
use crate::load::refuse;
use crate::probe;
use crate::roster::Knobs;
use crate::skel::main::MainProgs;

/// Attaches the scheduler, for which vCPUs go on with what is in `past`.
pub(super) fn attach(
    ops: &mut libbpf_rs::MapMut<'_>,
    programs: &MainProgs<'_>,
    past: &libbpf_rs::MapHandle,
    kept: &mut Kept,
    worth: impl Fn(u32, u32) -> Option<Knobs>,
) -> anyhow::Result<Attached> {
    kept.tell(past, worth);
    let attached = Attached::new(ops, programs)?;
    kept.taken(past);
    Ok(attached)
}

/// The scheduler in the kernel, where it has all threads of SCHED_EXT; and its trace.
pub(super) struct Attached {
    // In the order in which they go.
    _ops: libbpf_rs::Link,
    _trace: Vec<libbpf_rs::Link>,
}

impl Attached {
    fn new(ops: &mut libbpf_rs::MapMut<'_>, programs: &MainProgs<'_>) -> anyhow::Result<Self> {
        let begin = Instant::now();
        probe::core_scheduling()?;
        let ops = ops.attach_struct_ops().map_err(|error| {
            // Another scheduler may have been faster since our first look.
            let why = probe::files(Path::new("/")).err();
            why.map_or_else(|| refuse(error), anyhow::Error::from)
        })?;
        // Not before: vCPU threads are SCHED_EXT and in the fair class until now, whose turns
        // are nobody's business.
        let mut trace = Vec::new();
        for program in [&programs.switches, &programs.wakes] {
            if program.autoload() {
                trace.push(program.attach_trace().map_err(refuse)?);
            }
        }
        tracing::info!(took = ?begin.elapsed(), "scheduling");
        Ok(Self {
            _ops: ops,
            _trace: trace,
        })
    }
}
