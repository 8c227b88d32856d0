// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler is attached only while there are vCPUs.

use super::boot;
use super::number;
use super::ran;
use super::said;
use super::vcpus;
use units::Ns;

/// So often a first VM comes and a last one goes.
const TIMES: u32 = 3;

#[test]
fn root_vm_scx_vcpu_waits_for_vcpus_and_is_in_nobodys_way() {
    let output = boot(include_str!("waits.sh"));
    let says = said(&output, "none-said");
    assert!(says.contains("no vCPU yet, waits for the first"), "{says}");
    // It was never attached.
    assert_eq!(said(&output, "none-state"), "disabled 0");
    assert_eq!(said(&output, "none-list"), "[]");
    assert_eq!(said(&output, "none-shows"), "yes");
    let why = said(&output, "none-set");
    assert!(why.contains("web"), "{why}");
    // The kernel would have taken a second one.
    assert_eq!(number(&output, "second-exit"), 3);
    for key in ["second", "doctor"] {
        let why = said(&output, key);
        assert!(why.contains("scx_vcpu runs already"), "{why}");
    }
    eprintln!(
        "ticks of 10 ms before and after 10 s: {}",
        said(&output, "none-ticks")
    );

    for number in 1..=TIMES {
        let key = |what: &str| format!("first-{number}{what}");
        assert_eq!(said(&output, &key("-state")).trim(), "enabled 7");
        let vcpus = vcpus(&output, &key(""), 2);
        assert!(ran(&vcpus) > Ns::from_ms(2600), "{vcpus:?}");
        assert_eq!(said(&output, &format!("last-{number}-waits")), "[]");
    }
    let each = |what: &str| -> Vec<u64> {
        let all = 1..=TIMES;
        all.map(|time| self::number(&output, &what.replace('N', &time.to_string())))
            .collect()
    };
    let (first, last) = (each("first-N-ms"), each("last-N-ms"));
    let attached: Vec<&str> = output
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("attach-took "))
        .collect();
    eprintln!(
        "first VM listed after {first:?} ms, attached in {attached:?}; unloaded {last:?} ms after the last one"
    );
    // Told of by the kernel: the look at all open files comes every 5 s only.
    assert!(first[..2].iter().all(|ms| *ms < 2500), "{first:?}");
    assert!(first[2] < 20_000, "{first:?}");
    // Not at once: a VM may be about to come back.
    assert!(last.iter().all(|ms| *ms >= 4000), "{last:?}");
    assert_eq!(number(&output, "waits-exit"), 0);
    assert_eq!(said(&output, "waits-state"), "disabled");

    let loser = said(&output, "loser");
    assert!(
        loser.starts_with("3 ") && loser.contains("another sched_ext scheduler, scx_vcpu_"),
        "{loser}"
    );
    assert_eq!(number(&output, "winner"), 2);
    assert_eq!(number(&output, "winner-exit"), 0);
    assert_eq!(said(&output, "winner-labels").trim(), "0");
}
