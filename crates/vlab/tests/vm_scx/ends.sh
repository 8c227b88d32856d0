# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by ends.rs: what must not happen to a host, and what happens to it.

# Its pid is in $! afterwards.
computes() {
	while :; do :; done &
}

vm --cpus 0-1 --for 501s
vm --cpus 0-1 --for 502s
second=$!
until_ok there 4

ms() {
	awk '{ printf "%d", $1 * 1000 }' /proc/uptime
}

# A scheduler that dispatches nobody: the kernel's watchdog ends it. Until then the vCPUs stand,
# and the host's own threads do not: one that computes, and others that are woken.
start never --watchdog 10s
computes
hog=$!
had() {
	cut -d ' ' -f 1 "/proc/$hog/schedstat"
}
vcpus_before=$(scx_vcpu list --json)
before=$(had)
since=$(ms)
echo "never-wake $(vlab load wake --for 2s)"
echo "never-hog-ms $((($(had) - before) / 1000000))"
echo "never-window-ms $(($(ms) - since))"
echo "never-before $vcpus_before"
echo "never-vcpus $(scx_vcpu list --json)"
echo "never-during $(cat /sys/kernel/sched_ext/state)"
kill "$hog"
wait "$hog"
wait "$scx"
echo "never-exit $?"
# It may have said other things before, of a vCPU that it did not find at once.
echo "never-said $(tr '\n' ' ' </tmp/errors)"
echo "never-state $(cat /sys/kernel/sched_ext/state)"
echo "never-labels $(labels)"
before=$(ran)
sleep 2
echo "never-ran-ms $(($(ran) - before))"

# A host that computes more than it has CPUs, starts processes and writes memory.
start credit2
hogs=""
for _ in 1 2 3 4; do
	computes
	hogs="$hogs $!"
done
while :; do /bin/true; done &
hogs="$hogs $!"
dd if=/dev/zero of=/dev/null bs=64k &
hogs="$hogs $!"
measure stress
echo "stress-hogs $(for hog in $hogs; do cut -d ' ' -f 1 /proc/$hog/schedstat; done | awk '{ sum += $1 } END { print int(sum / 1000000) }')"
kill $hogs
wait $hogs
measure calm

# A CPU goes and comes back; what was set stays. A VM comes and goes.
again() {
	[ "$(cat /sys/kernel/sched_ext/enable_seq)" != "$seq" ] && state_is enabled && listed 4
}
change 501s --weight 1024
seq=$(cat /sys/kernel/sched_ext/enable_seq)
echo 0 >/sys/devices/system/cpu/cpu1/online
until_ok again || echo "offline-lost $(cat /tmp/errors)"
measure offline
seq=$(cat /sys/kernel/sched_ext/enable_seq)
echo 1 >/sys/devices/system/cpu/cpu1/online
until_ok again || echo "online-lost $(cat /tmp/errors)"
# The kernel may have forgotten where they were to run.
for task in /proc/[0-9]*/task/[0-9]*; do
	case $(cat "$task/comm" 2>/dev/null) in
	vcpu-0) taskset -p 1 "${task##*/}" >/dev/null ;;
	vcpu-1) taskset -p 2 "${task##*/}" >/dev/null ;;
	esac
done
measure online
vm --cpus 0 --for 503s
third=$!
until_ok listed 5 && echo "came 5"
kill "$third"
until_ok listed 4 && echo "went 4"

# Told of by the kernel: the look at all open files comes every 5 s only, and five starts in a
# row are not early by chance.
starts=""
for number in 1 2 3 4 5; do
	vm --cpus 0 --for 51"$number"s
	starts="$starts $!"
	until_ok there $((4 + number))
	at=$(ms)
	until_ok listed $((4 + number)) || echo "start-lost $number"
	echo "start-$number-ms $(($(ms) - at))"
done
kill $starts
until_ok listed 4
kill "$second"
until_ok listed 2
finish ends

# Two vCPUs that may run anywhere and are both on the first CPU.
cat >/tmp/lends.toml <<EOF
[ische]
general_cores = 1
seed = 0
lends_idle = true
EOF
for policy in fixed credit1 credit2 vslicer isacs ische; do
	vcpus_on 1
	start $policy --config /tmp/lends.toml
	vcpus_on 3
	scx_vcpu stats --every 1s --count 1 --json >/tmp/stats
	echo "roam-$policy $(cat /tmp/stats)"
	finish roam
done
vcpus_on 1

# An attacker on the first CPU: computes, and sleeps a moment for a device of its own
# before anybody could find that it has had enough.
vm --cpus 0 --io 1us --work 50000 --for 504s
until_ok there 3
cat >/tmp/fixed.toml <<EOF
[credit1]
boost_needs_under = true
[credit2]
keeps_debt = true
[isacs]
hardened = true
EOF
for policy in credit1 credit2 isacs; do
	# Under Credit1 it has turns as BOOST and then waits as OVER, for seconds: three such
	# rounds in 8 s gave it anything from 0.41 to 0.55 of the time.
	for=8
	[ "$policy" = credit1 ] && for=20
	start $policy
	measure "attack-$policy" $for
	finish attack
	start $policy --config /tmp/fixed.toml
	measure "attack-$policy-fixed" $for
	finish attack
done

# Its interrupts make it a VM of class io.
cat >/tmp/automatic.toml <<EOF
[ische]
general_cores = 1
seed = 0
[ische.automatic]
events_per_s = 10
cpu_max_permille = 1000
periods = 1
EOF
start ische --config /tmp/automatic.toml
# of_each KEY: what the list in /tmp/list says of each vCPU, in one line.
of_each() {
	grep -o "\"$1\":[^,}]*" /tmp/list | cut -d : -f 2 | tr '\n' ' '
}
# What is looked at is what was waited for: a class may change once more before a second look.
is_io() {
	scx_vcpu list --json >/tmp/list 2>/dev/null && [ "$(of_each class)" = '"cpu" "cpu" "io" ' ]
}
until_ok is_io
echo "automatic $(cat /tmp/list)"

# A CPU goes, and is back while the scheduler is being loaded again: no scheduler is there
# to be told of that.
vcpus_on 3
echo 0 >/sys/devices/system/cpu/cpu1/online
until_ok state_is disabled
# Not a wait: the scheduler looks which CPUs there are, and is not loaded yet.
sleep 1
echo 1 >/sys/devices/system/cpu/cpu1/online
# The first two on one, the third on the other.
two_cores() {
	scx_vcpu list --json >/tmp/list 2>/dev/null || return 1
	case "$(of_each cpu)" in
	"0 0 1 " | "1 1 0 ") ;;
	*) return 1 ;;
	esac
}
vcpus_on 3
until_ok two_cores || echo "cores-lost $(cat /tmp/list)"
echo "cores $(cat /tmp/list)"
finish automatic
