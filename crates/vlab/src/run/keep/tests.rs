// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run on this machine that is ended, and goes on.

use super::*;
use crate::run::Interrupted;

/// Three phases, the first without sharing.
pub(crate) fn scenario(rounds: u32, window: u32) -> Scenario {
    let text = format!(
        r#"
        name = "s"
        title = "s"
        topology = {{ cpus = 2 }}
        sharing = {{ vms_per_pcpu = [2], slice = "11 ms" }}
        measure = {{ rounds = {rounds}, window = "{window} ms", baselines = "solo" }}
        load = [{{ name = "a", kind = "pulse" }}]
        arm = [{{ name = "e", kind = "vanilla", host_policy = "eevdf" }}, {{ name = "f", kind = "vanilla" }}]
        "#
    );
    Scenario::parse(&text, "s.toml").unwrap()
}

pub(crate) fn phase(arm: &str, round: u32) -> Phase {
    let text = format!(
        r#"{{"load": "a", "arm": "{arm}", "vms_per_pcpu": {}, "round": {round}, "at": 7,
        "window": 1, "compute_per_s": [], "completions": [],
        "host": {{"on_share": [], "union_share": 0, "slices": 0}}}}"#,
        if arm == "solo" { 1 } else { 2 }
    );
    serde_json::from_str(&text).unwrap()
}

fn kept(rounds: u32, window: u32, file: &Path) -> Kept {
    let environment = Environment {
        kernel: "6.18".to_owned(),
        cpu_model: "some CPU".to_owned(),
        cpus: 2,
        ..Environment::default()
    };
    let growing = Growing::new("freezer", scenario(rounds, window), Some(file));
    Kept::new(growing, environment, vec!["dir is on no disk".to_owned()])
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.json");
    (dir, file)
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_says_that_it_is_not_whole() {
    let (_dir, file) = file();
    let mut kept = kept(1, 100, &file);
    let nothing = kept.give_up(Interrupted.into());
    assert!(!file.exists() && nothing.to_string().starts_with("interrupted"));
    kept.push(phase("solo", 0));
    let on_disk = RunResult::load(&file).unwrap();
    let warning = "incomplete: 1 of 3 phases: the run goes on, or was killed";
    assert_eq!(on_disk.warnings, ["dir is on no disk", warning]);
    kept.push(phase("e", 0));
    let error = kept.give_up(Interrupted.into());
    // Its exit code stays, and it says where everything is.
    assert!(error.is::<Interrupted>());
    let text = format!("{error:#}");
    assert!(text.starts_with("2 of 3 phases are in "), "{text}");
    let on_disk = RunResult::load(&file).unwrap();
    assert_eq!((on_disk.phases.len(), on_disk.phases[1].boot), (2, 0));
    assert!(on_disk.warnings[1].contains("2 of 3 phases: interrupted"));
    kept.push(phase("f", 0));
    assert_eq!(kept.result(Some(GOES_ON)).warnings, ["dir is on no disk"]);
}

#[test]
fn another_run_goes_on_with_phases_that_are_no_pairs_of_those_before() {
    let (_dir, file) = file();
    let mut first = kept(1, 100, &file);
    first.warnings.push("measured again".to_owned());
    first.push(phase("solo", 0));
    first.push(phase("e", 0));
    let mut second = kept(1, 100, &file);
    second.resume().unwrap();
    assert_eq!((second.done(), second.lasted()), (2, Ns(8)));
    assert_eq!(second.warnings, ["dir is on no disk", "measured again"]);
    second.push(phase("f", 0));
    let boots = |kept: &Kept| -> Vec<u32> {
        let result = kept.result(None);
        result.phases.iter().map(|phase| phase.boot).collect()
    };
    assert_eq!(boots(&second), [0, 0, 1]);
    // And with more rounds.
    let mut third = kept(2, 100, &file);
    third.resume().unwrap();
    third.push(phase("f", 1));
    assert_eq!(boots(&third), [0, 0, 1, 2]);
}

#[test]
fn what_is_no_beginning_is_refused_with_its_file() {
    let (_dir, file) = file();
    let refused = |mut kept: Kept| {
        let error = kept.resume().unwrap_err();
        assert!(error.is::<Unusable>());
        let text = error.to_string();
        assert!(text.starts_with(&file.display().to_string()), "{text}");
        text
    };
    assert!(refused(kept(1, 100, &file)).contains("cannot read"));
    let mut first = kept(1, 100, &file);
    first.push(phase("solo", 0));
    assert!(refused(kept(1, 200, &file)).contains("another scenario"));
    let other = |change: fn(&mut Environment)| {
        let mut kept = kept(1, 100, &file);
        change(&mut kept.environment);
        refused(kept)
    };
    assert!(other(|here| here.kernel = "6.19".to_owned()).contains("another kernel"));
    assert!(other(|here| here.cpus = 4).contains("another machine"));
    let disk = experiment::result::Disk::default();
    let environment = Environment {
        disk: Some(disk),
        ..first.environment.clone()
    };
    let elsewhere = Kept {
        environment,
        ..kept(1, 100, &file)
    };
    assert!(refused(elsewhere).contains("another disk"));
    first.push(phase("f", 0));
    assert!(refused(kept(1, 100, &file)).contains("another order"));
    let mut whole = kept(1, 100, &file);
    for (arm, round) in [("solo", 0), ("e", 0), ("f", 0)] {
        whole.push(phase(arm, round));
    }
    assert!(refused(kept(1, 100, &file)).contains("everything"));
    whole.growing.backend = "kvm";
    whole.growing.save(&whole.result(None));
    assert!(refused(kept(1, 100, &file)).contains("of backend kvm"));
}
