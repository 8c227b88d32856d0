// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--show-config`: what is in force, as a file that says the same when read.

use std::fmt::Write;

use super::Effective;
use super::knobs::KNOBS;
use super::parse;

/// The effective configuration with every knob, its range and its meaning.
pub(crate) fn show(effective: &Effective) -> String {
    let mut text = String::from("# Effective configuration of vmigrater.\n");
    let _ = writeln!(text, "{} = \"{}\"", parse::PROFILE, effective.profile);
    let mut section = "";
    for knob in KNOBS {
        let (table, name) = knob.key.rsplit_once('.').unwrap_or(("", knob.key));
        if table != section {
            let _ = write!(text, "\n[{table}]");
            section = table;
            text.push('\n');
        }
        let _ = writeln!(text, "# {} ({})", knob.help, knob.expected());
        let _ = match knob.value(&effective.settings) {
            Some(value) => writeln!(text, "{name} = {value}"),
            None => writeln!(text, "# {name} is not set"),
        };
    }
    for rule in &effective.settings.priorities {
        let comm = toml::Value::String(rule.comm_prefix.clone());
        let _ = writeln!(text, "\n[[{}]]\ncomm = {comm}", parse::TASKS);
        let _ = match rule.priority {
            Some(priority) => writeln!(text, "priority = {priority}"),
            None => writeln!(text, "ignore = true"),
        };
    }
    text
}
