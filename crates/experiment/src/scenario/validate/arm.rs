// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in an `[[arm]]`.

use toml::Spanned;

use super::super::Arm;
use super::super::ArmKind;
use super::super::HostPolicy;
use super::super::Known;
use super::super::Part;
use super::super::ScenarioError;
use super::super::error::Locator;
use super::super::file;
use super::super::known;
use super::policy;
use super::value::identifier;
use super::value::integer;
use super::value::quoted;
use crate::result::BASELINES;

const KINDS: &str = "\"vanilla\", \"fifo\", \"nice\", \"dry-run\", \"vmigrater\", \"published\", \"xballoon\", \"host\" or \"command\"";

/// Checks one `[[arm]]`.
pub(super) fn arm(
    raw: file::Arm,
    index: usize,
    names: &Known,
    at: &Locator<'_>,
) -> Result<Arm, ScenarioError> {
    let field = |name: &str| format!("arm[{index}].{name}");
    let name = identifier(raw.name.clone(), &field("name"), at)?;
    if BASELINES.contains(&name.as_str()) {
        let expected =
            "this baseline is always measured; give the arm another name or leave it out";
        return Err(at.value(raw.name.span(), field("name"), quoted(&name), expected));
    }
    let kind = raw.kind.as_ref().unwrap_or(&raw.name);
    let kind_span = kind.span();
    // A command says what it is; any other arm without a kind is named by it.
    let kind_name = match (&raw.kind, &raw.command) {
        (None, Some(_)) => "command".to_owned(),
        _ => kind.as_ref().clone(),
    };
    let ours = matches!(kind_name.as_str(), "vmigrater" | "dry-run");
    let is_daemon = ours || matches!(kind_name.as_str(), "published" | "xballoon");
    let only = |given: Option<std::ops::Range<usize>>, key, right: bool, expected: &str| match given
    {
        Some(span) if !right => Err(at.value(span, field(key), "set", expected)),
        _ => Ok(()),
    };
    let span_of = |value: &Option<Spanned<String>>| value.as_ref().map(Spanned::span);
    only(
        span_of(&raw.config),
        "config",
        is_daemon,
        "only arms that start the daemon have a configuration",
    )?;
    only(
        span_of(&raw.profile),
        "profile",
        ours,
        "only arms of kind \"vmigrater\" or \"dry-run\" take a profile",
    )?;
    only(
        raw.without.as_ref().map(Spanned::span),
        "without",
        ours || kind_name == "published",
        "only arms of kind \"vmigrater\", \"dry-run\" or \"published\" have parts to leave out",
    )?;
    only(
        raw.command.as_ref().map(Spanned::span),
        "command",
        kind_name == "command",
        "write kind = \"command\" or no kind, or leave the command out",
    )?;
    only(
        span_of(&raw.policy),
        "policy",
        kind_name == "host",
        "only arms of kind \"host\" name a host policy",
    )?;
    only(
        raw.settings.as_ref().map(Spanned::span),
        "settings",
        kind_name == "host",
        "only arms of kind \"host\" set something of their policy; of the scenario's own, [sim.policy] does",
    )?;
    only(
        span_of(&raw.host_policy),
        "host_policy",
        kind_name != "host",
        "an arm of kind \"host\" is the simulator's and names its policy with `policy`",
    )?;
    let host_policy = raw
        .host_policy
        .map(|name| host_policy(&name, &field("host_policy"), at))
        .transpose()?;
    let without = parts(raw.without, &field("without"), at)?;
    let profile = raw.profile.map(Spanned::into_inner);
    let config = raw.config.map(Spanned::into_inner);
    let vmigrater = |dry_run, profile, config| ArmKind::Vmigrater {
        dry_run,
        profile,
        without,
        config,
    };
    let kind = match kind_name.as_str() {
        "vanilla" => ArmKind::Vanilla,
        "fifo" => ArmKind::Fifo,
        "nice" => ArmKind::Nice,
        "vmigrater" => vmigrater(false, profile, config),
        "dry-run" => vmigrater(true, profile, config),
        "published" => vmigrater(false, Some("published".to_owned()), config),
        "xballoon" => ArmKind::Xballoon { config },
        "host" => {
            let hosts = names.host_names();
            let policy = match raw.policy {
                Some(policy) => known::chosen(policy, &field("policy"), &hosts, at)?,
                None => known::chosen(raw.name, &field("name"), &hosts, at)?,
            };
            let settings = raw.settings.map(Spanned::into_inner).unwrap_or_default();
            let table = field("settings");
            let settings = policy::settings(settings, &table, &policy, &names.hosts, at)?;
            ArmKind::Host { policy, settings }
        }
        "command" => command(raw.command, kind_span, &field("command"), at)?,
        other => {
            let expected = format!("write kind = {KINDS}");
            return Err(at.value(kind_span, field("kind"), quoted(other), expected));
        }
    };
    let rounds = match &raw.rounds {
        Some(rounds) => Some(integer(rounds, &field("rounds"), 1..=1000, at)?),
        None => None,
    };
    Ok(Arm {
        name,
        kind,
        rounds,
        host_policy,
    })
}

fn host_policy(
    name: &Spanned<String>,
    field: &str,
    at: &Locator<'_>,
) -> Result<HostPolicy, ScenarioError> {
    HostPolicy::from_name(name.as_ref()).ok_or_else(|| {
        let names = HostPolicy::ALL.map(|policy| quoted(policy.name()));
        let expected = format!("write one of {}", names.join(", "));
        at.value(name.span(), field, quoted(name.as_ref()), expected)
    })
}

/// The parts to leave out, each once.
fn parts(
    raw: Option<Spanned<Vec<Spanned<String>>>>,
    field: &str,
    at: &Locator<'_>,
) -> Result<Vec<Part>, ScenarioError> {
    let mut parts = Vec::new();
    for word in raw.map(Spanned::into_inner).unwrap_or_default() {
        let Some(part) = Part::from_name(word.as_ref()) else {
            let names = Part::ALL.map(|part| quoted(part.name())).join(", ");
            let expected = format!("write some of {names}");
            return Err(at.value(word.span(), field, quoted(word.as_ref()), expected));
        };
        if parts.contains(&part) {
            let expected = "name each part once";
            return Err(at.value(word.span(), field, quoted(word.as_ref()), expected));
        }
        parts.push(part);
    }
    Ok(parts)
}

fn command(
    raw: Option<Spanned<Vec<String>>>,
    kind: std::ops::Range<usize>,
    field: &str,
    at: &Locator<'_>,
) -> Result<ArmKind, ScenarioError> {
    let span = raw.as_ref().map_or(kind, Spanned::span);
    let command = raw.map(Spanned::into_inner).unwrap_or_default();
    let expected = "give the program and its arguments, for instance [\"my-tool\", \"{tids}\"]";
    match command.first().map(|program| program.trim()) {
        None => Err(at.value(span, field, "missing or empty", expected)),
        Some("") => Err(at.value(span, field, "without a program", expected)),
        Some(_) => Ok(ArmKind::Command { command }),
    }
}
