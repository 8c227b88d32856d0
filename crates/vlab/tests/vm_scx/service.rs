// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service that the package installs, under a real systemd.

use std::path::Path;

use super::Machine;
use super::boot_with;
use super::number;
use super::said;
use super::share;
use super::vcpus;

/// What every service waits for, here without anything behind it.
const TARGET: &str = "[Unit]\nDescription=There\n";

/// The VM's first process is systemd, and this is its only job.
const JOB: &str = "\
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/init
StandardOutput=null
TimeoutStartSec=infinity
";

#[test]
fn root_vm_scx_vcpu_service_starts_restarts_and_stops() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let dir = tempfile::tempdir().unwrap();
    let (job, target) = (dir.path().join("job"), dir.path().join("target"));
    std::fs::write(&job, JOB).unwrap();
    std::fs::write(&target, TARGET).unwrap();
    let units = "/etc/systemd/system";
    let at = |name: &str| format!("{units}/{name}");
    let output = boot_with(
        include_str!("service.sh"),
        Machine {
            programs: &[
                Path::new("/lib/systemd/systemd"),
                Path::new("/usr/bin/systemctl"),
            ],
            files: &[
                (&job, &at("vlab.service")),
                (&target, &at("sysinit.target")),
                (&target, &at("basic.target")),
                (&target, &at("shutdown.target")),
                (&packaging.join("scx_vcpu.service"), &at("scx_vcpu.service")),
            ],
            append: "rdinit=/bin/systemd systemd.unit=vlab.service systemd.show_status=0",
        },
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
    assert_eq!(number(&output, "stop"), 0);
    assert_eq!(said(&output, "result"), "inactive success");
    assert_eq!(said(&output, "after"), "disabled");
    assert_eq!(said(&output, "labels-after").trim(), "0");
}
