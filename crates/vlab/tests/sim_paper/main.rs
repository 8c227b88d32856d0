// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The papers' set-ups as files give what `vlab reproduce` simulates for them.
//!
//! Both are simulated for a short time only: machines that are the same do the same from
//! the first event on, and nothing here is compared with what was published.

mod jupiter;
mod vmigrater;
mod vsmtio;
mod xen;

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::time::Duration;

use assert_cmd::Command;
use experiment::reproduction::Reproduction;
use experiment::result::SOLO;
use experiment::result::VmWork;
use experiment::scenario::Scenario;
use units::Ns;
use vlab::reproduce::Brief;
use vlab::reproduce::ReproduceArgs;
use vlab::reproduce::known;
use vlab::reproduce::reproduce;
use vlab::sim::simulate;

/// The same machine: only the order of a sum may be another one.
const SAME: f64 = 1e-6;

/// The driver domain comes last in a file and first in an experiment, so random numbers
/// are drawn in another order and instants differ: what is a mean over many requests is
/// near, what is one of a few hundred pings less so.
const NEAR: f64 = 0.05;
const NEAR_PING: f64 = 0.25;

/// iSche's machine is small: dd comes out as printed, and its pings nearer than ISACS'.
const PRINTED: f64 = 0.006;
const ISCHE_PING: f64 = 0.10;

const SHORT: Brief = Brief {
    warmup: Ns::from_ms(200),
    window: Ns::from_ms(400),
};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// All points of a file.
fn points(name: &str) -> Vec<Scenario> {
    let known = known().expect("the embedded files are whole");
    Scenario::load_points(&directory().join(name), &known).expect("a scenario of this project")
}

/// A file of the papers, simulated briefly.
#[derive(Clone)]
struct File {
    points: Vec<Scenario>,
    /// How briefly.
    own: Brief,
    /// What `vlab reproduce` is told for the same.
    told: Brief,
}

impl File {
    /// What the VMs did under an arm with a load of the phase in the point whose name is
    /// this or, alone, has all these words.
    fn arm(&self, words: &[&str], load: &str, arm: &str) -> Vec<VmWork> {
        let of = |point: &&Scenario| words.iter().all(|word| point.point.contains(word));
        let exact = self
            .points
            .iter()
            .find(|point| words == [point.point.as_str()]);
        let found: Vec<&Scenario> = self.points.iter().filter(of).collect();
        let point = match (exact, &found[..]) {
            (Some(point), _) => point,
            (None, [point]) => point,
            (None, other) => panic!("{} points have {words:?}", other.len()),
        };
        let mut scenario = point.clone();
        scenario.measure.warmup = self.own.warmup;
        scenario.measure.window = self.own.window;
        // With several VMs per pCPU a warm-up has a least length.
        scenario.sharing.vms_per_pcpu = vec![1];
        scenario.loads.retain(|other| load == other.name);
        scenario
            .arms
            .retain(|other| arm == SOLO || arm == other.name);
        scenario.arms.truncate(1);
        assert_eq!(
            (scenario.loads.len(), scenario.arms.len()),
            (1, 1),
            "{load}, {arm}"
        );
        let (result, _) = simulate(&scenario).expect("the simulator has all of it");
        let phase = result.phases.iter().find(|phase| phase.arm == arm);
        phase.expect("the arm is simulated").work.clone()
    }

    /// Likewise, where the file has one arm and each VM its own loads: which of them is
    /// that of the phase does not matter.
    fn vms(&self, words: &[&str]) -> Vec<VmWork> {
        self.arm(words, &self.points[0].loads[0].name, "vanilla")
    }

    fn solo(&self, words: &[&str]) -> Vec<VmWork> {
        self.arm(words, &self.points[0].loads[0].name, SOLO)
    }

    /// The figure of a row of an experiment, simulated as briefly.
    fn row(&self, experiment: &str, row: &str) -> f64 {
        type Found = HashMap<(String, Ns, Ns), Reproduction>;
        static FOUND: LazyLock<Mutex<Found>> = LazyLock::new(Mutex::default);
        let Brief { warmup, window } = self.told;
        let mut found = FOUND.lock().unwrap_or_else(|e| panic!("{e}"));
        let found = found
            .entry((experiment.to_owned(), warmup, window))
            .or_insert_with(|| {
                let args = ReproduceArgs {
                    experiment: Some(experiment.to_owned()),
                    brief: Some(self.told),
                    ..ReproduceArgs::default()
                };
                reproduce(&args).expect("the embedded files are whole")
            });
        let experiment = &found.experiments[0];
        let mut rows = experiment.rows.iter();
        let found = rows.find(|found| found.name == row);
        found.unwrap_or_else(|| panic!("no {row}")).simulated
    }

    /// A figure of the file is the row's.
    fn agrees(&self, experiment: &str, row: &str, file: f64, tolerance: f64) {
        let reproduced = self.row(experiment, row);
        println!("{experiment}/{row}: {file:.6} by the file, {reproduced:.6} by the experiment");
        // Not true of a figure that is none.
        let off = (file / reproduced - 1.0).abs();
        assert!(
            off < tolerance,
            "{experiment}/{row}: {file} and {reproduced}"
        );
    }
}

fn bytes(vm: &VmWork) -> f64 {
    vm.loads[0].bytes_per_s
}

fn ops(vm: &VmWork) -> f64 {
    vm.loads[0].ops_per_s
}

fn sum(vms: &[VmWork], of: fn(&VmWork) -> f64) -> f64 {
    vms.iter().map(of).sum()
}

/// What computes, as a load or beside it.
fn compute(vm: &VmWork) -> f64 {
    vm.compute
}

/// A file, and how it is compared.
struct Case {
    file: &'static str,
    compare: fn(&File),
}

const fn case(file: &'static str, compare: fn(&File)) -> Case {
    Case { file, compare }
}

fn compare(cases: &[Case]) {
    for case in cases {
        println!("{}", case.file);
        let file = File {
            points: points(&format!("{}.toml", case.file)),
            own: SHORT,
            told: SHORT,
        };
        (case.compare)(&file);
    }
}

#[test]
fn files_of_vmigrater_are_those_of_reproduce() {
    compare(vmigrater::CASES);
}

#[test]
fn files_of_isacs_and_ische_are_those_of_reproduce() {
    compare(xen::CASES);
}

#[test]
fn files_of_vsmtio_are_those_of_reproduce() {
    compare(vsmtio::CASES);
}

#[test]
fn files_of_jupiter_are_those_of_reproduce() {
    compare(jupiter::CASES);
}

/// No file of 13.1 to 13.5 is left out, and every point of every one can be built.
#[test]
fn every_set_up_of_the_papers_is_compared_and_can_be_built() {
    let mut names: Vec<String> = std::fs::read_dir(directory())
        .expect("the project has scenarios")
        .map(|entry| entry.expect("an entry").file_name())
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("paper-"))
        .collect();
    names.sort();
    let cases = [vmigrater::CASES, xen::CASES, vsmtio::CASES, jupiter::CASES];
    let cases = cases.into_iter().flatten();
    let mut compared: Vec<String> = cases.map(|case| format!("{}.toml", case.file)).collect();
    compared.sort();
    assert_eq!(names, compared);
    for name in &names {
        for scenario in points(name) {
            let steps = vlab::sim::check(&scenario);
            let steps = steps.unwrap_or_else(|e| panic!("{name} {}: {e}", scenario.point));
            assert!(steps > 0, "{name}");
        }
    }
}

/// What a reader of a file sees of the numbers that it names: worked out here from the
/// parameters as they are, because a fit changes them.
#[test]
fn check_says_what_names_give() {
    let parameters = known().expect("the embedded files are whole").parameters;
    let of = |name: &str| parameters[name];
    let us = |us: f64| humantime::format_duration(Duration::from_nanos((us * 1e3).round() as u64));
    let bytes = of("client.read_kib") * 1024.0;
    let process = us(of("ssd.latency_us") / of("client.waits") - of("guest.submit_us"));
    let (mb_per_s, move_time) = (of("hdd.mb_per_s"), us(of("hdfs.migration_us")));
    for (file, lines) in [
        (
            "paper-fig14.toml",
            [
                format!("$client.read_kib * 1024 is {bytes}"),
                format!("$ssd.latency_us / $client.waits - $guest.submit_us is \"{process}\""),
            ],
        ),
        (
            "paper-fig15.toml",
            [
                format!("$hdd.mb_per_s is {mb_per_s}"),
                format!("$hdfs.migration_us is \"{move_time}\""),
            ],
        ),
    ] {
        let mut vlab = Command::cargo_bin("vlab").expect("vlab is built");
        let output = vlab
            .args(["sim", "--check"])
            .arg(directory().join(file))
            .output();
        let text = String::from_utf8(output.expect("vlab runs").stdout).expect("words");
        assert!(text.contains("can be simulated"), "{text}");
        for line in &lines {
            assert!(text.lines().any(|told| told == line), "no {line} in {text}");
        }
    }
}
