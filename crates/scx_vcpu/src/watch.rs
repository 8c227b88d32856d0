// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy file while the scheduler runs, and what follows from it for iSche's cores.

use std::hash::BuildHasher;
use std::hash::RandomState;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;

use crate::config::Config;
use crate::heed;
use crate::load;
use crate::load::Rules;
use crate::policy::ische::Cores;
use crate::run::possible_cpus;
use crate::skel::main::MainSkel;

/// The cores of policy `ische`, labelled (S2); `None` for the others.
pub(crate) fn label_cores(rules: &Rules, config: &Config) -> anyhow::Result<Option<Cores>> {
    let Rules::Ische(rules) = rules else {
        return Ok(None);
    };
    let cpus = Cores::among(online()?, config.ische.cpus);
    let general = config.ische.general_cores.unwrap_or(rules.general_cores);
    if let Some(why) = heed::general_cores(config, general, cpus.len()) {
        tracing::warn!("{why}");
    }
    // Any number will do: the standard library seeds each of these differently.
    let random = || RandomState::new().hash_one(0);
    let seed = config.ische.seed.unwrap_or_else(random);
    Ok(Some(Cores::new(cpus, general, seed)))
}

/// Tells of each key of the file that these rules make nothing of.
pub(crate) fn tell_unheeded(rules: &Rules, config: &Config) {
    for why in heed::unheeded_in(config, rules) {
        tracing::warn!("{why}");
    }
}

/// The pCPUs that are online.
pub(crate) fn online() -> anyhow::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .context("cannot tell which CPUs are online")?;
    let online: units::CpuSet = text.trim().parse()?;
    Ok(online.iter().map(|cpu| cpu.0).collect())
}

/// How often CPUs have come or gone, as a number for the kernel; 0: it does not say, and
/// then does not ask.
pub(crate) fn hotplugs() -> u64 {
    let text = std::fs::read_to_string("/sys/kernel/sched_ext/hotplug_seq");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_default()
}

/// The slices of those cores (S6), to the kernel's side.
pub(crate) fn set_core_slices(
    skel: &MainSkel<'_>,
    rules: &Rules,
    cores: Option<&Cores>,
) -> anyhow::Result<()> {
    match (rules, cores) {
        (Rules::Ische(rules), Some(cores)) => {
            let slices = cores.slices(possible_cpus()?, rules);
            load::set_slices(&skel.maps.slices, &slices)
        }
        _ => Ok(()),
    }
}

/// The policy file, which its owner may change while we run.
pub(crate) struct Watched<'a> {
    path: Option<&'a Path>,
    seen: Option<SystemTime>,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(path: Option<&'a Path>) -> Self {
        let seen = path.and_then(written);
        Self { path, seen }
    }

    /// What it says now, if it was written since the last look. What cannot be used is
    /// told and changes nothing: its owner may be in the middle of writing.
    pub(crate) fn changed(&mut self) -> Option<Config> {
        let path = self.path?;
        let now = written(path)?;
        if self.seen.replace(now) == Some(now) {
            return None;
        }
        Config::load(path)
            .inspect_err(|error| tracing::warn!("the old policy file counts on: {error}"))
            .ok()
    }
}

fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|file| file.modified())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_after_each_change_and_never_while_it_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.toml");
        let write = |text: &str, second: u64| {
            std::fs::write(&path, text).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(at).unwrap();
        };
        write("", 1);
        let mut watched = Watched::new(Some(&path));
        assert!(watched.changed().is_none(), "not since the start");
        write("[credit3]", 2);
        assert!(watched.changed().is_none(), "it cannot be used");
        write("[[vm]]\nmatch = \"a\"\nweight = 3\n", 3);
        assert_eq!(watched.changed().unwrap().worth("a").weight, 3);
        assert!(watched.changed().is_none());
        assert!(Watched::new(None).changed().is_none());
    }
}
