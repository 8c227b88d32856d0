// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `docs/configuration.md`, written from the knobs; a test compares the file.

use std::fmt::Write;

use super::DEFAULT_FILE;
use super::Profile;
use super::knobs::KNOBS;
use super::knobs::Knob;
use super::part::PARTS;
use crate::exit::Exit;

/// The whole page.
pub(crate) fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    text = text.replace("DEFAULT_FILE", DEFAULT_FILE);
    let (ours, published) = (Profile::Default.settings(), Profile::Published.settings());
    let mut section = None;
    for knob in KNOBS {
        let table = knob.key.rsplit_once('.').map_or("", |(table, _)| table);
        if section != Some(table) {
            let title = if table.is_empty() {
                "Top level".to_owned()
            } else {
                format!("`[{table}]`")
            };
            let _ = writeln!(text, "\n### {title}\n");
            let _ = writeln!(text, "| key | takes | default | published | what it does |");
            let _ = writeln!(text, "|---|---|---|---|---|");
            section = Some(table);
        }
        let shown = |value: Option<String>| value.unwrap_or_else(|| "not set".into());
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            knob.key,
            knob.expected(),
            shown(knob.value(&ours)),
            shown(knob.value(&published)),
            escape(knob),
        );
    }
    text.push_str(PARTS_TITLE);
    for (_, name, off, goes) in PARTS {
        let _ = writeln!(text, "| `{name}` | `{off}` | {goes} |");
    }
    text.push_str(TASKS);
    text.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (exit, meaning) in Exit::ALL {
        let _ = writeln!(text, "| {} | {meaning} |", exit as u8);
    }
    text.push_str(PERMISSIONS);
    text
}

/// A bar would end the table cell.
fn escape(knob: &Knob) -> String {
    knob.help.replace('|', "\\|")
}

const INTRODUCTION: &str = "\
# Configuration of vmigrater

<!-- Written by `vmigrater config-reference`; a test compares. Edit the knobs, not this file. -->

`vmigrater run` reads `DEFAULT_FILE` if it exists, or the file that `--config` names, which then must
exist. An empty file means the defaults. Flags override the file. Unknown keys and values out of range are
errors that name the line. `vmigrater run --show-config` prints what is in force, as a file that can be
read back. A running daemon does not read its configuration again: `systemctl restart vmigrater` restores every
task, then starts with the new values; SIGHUP is ignored.

Durations carry their unit (`\"300 us\"`, `\"5 ms\"`, `\"1.5 s\"`), shares are percentages (`\"30 %\"`).

`profile` selects the values underneath: `\"default\"`, ours, or `\"published\"`, those of the published system
where it states one (paragraph ids such as V7 are those of `docs/sources.md`); every key overrides its profile.

## Keys
";

const PARTS_TITLE: &str = "
## Parts

`vmigrater run --without push,pull` runs it without some of its parts, to see what each is worth; the arms of a
scenario name them alike (`without = [\"push\"]`). Each is one of the keys above:

| part | the same as | without it |
|---|---|---|
";

const TASKS: &str = "
### `[[tasks]]`

One section per rule, the first match wins. `comm` is the beginning of a thread name (`/proc/TID/comm`, at most 15
bytes). `priority` (-1000 to 1000, default 0) makes its threads go first when vCPUs are scarce (V18); `ignore = true`
leaves them alone altogether.

```toml
[[tasks]]
comm = \"postgres\"
priority = 10

[[tasks]]
comm = \"backup\"
ignore = true
```
";

const PERMISSIONS: &str = "\
| 128 + N | run: the daemon was killed by signal N; its supervisor has restored every task |

## Capabilities

Root is not needed, these are: `CAP_BPF` to load BPF programs, `CAP_PERFMON` to attach them to tracepoints, `CAP_SYS_NICE` to
move other users' tasks (without it the daemon says so and moves those of its own user). A user other than root also
needs a directory of its own for `--socket`, `--journal` and `--lock`. `steal_map_id` opens a map by its id, which
the kernel allows with `CAP_SYS_ADMIN` only.

## Files

| file | what |
|---|---|
| `/run/vmigrater/socket` | one connection, one report as JSON; mode 0600 in a directory with mode 0700 |
| `/run/vmigrater/journal` | what must be restored; written before the first change, gone after the last is undone |
| `/run/vmigrater/lock` | one daemon per machine, whatever the file (of each network namespace: an abstract socket address, `vmigrater-daemon`); holds its pid |

## Log levels

| level | meaning |
|---|---|
| off | nothing |
| error | the daemon will exit, or what the user asked for failed |
| warn | check this before trusting the results |
| info | a rare change of state |
| debug | what led to a decision, and what libbpf warns of |
| trace | everything: each bell, decision and move with its instants, at the price of writing it |
";
