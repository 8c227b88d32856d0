# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the scripts of this test begin with. They say "KEY VALUE", a line each.

ulimit -l unlimited

# A guest that HLT does not stop is no result but the emulator's fault, seen some times: one
# had 60 interrupts in 3 s and no halt. Nor is one that is not in real mode any more. This
# machine ends without a result, and is tried again.
machine_works() {
	if [ -s /tmp/vms ] && grep "which is the machine's fault" /tmp/vms >/dev/console; then
		poweroff -f
	fi
}

# Until COMMAND succeeds or 100 s have passed.
until_ok() {
	end=$(($(cut -d . -f 1 /proc/uptime) + 100))
	until "$@"; do
		machine_works
		[ "$(cut -d . -f 1 /proc/uptime)" -lt "$end" ] || return 1
		usleep 50000
	done
}

state_is() {
	[ "$(cat /sys/kernel/sched_ext/state)" = "$1" ]
}

# It says so when it schedules; one that has ended never will.
started() {
	[ -s /tmp/said ] || ! kill -0 "$scx" 2>/dev/null
}

# start POLICY [ARGUMENTS]: returns when it schedules.
start() {
	: >/tmp/said
	scx_vcpu run --policy "$@" >/tmp/said 2>/tmp/errors &
	scx=$!
	until_ok started
	[ -s /tmp/said ] || cat /tmp/errors
}

# finish KEY: a clean end, and what it leaves.
finish() {
	kill -TERM "$scx"
	wait "$scx"
	echo "$1-exit $?"
	echo "$1-state $(cat /sys/kernel/sched_ext/state)"
	cat /tmp/errors
}

# Loaded again it has a table of its own: another one than that in $table.
table() {
	stat -c %i /sys/fs/bpf/scx_vcpu_table
}
loaded_again() {
	[ "$(table)" != "$table" ]
}

# Scheduling policies of the VMs' vCPU threads, each once: 0 is the fair class, 7 ours.
labels() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-*) cut -d ' ' -f 41 "$task/stat" ;;
		esac
	done | sort -u | tr '\n' ' '
}

# there N: so many vCPU threads are there.
there() {
	[ "$(cat /proc/[0-9]*/task/[0-9]*/comm 2>/dev/null | grep -c '^vcpu-')" = "$1" ]
}

# listed N: so many vCPUs are scheduled.
listed() {
	[ "$(scx_vcpu list --json 2>/dev/null | grep -o '"tid"' | wc -l)" = "$1" ]
}

# CPU time of all threads, ms. Without a scheduler vCPUs run in the fair class.
ran() {
	cat /proc/[0-9]*/task/[0-9]*/schedstat 2>/dev/null | awk '{ sum += $1 } END { print int(sum / 1000000) }'
}

# CPU time of each vCPU thread by the kernel's count, TID:NS each.
by_kernel() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-*) echo "${task##*/}:$(cut -d ' ' -f 1 "$task/schedstat")" ;;
		esac
	done | tr '\n' ' '
}

# measure KEY [SECONDS]: what each vCPU gets in 3 s, or in so many; else why nobody knows.
measure() {
	scx_vcpu stats --every "${2:-3}s" --count 1 --json >/tmp/stats 2>/tmp/stats-errors ||
		echo "$1-unknown $? $(cat /tmp/stats-errors /tmp/errors)"
	echo "$1 $(cat /tmp/stats)"
}

# settled KEY LOOKS: KEY-1 and so on, each 3 s, after 3 s in which the measuring program
# starts. Its start takes so much of a pCPU in a VM that vCPUs leave it, as they should
# (relief.h).
settled() {
	scx_vcpu stats --every 3s --count $(($2 + 1)) --json | tail -n "$2" >/tmp/stats
	look=0
	while read -r line; do
		look=$((look + 1))
		echo "$1-$look $line"
	done </tmp/stats
}

change() {
	scx_vcpu set "$@" || echo "set-failed $*"
}

# vm ARGUMENTS: a VM. Nice, so that it leaves the CPUs to a scheduler that starts.
vm() {
	sh -c 'renice -n 19 -p $$ >/dev/null; exec vlab load vm "$@"' vm "$@" >/dev/null 2>>/tmp/vms &
}

# A VM that is ended says nothing.
check_vms() {
	machine_works
	[ ! -s /tmp/vms ] || sed 's/^/vm-lost /' /tmp/vms
}
trap check_vms EXIT

# now KEY: nanoseconds, on the clock of the traces.
now() {
	awk -v key="$1" '{ printf "%s %.0f\n", key, $1 * 1000000000 }' /proc/uptime
}

# vcpus_on MASK: where all vCPU threads may run.
vcpus_on() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-*) taskset -p "$1" "${task##*/}" >/dev/null ;;
		esac
	done
}
