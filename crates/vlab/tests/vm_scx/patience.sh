# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM with three pCPUs by patience.rs: what would make the kernel's watchdog end the
# scheduler, and a pCPU that goes while masks are narrowed. The watchdog is a short one: it
# looks twice in its time, so 8 s are enough for it.

vm --cpus 0 --for 801s
vm --cpus 0 --for 802s
vm --cpus 1 --for 803s
vm --cpus 0-2 --for 804s
until_ok there 6

# Two threads on each pCPU that anybody may start.
for policy in credit1 credit2 vslicer ische isacs fixed; do
	start $policy --watchdog 5s
	vlab load ext --cpus 0-2 --threads-per-cpu 2 --seconds 600 >/dev/null 2>&1 &
	strangers=$!
	measure "strangers-$policy" 8
	echo "strangers-$policy-state $(cat /sys/kernel/sched_ext/state)"
	echo "strangers-$policy-ran $(cat /proc/$strangers/task/*/schedstat | awk '{ sum += $1 } END { print int(sum / 1000000) }')"
	kill "$strangers"
	wait "$strangers" 2>/dev/null
	finish "strangers-$policy"
done

# A weight of 1 beside heavy ones; a cap that becomes a thousandth; turns of 3 s, with four
# on the first pCPU.
vm --cpus 0 --for 805s
until_ok there 7
for heavy in 802s 804s 805s; do
	printf '[[vm]]\nmatch = "%s"\nweight = 65535\n' $heavy
done >/tmp/weights.toml
printf '[[vm]]\nmatch = "801s"\nweight = 1\n' >>/tmp/weights.toml
for policy in credit1 credit2; do
	start $policy --watchdog 5s --config /tmp/weights.toml
	measure "weight-$policy" 8
	echo "weight-$policy-state $(cat /sys/kernel/sched_ext/state)"
	finish "weight-$policy"
done
start credit1 --watchdog 5s
change 804s --cap 300
measure cap-high 1
change 804s --cap 1
measure cap-low 8
echo "cap-state $(cat /sys/kernel/sched_ext/state)"
finish cap
start fixed --watchdog 5s --slice 3s
measure slices 12
echo "slices-state $(cat /sys/kernel/sched_ext/state)"
finish slices

# The third pCPU goes while a VM may use the second and third only.
allowed() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-*) awk '/^Cpus_allowed_list:/ { print $2 }' "$task/status" ;;
		esac
	done | sort | uniq -c | tr -s ' \n' ' '
}
again() {
	[ "$(cat /sys/kernel/sched_ext/enable_seq)" != "$seq" ] && state_is enabled && scx_vcpu list >/dev/null 2>&1
}
vcpus_on 7
start credit2
change 804s --cpus 1-2
echo "narrowed $(allowed)"
for online in 0 1; do
	seq=$(cat /sys/kernel/sched_ext/enable_seq)
	echo $online >/sys/devices/system/cpu/cpu2/online
	until_ok again || echo "masks-lost $(cat /tmp/errors)"
	echo "online-$online $(allowed)"
done
# Not done, and said so: where it is written down stands a directory.
mkdir /run/scx_vcpu/masks.new
scx_vcpu set 801s --cpus 0 >/tmp/set 2>&1
echo "unset-exit $?"
echo "unset-said $(cat /tmp/set)"
scx_vcpu set 4 --weight 7 >/tmp/set 2>&1
echo "number-exit $?"
rmdir /run/scx_vcpu/masks.new
finish masks
echo "restored $(allowed)"
