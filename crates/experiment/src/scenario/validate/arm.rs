// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in an `[[arm]]`.

use toml::Spanned;

use super::super::Arm;
use super::super::ArmKind;
use super::super::ScenarioError;
use super::super::error::Locator;
use super::super::file;
use super::value::identifier;
use super::value::integer;
use super::value::quoted;
use crate::result::BASELINES;

const KINDS_OF_ARM: &str = "one of \"vanilla\", \"fifo\", \"nice\", \"dry-run\", \"vmigrater\", \"published\", \"command\"";

/// Checks one `[[arm]]`.
pub(super) fn arm(raw: file::Arm, index: usize, at: &Locator<'_>) -> Result<Arm, ScenarioError> {
    let field = |name: &str| format!("arm[{index}].{name}");
    let name = identifier(raw.name.clone(), &field("name"), at)?;
    if BASELINES.contains(&name.as_str()) {
        let expected =
            "this baseline is always measured; give the arm another name or leave it out";
        return Err(at.value(raw.name.span(), field("name"), quoted(&name), expected));
    }
    let kind_value = raw.kind.as_ref().unwrap_or(&raw.name);
    let kind_name = kind_value.as_ref().as_str();
    let is_daemon = matches!(kind_name, "vmigrater" | "dry-run" | "published");
    if let Some(config) = &raw.config
        && !is_daemon
    {
        return Err(at.value(
            config.span(),
            field("config"),
            "set",
            "only arms that start the daemon have a configuration",
        ));
    }
    if let Some(profile) = &raw.profile
        && !matches!(kind_name, "vmigrater" | "dry-run")
    {
        let expected = "only arms of kind \"vmigrater\" or \"dry-run\" take a profile";
        return Err(at.value(
            profile.span(),
            field("profile"),
            quoted(profile.as_ref()),
            expected,
        ));
    }
    if let Some(command) = &raw.command
        && kind_name != "command"
    {
        return Err(at.value(
            command.span(),
            field("command"),
            "set",
            "set kind = \"command\" too, or leave it out",
        ));
    }
    let profile = raw.profile.map(Spanned::into_inner);
    let config = raw.config.map(Spanned::into_inner);
    let kind = match kind_name {
        "vanilla" => ArmKind::Vanilla,
        "fifo" => ArmKind::Fifo,
        "nice" => ArmKind::Nice,
        "vmigrater" => ArmKind::Vmigrater {
            dry_run: false,
            profile,
            config,
        },
        "dry-run" => ArmKind::Vmigrater {
            dry_run: true,
            profile,
            config,
        },
        "published" => ArmKind::Vmigrater {
            dry_run: false,
            profile: Some("published".to_owned()),
            config,
        },
        "command" => match raw.command {
            Some(command) if !command.as_ref().is_empty() => ArmKind::Command {
                command: command.into_inner(),
            },
            other => {
                let span = other.map_or(kind_value.span(), |command| command.span());
                let expected =
                    "give the program and its arguments, for instance [\"my-tool\", \"{tids}\"]";
                return Err(at.value(span, field("command"), "missing or empty", expected));
            }
        },
        other => {
            let expected = format!("write kind = {KINDS_OF_ARM}");
            return Err(at.value(kind_value.span(), field("kind"), quoted(other), expected));
        }
    };
    let rounds = match &raw.rounds {
        Some(rounds) => Some(integer(rounds, &field("rounds"), 1..=1000, at)?),
        None => None,
    };
    Ok(Arm { name, kind, rounds })
}
