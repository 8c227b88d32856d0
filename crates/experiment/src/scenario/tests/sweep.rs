// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[sweep]`.

use super::super::Known;
use super::super::Scenario;
use super::vms::GOOD;
use super::vms::error_of;
use super::vms::one;

const SWEEP: &str = "
[sweep]
\"vm.web.vcpus\" = [2, 4]
\"sim.host\" = [\"credit2\", \"isacs\"]
";

fn all_of(text: &str) -> Vec<Scenario> {
    Scenario::parse_points(text, "s.toml", &Known::default()).unwrap()
}

#[test]
fn every_point_of_a_sweep_is_a_scenario_with_a_name() {
    let points = all_of(&format!("{GOOD}{SWEEP}"));
    let names: Vec<&str> = points.iter().map(|point| point.point.as_str()).collect();
    assert_eq!(
        names,
        [
            "sim.host = credit2, vm.web.vcpus = 2",
            "sim.host = credit2, vm.web.vcpus = 4",
            "sim.host = isacs, vm.web.vcpus = 2",
            "sim.host = isacs, vm.web.vcpus = 4",
        ]
    );
    for point in &points {
        assert!(point.title.contains(&point.point));
        let host = &point.sim.as_ref().unwrap().host;
        let told = format!("sim.host = {host}, vm.web.vcpus = {}", point.vms[0].vcpus);
        assert_eq!(point.point, told);
    }
    assert_eq!(one(GOOD).unwrap().point, "");
    // Fields that change together.
    let together = "\n[sweep]\n\"vm.web.count, vm.sums.count\" = [[1, 3], [3, 1]]\n";
    let points = all_of(&format!("{GOOD}{together}"));
    let counts = points
        .iter()
        .map(|point| (point.vms[0].count, point.vms[2].count));
    assert_eq!(counts.collect::<Vec<_>>(), [(1, 3), (3, 1)]);
    assert_eq!(points[0].point, "vm.web.count = 1, vm.sums.count = 3");
}

#[test]
fn errors_of_a_sweep_name_its_lines() {
    let first = 1 + GOOD.lines().count();
    let cases: &[(&str, usize, &[&str])] = &[
        (
            "\"vm.web.vcpus\" = [2, 0]",
            2,
            &["`vm[0].vcpus` is 0", "1 to 1024"],
        ),
        ("\"vm.web.vcpu\" = [2]", 2, &["vcpu"]),
        (
            "\"vm.mail.vcpus\" = [2]",
            2,
            &["`sweep.\"vm.mail.vcpus\"`", "no [[vm]]", "mail"],
        ),
        ("\"name\" = [\"a\"]", 2, &["table.field"]),
        ("\"vm.web.name\" = [\"a\"]", 2, &["no axis"]),
        ("\"sim.seed\" = 3", 2, &["no list", "[2, 4]"]),
        ("\"sim.seed\" = []", 2, &["no list"]),
        ("sim.seed = [1]", 2, &["no list", "\"vm.web.vcpus\""]),
        ("\"sim.seed\" = [1, 2, 1]", 2, &["is 1", "once"]),
        ("\"sim.seed\" = [\n1,\n-4]", 4, &["`sim.seed` is -4"]),
        (
            "\"sim.seed, sim.submit\" = [[1]]",
            2,
            &["is [1]", "2 values"],
        ),
        (
            "\"sim.seed\" = [1, 2]\n\"sim.seed, sim.submit\" = [[1, \"1 us\"]]",
            3,
            &["is \"sim.seed\"", "each field once"],
        ),
        (
            "\"sim.seed, sim.seed\" = [[1, 2]]",
            2,
            &["is \"sim.seed\"", "each field once"],
        ),
        ("", 1, &["`sweep` is empty"]),
    ];
    for (axis, line, wanted) in cases {
        let message = error_of(&format!("{GOOD}\n[sweep]\n{axis}\n"));
        assert!(
            message.starts_with(&format!("s.toml:{}:", first + line)),
            "{axis}: {message}"
        );
        for part in *wanted {
            assert!(message.contains(part), "{axis}: {message:?} lacks {part:?}");
        }
    }
    let many: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    let message = error_of(&format!(
        "{GOOD}\n[sweep]\n\"sim.seed\" = [{}]\n",
        many.join(",")
    ));
    assert!(
        message.contains("1001 points") && message.contains("at most 1000"),
        "{message}"
    );
}
