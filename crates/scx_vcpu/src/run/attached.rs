// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler in the kernel.

use std::path::Path;
use std::time::Instant;

use crate::load::refuse;
use crate::probe;
use crate::skel::main::MainProgs;

/// The scheduler in the kernel, where it has all threads of SCHED_EXT; and its trace.
pub(super) struct Attached {
    // In the order in which they go.
    _ops: libbpf_rs::Link,
    _trace: Vec<libbpf_rs::Link>,
}

impl Attached {
    pub(super) fn new(
        ops: &mut libbpf_rs::MapMut<'_>,
        programs: &MainProgs<'_>,
    ) -> anyhow::Result<Self> {
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
