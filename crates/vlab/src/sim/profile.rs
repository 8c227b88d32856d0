// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications as data: `profiles.toml`, each with the published figures that
//! fixed its parameters.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Context;
use experiment::scenario::LoadKind;
use experiment::scenario::Scenario;
use serde::Deserialize;
use sim::guest::Class;
use sim::guest::Guest;
use sim::guest::NewTask;
use sim::ids::DeviceId;
use sim::program::Phases;
use sim::program::Reader;
use sim::program::ReaderSettings;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use super::build::IO;
use super::platform::Platform;
use crate::reproduce::platforms;
use crate::run::Unusable;

/// I/O tasks of an application for which nothing else is said.
const TASKS: u32 = 1;

/// What is read here; the other programs of the file are `reproduce::workloads`'.
#[derive(Debug, Deserialize)]
struct File {
    profile: Vec<Profile>,
}

/// One application.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    pub(crate) name: String,
    /// What it stands for.
    pub(super) title: String,
    pattern: Order,
    block_kib: u32,
    /// CPU time per request.
    process: String,
    burst: Option<String>,
    pause: Option<String>,
    /// What a move to another vCPU costs, C_avg, as a length; or `$` and the name of a
    /// parameter that is how long a task stands still.
    migration: String,
    tasks: Option<u32>,
    /// What fixed each field: published figures, or a choice.
    pub(crate) fixed_by: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Sequential,
    Random,
}

/// All applications.
pub(crate) fn all() -> anyhow::Result<Vec<Profile>> {
    let file: File = toml::from_str(include_str!("profiles.toml")).context("profiles.toml")?;
    Ok(file.profile)
}

/// The applications of a scenario and what fixed them, as text; empty if it has
/// none.
pub(super) fn described(scenario: &Scenario) -> anyhow::Result<String> {
    let mut text = String::new();
    for profile in all()? {
        let used = scenario.loads.iter().any(
            |load| matches!(&load.kind, LoadKind::Profile { profile: name } if *name == profile.name),
        );
        if used {
            let Profile {
                name,
                title,
                fixed_by,
                ..
            } = profile;
            let fixed = fixed_by.iter().map(|(field, by)| format!("{field}: {by}"));
            let fixed: Vec<String> = fixed.collect();
            let _ = writeln!(text, "{name}: {title}; {}", fixed.join("; "));
        }
    }
    if !text.is_empty() {
        text.insert_str(0, "\nApplications\n\n");
    }
    Ok(text)
}

fn length(text: &str) -> anyhow::Result<Ns> {
    let length =
        humantime::parse_duration(text).with_context(|| format!("profiles.toml: {text}"))?;
    Ok(Ns::from(length))
}

/// The application of this name.
///
/// # Errors
/// There is none.
pub(crate) fn named(name: &str) -> anyhow::Result<Profile> {
    let all = all()?;
    if let Some(profile) = all.iter().find(|profile| profile.name == name) {
        return Ok(profile.clone());
    }
    let names: Vec<&str> = all.iter().map(|profile| profile.name.as_str()).collect();
    Err(Unusable(format!(
        "there is no application \"{name}\"; the simulator has {}",
        names.join(", ")
    ))
    .into())
}

impl Profile {
    /// What its n-th task does, each in a file of its own of 1 GiB.
    pub(crate) fn reader(
        &self,
        device: DeviceId,
        n: u32,
        submit: Ns,
        process_spread: u32,
    ) -> anyhow::Result<ReaderSettings> {
        let phases = match (&self.burst, &self.pause) {
            (Some(on), Some(off)) => Some(Phases {
                on: length(on)?,
                off: length(off)?,
            }),
            _ => None,
        };
        Ok(ReaderSettings {
            device,
            depth: 1,
            bytes: self.block_kib * 1024,
            start: u64::from(n) << 30,
            span: 1 << 30,
            sequential: self.pattern == Order::Sequential,
            submit,
            process: length(&self.process)?,
            process_spread,
            further: None,
            write: false,
            phases,
        })
    }

    /// Its I/O tasks in one VM.
    pub(crate) fn tasks(&self) -> u32 {
        self.tasks.unwrap_or(TASKS).max(1)
    }

    /// For how long a task stands still when it goes to another vCPU.
    pub(crate) fn migration(&self) -> anyhow::Result<Ns> {
        self.migration_with(platforms::us, platforms::count)
    }

    /// Likewise; `us` and `permille` give the parameter of a name. Of a published C_avg,
    /// which is all that a move costs, a part: the rest is time in which the task goes on,
    /// more slowly or with what is under way.
    pub(crate) fn migration_with(
        &self,
        us: impl Fn(&str) -> anyhow::Result<Ns>,
        permille: impl Fn(&str) -> anyhow::Result<u32>,
    ) -> anyhow::Result<Ns> {
        match self.migration.strip_prefix('$') {
            Some(name) => us(name),
            None => {
                let part = permille("app.stands_still_permille")?;
                Ok(length(&self.migration)?.scaled(u64::from(part), 1000))
            }
        }
    }
}

/// Adds an application's tasks to a guest, so many vCPUs on from where they begin.
pub(super) fn add(
    guest: &mut Guest,
    name: &str,
    class: Class,
    platform: &Platform,
    cpus: u32,
    turn: u32,
) -> anyhow::Result<()> {
    let profile = named(name)?;
    guest.set_migration_cost(profile.migration()?);
    let spread = platforms::count("guest.process_spread_permille")?;
    for n in 0..profile.tasks() {
        let settings = profile.reader(DeviceId(0), n, platform.submit, spread)?;
        guest.add(NewTask {
            name: format!("{name}-{n}"),
            group: IO,
            class,
            mask: CpuSet::first(cpus),
            vcpu: VcpuId((n * cpus / profile.tasks() + turn) % cpus),
            program: Box::new(Reader::new(settings)),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::is_reason;

    /// Every field that says how an application behaves says what fixed it, and nothing
    /// else does.
    #[test]
    fn every_field_of_an_application_says_what_fixed_it() {
        let text = include_str!("profiles.toml");
        let file: toml::Table = toml::from_str(text).unwrap();
        let tables = file["profile"].as_array().unwrap();
        assert!(tables.len() >= 10);
        for table in tables {
            let fields = table.as_table().unwrap().keys();
            let fields = fields.filter(|key| !["name", "title", "fixed_by"].contains(&&***key));
            let fields: Vec<&String> = fields.collect();
            let profile = named(table["name"].as_str().unwrap()).unwrap();
            let fixed: Vec<&String> = profile.fixed_by.keys().collect();
            let mut sorted = fields.clone();
            sorted.sort();
            assert_eq!(fixed, sorted, "{}", profile.name);
            for (field, reason) in &profile.fixed_by {
                assert!(is_reason(reason), "{}: {field}: {reason}", profile.name);
            }
            length(&profile.process).unwrap();
            profile.migration().unwrap();
        }
    }
}
