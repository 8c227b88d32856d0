// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may happen to a VM while the daemon holds tasks: a vCPU goes and comes
//! back, a cpuset changes, the clock jumps, the machine is suspended.
//!
//! Guests under TCG have no steal time. vCPUs are taken away for real all the
//! same (`vlab::vm::Sharing`), and the heartbeat senses it, so the daemon is
//! active and moves tasks. One boot of a kernel for all claims: a boot and the
//! verifier under TCG are most of the time.

// Helpers of tests, where a panic is the report.
#![allow(clippy::unwrap_used)]

#[path = "common/vm.rs"]
mod vm;

use vlab::vm::Output;
use vlab::vm::SPEAK_AGAIN;

const EVENTS: &str = r#"
# A move was made since the number in /tmp/moves.
moved() {
	answers && [ "$(number n_migrate)" -gt "$(cat /tmp/moves)" ]
}

# The same, from now on.
moves_again() {
	answers && number n_migrate >/tmp/moves && until_ok "$daemon" moved
}

# One of the readers is narrowed to this CPU.
held_on() {
	[ "$(mask "$r0")" = "$1" ] || [ "$(mask "$r1")" = "$1" ]
}

# Requests that the readers have made.
reads() {
	cat "/proc/$r0/io" "/proc/$r1/io" | awk '/^syscr:/ { sum += $2 } END { print sum }'
}

goes_on() {
	[ "$(reads)" -gt "$(cat /tmp/reads)" ]
}

# EVENT: the daemon answers, moves, and the readers read.
after() {
	# Of no claim: tells a reader of a report how long each took.
	echo "at $(uptime_s) s, $1"
	reads >/tmp/reads
	answers && echo "$1 answers yes"
	if moves_again; then echo "$1 moves yes"; else echo "$1 moves no: $(cat /tmp/status)"; fi
	until_ok 0 goes_on && echo "$1 reads yes"
	if until_ok "$daemon" at_home; then echo "$1 at-home yes"; else echo "$1 at-home no: $(threads)"; fi
}

# Where the threads of the vCPU that goes may run.
threads() {
	for task in /proc/"$(number pid)"/task/*; do
		case $(cat "$task/comm") in vmg-mon/1 | vmg-mov/1)
			awk '/^Cpus_allowed_list:/ { print $2 }' "$task/status"
			;;
		esac
	done
}

at_home() {
	[ "$(threads | tr '\n' ' ')" = "1 1 " ]
}

online() {
	cat /sys/devices/system/cpu/online
}

configure
dd if=/dev/vda of=/dev/null bs=4k iflag=direct 2>/dev/null &
r0=$!
dd if=/dev/vda of=/dev/null bs=4k iflag=direct skip=100000 2>/dev/null &
r1=$!
sh -c 'while :; do :; done' &
c0=$!
sh -c 'while :; do :; done' &
c1=$!
echo "before $(mask $r0) $(mask $r1) $(mask $c0) $(mask $c1)"

vmigrater run >/tmp/daemon.log 2>&1 &
daemon=$!
if ! until_ok "$daemon" answers; then
	echo "the daemon ended or did not answer:"
	tail -n 25 /tmp/status.err /tmp/daemon.log
	exit 1
fi
echo "vlab: share"
echo 0 >/tmp/moves
if ! until_ok "$daemon" moved; then
	echo "nothing moves: $(cat /tmp/status)"
	exit 1
fi

# A vCPU goes while the daemon holds a task there, and comes back. By this number the daemon
# knows that it was away, however short.
came_up() {
	stat -c %i /sys/devices/system/cpu/cpu1/topology
}
came_up=$(came_up)
until_ok "$daemon" held_on 1 && echo "hotplug held yes"
echo 0 >/sys/devices/system/cpu/cpu1/online && echo "hotplug offline $(online)"
reads >/tmp/reads
until_ok 0 goes_on && echo "hotplug goes-on yes"
usleep 2000000
answers && echo "hotplug answers-without yes"
echo 1 >/sys/devices/system/cpu/cpu1/online && echo "hotplug online $(online)"
[ "$(came_up)" = "$came_up" ] || echo "hotplug numbered anew"
after hotplug

# A cpuset is narrowed in flight, then widened.
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/readers
echo "$r0" >/sys/fs/cgroup/readers/cgroup.procs
echo "$r1" >/sys/fs/cgroup/readers/cgroup.procs
after cpuset-joined
# It takes a CPU away that the daemon has narrowed a reader to.
until_ok "$daemon" held_on 1 && echo "cpuset-joined held yes"
echo 0 >/sys/fs/cgroup/readers/cpuset.cpus
strayed=0
end=$(($(uptime_s) + 3))
while [ "$(uptime_s)" -lt "$end" ]; do
	for reader in $r0 $r1; do
		[ "$(mask "$reader")" = 0 ] || strayed=$((strayed + 1))
	done
	usleep 50000
done
echo "cpuset strayed $strayed"
echo 0-1 >/sys/fs/cgroup/readers/cpuset.cpus
after cpuset

# The clock jumps by an hour, forward and back.
uptime=$(number uptime_ns)
date -s "@$(($(date +%s) + 3600))" >/dev/null && echo "clock forward yes"
after clock-forward
date -s "@$(($(date +%s) - 3600))" >/dev/null && echo "clock back yes"
after clock-back
[ "$(number uptime_ns)" -gt "$uptime" ] && [ "$(number uptime_ns)" -lt 600000000000 ] && echo "clock uptime right"

# Suspended to memory, which takes all vCPUs but the first away, and woken by the
# clock after 2 s.
echo 0 >/sys/class/rtc/rtc0/wakealarm
echo +2 >/sys/class/rtc/rtc0/wakealarm
echo mem >/sys/power/state
woke=$?
speak_again
echo "suspend woke $woke"
# Of 51 suspensions beside other work 3 lost an emulated vCPU: "CPU1 failed to report alive
# state", says the kernel after 10 s, and does not try again. Then there is
# nowhere to move to, which is not the daemon's doing. The guest gives itself up and is
# booted again, which the report counts (failed tries).
if [ "$(online)" != 0-1 ]; then
	echo "suspend lost a vCPU: $(online)"
	echo c >/proc/sysrq-trigger
fi
after suspended

echo "at $(uptime_s) s, end"
kill -TERM "$daemon"
wait "$daemon"
echo "ended $?"
echo "log $(grep -c -E 'WARN|ERROR|panick' /tmp/daemon.log)"
grep -E 'WARN|ERROR|panick' /tmp/daemon.log
echo "after $(mask $r0) $(mask $r1) $(mask $c0) $(mask $c1)"
ls /run/vmigrater
"#;

/// With two vCPUs there is nowhere left to move to when one is taken; with three the
/// daemon goes on with the others.
const THREE: &str = r#"
failed() {
	answers && number invalid
}

# 20 moves were made since the number in /tmp/moves.
moved_on() {
	answers && [ "$(number n_migrate)" -ge $(($(cat /tmp/moves) + 20)) ]
}

# EVENT: how many moves fail while 20 are made.
refused() {
	before=$(failed)
	number n_migrate >/tmp/moves
	if until_ok "$daemon" moved_on; then echo "$1 moves yes"; else echo "$1 moves no: $(cat /tmp/status)"; fi
	echo "$1 refused $(($(failed) - before))"
}

both_held() {
	answers && grep -q "\"tid\":$r0,.*\"tid\":$r1,\|\"tid\":$r1,.*\"tid\":$r0," /tmp/status
}

held_on() {
	[ "$(mask "$r0")" = "$1" ] || [ "$(mask "$r1")" = "$1" ]
}

# WORDS CONDITION...: says that it came true, or what the readers and the daemon say
# instead.
claim() {
	words=$1
	shift
	if until_ok "$daemon" "$@"; then
		echo "$words yes"
	else
		echo "$words no: $r0 on $(mask "$r0"), $r1 on $(mask "$r1"), $(cat /tmp/status)"
		grep -E 'left alone|changed|I/O-bound' /tmp/daemon.log | tail -n 20
	fi
}

# A reader that begins in the cpuset.
narrow() {
	exec sh -c 'echo $$ >/sys/fs/cgroup/readers/cgroup.procs
		exec dd if=/dev/vda of=/dev/null bs=4k iflag=direct $1 2>/dev/null' sh "$1"
}

configure
dd if=/dev/vda of=/dev/null bs=4k iflag=direct 2>/dev/null &
r0=$!
dd if=/dev/vda of=/dev/null bs=4k iflag=direct skip=100000 2>/dev/null &
r1=$!
for n in 0 1 2; do
	sh -c 'while :; do :; done' &
done
vmigrater run --log-level debug >/tmp/daemon.log 2>&1 &
daemon=$!
until_ok "$daemon" answers || exit 1
echo "vlab: share"
claim "offline held" held_on 2

echo 0 >/sys/devices/system/cpu/cpu2/online
claim "offline both" both_held
refused offline
echo "offline rows $(grep -o '"stolen_ns"' /tmp/status | wc -l)"
echo 1 >/sys/devices/system/cpu/cpu2/online
claim "online held" held_on 2

# It goes and is back before the daemon, which looks twice a second, has to know of it.
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
	until_ok "$daemon" held_on 2 || break
	echo 0 >/sys/devices/system/cpu/cpu2/online
	echo 1 >/sys/devices/system/cpu/cpu2/online
	until_ok "$daemon" both_held || break
done
echo "bounce rounds $n"
claim "bounce both" both_held
claim "bounce held" held_on 2

echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/readers
echo "$r0" >/sys/fs/cgroup/readers/cgroup.procs
echo "$r1" >/sys/fs/cgroup/readers/cgroup.procs
claim "cpuset joined" both_held
echo 0-1 >/sys/fs/cgroup/readers/cpuset.cpus
claim "cpuset both" both_held
refused cpuset
# Readers that were never seen in a wider one: what it gains is open to them, too.
kill "$r0" "$r1"
wait "$r0" "$r1"
narrow "" &
r0=$!
narrow skip=100000 &
r1=$!
claim "anew held" both_held
echo 0-2 >/sys/fs/cgroup/readers/cpuset.cpus
claim "widened held" held_on 2

kill -TERM "$daemon"
wait "$daemon"
echo "ended $?"
echo "after $(mask $r0) $(mask $r1)"
grep -E 'WARN|ERROR|panick' /tmp/daemon.log
"#;

/// A refusal for each task that was to go there at that moment, and no more.
const REFUSED: u32 = 4;

#[test]
fn root_vm_6_12_three_vcpus_go_on_with_those_that_are_left() {
    let machine = vm::Machine {
        sharing: Some(vm::SHARING),
        vcpus: Some(3),
        ..vm::Machine::default()
    };
    let output = &vm::run("6.12", &format!("{SPEAK_AGAIN}{THREE}"), machine);
    let told = &output.stdout;
    eprintln!("{told}");
    for (event, claims) in [
        (
            "offline",
            &["held yes", "both yes", "moves yes", "rows 2"][..],
        ),
        ("online", &["held yes"]),
        ("bounce", &["rounds 12", "both yes", "held yes"]),
        ("cpuset", &["joined yes", "both yes", "moves yes"]),
        ("anew", &["held yes"]),
        ("widened", &["held yes"]),
        ("ended", &["0"]),
        ("after", &["0-2 0-2"]),
    ] {
        let said = vm::all(output, event);
        for claim in claims {
            assert!(said.contains(claim), "{event}: no {claim:?} in {told}");
        }
    }
    for event in ["offline refused", "cpuset refused"] {
        let refused: u32 = vm::all(output, event)[0].parse().unwrap();
        assert!(refused <= REFUSED, "{event} {refused}: {told}");
    }
}

/// The one boot of a kernel.
fn events(series: &'static str) -> &'static Output {
    static BOOTS: [vm::Once; 3] = [const { vm::Once::new() }; 3];
    let machine = vm::Machine {
        sharing: Some(vm::SHARING),
        ..vm::Machine::default()
    };
    let script = format!("{SPEAK_AGAIN}{EVENTS}");
    BOOTS[vm::place(series)].output(series, &script, machine)
}

/// After `event` the daemon answers, moves tasks again, and they go on.
fn goes_on_after(output: &Output, event: &str) {
    let told = &output.stdout;
    let said = vm::all(output, event);
    // At home: the threads of a vCPU that was away live there again.
    for claim in ["answers yes", "moves yes", "reads yes", "at-home yes"] {
        assert!(said.contains(&claim), "{event}: no {claim:?} in {told}");
    }
}

fn a_vcpu_goes_and_comes_back(series: &'static str) {
    let output = events(series);
    let said = vm::all(output, "hotplug");
    for claim in [
        "held yes",
        "offline 0",
        "goes-on yes",
        "answers-without yes",
        "online 0-1",
        "numbered anew",
    ] {
        assert!(said.contains(&claim), "no {claim:?} in {}", output.stdout);
    }
    goes_on_after(output, "hotplug");
}

fn a_cpuset_wins(series: &'static str) {
    let output = events(series);
    goes_on_after(output, "cpuset-joined");
    assert!(
        vm::all(output, "cpuset-joined").contains(&"held yes"),
        "{}",
        output.stdout
    );
    assert_eq!(
        vm::all(output, "cpuset strayed"),
        ["0"],
        "{}",
        output.stdout
    );
    goes_on_after(output, "cpuset");
}

fn the_clock_may_jump(series: &'static str) {
    let output = events(series);
    assert_eq!(
        vm::all(output, "clock"),
        ["forward yes", "back yes", "uptime right"],
        "{}",
        output.stdout
    );
    goes_on_after(output, "clock-forward");
    goes_on_after(output, "clock-back");
}

fn it_wakes_with_the_machine(series: &'static str) {
    let output = events(series);
    assert_eq!(vm::all(output, "suspend"), ["woke 0"], "{}", output.stdout);
    goes_on_after(output, "suspended");
}

fn nothing_is_left_changed(series: &'static str) {
    let output = events(series);
    let told = &output.stdout;
    assert!(output.gaps > 100, "{} gaps", output.gaps);
    assert_eq!(vm::all(output, "ended"), ["0"], "{told}");
    assert_eq!(vm::all(output, "log"), ["0"], "{told}");
    assert_eq!(vm::all(output, "before"), ["0-1 0-1 0-1 0-1"], "{told}");
    assert_eq!(vm::all(output, "after"), ["0-1 0-1 0-1 0-1"], "{told}");
    assert!(!told.contains("journal"), "the journal stays: {told}");
}

vm::on_each_kernel! {
    a_vcpu_goes_and_comes_back:
        root_vm_6_1_a_vcpu_goes_and_comes_back
        root_vm_6_12_a_vcpu_goes_and_comes_back
        root_vm_7_3_a_vcpu_goes_and_comes_back;
    a_cpuset_wins:
        root_vm_6_1_a_cpuset_wins
        root_vm_6_12_a_cpuset_wins
        root_vm_7_3_a_cpuset_wins;
    the_clock_may_jump:
        root_vm_6_1_the_clock_may_jump
        root_vm_6_12_the_clock_may_jump
        root_vm_7_3_the_clock_may_jump;
    it_wakes_with_the_machine:
        root_vm_6_1_it_wakes_with_the_machine
        root_vm_6_12_it_wakes_with_the_machine
        root_vm_7_3_it_wakes_with_the_machine;
    nothing_is_left_changed:
        root_vm_6_1_nothing_is_left_changed
        root_vm_6_12_nothing_is_left_changed
        root_vm_7_3_nothing_is_left_changed;
}
