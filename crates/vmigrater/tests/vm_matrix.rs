// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon on each kernel of the matrix, in a VM: whether it loads, answers
//! and restores, what an ordinary user with three capabilities can do with it, and
//! what it says where BPF cannot work. One boot of each kernel for all of it.
//!
//! Here and not in `vlab`, because cargo hands the path of a program only to
//! tests of the crate that builds it (`CARGO_BIN_EXE_vmigrater`).
//!
//! Guests run under TCG and have no steal time, so whether the daemon gains
//! anything is for the tests under the freezer.

// Helpers of tests, where a panic is the report.
#![allow(clippy::unwrap_used)]

#[path = "common/vm.rs"]
mod vm;

use guest::report::Report;
use vlab::vm::Output;
use vm::all;

/// Every object loads, attaches and runs, and `doctor` has an opinion.
const LOADS: &str = r#"
vmigrater bpf-selftest >/tmp/told 2>&1
echo "bpf-selftest ended with $?"
sed 's/^/selftest /' /tmp/told
vmigrater doctor --for 1s >/tmp/told 2>&1
echo "doctor ended with $?"
cat /tmp/told
"#;

/// Load, daemon, status, end by each signal; masks before and after each.
const WHOLE: &str = r#"
(
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

# The supervisor of a killed daemon has the lock until it ends, a moment after the last task
# has its own back.
undone() {
	vmigrater restore
	code=$?
	[ "$code" -ne 5 ]
}

# The load: a compute loop per vCPU, two readers with a request always in flight.
for vcpu in 0 1; do
	sh -c 'while :; do :; done' &
	echo $!
	sh -c 'while :; do dd if=/dev/vda of=/dev/null bs=4k iflag=direct 2>/dev/null; done' &
	echo $!
done >/tmp/loads
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
	until_ok 0 undone
	echo "restore $code"
done
answers
echo "status without a daemon $?"
for load in $(cat /tmp/loads); do
	kill "$load" $(cat "/proc/$load/task/$load/children")
done
)
echo "whole ended with $?"
"#;

/// An ordinary user with three capabilities and another user's task; then no BTF;
/// then lockdown, which is for good and so comes last.
const RIGHTS: &str = r#"
held() {
	[ "$(mask "$reader")" = 0 ] || [ "$(mask "$reader")" = 1 ]
}

moved() {
	answers && [ "$(number n_migrate)" -gt 0 ] && held
}

# KEY COMMAND...: its exit code and what it says; one line is wanted.
says() {
	key=$1
	shift
	"$@" >/dev/null 2>/tmp/said
	echo "$key exit $?"
	sed "s/^/$key said /" /tmp/said
}

# Options of setpriv for a user with these capabilities, beginning with a comma. No
# function that runs it: a job's id would be that of a shell in between.
as_user() {
	echo "--reuid=$1 --regid=$1 --clear-groups --inh-caps=-all$2 --ambient-caps=-all$2"
}

configure
chmod 666 /dev/vda
# By its path: the shell has a setpriv of its own.
/bin/setpriv $(as_user 1000 "") dd if=/dev/vda of=/dev/null bs=4k iflag=direct 2>/dev/null &
reader=$!
sh -c 'while :; do :; done' &

# A directory of its own, as its user would make.
rm -rf /run/vmigrater
mkdir -m 700 /run/vmigrater
chown 65534:65534 /run/vmigrater
for missing in bpf perfmon; do
	left=$(echo ",+bpf,+perfmon,+sys_nice" | sed "s/,+$missing//")
	says "without-$missing" /bin/setpriv $(as_user 65534 "$left") vmigrater run
done
/bin/setpriv $(as_user 65534 ,+bpf,+perfmon,+sys_nice) vmigrater run >/tmp/daemon.log 2>&1 &
daemon=$!
if until_ok "$daemon" answers; then
	echo "user uid $(awk '/^Uid:/ { print $2 }' /proc/"$(number pid)"/status)"
	echo "user caps $(awk '/^CapEff:/ { print $2 }' /proc/"$(number pid)"/status)"
	echo "vlab: share"
	if until_ok "$daemon" moved; then echo "user moves yes"; else echo "user moves no: $(cat /tmp/status)"; fi
	echo "user refused $(sed 's/.*"not-permitted":\([0-9]*\).*/\1/' /tmp/status)"
	kill -TERM "$daemon"
	wait "$daemon"
	echo "user ended $?"
	echo "user restored $(mask "$reader")"
else
	echo "user: the daemon ended or did not answer:"
	tail -n 25 /tmp/status.err
fi
sed 's/^/daemon: /' /tmp/daemon.log
chown -R 0:0 /run/vmigrater

# The hypervisor has no steal time. Nothing is left of a daemon that has said so.
says no-steal timeout 60 vmigrater run --source steal-page
echo "no-steal left $(ls /run/vmigrater | grep -v '^lock$' | wc -l)"

# A kernel without BTF looks like this.
mount -t tmpfs none /sys/kernel/btf
says no-btf vmigrater run
vmigrater doctor --for 100ms >/tmp/page
echo "no-btf doctor $?"
umount /sys/kernel/btf

# BPF may not read the kernel's memory any more.
mount -t securityfs none /sys/kernel/security
echo confidentiality >/sys/kernel/security/lockdown && echo "lockdown set yes"
says lockdown vmigrater run
vmigrater doctor --for 100ms >/tmp/page
echo "lockdown doctor $?"

echo "left $(mask "$reader") $(ls /run/vmigrater | grep -v '^lock$' | wc -l)"
"#;

/// The boot of a kernel whose vCPUs are its own.
fn run(series: &str) -> &'static Output {
    static BOOTS: [vm::Once; 3] = [const { vm::Once::new() }; 3];
    let machine = vm::Machine::default();
    BOOTS[vm::place(series)].output(series, &format!("{LOADS}{WHOLE}"), machine)
}

/// The boot of a kernel whose vCPUs are taken away.
fn run_shared(series: &str) -> &'static Output {
    static BOOTS: [vm::Once; 3] = [const { vm::Once::new() }; 3];
    let machine = vm::Machine {
        sharing: Some(vm::SHARING),
        programs: &["/usr/bin/setpriv"],
        ..vm::Machine::default()
    };
    BOOTS[vm::place(series)].output(series, RIGHTS, machine)
}

/// What `bpf-selftest` prints, in the order of the objects' sources.
const OBJECTS: [&str; 15] = [
    "sense on_tick attached",
    "sense on_switch attached",
    "sense on_waking attached",
    "sense on_wakeup attached",
    "sense on_migrate attached",
    "sense on_cqring_wait attached",
    "sense on_bio_queue attached",
    "sense on_rq_complete attached",
    "sense on_bio_complete attached",
    "sense on_fork attached",
    "sense on_exit attached",
    "sense snapshot ran",
    "sense late_beat ran",
    "locate_kvm locate ran",
    "locate_map locate ran",
];

/// The selftest asks nobody for steal time, which no guest here has: all is verified
/// and run as it is where there is some.
fn loads(series: &str) {
    let output = run(series);
    assert_eq!(all(output, "selftest"), OBJECTS, "{}", output.stdout);
    assert_eq!(
        all(output, "bpf-selftest ended with"),
        ["0"],
        "{}",
        output.stdout
    );
    // 0: something to gain; 6: nothing to gain now. All else is a machine on
    // which the daemon would not work.
    let doctor = all(output, "doctor ended with");
    assert!(matches!(doctor[..], ["0" | "6"]), "{}", output.stdout);
}

fn whole_daemon(series: &str) {
    let output = run(series);
    let told = &output.stdout;
    assert_eq!(all(output, "whole ended with"), ["0"], "{told}");
    // Two loops, two readers, the script itself and the part of it that runs this.
    assert_eq!(all(output, "tasks"), ["6"], "{told}");
    let reports: Vec<Report> = all(output, "status")
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
    assert_eq!(all(output, "TERM ended with"), ["0"], "{told}");
    assert_eq!(all(output, "KILL ended with"), ["137"], "{told}");
    for signal in ["TERM", "KILL"] {
        assert_eq!(all(output, signal).last(), Some(&"restored"), "{told}");
    }
    assert_eq!(all(output, "restore"), ["0", "0"], "{told}");
    assert_eq!(all(output, "status without a daemon"), ["7"], "{told}");
}

fn a_user_with_three_capabilities(series: &str) {
    let output = run_shared(series);
    let told = &output.stdout;
    assert_eq!(
        all(output, "user"),
        [
            "uid 65534",
            // CAP_SYS_NICE, CAP_PERFMON, CAP_BPF.
            "caps 000000c000800000",
            "moves yes",
            "refused 0",
            "ended 0",
            "restored 0-1",
        ],
        "{told}"
    );
    let log = all(output, "daemon:");
    assert!(!log.iter().any(|line| line.contains("WARN")), "{told}");
    for capability in ["bpf", "perfmon"] {
        let key = format!("without-{capability}");
        assert_eq!(all(output, &format!("{key} exit")), ["3"], "{told}");
        one_line_with(output, &key, "CAP_BPF, CAP_PERFMON and CAP_SYS_NICE");
    }
    assert_eq!(all(output, "left"), ["0-1 0"], "{told}");
}

fn without_steal_time(series: &str) {
    let output = run_shared(series);
    let told = &output.stdout;
    assert_eq!(all(output, "no-steal exit"), ["4"], "{told}");
    one_line_with(output, "no-steal", "use --source heartbeat or auto");
    one_line_with(output, "no-steal", "reports no steal time");
    assert_eq!(all(output, "no-steal left"), ["0"], "{told}");
}

fn where_bpf_cannot_work(series: &str) {
    let output = run_shared(series);
    let told = &output.stdout;
    assert_eq!(all(output, "lockdown set"), ["yes"], "{told}");
    for (key, fix) in [
        ("no-btf", "CONFIG_DEBUG_INFO_BTF"),
        ("lockdown", "lockdown=integrity"),
    ] {
        assert_eq!(all(output, &format!("{key} exit")), ["4"], "{told}");
        assert_eq!(all(output, &format!("{key} doctor")), ["4"], "{told}");
        one_line_with(output, key, fix);
    }
}

/// One line with cause and fix.
fn one_line_with(output: &Output, key: &str, part: &str) {
    let said = all(output, &format!("{key} said"));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains(part), "{said:?}");
}

vm::on_each_kernel! {
    loads:
        root_vm_6_1_bpf_objects_load_and_doctor_answers
        root_vm_6_12_bpf_objects_load_and_doctor_answers
        root_vm_7_3_bpf_objects_load_and_doctor_answers;
    whole_daemon:
        root_vm_6_1_whole_daemon_answers_and_restores
        root_vm_6_12_whole_daemon_answers_and_restores
        root_vm_7_3_whole_daemon_answers_and_restores;
    a_user_with_three_capabilities:
        root_vm_6_1_a_user_with_three_capabilities_moves_others_tasks
        root_vm_6_12_a_user_with_three_capabilities_moves_others_tasks
        root_vm_7_3_a_user_with_three_capabilities_moves_others_tasks;
    without_steal_time:
        root_vm_6_1_a_steal_page_that_is_asked_for_and_missing_is_told
        root_vm_6_12_a_steal_page_that_is_asked_for_and_missing_is_told
        root_vm_7_3_a_steal_page_that_is_asked_for_and_missing_is_told;
    where_bpf_cannot_work:
        root_vm_6_1_without_btf_or_locked_down_it_says_why
        root_vm_6_12_without_btf_or_locked_down_it_says_why
        root_vm_7_3_without_btf_or_locked_down_it_says_why;
}
