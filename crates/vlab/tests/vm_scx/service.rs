// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service that the package installs, under a real systemd.

use std::path::Path;

use super::Machine;
use super::boot_with;
use super::number;
use super::said;
use super::share;
use super::vcpus;

/// How often it is stopped and started beside the one stop that is always there: for
/// figures of how long that takes.
const STOPS: &str = "SCX_STOPS";

fn stops() -> u32 {
    let stops = std::env::var(STOPS).unwrap_or_else(|_| "1".to_owned());
    stops
        .parse()
        .unwrap_or_else(|_| panic!("{STOPS}={stops}: a number of stops, for instance 20"))
}

#[test]
fn root_vm_scx_vcpu_service_starts_restarts_and_stops() {
    let unit = "../../packaging/systemd/scx_vcpu.service";
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join(unit);
    let machine = Machine {
        unit: Some(&unit),
        ..Machine::default()
    };
    let output = boot_with(
        &format!("stops={}\n{}", stops(), include_str!("service.sh")),
        machine,
    );
    eprintln!("{}", output.stdout);
    assert_eq!(number(&output, "start"), 0);
    assert_eq!(said(&output, "state"), "active");
    assert_eq!(said(&output, "labels").trim(), "7");
    assert_eq!(number(&output, "protects"), 1);
    // `scx_vcpu set` reaches it: 512 : 256 under the unit's own policy.
    let vcpus = vcpus(&output, "service", 4);
    let share = share(&vcpus[..2], &vcpus[2..]);
    eprintln!("share {share:.3}");
    assert!((0.57..0.75).contains(&share), "{vcpus:?}");
    for key in ["scheduled first", "scheduled again"] {
        assert!(output.stdout.lines().any(|line| line == key), "{key}");
    }
    assert_eq!(said(&output, "narrowed").trim(), "0-1 0-1 1 1");
    assert_eq!(said(&output, "widened").trim(), "0-1 0-1 0-1 0-1");
    assert_eq!(number(&output, "stop"), 0);
    eprintln!("stops took {} ms", said(&output, "stops-ms").trim());
    assert_eq!(said(&output, "result"), "inactive success");
    assert_eq!(said(&output, "after"), "disabled");
    assert_eq!(said(&output, "labels-after").trim(), "0");

    // By hand, after a kill.
    assert_eq!(number(&output, "in-use"), 3, "refused while one runs");
    assert_eq!(said(&output, "left").trim(), "0-1 0-1 1 1");
    assert_eq!(said(&output, "labels-left").trim(), "7");
    let restored =
        "given back: their CPUs to 2 thread(s), their class to 4 vCPU(s); 4 map(s) removed";
    assert_eq!(said(&output, "restored"), restored);
    assert_eq!(said(&output, "again"), "nothing was left");
    assert_eq!(said(&output, "masks-restored").trim(), "0-1 0-1 0-1 0-1");
    assert_eq!(said(&output, "labels-restored").trim(), "0");

    // KVM comes late.
    assert_eq!(said(&output, "kvm-before"), "none");
    assert_eq!(number(&output, "late-start"), 0);
    assert_eq!(number(&output, "late-waits"), 1);
    assert_eq!(said(&output, "late-state"), "active 0");
    assert_eq!(number(&output, "late-scheduled"), 1);

    // KVM does not come.
    assert_eq!(number(&output, "without-start"), 1);
    let told = said(&output, "without-said");
    assert!(
        told.contains("Assertion failed on job for scx_vcpu.service"),
        "{told}"
    );
    assert_eq!(said(&output, "without-state"), "inactive no");
}
