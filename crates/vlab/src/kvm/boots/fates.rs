// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of the labs: a line of a file for each, and a table of them all.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context;
use experiment::stats::quantile;
use serde::Deserialize;
use serde::Serialize;

use super::arm::Arm;

/// What became of one lab.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Fate {
    /// Its arm's name.
    pub(super) arm: String,
    /// Guests that were begun to boot, those started again included.
    pub(super) booted: u32,
    /// Guests lost while they booted, with the reason.
    pub(super) restarted: Vec<String>,
    /// Seconds from the host's start until all guests were up; `None`: they never were.
    pub(super) up_s: Option<u64>,
    /// For so many seconds all of them were watched.
    pub(super) watched_s: u64,
    /// Rounds of their load that all guests together did in that time; `None`: they were
    /// never up, or the log is from before rounds were counted.
    pub(super) rounds: Option<u64>,
    /// Why the lab ended early, if it did.
    pub(super) lost: Option<String>,
}

/// Those of a file, none if it is not there.
pub(super) fn load(log: &Path) -> anyhow::Result<Vec<Fate>> {
    let text = match fs::read_to_string(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", log.display()))?,
    };
    parse(&text).with_context(|| format!("{}: delete it to begin anew", log.display()))
}

fn parse(text: &str) -> anyhow::Result<Vec<Fate>> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty());
    lines
        .map(|(nr, line)| {
            serde_json::from_str(line).with_context(|| format!("line {} is no lab", nr + 1))
        })
        .collect()
}

/// Adds a line.
pub(super) fn append(log: &Path, fate: &Fate) -> anyhow::Result<()> {
    let line = serde_json::to_string(fate)? + "\n";
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write {}", log.display()))
}

/// One row for each arm.
pub(super) fn table(arms: &[Arm], fates: &[Fate]) -> String {
    let mut text = "| arm | labs | whole | guests booted | lost while booting | labs lost before all were up | later | watched | rounds a minute | up after (median) |\n|---|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for arm in arms {
        let of: Vec<&Fate> = fates.iter().filter(|fate| fate.arm == arm.name).collect();
        let count = |what: &dyn Fn(&Fate) -> bool| of.iter().filter(|fate| what(fate)).count();
        let restarted: usize = of.iter().map(|fate| fate.restarted.len()).sum();
        let ups = of.iter().filter_map(|fate| Some(fate.up_s? as f64));
        let up = quantile(&ups.collect::<Vec<_>>(), 0.5);
        let up = up.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0} s"));
        let counted = of
            .iter()
            .filter_map(|fate| Some((fate.rounds?, fate.watched_s)));
        let (rounds, seconds) = counted.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let rate = if seconds == 0 {
            "-".to_owned()
        } else {
            format!("{:.1}", rounds as f64 * 60.0 / seconds as f64)
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {restarted} | {} | {} | {} s | {rate} | {up} |",
            arm.name,
            of.len(),
            count(&|fate| fate.lost.is_none() && fate.restarted.is_empty()),
            of.iter().map(|fate| fate.booted).sum::<u32>(),
            count(&|fate| fate.lost.is_some() && fate.up_s.is_none()),
            count(&|fate| fate.lost.is_some() && fate.up_s.is_some()),
            of.iter().map(|fate| fate.watched_s).sum::<u64>(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str =
        r#"{"arm":"a","booted":2,"restarted":[],"up_s":80,"watched_s":20,"lost":null}"#;

    #[test]
    fn a_log_comes_back_as_it_was_written_and_says_where_it_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(load(&log).unwrap(), []);
        let fates = [fate("a", Some(80), 0, None), fate("b", None, 2, Some("x"))];
        for fate in &fates {
            append(&log, fate).unwrap();
        }
        assert_eq!(load(&log).unwrap(), fates);
        // As written before rounds were counted.
        fs::write(&log, OLD).unwrap();
        assert_eq!(load(&log).unwrap()[0].rounds, None);
        fs::write(&log, "{}\n").unwrap();
        let error = format!("{:#}", load(&log).unwrap_err());
        assert!(error.contains("line 1 is no lab"), "{error}");
    }

    fn fate(arm: &str, up_s: Option<u64>, restarted: u32, lost: Option<&str>) -> Fate {
        Fate {
            arm: arm.to_owned(),
            booted: 2 + restarted,
            restarted: (0..restarted).map(|nr| nr.to_string()).collect(),
            up_s,
            watched_s: up_s.map_or(0, |_| 20),
            rounds: up_s.map(|_| 5),
            lost: lost.map(str::to_owned),
        }
    }

    #[test]
    fn the_table_counts_each_kind_of_loss_by_itself() {
        let arms = ["a", "b", "c", "d"].map(|name| name.parse().unwrap());
        let mut old = fate("d", Some(60), 0, None);
        old.rounds = None;
        let fates = [
            fate("a", Some(80), 0, None),
            fate("a", Some(90), 1, None),
            fate("a", Some(70), 0, Some("later")),
            fate("b", None, 2, Some("boot")),
            old,
            fate("d", Some(100), 0, None),
        ];
        let text = table(&arms, &fates);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| a | 3 | 1 | 7 | 1 | 0 | 1 | 60 s | 15.0 | 80 s |",
                "| b | 1 | 0 | 4 | 2 | 1 | 0 | 0 s | - | - |",
                "| c | 0 | 0 | 0 | 0 | 0 | 0 | 0 s | - | - |",
                "| d | 2 | 2 | 4 | 0 | 0 | 0 | 40 s | 15.0 | 80 s |",
            ]
        );
    }
}
