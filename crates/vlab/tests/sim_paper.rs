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

#[test]
fn fig_13_is_that_of_reproduce() {
    let points = points("paper-fig13.toml");
    let mb = |threads: u32| {
        let vms = work(&points, &[&format!("threads = {threads}")]);
        vms.iter().map(|vm| vm.loads[0].bytes_per_s).sum::<f64>() / 1e6
    };
    let rows = ["4 clients/vanilla, MB/s", "40 clients/vanilla, MB/s"];
    let figures = reproduced("fig13", &rows);
    agree("4 clients", mb(2), figures[0], PRINTED);
    agree("40 clients", mb(20), figures[1], PRINTED);
}

#[test]
fn isacs_cpu_is_that_of_reproduce() {
    let points = points("paper-isacs-cpu.toml");
    let kept = |words: &[&str]| {
        let of = |host: &str| {
            let all = [&["count = 5", host], words].concat();
            let target = work(&points, &all).remove(0);
            let stress = target.loads.iter().find(|load| load.load == "stress");
            stress.expect("it computes").ops_per_s
        };
        of("= isacs") / of("= credit2")
    };
    let mixed = "vm.beside.loads = [\"iperf\", \"stress\"]";
    let only = "vm.beside.loads = [\"iperf\"]";
    let target = "vm.target.loads = [\"stress\"],";
    let rows = ["beside 5 mixed VMs", "beside 5 I/O VMs"];
    let figures = reproduced("isacs-cpu", &rows);
    // The driver domain comes last here and first there.
    agree("mixed", kept(&[target, mixed]), figures[0], 0.05);
    agree("I/O", kept(&[target, only]), figures[1], 0.05);
}

#[test]
fn vsmtio_setting_1_is_that_of_reproduce() {
    let points = points("paper-vsmtio-setting1.toml");
    let clamav = "device.disk.mean = $smt.clamav_wait_us";
    let of = |host: &str| work(&points, &[clamav, host]);
    let (blocking, ours) = (of("= blocking"), of("= vsmtio"));
    let row = |what: &str| format!("ClamAV, {what}, vSMT-IO over blocking");
    let rows = [row("I/O"), row("MatMul")];
    let figures = reproduced("vsmtio-setting1", &[&rows[0], &rows[1]]);
    agree(
        "I/O",
        ops(&ours[0]) / ops(&blocking[0]),
        figures[0],
        PRINTED,
    );
    agree(
        "MatMul",
        ours[1].compute / blocking[1].compute,
        figures[1],
        PRINTED,
    );
}

/// Every file of 13.1 to 13.5, also those whose figures nothing above compares.
#[test]
fn every_set_up_of_the_papers_can_be_built() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("the project has scenarios")
        .map(|entry| entry.expect("an entry").file_name())
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("paper-"))
        .collect();
    names.sort();
    assert!(names.len() >= 26, "{names:?}");
    for name in &names {
        for scenario in points(name) {
            let steps = vlab::sim::check(&scenario);
            let steps = steps.unwrap_or_else(|e| panic!("{name} {}: {e}", scenario.point));
            assert!(steps > 0, "{name}");
        }
    }
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
