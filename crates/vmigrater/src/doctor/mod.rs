// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmigrater doctor`: what this machine offers, what is missing and how to get
//! it, and whether there is anything to gain.
//!
//! Gathers facts ([`machine`], [`steal`], [`guest::disks`], [`privileges`],
//! [`scheduling`], and the live [`look`]), draws the conclusion ([`verdict`]) and
//! prints both. The readers take a root directory, so tests bring their own tree.

mod look;
mod machine;
mod page;
mod privileges;
mod root;
mod scheduling;
mod steal;
mod verdict;

#[cfg(test)]
mod tests;

use guest::disks::Disk;
use guest::disks::Disks;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::cli::Global;
use crate::config::Effective;
use crate::exit::Exit;
use crate::exit::Failure;
use look::Look;
use look::Problem;
use machine::Machine;
use privileges::Privileges;
use root::Root;
use scheduling::Scheduling;
use verdict::Verdict;

/// Everything that was found out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) machine: Machine,
    pub(crate) privileges: Privileges,
    /// `None` with another root directory: it is asked of the kernel directly.
    pub(crate) scheduling: Option<Scheduling>,
    pub(crate) disks: Vec<Disk>,
    /// Per vCPU, since boot; `None` without a usable `/proc/stat`.
    pub(crate) steal_since_boot: Option<std::collections::BTreeMap<u32, steal::Times>>,
    /// The pid of a daemon that runs already.
    pub(crate) daemon: Option<u32>,
    /// What was seen while looking; `None` if that was not possible.
    pub(crate) look: Option<Look>,
    /// Why the daemon's own senses could not be used, if so.
    pub(crate) engine_problem: Option<Problem>,
}

impl Facts {
    /// Of all vCPUs' time since boot; `None` if unknown.
    fn stolen_since_boot_percent(&self) -> Option<f64> {
        self.steal_since_boot
            .as_ref()
            .map(|times| steal::sum(times).percent())
    }

    /// Of all vCPUs' time during the look, by whichever source saw more: the
    /// kernel's accounting misses what a host does not report, the daemon's
    /// sources miss what happened while they slept.
    fn stolen_lately_percent(&self) -> Option<f64> {
        self.look
            .as_ref()
            .map(|look| look.accounted_percent.max(look.seen_percent))
    }
}

#[derive(Serialize)]
struct Document<'a> {
    verdict: &'a Verdict,
    #[serde(flatten)]
    facts: &'a Facts,
}

/// Looks, prints, and ends with the verdict's code.
pub(crate) fn doctor(
    global: &Global,
    args: &DoctorArgs,
    config: &Effective,
) -> Result<Exit, Failure> {
    let facts = gather(global, args, config);
    let verdict = verdict::verdict(&facts);
    let text = if args.json {
        serde_json::to_string_pretty(&Document {
            verdict: &verdict,
            facts: &facts,
        })
        .map_err(|error| Failure::new(Exit::Runtime, error.to_string(), ""))?
            + "\n"
    } else {
        page::render(&facts, &verdict)
    };
    crate::print(&text)?;
    Ok(verdict.exit)
}

fn gather(global: &Global, args: &DoctorArgs, config: &Effective) -> Facts {
    if let Some(root) = &args.root {
        return read(&Root::new(root));
    }
    let root = Root::new("/");
    let mut facts = read(&root);
    facts.scheduling = Some(Scheduling::probe());
    look::take(global, args.look, config, &root, &mut facts);
    facts
}

/// What stands in files.
fn read(root: &Root) -> Facts {
    let machine = Machine::read(root);
    Facts {
        privileges: Privileges::read(root),
        scheduling: None,
        disks: Disks::of(&root.roots()).all(),
        steal_since_boot: steal::read(root),
        daemon: None,
        look: None,
        engine_problem: None,
        machine,
    }
}

/// Names of needed capabilities that this process lacks.
pub(crate) fn missing_capabilities() -> Vec<String> {
    Privileges::read(&Root::new("/")).missing
}
