# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by rests.rs: vCPUs that are there and want no CPU time, and then want some.

export RUST_LOG=scx_vcpu=info NO_COLOR=1
vm --cpus 0-1 --for 901s
first=$!
# Its vCPUs work for a moment every second.
vm --cpus 0-1 --io 1s --work 1000 --for 902s
second=$!
until_ok there 4

rests() {
	state_is disabled && scx_vcpu list --json | grep -q '"state":"rests"'
}
# until_rests KEY: looked for once a second. Programs that come and go all the time are in the
# way of vCPUs on a machine this slow, and a vCPU that waits wants time.
until_rests() {
	end=$(($(cut -d . -f 1 /proc/uptime) + 100))
	until rests; do
		if [ "$(cut -d . -f 1 /proc/uptime)" -ge "$end" ]; then
			echo "$1-lost $(cat /tmp/errors)"
			return
		fi
		sleep 1
	done
}
# into_rest N: into a rest and 3 s on, how often `list` was asked and how often it had not all N.
# Without a pause, and all on the pCPU that no vCPU is to use.
into_rest() {
	taskset -p 2 $$ >/dev/null
	looks=0 short=0 rested=
	read -r up _ </proc/uptime
	end=$((${up%.*} + 100))
	while [ "${up%.*}" -lt "$end" ]; do
		looks=$((looks + 1))
		listed "$1" || short=$((short + 1))
		read -r up _ </proc/uptime
		if [ -z "$rested" ] && state_is disabled; then
			now "rested-at"
			rested=1
			end=$((${up%.*} + 4))
		fi
	done
	taskset -p 3 $$ >/dev/null
	echo "looks $looks"
	echo "looks-short $short"
}
# On standard output: what `list` says, or nothing.
listed_json() {
	scx_vcpu list --json
}

# One that computes is enough to stay: looked at for three times as long as a rest needs.
start credit2 --rest-after 2s
seq=$(cat /sys/kernel/sched_ext/enable_seq)
change 901s --weight 512
sleep 6
echo "busy-state $(cat /sys/kernel/sched_ext/state) $(($(cat /sys/kernel/sched_ext/enable_seq) - seq))"

# Nobody wants anything.
echo "before $(listed_json)"
vcpus_on 1
kill -STOP "$first"
now "stopped-at"
into_rest 4
until_rests rest
echo "rest-early $(listed_json)"
sleep 5
echo "rest-late $(listed_json)"
echo "rest-labels $(labels)"
echo "rest-state $(cat /sys/kernel/sched_ext/state)"
scx_vcpu list | tail -n 1 | sed 's/^/rest-says /'
# What is said meanwhile is listed at once, and counts afterwards.
change 902s --weight 1024 --cap 90 --slice 20ms --latency 5ms
echo "rest-set $(listed_json)"
# A CPU that goes and one that comes: it is loaded anew for each, and rests again. Loading may
# keep a vCPU waiting on the one CPU that is left, which ends the rest.
for online in 0 1; do
	table=$(table)
	echo $online >/sys/devices/system/cpu/cpu1/online
	until_ok loaded_again || echo "hotplug-lost $(cat /tmp/errors)"
done
vcpus_on 1
until_rests hotplug

# One does. It runs while the scheduler is being attached.
kill -CONT "$first"
now "goes-on-at"
until_ok state_is enabled || echo "attach-lost $(cat /tmp/errors)"
now "attached-at"
until_ok listed 4 || echo "listed-lost"
echo "after $(listed_json)"
measure weights 5

# Ended while it rests.
kill -STOP "$first"
until_rests again
cp /tmp/errors /tmp/told
finish rests
echo "rests-labels $(labels)"
sed -n 's/.*scheduling took=/attach-took /p' /tmp/told
ls /sys/fs/bpf | grep -c scx_vcpu | sed 's/^/rests-pins /'

# Who is to stay does.
start fixed --rest-after 0s
sleep 5
echo "stays-state $(cat /sys/kernel/sched_ext/state)"
finish stays

# A trace has every turn.
start fixed --rest-after 1s --trace /tmp/trace
sleep 5
echo "traces-state $(cat /sys/kernel/sched_ext/state)"
finish traces

# All VMs end while it rests.
start fixed --rest-after 1s
until_rests last
kill -KILL "$first" "$second"
until_ok listed 0 || echo "gone-lost $(listed_json)"
finish gone
