// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration: from a TOML file and flags to `guest::settings::Settings`.
//!
//! Two steps, two modules: [`parse`] reads the text and knows nothing of
//! meanings beyond the names of the keys; [`validate`] turns values into
//! settings and checks ranges. Both get the names, ranges and help texts from
//! one table, [`knobs`], and so do `--show-config` ([`mod@show`]) and
//! `docs/configuration.md` ([`docs`]): a knob is added in one place. On a machine that
//! runs in slow motion [`mod@dilate`] makes all of its durations longer.
//!
//! Rejected: a mirror of the settings as serde structs. Serde drops the place of
//! a value once it is read, so a range error could not name its line, and the
//! help texts and ranges would live beside the structs and drift.

mod dilate;
mod docs;
mod error;
mod human;
mod knobs;
mod parse;
mod part;
mod profile;
mod show;
mod validate;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::path::PathBuf;

use guest::settings::ModeChoice;
use guest::settings::Settings;
use guest::settings::SourceChoice;

pub(crate) use docs::markdown;
pub(crate) use error::ConfigError;
pub(crate) use knobs::MODES;
pub(crate) use knobs::SOURCES;
pub(crate) use part::Part;
pub(crate) use profile::Profile;
pub(crate) use show::show;

/// Read if it exists and no other file is named.
pub(crate) const DEFAULT_FILE: &str = "/etc/vmigrater/config.toml";

/// What the command line says about the settings; it overrides the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// `--config`.
    pub(crate) file: Option<PathBuf>,
    /// `--profile`.
    pub(crate) profile: Option<Profile>,
    /// `--source`.
    pub(crate) source: Option<SourceChoice>,
    /// `--steal-map-id` or its environment variable.
    pub(crate) steal_map_id: Option<u32>,
    /// `--mode`.
    pub(crate) mode: Option<ModeChoice>,
    /// `--without`.
    pub(crate) without: Vec<Part>,
    /// `--dry-run`.
    pub(crate) dry_run: bool,
    /// `--dilation`.
    pub(crate) dilation: Option<u32>,
}

/// What is in force: the profile it started from and the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effective {
    /// The named set of values underneath.
    pub(crate) profile: Profile,
    /// Everything a user can set, valid.
    pub(crate) settings: Settings,
}

/// Profile, then file, then flags: later wins.
pub(crate) fn load(overrides: &Overrides) -> Result<Effective, ConfigError> {
    let mut effective = match &overrides.file {
        Some(path) => from_file(path, overrides.profile)?,
        None => match from_file(Path::new(DEFAULT_FILE), overrides.profile) {
            Err(ConfigError::Missing { .. }) => from_text("", "", overrides.profile)?,
            other => other?,
        },
    };
    let settings = &mut effective.settings;
    if let Some(source) = overrides.source {
        settings.source = source;
    }
    if overrides.steal_map_id.is_some() {
        settings.steal_map_id = overrides.steal_map_id;
    }
    if let Some(mode) = overrides.mode {
        settings.mode = mode;
    }
    for part in &overrides.without {
        part.leave_out(settings);
    }
    settings.dry_run |= overrides.dry_run;
    // Last: whatever the file says is of a real machine.
    if let Some(by) = overrides.dilation {
        dilate::dilate(settings, by);
    }
    Ok(effective)
}

fn from_file(path: &Path, profile: Option<Profile>) -> Result<Effective, ConfigError> {
    let text = error::read(path)?;
    from_text(&path.display().to_string(), &text, profile)
}

/// `file` is only for messages.
fn from_text(file: &str, text: &str, profile: Option<Profile>) -> Result<Effective, ConfigError> {
    let document = parse::parse(file, text)?;
    let profile = profile.or(document.profile).unwrap_or_default();
    let settings = validate::apply(file, &document, profile.settings())?;
    Ok(Effective { profile, settings })
}
