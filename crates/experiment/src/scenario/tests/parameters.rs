// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texts with `$`.

use units::Ns;

use super::super::DeviceKind;
use super::super::Known;
use super::super::LoadKind;
use super::super::Program;
use super::super::Scenario;
use super::super::median_of_mean;
use super::vms::GOOD;

fn known() -> Known {
    let all = [
        ("ssd.latency_us", 90.0),
        ("ssd.mb_per_s", 12.5),
        ("hdd.seek_us", 8.0),
        ("smt.slice_ms", 12.0),
        ("smt.vcpus", 3.0),
        ("smt.spread", 1.5),
        ("smt.none", 0.0),
    ];
    Known {
        parameters: all.map(|(name, value)| (name.to_owned(), value)).into(),
        ..Known::default()
    }
}

/// A good file with something else in it.
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replacen(from, to, 1)
}

fn points(text: &str) -> Vec<Scenario> {
    let points = Scenario::parse_points(text, "s.toml", &known());
    points.unwrap_or_else(|error| panic!("{error}"))
}

fn one(text: &str) -> Scenario {
    points(text).remove(0)
}

/// The work of the program that meets.
fn work(text: &str) -> Ns {
    let scenario = one(&with("work = \"2 ms\"", &format!("work = \"{text}\"")));
    let meets = &scenario.vms[2].loads.as_ref().unwrap()[0];
    match meets.kind {
        LoadKind::Simulated {
            program: Program::Parallel { work, .. },
        } => work,
        _ => panic!("{meets:?}"),
    }
}

#[test]
fn durations_are_computed_exactly() {
    assert_eq!(work("$ssd.latency_us"), Ns::from_us(90));
    assert_eq!(work("$smt.slice_ms"), Ns::from_ms(12));
    // From the left, products first.
    assert_eq!(work("$ssd.latency_us / 4 - $hdd.seek_us"), Ns(14_500));
    assert_eq!(
        work("$hdd.seek_us + $ssd.latency_us * 9 / 10"),
        Ns::from_us(89)
    );
    assert_eq!(work("$smt.vcpus * $ssd.latency_us"), Ns::from_us(270));
    assert_eq!(
        work("$ssd.latency_us / $hdd.seek_us * $smt.slice_ms"),
        Ns::from_ms(135)
    );
}

#[test]
fn numbers_stand_wherever_numbers_do() {
    let text = with("vcpus = 2", "vcpus = \"$smt.vcpus - 1\"");
    assert_eq!(one(&text), one(GOOD));
    let text = with("mb_per_s = 12.5", "mb_per_s = \"$ssd.mb_per_s\"");
    assert_eq!(one(&text), one(GOOD));
    let text = with("pins = [1, 3]", "pins = [1, \"$smt.vcpus\"]");
    assert_eq!(one(&text), one(GOOD));
}

#[test]
fn a_disk_may_have_a_mean() {
    let ssd =
        "kind = \"ssd\"\nspread_permille = \"$smt.spread * 1000\"\nmean = \"$hdd.seek_us * 1000\"";
    let scenario = one(&with("kind = \"hdd\"\nwait = \"7 ms\"", ssd));
    let DeviceKind::Ssd {
        latency,
        spread_permille: 1500,
        ..
    } = scenario.devices[0].kind
    else {
        panic!("{:?}", scenario.devices);
    };
    // exp(-1.125) of it.
    assert_eq!(latency, Ns(2_597_219));
    assert_eq!(median_of_mean(Ns::from_ms(8), 0), Ns::from_ms(8));
}

#[test]
fn points_of_a_sweep_have_them_and_are_named_as_they_are_written() {
    let sweep = "\n[sweep]\n\"vm.web.vcpus\" = [\"$smt.vcpus\", \"$smt.vcpus * 2\"]\n";
    let points = points(&format!("{GOOD}{sweep}"));
    let told: Vec<(u32, &str)> = points
        .iter()
        .map(|point| (point.vms[0].vcpus, point.point.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (3, "vm.web.vcpus = $smt.vcpus"),
            (6, "vm.web.vcpus = $smt.vcpus * 2")
        ]
    );
}

#[test]
fn what_is_wrong_names_line_field_and_parameter() {
    // (instead of `work = "2 ms"`, and everything that the message must contain)
    let cases: &[(&str, &[&str])] = &[
        (
            "$ssd.latency",
            &["`ssd.latency`", "there are ssd.latency_us, ssd.mb_per_s"],
        ),
        (
            "$nvme.latency_us",
            &["`nvme.latency_us`", "begin with hdd, smt, ssd"],
        ),
        ("$", &["no parameter ``"]),
        ("$ssd.latency_us /", &["$ssd.latency_us /", "for instance"]),
        ("$ssd.latency_us/4", &["between blanks"]),
        ("$ssd.latency_us 4", &["between blanks"]),
        ("$ssd.latency_us * inf", &["no value", "too large"]),
        ("$ssd.latency_us / $smt.none", &["no value", "divides by 0"]),
        (
            "$ssd.latency_us - 5",
            &["`-` is between a duration and a number"],
        ),
        ("$ssd.latency_us * $hdd.seek_us", &["`*` gives neither"]),
        ("$smt.vcpus / $hdd.seek_us", &["`/` gives neither"]),
        (
            "$hdd.seek_us - $ssd.latency_us",
            &["-82000 ns", "a duration"],
        ),
        // Computed, but not what belongs there.
        (
            "$smt.slice_ms * 10000",
            &["is \"2m\" (from $smt.slice_ms * 10000)", "10 s"],
        ),
        ("$smt.vcpus", &["integer", "(from $smt.vcpus)"]),
    ];
    for (text, wanted) in cases {
        let text = with("work = \"2 ms\"", &format!("work = \"{text}\""));
        let error = Scenario::parse_points(&text, "s.toml", &known()).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("s.toml:39: "), "{text}: {error}");
        for part in *wanted {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }
    let error = |text: &str| {
        let error = Scenario::parse_points(text, "s.toml", &known()).unwrap_err();
        error.to_string()
    };
    let sweep = error(&format!(
        "{GOOD}\n[sweep]\n\"vm.web.count, sim.seed\" = [[1, \"$smt.seed\"]]\n"
    ));
    let field = "`sweep.\"vm.web.count, sim.seed\"[0][1]` is \"$smt.seed\"";
    assert!(sweep.contains(field), "{sweep}");
    let float = error(&with("vcpus = 2", "vcpus = \"$smt.spread\""));
    assert!(
        float.starts_with("s.toml:44: ") && float.contains("(from $smt.spread)"),
        "{float}"
    );
}

/// Real machines have none; a command may begin with `$` everywhere.
#[test]
fn only_the_simulator_computes_and_never_in_arms() {
    let plain = super::GOOD;
    let text = plain.replace("\"50 ms\"", "\"$smt.slice_ms\"");
    let error = Scenario::parse(&text, "s.toml").unwrap_err().to_string();
    for part in [
        "s.toml:20: `load[1].burst` is \"$smt.slice_ms\"",
        "vlab sim",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let arm = "\n[[arm]]\nname = \"theirs\"\ncommand = [\"$smt.slice_ms\"]\n";
    let text = format!("{plain}{arm}");
    let real = Scenario::parse(&text, "s.toml").unwrap();
    assert_eq!(points(&text), [real]);
}
