// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a policy makes nothing of: of `scx_vcpu set`, which is refused then, and of the policy
//! file, which may be one for several policies and is therefore warned of. Pure.

use crate::config::Config;
use crate::config::Written;
use crate::load::Rules;
use crate::roster::Change;

/// Why these rules would make nothing of a part of `change`, if that is so.
pub(crate) fn unheeded(rules: &Rules, change: &Change) -> Option<String> {
    let (weights, classes, caps) = match rules {
        Rules::Fixed(_) | Rules::Never => (false, false, false),
        Rules::Credit1(_) | Rules::Credit2(_) | Rules::Isacs(_) => (true, false, true),
        Rules::Vslicer(_) => (false, true, true),
        Rules::Ische(_) => (true, true, true),
    };
    let asked = [
        (change.weight.is_some() && !weights, "weights"),
        (change.class.is_some() && !classes, "classes"),
        (change.cap.is_some() && !caps, "caps"),
    ];
    let (_, what) = asked.into_iter().find(|(unheeded, _)| *unheeded)?;
    let policy = rules.policy();
    Some(format!(
        "policy {policy} knows no {what}; run another one (docs/scx_vcpu.md says which heeds what)"
    ))
}

/// What these rules make nothing of in the file, a line for each key.
pub(crate) fn unheeded_in(config: &Config, rules: &Rules) -> Vec<String> {
    let why = |written: &Written| {
        let (table, key) = written.key.split_once('.')?;
        let why = match table {
            "vm" => unheeded(rules, &one_key(config, written, key)?),
            _ => unread(rules, table, key).or_else(|| off(config, table, key)),
        }?;
        Some(format!(
            "{}: {} has no effect: {why}",
            written.at, written.key
        ))
    };
    config.written().iter().filter_map(why).collect()
}

/// What the file says by this key of a VM, as if `set` had said so.
fn one_key(config: &Config, written: &Written, key: &str) -> Option<Change> {
    let vm = config.vm.get(written.nth)?;
    Some(Change {
        weight: vm.weight.filter(|_| key == "weight"),
        class: vm.class.filter(|_| key == "class"),
        cap: vm.cap.filter(|_| key == "cap"),
        ..Change::default()
    })
}

/// Why these rules do not read this key of a policy.
fn unread(rules: &Rules, table: &str, key: &str) -> Option<String> {
    let policy = rules.policy().to_string();
    let reads = match (rules, table) {
        // The slices are those of its cores, and whom an idle core takes is `lends_idle`.
        (Rules::Ische(_), "credit1") => !["slice", "idle_takes"].contains(&key),
        _ => table == policy,
    };
    (!reads).then(|| format!("policy {policy} does not read it"))
}

/// Why a key is one of a part that is off.
fn off(config: &Config, table: &str, key: &str) -> Option<String> {
    let (credit2, isacs) = (&config.credit2, &config.isacs);
    let switch = match (table, key) {
        ("credit2", "balance_period") if credit2.balances_every().is_none() => "balances",
        ("isacs", "balance_period") if isacs.balances_every().is_none() => "balances",
        ("isacs", "moves_any" | "balance_best") if !isacs.balances_io() => "io_balance",
        _ => return None,
    };
    Some(format!("{table}.{switch} is false"))
}

/// What is wrong with this number of general cores of `there` pCPUs, if it is too large. No
/// error: another host has more, and CPUs come and go while it runs.
pub(crate) fn general_cores(config: &Config, general: usize, there: usize) -> Option<String> {
    if general <= there {
        return None;
    }
    let key = "ische.general_cores";
    let written = config.written().iter().find(|written| written.key == key);
    // The file may say nothing of it: then there is no place to name.
    let at = written.map_or_else(String::new, |written| format!("{}: ", written.at));
    Some(format!(
        "{at}{key} = {general}; use 1 to {there}, so many pCPUs are there: all are general cores, and VMs of class io have none of their own"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Class;

    fn rules(policy: &str) -> Rules {
        let config = Config::default();
        match policy {
            "fixed" => Rules::Fixed(Vec::new()),
            "credit1" => Rules::Credit1(config.credit1.settings()),
            "credit2" => Rules::Credit2(config.credit2.settings()),
            "vslicer" => Rules::Vslicer(config.vslicer.settings()),
            "ische" => Rules::Ische(config.ische.settings(&config.credit1)),
            _ => Rules::Isacs(config.isacs.settings()),
        }
    }

    fn of_file(text: &str, policy: &str) -> Vec<String> {
        let config = Config::parse(text, "f").unwrap();
        unheeded_in(&config, &rules(policy))
    }

    #[test]
    fn what_a_policy_does_not_heed_is_refused() {
        let change = |weight, class, cap| Change {
            vm: "web".to_owned(),
            weight,
            class,
            cap,
            ..Change::default()
        };
        let weight = change(Some(512), None, None);
        let class = change(None, Some(Class::Io), None);
        let cap = change(None, None, Some(40));
        for (policy, change, what) in [
            ("fixed", &weight, Some("fixed knows no weights")),
            ("fixed", &cap, Some("fixed knows no caps")),
            ("vslicer", &weight, Some("vslicer knows no weights")),
            ("vslicer", &class, None),
            ("vslicer", &cap, None),
            ("credit1", &class, Some("credit1 knows no classes")),
            ("credit1", &weight, None),
            ("ische", &class, None),
        ] {
            let why = unheeded(&rules(policy), change);
            assert_eq!(why.is_some(), what.is_some(), "{why:?}");
            assert!(what.is_none_or(|what| why.unwrap().contains(what)));
        }
    }

    #[test]
    fn a_key_that_its_policy_does_not_heed_is_named_with_its_line() {
        let text = "[[vm]]\nmatch = \"a\"\nslice = \"5ms\"\n[[vm]]\nmatch = \"b\"\n\
            weight = 512\nclass = \"io\"\ncap = 40\n[credit1]\nslice = \"20ms\"\n\
            zero_is_under = true\n[ische.automatic]\nperiods = 3\n";
        let credit1 = ["10: credit1.slice", "11: credit1.zero_is_under"];
        let automatic = ["13: ische.automatic.periods"];
        for (policy, vms, tables) in [
            (
                "fixed",
                &["6: vm.weight", "7: vm.class", "8: vm.cap"][..],
                [&credit1[..], &automatic].concat(),
            ),
            ("credit1", &["7: vm.class"], automatic.to_vec()),
            (
                "credit2",
                &["7: vm.class"],
                [&credit1[..], &automatic].concat(),
            ),
            (
                "isacs",
                &["7: vm.class"],
                [&credit1[..], &automatic].concat(),
            ),
            (
                "vslicer",
                &["6: vm.weight"],
                [&credit1[..], &automatic].concat(),
            ),
            ("ische", &[], credit1[..1].to_vec()),
        ] {
            let said = of_file(text, policy);
            let asked = [vms, &tables].concat();
            assert_eq!(said.len(), asked.len(), "{policy}: {said:?}");
            for (said, asked) in said.iter().zip(asked) {
                let begins = format!("f:{asked} has no effect: policy {policy} ");
                assert!(said.starts_with(&begins), "{said}");
            }
        }
        assert_eq!(
            of_file("[[vm]]\nmatch = \"a\"\nweight = 1\n", "fixed"),
            [
                "f:3: vm.weight has no effect: policy fixed knows no weights; run another one (docs/scx_vcpu.md says which heeds what)"
            ]
        );
    }

    #[test]
    fn a_key_of_a_part_that_is_off_is_named_too() {
        let credit2 = "[credit2]\nbalances = false\nbalance_period = \"2s\"\n";
        assert_eq!(
            of_file(credit2, "credit2"),
            ["f:3: credit2.balance_period has no effect: credit2.balances is false"]
        );
        let isacs = "[isacs]\nmoves_any = true\nbalance_best = true\nio_balance = false\n\
            balances = false\nbalance_period = \"2s\"\n";
        let said = of_file(isacs, "isacs");
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].ends_with("isacs.io_balance is false"));
        assert_eq!(of_file("[isacs]\nmoves_any = true\n", "isacs"), [""; 0]);
        assert_eq!(of_file("[credit1]\n", "fixed"), [""; 0], "nothing is said");
    }

    #[test]
    fn more_general_cores_than_there_are_is_told() {
        let config = Config::parse("[ische]\ngeneral_cores = 5\n", "f").unwrap();
        assert_eq!(general_cores(&config, 5, 5), None);
        let said = general_cores(&config, 5, 4).unwrap();
        assert!(
            said.starts_with("f:2: ische.general_cores = 5; use 1 to 4, "),
            "{said}"
        );
        let said = general_cores(&Config::default(), 2, 1).unwrap();
        assert!(
            said.starts_with("ische.general_cores = 2; use 1 to 1"),
            "{said}"
        );
    }
}
