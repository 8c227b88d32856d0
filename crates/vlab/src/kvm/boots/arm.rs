// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `vlab kvm-boots` compares: sets of options with a name.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Keys of an arm; a word that is none of them belongs to the option before it.
const KEYS: [&str; 8] = [
    "guest-qemu",
    "qemu",
    "cpu",
    "vcpus",
    "accel",
    "host-cpu",
    "append",
    "host-append",
];

/// One set of options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arm {
    pub(super) name: String,
    /// By their keys.
    pub(super) options: BTreeMap<String, String>,
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() {
            return Err("an arm needs a name, as in lean:cpu=host,pmu=off".to_owned());
        }
        let mut options = BTreeMap::<String, String>::new();
        let mut last: Option<String> = None;
        for word in rest.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if KEYS.contains(&key) {
                if options.insert(key.to_owned(), value.to_owned()).is_some() {
                    return Err(format!("arm {name} has {key} twice"));
                }
                last = Some(key.to_owned());
            } else if let Some(before) = last.as_ref().and_then(|last| options.get_mut(last)) {
                before.push(',');
                before.push_str(word);
            } else {
                return Err(format!("arm {name}: {word} is none of {}", KEYS.join(", ")));
            }
        }
        if let Some(vcpus) = options.get("vcpus")
            && !matches!(vcpus.parse(), Ok(1..=2u32))
        {
            return Err(format!("arm {name}: vcpus={vcpus} is not 1 or 2"));
        }
        Ok(Self {
            name: name.to_owned(),
            options,
        })
    }
}

impl Arm {
    /// The option's value, or `default` where the arm does not have it.
    pub(super) fn get<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.options.get(key).map_or(default, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_has_a_name_and_options_which_may_hold_commas() {
        let lean: Arm = "lean:cpu=host,pmu=off,-x2apic,vcpus=1".parse().unwrap();
        assert_eq!(lean.name, "lean");
        assert_eq!(lean.get("cpu", ""), "host,pmu=off,-x2apic");
        assert_eq!(lean.get("vcpus", "2"), "1");
        assert_eq!(lean.get("accel", "tcg"), "tcg");
        let base: Arm = "base".parse().unwrap();
        assert!(base.options.is_empty());
    }

    #[test]
    fn an_arm_that_cannot_be_meant_is_refused() {
        for (bad, says) in [
            (":cpu=host", "needs a name"),
            ("a:smp=2", "smp=2 is none of"),
            ("a:vcpus=3", "is not 1 or 2"),
            ("a:vcpus=1,vcpus=2", "twice"),
        ] {
            let error = bad.parse::<Arm>().unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
