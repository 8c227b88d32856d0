// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service that the package installs, under a real systemd with all the
//! restrictions of its unit.

// Helpers of tests, where a panic is the report.
#![allow(clippy::unwrap_used)]

#[path = "common/vm.rs"]
mod vm;

use std::path::Path;

const SERVICE: &str = r#"
show() {
	systemctl show vmigrater.service -P "$1"
}

held() {
	[ "$(mask "$reader")" = 0 ] || [ "$(mask "$reader")" = 1 ]
}

moved() {
	answers && [ "$(number n_migrate)" -gt 0 ] && held
}

ln -sf /bin/vmigrater /usr/bin/vmigrater
configure
dd if=/dev/vda of=/dev/null bs=4k iflag=direct 2>/dev/null &
reader=$!
sh -c 'while :; do :; done' &

systemctl start vmigrater.service
echo "start $?"
echo "state $(show ActiveState) $(show StatusText)"
pid=$(show MainPID)
echo "caps $(awk '/^CapBnd:/ { print $2 }' /proc/"$pid"/status)"
echo "seccomp $(awk '/^Seccomp:/ { print $2 }' /proc/"$pid"/status)"
echo "vlab: share"
until_ok 0 moved && echo "moves yes"

# A while later: what it takes for gaps, of all vCPUs, and in which time.
long() {
	answers && [ "$(number uptime_ns)" -gt 10000000000 ]
}
until_ok 0 long
echo "uptime $(number uptime_ns)"
echo "gaps $(tr , '\n' </tmp/status | awk -F: '/^"gaps"/ { n += $2 } END { print n }')"

# The daemon is killed; its supervisor restores, and systemd starts another.
answers
kill -KILL "$(number pid)"
restarted() {
	[ "$(show NRestarts)" -ge 1 ] && [ "$(show ActiveState)" = active ] && answers
}
until_ok 0 restarted && echo "restarts yes"
until_ok 0 moved && echo "moves again"

before=$(uptime_s)
systemctl stop vmigrater.service
echo "stop $?"
echo "stopped after $(($(uptime_s) - before)) s"
echo "result $(show ActiveState) $(show Result)"
echo "restored $(mask "$reader")"
"#;

fn starts_restarts_and_restores(series: &str) {
    let unit = "../../packaging/systemd/vmigrater.service";
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join(unit);
    let output = vm::run(
        series,
        SERVICE,
        vm::Machine {
            sharing: Some(vm::SHARING),
            unit: Some(&unit),
            ..vm::Machine::default()
        },
    );
    let told = &output.stdout;
    eprintln!("{told}");
    for (key, value) in [
        ("start", "0"),
        ("caps", "000000c000800000"),
        // 2: a filter.
        ("seccomp", "2"),
        ("restarts", "yes"),
        ("stop", "0"),
        ("result", "inactive success"),
        ("restored", "0-1"),
    ] {
        assert_eq!(vm::all(&output, key), [value], "{key}: {told}");
    }
    assert_eq!(vm::all(&output, "moves"), ["yes", "again"], "{told}");
    // Emulated beats cost more than their 300 us: were they not stretched, most of
    // them would be late, and each of those would be taken for a gap.
    let number = |key| vm::all(&output, key)[0].parse::<f64>().unwrap();
    let cycle = (vm::SHARING.on + vm::SHARING.off).as_nanos() as f64;
    let made = f64::from(vm::VCPUS) * number("uptime") / cycle;
    let found = number("gaps") / made;
    assert!((0.3..2.0).contains(&found), "{found} of the gaps: {told}");
    assert!(
        vm::all(&output, "state")[0].starts_with("active "),
        "{told}"
    );
}

vm::on_each_kernel! {
    starts_restarts_and_restores:
        root_vm_6_1_the_service_starts_restarts_and_restores
        root_vm_6_12_the_service_starts_restarts_and_restores
        root_vm_7_3_the_service_starts_restarts_and_restores;
}
