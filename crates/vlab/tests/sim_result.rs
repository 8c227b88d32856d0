// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a simulated result holds beyond rates: books that balance, timelines, and
//! readers of it.

use std::path::Path;

use experiment::result::BASELINES;
use experiment::result::Books;
use experiment::result::Phase;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use units::Ns;
use vlab::sim::simulate;
use vlab::sim::simulate_with;

/// Two busy VMs that differ in weight by nothing, under a policy that chooses, and
/// compute as well as I/O in both.
fn scenario(host: &str, others: &str) -> Scenario {
    let text = format!(
        r#"
        name = "books"
        title = "books"
        topology = {{ cpus = 2 }}
        sharing = {{ vms_per_pcpu = [2, 3], slice = "11 ms" }}
        measure = {{ rounds = 2, window = "400 ms", warmup = "200 ms" }}
        compute = {{ threads_per_cpu = 1 }}
        sim = {{ host = "{host}", others = "{others}" }}
        [[load]]
        name = "pulse"
        kind = "pulse"
        [[arm]]
        name = "vanilla"
        [[arm]]
        name = "ours"
        kind = "vmigrater"
        "#
    );
    Scenario::parse(&text, "books.toml").expect("a scenario of this test")
}

fn arms(result: &RunResult) -> impl Iterator<Item = (&Phase, &Books)> {
    let arms = result.phases.iter();
    let arms = arms.filter(|phase| !BASELINES.contains(&phase.arm.as_str()));
    arms.map(|phase| {
        (
            phase,
            phase.books.as_ref().expect("the simulator keeps books"),
        )
    })
}

/// M28: a vCPU is active, ready or waiting, all the time and never twice.
#[test]
fn active_ready_and_waiting_are_all_the_time_there_is() {
    for (host, others) in [
        ("fixed", "phantom"),
        ("credit2", "same"),
        ("vsmtio", "compute"),
    ] {
        let (result, _) = simulate(&scenario(host, others)).unwrap();
        for (phase, books) in arms(&result) {
            let vms = if others == "phantom" {
                1
            } else {
                phase.vms_per_pcpu as usize
            };
            assert_eq!(books.vms.len(), vms, "{host}");
            for vcpu in books.vms.iter().flat_map(|vm| &vm.vcpus) {
                assert_eq!(
                    vcpu.active + vcpu.ready + vcpu.waiting,
                    phase.window,
                    "{host}"
                );
                assert!(vcpu.kept <= vcpu.active, "{host}");
            }
            // Every vCPU has compute, so no pCPU is ever idle, and nobody else has it.
            let all: f64 = books.shares(phase.window).iter().sum();
            let promised = if others == "phantom" {
                1.0 / f64::from(phase.vms_per_pcpu)
            } else {
                1.0
            };
            assert!((all - promised).abs() < 0.06, "{host}: {all} of {promised}");
            if others == "phantom" {
                assert_eq!(books.fairness(), None);
            } else {
                let fair = books.fairness().expect("several VMs");
                assert!((0.9..=1.0).contains(&fair), "{host}: {fair}");
            }
            let time = phase.io_time.as_ref().expect("there are I/O tasks");
            assert_eq!(
                time.total(),
                phase.window * u64::from(time.threads),
                "{host}"
            );
            assert!(
                books.io_inactivity > Ns::ZERO && books.switches > 0,
                "{host}"
            );
        }
        // The daemon moves tasks and so loses less to vCPUs that are away.
        let inactive = |arm: &str| {
            let of = arms(&result).filter(|(phase, _)| phase.arm == arm);
            of.map(|(_, books)| books.io_inactivity).sum::<Ns>()
        };
        assert!(inactive("ours") < inactive("vanilla"), "{host}");
        let moves = |arm: &str| {
            let of = arms(&result).filter(|(phase, _)| phase.arm == arm);
            of.map(|(_, books)| books.task_moves).sum::<u64>()
        };
        assert!(moves("ours") > moves("vanilla"), "{host}");
    }
}

/// The whole of `vlab reproduce` takes minutes, and so may a sweep.
#[test]
fn a_file_without_a_directory_is_refused_before_anything_is_simulated() {
    let json = Some(Path::new("no-such-directory/r.json").to_owned());
    let reproduce = vlab::reproduce::ReproduceArgs {
        experiment: Some("no-such-experiment".to_owned()),
        json: json.clone(),
        ..Default::default()
    };
    let sim = vlab::sim::SimArgs {
        scenario: "no-such-scenario.toml".into(),
        json,
        rounds: None,
        timeline: Ns::ZERO,
        check: false,
    };
    for refused in [vlab::reproduce::run(&reproduce), vlab::sim::run(&sim)] {
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("there is no directory no-such-directory"),
            "{error}"
        );
    }
}

#[test]
fn a_file_has_the_figures_that_follow_and_reads_back() {
    let (result, _) = simulate(&scenario("credit2", "same")).unwrap();
    let json = result.to_json().unwrap();
    let back = RunResult::parse(&json, Path::new("r.json")).unwrap();
    assert_eq!(back, result);
    assert_eq!(back.to_json().unwrap(), json);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let derived = value["derived"].as_array().unwrap();
    assert_eq!(derived.len(), result.phases.len());
    let ours = derived.iter().find(|one| one["arm"] == "ours").unwrap();
    assert!(ours["P"].as_f64().unwrap() > 0.5, "{ours}");
    assert!(ours["fairness_jain"].as_f64().unwrap() > 0.9, "{ours}");
    assert!(ours["cpu_share"]["vm0"].as_f64().unwrap() > 0.2, "{ours}");
    assert!(
        ours["io_inactivity_share"].as_f64().unwrap() > 0.0,
        "{ours}"
    );
    let text = experiment::report::text(&result);
    assert!(text.contains("the host's books") && text.contains("fairness"));
    let same = experiment::compare::compare(&result, &result);
    let text = experiment::compare::text(&same, ["a", "b"]);
    assert!(text.contains("The host's books, A / B"), "{text}");
}

/// A timeline of each arm's first round, of the length that was asked for, without a
/// hole, and a trace of it.
#[test]
fn the_first_round_of_each_arm_has_a_timeline() {
    let length = Ns::from_ms(100);
    // Slices by the clock: the daemon knows when to move what.
    let scenario = scenario("fixed", "phantom");
    let (result, _) = simulate_with(&scenario, length).unwrap();
    let (plain, _) = simulate(&scenario).unwrap();
    for (phase, without) in result.phases.iter().zip(&plain.phases) {
        assert_eq!(without.timeline, None);
        assert_eq!(phase.books, without.books, "to look changes nothing");
        let is_first = phase.round == 0 && !BASELINES.contains(&phase.arm.as_str());
        assert_eq!(
            phase.timeline.is_some(),
            is_first,
            "{} {}",
            phase.arm,
            phase.round
        );
        let Some(timeline) = &phase.timeline else {
            continue;
        };
        assert_eq!((timeline.length, timeline.vcpus.len()), (length, 2));
        assert_eq!(timeline.tasks.len(), 1);
        for task in &timeline.tasks {
            let whole: Ns = task.spells.0.iter().map(|spell| spell.length).sum();
            assert_eq!(whole, length);
        }
        for vcpu in &timeline.vcpus {
            let gaps: Ns = vcpu.gaps.iter().map(|(from, to)| *to - *from).sum();
            assert!(gaps > Ns::ZERO && gaps < length, "{vcpu:?}");
            assert!(vcpu.gaps.windows(2).all(|two| two[0].1 < two[1].0));
        }
        assert_eq!(timeline.moves.is_empty(), phase.arm == "vanilla");
    }
    let trace = experiment::chrome::trace(&result).expect("there are timelines");
    assert!(trace.events.len() > 100);
    let page = experiment::report::html::page(&result).unwrap();
    assert!(page.contains("Timeline, 3 VMs per CPU"));
}

/// Completions are those of the window, as requests are: the report holds the one
/// against the other.
#[test]
fn completions_of_the_warm_up_do_not_count() {
    let text = r#"
        name = "one-queue"
        title = "All completions on one vCPU"
        topology = { cpus = 2 }
        sharing = { slice = "3 ms" }
        measure = { rounds = 1, warmup = "2 s", window = "500 ms", baselines = "none" }
        device = [{ name = "disk", kind = "ssd", completion_vcpu = 1 }]
        load = [{ name = "reads", kind = "reader" }]
        vm = [{ name = "web", vcpus = 2 }]
        arm = [{ name = "vanilla" }]
    "#;
    let mut points = Scenario::parse_points(text, "s.toml", &Default::default()).unwrap();
    let (result, _) = simulate(&points.remove(0)).unwrap();
    let phase = &result.phases[0];
    let requests = phase.io.as_ref().unwrap().ops_per_s * phase.window.as_secs_f64();
    assert_eq!(phase.completions.len(), 2);
    assert_eq!(phase.completions[0], 0);
    let ratio = phase.completions[1] as f64 / requests;
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
}

/// `sharing.slice` is what a policy without slices of its own goes by, whether VMs stand
/// in the file or not; of one that has its own the result says so.
#[test]
fn a_slice_is_heeded_or_said_not_to_be() {
    let result = |host: &str, slice: &str, vms: &str| {
        let text = format!(
            r#"
            name = "slices"
            title = "Three VMs that compute"
            topology = {{ cpus = 1 }}
            sharing = {{ slice = "{slice}", {vms} }}
            measure = {{ rounds = 1, warmup = "200 ms", window = "2 s", baselines = "none" }}
            compute = {{ threads_per_cpu = 1 }}
            arm = [{{ name = "vanilla" }}]
            load = [{{ name = "nothing", kind = "idle" }}]
            "#
        );
        let beside = if vms.is_empty() {
            format!("sim = {{ host = \"{host}\" }}\nvm = [{{ name = \"busy\", count = 3 }}]")
        } else {
            format!("sim = {{ host = \"{host}\", others = \"compute\" }}")
        };
        let text = format!("{text}\n{beside}");
        let mut points = Scenario::parse_points(&text, "s.toml", &Default::default()).unwrap();
        simulate(&points.remove(0)).unwrap().0
    };
    let turns = |result: &RunResult| result.phases[0].host.slices;
    for vms in ["", "vms_per_pcpu = [3]"] {
        for host in [
            "cfs",
            "credit2",
            "credit2-hardened",
            "isacs",
            "isacs-hardened",
        ] {
            let (short, long) = (result(host, "4 ms", vms), result(host, "12 ms", vms));
            assert!(
                turns(&short) * 2 > turns(&long) * 3,
                "{host} {vms}: {} and {}",
                turns(&short),
                turns(&long)
            );
            assert_eq!(long.warnings, Vec::<String>::new());
        }
        for host in [
            "credit1",
            "credit1-hardened",
            "eevdf",
            "eevdf-slices",
            "ische",
        ] {
            let (short, long) = (result(host, "4 ms", vms), result(host, "12 ms", vms));
            assert!(turns(&short).abs_diff(turns(&long)) <= 1, "{host} {vms}");
            let told = format!("{host} has slices of its own");
            assert!(long.warnings[0].contains(&told), "{:?}", long.warnings);
        }
    }
}
