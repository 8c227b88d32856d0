// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon on each kernel of the matrix, in a VM.
//!
//! Here and not in `vlab`, because cargo hands the path of a program only to
//! tests of the crate that builds it (`CARGO_BIN_EXE_vmigrater`).
//!
//! Guests run under TCG and have no steal time, so these tests say whether the
//! daemon loads, answers, and leaves every task as it found it. Whether it
//! gains anything is for the tests under the freezer.

// Helpers of tests, where a panic is the report.
#![allow(clippy::unwrap_used)]

#[path = "common/vm.rs"]
mod vm;

use guest::report::Report;
use vlab::vm::Output;
use vm::all;

/// Every object loads and attaches, and `doctor` has an opinion.
const LOADS: &str = r#"
for command in "bpf-selftest" "doctor --for 1s"; do
	vmigrater $command >/tmp/told 2>&1
	code=$?
	# The end of a verifier's log is what matters of it.
	tail -n 25 /tmp/told
	echo "${command%% *} ended with $code"
done
"#;

/// Load, daemon, status, end by each signal; masks before and after each.
const WHOLE: &str = r#"
# CPUs and policy of the load and of this script, in a fixed order.
tasks() {
	for tid in $(cat /tmp/tids); do
		cpus=$(awk '/^Cpus_allowed_list:/ { print $2 }' "/proc/$tid/status")
		policy=$(cut -d ' ' -f 41 "/proc/$tid/stat")
		echo "$tid $cpus $policy"
	done
}

# 3 s of daemon time: several windows of the detector and slices of the load.
worked() {
	answers && [ "$(sed 's/.*"uptime_ns":\([0-9]*\).*/\1/' /tmp/status)" -ge 3000000000 ]
}

same() {
	tasks >/tmp/after
	cmp -s /tmp/before /tmp/after
}

# The load: a compute loop per vCPU, two readers with a request always in flight.
for vcpu in 0 1; do
	sh -c 'while :; do :; done' &
	sh -c 'while :; do dd if=/dev/vda of=/dev/null bs=4k iflag=direct 2>/dev/null; done' &
done
# What lives through the test can be compared, and that is not each dd.
for comm in /proc/[0-9]*/comm; do
	[ "$(cat "$comm" 2>/dev/null)" = sh ] && basename "$(dirname "$comm")"
done >/tmp/tids
tasks >/tmp/before
echo "tasks $(wc -l </tmp/before)"

for signal in TERM KILL; do
	vmigrater run >/tmp/daemon.log 2>&1 &
	daemon=$!
	if ! until_ok "$daemon" worked; then
		echo "the daemon ended or did not answer:"
		tail -n 25 /tmp/status.err /tmp/daemon.log
		exit 1
	fi
	echo "status $(tr -d '\n' </tmp/status)"
	kill -$signal "$daemon"
	wait "$daemon"
	echo "$signal ended with $?"
	if until_ok 0 same; then
		echo "$signal restored"
	else
		echo "$signal left tasks changed:"
		diff /tmp/before /tmp/after
	fi
	vmigrater restore
	echo "restore $?"
done
answers
echo "status without a daemon $?"
"#;

fn run(series: &str, script: &str) -> Output {
    vm::run(series, script, vm::Machine::default())
}

fn loads(series: &str) {
    let output = run(series, LOADS);
    assert_eq!(
        all(&output, "bpf-selftest ended with"),
        ["0"],
        "{}",
        output.stdout
    );
    // 0: something to gain; 6: nothing to gain now. All else is a machine on
    // which the daemon would not work.
    let doctor = all(&output, "doctor ended with");
    assert!(matches!(doctor[..], ["0" | "6"]), "{}", output.stdout);
}

fn whole_daemon(series: &str) {
    let output = run(series, WHOLE);
    let told = &output.stdout;
    assert_eq!(output.exit_code, 0, "{told}");
    // Two loops, two readers, the script itself.
    assert_eq!(all(&output, "tasks"), ["5"], "{told}");
    let reports: Vec<Report> = all(&output, "status")
        .into_iter()
        .filter(|text| text.starts_with('{'))
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    assert_eq!(reports.len(), 2, "{told}");
    for report in &reports {
        eprintln!(
            "{series}: source {}, {} I/O-bound tasks, moves {:?}, failed {:?}",
            report.source,
            report.tasks.len(),
            report.moves,
            report.failed
        );
        assert_eq!(report.vcpus.len(), 2, "{told}");
        assert_eq!(report.lost_events, 0, "{told}");
    }
    assert_eq!(all(&output, "TERM ended with"), ["0"], "{told}");
    assert_eq!(all(&output, "KILL ended with"), ["137"], "{told}");
    for signal in ["TERM", "KILL"] {
        assert_eq!(all(&output, signal).last(), Some(&"restored"), "{told}");
    }
    assert_eq!(all(&output, "restore"), ["0", "0"], "{told}");
    assert_eq!(all(&output, "status without a daemon"), ["7"], "{told}");
}

#[test]
fn root_vm_6_1_bpf_objects_load_and_doctor_answers() {
    loads("6.1");
}

#[test]
fn root_vm_6_12_bpf_objects_load_and_doctor_answers() {
    loads("6.12");
}

#[test]
fn root_vm_7_3_bpf_objects_load_and_doctor_answers() {
    loads("7.3");
}

#[test]
fn root_vm_6_1_whole_daemon_answers_and_restores() {
    whole_daemon("6.1");
}

#[test]
fn root_vm_6_12_whole_daemon_answers_and_restores() {
    whole_daemon("6.12");
}

#[test]
fn root_vm_7_3_whole_daemon_answers_and_restores() {
    whole_daemon("7.3");
}
