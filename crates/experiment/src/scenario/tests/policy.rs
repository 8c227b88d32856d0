// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[sim.policy]` and the `settings` of an arm.

use units::Ns;

use super::super::ArmKind;
use super::super::Known;
use super::super::KnownPolicy;
use super::super::PolicyKey;
use super::super::PolicyKind;
use super::super::PolicyValue;
use super::super::Scenario;

const GOOD: &str = r#"
name = "small"
title = "One load"
topology = { cpus = 2 }
sharing = { vms_per_pcpu = [2], slice = "11 ms" }
load = [{ name = "pulse", kind = "pulse" }]

[[arm]]
name = "other"
kind = "host"
policy = "second"
settings = { often = 3 }

[sim]
host = "first"
others = "same"

[sim.policy]
slice = "10 ms"
wait = "0 s"
part = true
part_step = 7
reading = "as-printed"
"#;

/// Two policies, one with a part that is off.
pub(super) fn known() -> Known {
    let key = |name: &str, kind: PolicyKind, part: Option<&str>| PolicyKey {
        name: name.to_owned(),
        kind,
        part: part.map(|part| (part.to_owned(), false)),
    };
    let lengths = Ns::from_us(200)..=Ns::from_secs(1);
    let first = vec![
        key("slice", PolicyKind::Duration(lengths.clone()), None),
        key("wait", PolicyKind::DurationOrNone(lengths), None),
        key("part", PolicyKind::Switch, None),
        key("part_step", PolicyKind::Number(1..=9), Some("part")),
        key(
            "reading",
            PolicyKind::Word(vec!["share".to_owned(), "as-printed".to_owned()]),
            None,
        ),
    ];
    let second = vec![key("often", PolicyKind::Number(0..=1000), None)];
    Known {
        hosts: [("first", first), ("second", second), ("third", Vec::new())]
            .map(|(name, keys)| KnownPolicy {
                name: name.to_owned(),
                keys,
            })
            .to_vec(),
        ..Known::default()
    }
}

fn points(text: &str) -> Result<Vec<Scenario>, String> {
    Scenario::parse_points(text, "s.toml", &known()).map_err(|error| error.to_string())
}

#[test]
fn what_is_set_of_a_policy_is_kept_with_its_kind() {
    let scenario = points(GOOD).unwrap().remove(0);
    let set = &scenario.sim.as_ref().unwrap().policy;
    let length = PolicyValue::Duration(Ns::from_ms(10));
    assert_eq!(set["slice"], length);
    assert_eq!(set["wait"], PolicyValue::Duration(Ns::ZERO));
    assert_eq!(set["part"], PolicyValue::Switch(true));
    assert_eq!(set["part_step"], PolicyValue::Number(7));
    assert_eq!(set["reading"], PolicyValue::Word("as-printed".to_owned()));
    let ArmKind::Host { policy, settings } = &scenario.arms[0].kind else {
        panic!("{:?}", scenario.arms);
    };
    assert_eq!(policy, "second");
    assert_eq!(settings["often"], PolicyValue::Number(3));
    // A real machine has no such policies, and reads none of it.
    let text = GOOD.replace(
        "kind = \"host\"\npolicy = \"second\"\nsettings = { often = 3 }",
        "kind = \"vanilla\"",
    );
    let real = Scenario::parse(&text, "s.toml").unwrap();
    assert_eq!(real.sim.unwrap().policy["slice"], length);
}

#[test]
fn what_is_wrong_is_said_with_line_field_value_and_what_there_is() {
    let own = "the policy \"first\" has slice, wait, part, part_step, reading";
    for (from, to, said) in [
        (
            "slice = \"10 ms\"",
            "slices = \"10 ms\"",
            format!("s.toml:19: `sim.policy.slices` is no key; {own}"),
        ),
        (
            "slice = \"10 ms\"",
            "often = 3",
            format!("s.toml:19: `sim.policy.often` is no key; it belongs to second; {own}"),
        ),
        (
            "host = \"first\"",
            "host = \"third\"",
            "s.toml:21: `sim.policy.part` is no key; it belongs to first; the policy \"third\" has no keys".to_owned(),
        ),
        (
            "often = 3",
            "slice = \"1 ms\"",
            "s.toml:12: `arm[0].settings.slice` is no key; it belongs to first; the policy \"second\" has often".to_owned(),
        ),
        (
            "slice = \"10 ms\"",
            "slice = \"10 us\"",
            "s.toml:19: `sim.policy.slice` is \"10 us\"; write a duration from 200 us to 1 s, for instance \"10 ms\"".to_owned(),
        ),
        (
            "slice = \"10 ms\"",
            "slice = 10",
            "s.toml:19: `sim.policy.slice` is 10; write a duration from".to_owned(),
        ),
        (
            "wait = \"0 s\"",
            "wait = \"2 s\"",
            "s.toml:20: `sim.policy.wait` is \"2 s\"; write a duration from 200 us to 1 s, or \"0 s\" for none".to_owned(),
        ),
        (
            "part = true",
            "part = 1",
            "s.toml:21: `sim.policy.part` is 1; write true or false".to_owned(),
        ),
        (
            "part_step = 7",
            "part_step = 10",
            "s.toml:22: `sim.policy.part_step` is 10; write a whole number from 1 to 9".to_owned(),
        ),
        (
            "part_step = 7",
            "part_step = 1.5",
            "s.toml:22: `sim.policy.part_step` is 1.5; write a whole number from 1 to 9".to_owned(),
        ),
        (
            "part = true\n",
            "",
            "s.toml:21: `sim.policy.part_step` is set; `part` is off, without which it means nothing: write part = true".to_owned(),
        ),
        (
            "reading = \"as-printed\"",
            "reading = \"printed\"",
            "s.toml:23: `sim.policy.reading` is \"printed\"; write one of \"share\", \"as-printed\"".to_owned(),
        ),
        (
            "kind = \"host\"\npolicy = \"second\"",
            "kind = \"vanilla\"",
            "s.toml:11: `arm[0].settings` is set; only arms of kind \"host\"".to_owned(),
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = points(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(error.starts_with(&said), "{from} -> {to}:\n{error}\n{said}");
    }
}

#[test]
fn keys_are_axes() {
    let with = |axes: &str| points(&format!("{GOOD}\n[sweep]\n{axes}"));
    let scenarios =
        with("\"sim.policy.part_step\" = [1, 2]\n\"arm.other.settings.often\" = [5]\n").unwrap();
    assert_eq!(scenarios.len(), 2);
    for (scenario, step) in scenarios.iter().zip([1, 2]) {
        let set = &scenario.sim.as_ref().unwrap().policy;
        assert_eq!(set["part_step"], PolicyValue::Number(step));
        let ArmKind::Host { settings, .. } = &scenario.arms[0].kind else {
            panic!("{:?}", scenario.arms);
        };
        assert_eq!(settings["often"], PolicyValue::Number(5));
        assert!(
            scenario
                .point
                .contains(&format!("sim.policy.part_step = {step}"))
        );
    }
    for (axes, said) in [
        (
            "\"sim.policy.part_step\" = [1, 20]",
            "s.toml:26: `sim.policy.part_step` is 20; write a whole number",
        ),
        (
            "\"sim.policy.nothing\" = [1]",
            "s.toml:26: `sim.policy.nothing` is no key",
        ),
        (
            "\"sim.host.nothing\" = [1]",
            "s.toml:26: `sweep.\"sim.host.nothing\"` is no field; write \"table.field\"",
        ),
        (
            "\"arm.other.name.often\" = [1]",
            "s.toml:26: `sweep.\"arm.other.name.often\"` is no field",
        ),
    ] {
        let error = with(axes).unwrap_err();
        assert!(error.starts_with(said), "{axes}: {error}");
    }
    // Without a table an axis makes one.
    let at = GOOD.find("\n[sim.policy]").unwrap();
    let text = format!(
        "{}\n[sweep]\n\"sim.policy.slice\" = [\"1 ms\", \"2 ms\"]",
        &GOOD[..at]
    );
    let scenarios = points(&text).unwrap();
    let length = PolicyValue::Duration(Ns::from_ms(2));
    assert_eq!(scenarios[1].sim.as_ref().unwrap().policy["slice"], length);
}
