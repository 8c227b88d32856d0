// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab run` under host policies: this machine's CPUs are stopped as a simulated host
//! of that policy would. Needs root.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

use std::fs;
use std::process::Command;

use experiment::result::Phase;
use experiment::result::RunResult;

#[test]
fn root_cpus_are_frozen_as_the_policy_of_the_arm_would() {
    let dir = tempfile::tempdir().unwrap();
    let (path, json) = (dir.path().join("s.toml"), dir.path().join("r.json"));
    let cpus = freezer::online_cpus().unwrap().len();
    let text = format!(
        r#"
        name = "hosts"
        title = "Two policies"
        host_config = """
        [ische]
        general_cores = 1
        seed = 1
        [[vm]]
        match = "-name vlab0,"
        class = "io"
        """
        topology.cpus = {cpus}
        sharing = {{ vms_per_pcpu = [2], slice = "11 ms" }}
        measure = {{ rounds = 1, window = "600 ms", baselines = "none" }}
        compute.threads_per_cpu = 1
        sim.others = "compute"
        load = [{{ name = "pulse", kind = "pulse" }}]
        arm = [
            {{ name = "fixed", kind = "vanilla", host_policy = "fixed" }},
            {{ name = "credit1", kind = "vanilla", host_policy = "credit1" }},
            {{ name = "ische", kind = "vanilla", host_policy = "ische" }},
            {{ name = "plain", kind = "vanilla" }},
        ]
        "#
    );
    fs::write(&path, text).unwrap();
    let output = Command::new(assert_cmd::cargo::cargo_bin!("vlab"))
        .arg("run")
        .arg(&path)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");

    let result = RunResult::load(&json).unwrap();
    let warnings = &result.warnings;
    assert!(
        warnings.iter().any(|text| text.contains("replayed")),
        "{warnings:?}"
    );
    let of = |arm: &str| -> &Phase {
        let mut phases = result.phases.iter();
        phases.find(|phase| phase.arm == arm).unwrap()
    };
    for arm in ["fixed", "credit1", "ische", "plain"] {
        let host = &of(arm).host;
        eprintln!("{arm}: {host:?}");
        for share in &host.on_share {
            assert!((0.4..0.6).contains(share), "{arm}: {host:?}");
        }
    }
    // Periods of 22, of 60 and of 20 ms.
    let gaps = |arm: &str| of(arm).host.slices / u64::from(cpus);
    assert!((24..=30).contains(&gaps("fixed")), "{}", gaps("fixed"));
    assert!((24..=30).contains(&gaps("plain")), "{}", gaps("plain"));
    assert!((8..=12).contains(&gaps("credit1")), "{}", gaps("credit1"));
    if cpus == 2 {
        // Both vCPUs share the core for I/O, so one of them is always on.
        assert!((26..=33).contains(&gaps("ische")), "{}", gaps("ische"));
        assert!(
            of("ische").host.union_share > 0.95,
            "{:?}",
            of("ische").host
        );
    }
}
