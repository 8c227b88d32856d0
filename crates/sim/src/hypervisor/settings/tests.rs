// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::collections::BTreeSet;

use units::Ns;

use super::*;
use crate::hypervisor::NAMES;
use crate::hypervisor::Sharing;
use crate::hypervisor::named;

const SHARING: Sharing = Sharing {
    vms_per_pcpu: 2,
    slice: Ns::from_ms(11),
    sweep_permille: 100,
};

fn policy(name: &str) -> Policy {
    named(name, &SHARING).expect("one of NAMES")
}

/// A value that fits and is another than the default.
fn other(key: &Key) -> Value {
    match (&key.kind, &key.default) {
        (Kind::Duration(range) | Kind::DurationOrNone(range), default) => {
            let ends = [*range.start(), *range.end()].map(Value::Duration);
            let mut ends = ends.into_iter().filter(|end| end != default);
            ends.next().expect("two ends")
        }
        (Kind::Number(range), default) => {
            let ends = [*range.start(), *range.end()].map(Value::Number);
            let mut ends = ends.into_iter().filter(|end| end != default);
            ends.next().expect("two ends")
        }
        (Kind::Switch, default) => Value::Switch(*default == Value::Switch(false)),
        (Kind::Word(words), default) => {
            let mut words = words.iter().map(|word| Value::Word((*word).to_owned()));
            words.find(|word| word != default).expect("two words")
        }
    }
}

/// Each key is there once, sets its own field and no other, and what it sets is read
/// back.
#[test]
fn each_key_sets_one_thing() {
    for name in NAMES {
        let keys = policy(name).keys();
        let names: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), keys.len(), "{name}: {keys:?}");
        for (n, key) in keys.iter().enumerate() {
            let value = other(key);
            let mut set = policy(name);
            // What belongs to a part is there with it.
            let mut values = Values::from([(key.name.to_owned(), value.clone())]);
            if let Some(part) = key.part {
                values.insert(part.to_owned(), Value::Switch(true));
            }
            set.set(&values).unwrap();
            for (m, after) in set.keys().iter().enumerate() {
                let expected = match (m == n, key.part == Some(keys[m].name)) {
                    (true, _) => &value,
                    (_, true) => &Value::Switch(true),
                    // Of a part that is off nothing is kept.
                    _ if after.part == Some(key.name) => continue,
                    _ => &keys[m].default,
                };
                assert_eq!(&after.default, expected, "{name}: {key:?}");
            }
        }
    }
}

#[test]
fn what_a_policy_does_not_have_is_refused_with_what_it_has() {
    let mut vslicer = policy("vslicer");
    let wrong = |policy: &mut Policy, key: &str, value| {
        let values = Values::from([(key.to_owned(), value)]);
        policy.set(&values).unwrap_err().to_string()
    };
    assert_eq!(
        wrong(&mut vslicer, "equation_2", Value::Switch(true)),
        "the host policy \"vslicer\" has no \"equation_2\"; it has slice, micro"
    );
    assert_eq!(
        wrong(&mut vslicer, "micro", Value::Number(3)),
        "the host policy \"vslicer\" cannot have \"micro\" = 3"
    );
    let short = Value::Duration(Ns::from_us(199));
    let error = wrong(&mut vslicer, "slice", short);
    assert!(error.contains("cannot have \"slice\""), "{error}");
    assert_eq!(vslicer.keys(), policy("vslicer").keys());
    assert!(wrong(&mut policy("fixed"), "slice", Value::Switch(true)).ends_with("it has none"));
}

/// A part is off with its switch and on with it, whatever the name says.
#[test]
fn parts_are_switched() {
    let mut jupiter = policy("jupiter");
    let values = Values::from([
        ("dasl".to_owned(), Value::Switch(false)),
        ("bucket".to_owned(), Value::Duration(Ns::from_ms(100))),
    ]);
    jupiter.set(&values).unwrap();
    let Settings::Jupiter(own) = &jupiter.settings else {
        panic!("{jupiter:?}");
    };
    assert!(own.dasl.is_none() && own.dats.is_some());
    assert_eq!(own.bucket, Some(Ns::from_ms(100)));
    let mut alone = policy("vsmtio-ltcr");
    let values = Values::from([
        (
            "adjuster_min_deviation_permille".to_owned(),
            Value::Number(70),
        ),
        ("adjuster".to_owned(), Value::Switch(true)),
    ]);
    alone.set(&values).unwrap();
    let Settings::Vsmtio(own) = &alone.settings else {
        panic!("{alone:?}");
    };
    assert!(own.rass.is_none());
    assert_eq!(own.adjuster.as_ref().map(|own| own.min_deviation), Some(70));
}

/// The papers' variants are the whole with parts switched.
#[test]
fn variants_are_what_their_switches_say() {
    for (whole, variant, off) in [
        ("vsmtio", "vsmtio-ltcr", ["rass", "adjuster"].as_slice()),
        ("vsmtio", "vsmtio-unbalanced", &["adjuster"]),
        ("jupiter", "jupiter-dats", &["dasl", "elb", "rcr"]),
        ("jupiter", "jupiter-dasl", &["dats", "elb", "rcr"]),
        ("jupiter", "jupiter-elb", &["dats", "dasl", "rcr"]),
        ("jupiter", "jupiter-no-rcr", &["rcr"]),
        ("ische-auto", "ische", &["classify"]),
    ] {
        let mut own = policy(whole);
        let values = off
            .iter()
            .map(|part| ((*part).to_owned(), Value::Switch(false)));
        own.set(&values.collect()).unwrap();
        assert_eq!(own.keys(), policy(variant).keys(), "{variant}");
    }
}
