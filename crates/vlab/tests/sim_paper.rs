// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The papers' set-ups as files give what `vlab reproduce` simulates for them.

use std::path::Path;

use assert_cmd::Command;
use experiment::result::RunResult;
use experiment::result::VmWork;
use experiment::scenario::Scenario;
use vlab::reproduce::known;
use vlab::sim::simulate;

/// `vlab reproduce` prints so many digits of a figure.
const PRINTED: f64 = 0.006;

fn points(name: &str) -> Vec<Scenario> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(name);
    let known = known().expect("the embedded files are whole");
    Scenario::load_points(&path, &known).expect("a scenario of this project")
}

/// What the VMs did in the point whose name has all these words.
fn work(points: &[Scenario], words: &[&str]) -> Vec<VmWork> {
    let of = |scenario: &&Scenario| words.iter().all(|word| scenario.point.contains(word));
    let scenario = points.iter().find(of).expect("the sweep has this point");
    let simulated: anyhow::Result<(RunResult, u64)> = simulate(scenario);
    let (result, _) = simulated.expect("the simulator has all of it");
    let phase = result.phases.iter().find(|phase| phase.arm == "vanilla");
    phase.expect("the arm is simulated").work.clone()
}

/// The second column of a row of `vlab reproduce EXPERIMENT --quick`.
fn reproduced(experiment: &str, rows: &[&str]) -> Vec<f64> {
    let mut vlab = Command::cargo_bin("vlab").expect("vlab is built");
    let output = vlab.args(["reproduce", experiment, "--quick"]).output();
    let output = output.expect("vlab runs");
    let text = String::from_utf8(output.stdout).expect("words");
    let figure = |row: &&str| -> f64 {
        let mut lines = text.lines();
        let rest = lines.find_map(|line| line.strip_prefix(*row));
        let rest = rest.unwrap_or_else(|| panic!("no {row} in {text}"));
        let figure = rest.split_whitespace().nth(1);
        let figure = figure.and_then(|figure| figure.parse().ok());
        figure.unwrap_or_else(|| panic!("no figure in {row}{rest}"))
    };
    rows.iter().map(figure).collect()
}

fn agree(what: &str, file: f64, reproduced: f64, tolerance: f64) {
    println!("{what}: {file:.4} by the file, {reproduced} by vlab reproduce");
    assert!(
        (file / reproduced - 1.0).abs() < tolerance,
        "{what}: {file} and {reproduced}"
    );
}

fn ops(vm: &VmWork) -> f64 {
    vm.loads[0].ops_per_s
}

#[test]
fn fig_2_is_that_of_reproduce() {
    let points = points("paper-fig2.toml");
    let solo = simulate(&points[0]).unwrap().0;
    let rate = |arm: &str| vlab::sim::rate(&solo, "reads", arm, points[0].sharing.vms_per_pcpu[0]);
    let alone = solo
        .phases
        .iter()
        .find(|phase| phase.arm == "solo")
        .unwrap();
    let drop = (1.0 - rate("vanilla").unwrap() / ops(&alone.work[0])) * 100.0;
    let unequal = work(&points, &["vm.first.weight = 256"]);
    let figures = reproduced("fig2", &["a: throughput drop, %", "c: VM2 over VM1"]);
    agree("a", drop, figures[0], PRINTED);
    agree(
        "c",
        ops(&unequal[1]) / ops(&unequal[0]),
        figures[1],
        PRINTED,
    );
}

#[test]
fn ische_is_that_of_reproduce() {
    let points = points("paper-ische.toml");
    let vm = &work(&points, &["ische"])[0];
    let figures = reproduced("ische", &["dd, MB/s/ische", "ping, ms/ische"]);
    agree("dd", vm.loads[0].bytes_per_s / 1e6, figures[0], PRINTED);
    // The driver domain comes last here and first there, so the clients' messages are
    // others.
    agree("ping", vm.loads[1].trip.as_ms_f64(), figures[1], 0.1);
}

#[test]
fn vsmtio_is_that_of_reproduce() {
    let points = points("paper-vsmtio.toml");
    let clamav = "device.disk.mean = $smt.clamav_wait_us";
    let of = |host: &str| work(&points, &[clamav, host]);
    let (cfs, ours) = (of("= cfs"), of("= vsmtio"));
    let io = |vms: &[VmWork]| ops(&vms[0]) + ops(&vms[1]);
    let compute = |vms: &[VmWork]| vms[2].compute + vms[3].compute;
    let row = |what: &str| format!("ClamAV+BinaryClassify/vSMT-IO: {what} against vanilla");
    let rows = [row("I/O"), row("compute")];
    let figures = reproduced("vsmtio-setting2", &[&rows[0], &rows[1]]);
    agree("I/O", io(&ours) / io(&cfs), figures[0], PRINTED);
    agree(
        "compute",
        compute(&ours) / compute(&cfs),
        figures[1],
        PRINTED,
    );
}

#[test]
fn jupiter_is_that_of_reproduce() {
    let points = points("paper-jupiter.toml");
    let words = [
        "load.program.work = $jupiter.round_us * $jupiter.streamcluster_rounds, ",
        "load.partner.work = $jupiter.round_us * $jupiter.freqmine_rounds",
    ];
    let speed = |host: &str| {
        let vms = work(&points, &[words[0], words[1], host]);
        (ops(&vms[0]) * ops(&vms[1])).sqrt()
    };
    let figures = reproduced("jupiter-pairs", &["streamcluster with freqmine/JUPITER"]);
    agree(
        "speed",
        speed("= jupiter") / speed("= balance"),
        figures[0],
        PRINTED,
    );
}

/// What a reader of a file sees of the numbers that it names.
#[test]
fn check_says_what_names_give() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for (file, lines) in [
        (
            "paper-fig14.toml",
            [
                "$client.read_kib * 1024 is 6656",
                "$ssd.latency_us / $client.waits - $guest.submit_us is \"17us 500ns\"",
            ],
        ),
        (
            "paper-fig15.toml",
            ["$hdd.mb_per_s is 150", "$hdfs.migration_us is \"870us\""],
        ),
    ] {
        let mut vlab = Command::cargo_bin("vlab").expect("vlab is built");
        let output = vlab
            .args(["sim", "--check"])
            .arg(scenarios.join(file))
            .output();
        let text = String::from_utf8(output.expect("vlab runs").stdout).expect("words");
        assert!(text.contains("can be simulated"), "{text}");
        for line in lines {
            assert!(text.lines().any(|told| told == line), "no {line} in {text}");
        }
    }
}
