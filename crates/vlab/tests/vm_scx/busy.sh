# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by busy.rs: a host that works beside its VMs, and VMs that end while
# something is said of them.

vm --cpus 0-1 --for 711s
vm --cpus 0-1 --for 712s
until_ok there 4

# waits KEY: how long threads wait that are woken beside ordinary load.
waits() {
	stress-ng --quiet --cpu 2 --switch 1 --vm 1 --vm-bytes 8m --timeout 60s >/dev/null 2>&1 &
	stress=$!
	# Not a wait: until all of its processes work.
	sleep 2
	echo "$1-wake $(vlab load wake --threads 4 --every 10ms --for 6s)"
	[ "$1" = alone ] || echo "$1-vcpus $(scx_vcpu list --json)"
	kill "$stress"
	wait "$stress"
	echo "$1-stress $?"
}
waits alone
for policy in fixed credit2; do
	start $policy --trace /tmp/trace
	waits $policy
	finish $policy
	echo "$policy-trace $(xxd -p /tmp/trace | tr -d '\n')"
done
# The same of vCPUs that may run on both.
vcpus_on 3
start fixed
waits roaming
finish roaming

# The scheduler hears of a change when its VM has gone already. A signal only asks a
# process to stop: until its last thread has, it may still answer.
stopped() {
	! grep -h '^State:' "/proc/$scx/task"/*/status | grep -qv 'T (stopped)'
}
heard() {
	[ "$(grep -c /run/scx_vcpu/control /proc/net/unix)" -ge 2 ]
}
start credit2
vm --cpus 0 --for 720s
gone=$!
until_ok listed 5
kill -STOP "$scx"
until_ok stopped && echo "late-stopped 1"
scx_vcpu set 720s --weight 512 --cpus 0 >/tmp/set 2>&1 &
set=$!
until_ok heard && echo "late-heard 1"
kill -KILL "$gone"
wait "$gone"
kill -CONT "$scx"
wait "$set"
echo "late-exit $?"
echo "late-said $(cat /tmp/set)"
# At the same moment.
for round in 1 2 3; do
	vm --cpus 0 --for "73$round"s
	gone=$!
	until_ok listed 5
	kill -KILL "$gone" &
	scx_vcpu set "73$round"s --weight 512 --cpus 0 >/tmp/set 2>&1
	echo "race-$round-exit $?"
	echo "race-$round-said $(tr '\n' '|' </tmp/set)"
	wait "$gone"
	until_ok listed 4
done
echo "others $(scx_vcpu list --json)"
finish busy
echo "left $(ls /run/scx_vcpu | wc -l) $(ls /sys/fs/bpf | grep -c scx_vcpu)"
