# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by waits.rs: a scheduler before its first vCPU, after its last one, and again.

seq() {
	cat /sys/kernel/sched_ext/enable_seq
}

ms() {
	awk '{ printf "%d", $1 * 1000 }' /proc/uptime
}

# shows WHAT: so says `list` for people.
shows() {
	scx_vcpu list | grep -q "$1"
}

export RUST_LOG=scx_vcpu=info NO_COLOR=1
before=$(seq)
start credit2
echo "none-said $(cat /tmp/said)"
echo "none-state $(cat /sys/kernel/sched_ext/state) $(($(seq) - before))"
echo "none-list $(scx_vcpu list --json)"
shows 'waits for the first' && echo "none-shows yes"
echo "none-set $(scx_vcpu set web --weight 2 2>&1)"
scx_vcpu run >/dev/null 2>/tmp/second
echo "second-exit $?"
echo "second $(cat /tmp/second)"
echo "doctor $(scx_vcpu doctor | grep '^no: ')"
cpu=$(cut -d ' ' -f 14,15 "/proc/$scx/stat")
sleep 10
echo "none-ticks $cpu $(cut -d ' ' -f 14,15 "/proc/$scx/stat")"

# A CPU goes and comes back while it waits: a scheduler loaded before would not be taken.
for online in 0 1; do
	table=$(table)
	echo $online >/sys/devices/system/cpu/cpu1/online
	until_ok loaded_again || echo "hotplug-lost $(cat /tmp/errors)"
done

# The third one comes while it is being loaded again.
for number in 1 2 3; do
	vm --cpus 0-1 --for 60"$number"s
	vm=$!
	until_ok there 2
	at=$(ms)
	until_ok listed 2 || echo "first-lost $number"
	echo "first-$number-ms $(($(ms) - at))"
	# The list has it only then.
	echo "first-$number-state $(cat /sys/kernel/sched_ext/state) $(labels)"
	sleep 1
	measure "first-$number" 2
	table=$(table)
	kill "$vm"
	at=$(ms)
	until_ok state_is disabled || echo "last-lost $number"
	echo "last-$number-ms $(($(ms) - at))"
	kill -0 "$scx" && echo "last-$number-waits $(scx_vcpu list --json)"
	[ $number = 2 ] || until_ok loaded_again || echo "again-lost $number"
done
cp /tmp/errors /tmp/told
finish waits
sed -n 's/.*scheduling took=/attach-took /p' /tmp/told

# Two that wait and know nothing of each other: one has the first vCPU.
start fixed
first=$scx
unshare -m sh -c 'mount -t tmpfs none /run && mount -t bpf none /sys/fs/bpf && exec scx_vcpu run --policy credit1' >/tmp/said-too 2>/tmp/errors-too &
other=$!
other_waits() {
	[ -s /tmp/said-too ]
}
until_ok other_waits || echo "other-lost $(cat /tmp/errors-too)"
vm --cpus 0-1 --for 604s
one_ended() {
	! kill -0 "$first" 2>/dev/null || ! kill -0 "$other" 2>/dev/null
}
until_ok one_ended || echo "both-lost"
if kill -0 "$first" 2>/dev/null; then
	scx=$first
	wait "$other"
	echo "loser $? $(tail -n 1 /tmp/errors-too)"
else
	scx=$other
	wait "$first"
	echo "loser $? $(tail -n 1 /tmp/errors)"
fi
taken() {
	state_is enabled && [ "$(labels)" = "7 " ]
}
until_ok taken && echo "winner 2"
finish winner
echo "winner-labels $(labels)"
