# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by service.rs, as a job of its systemd.

show() {
	systemctl show scx_vcpu.service -P "$1"
}

scheduled() {
	state_is enabled && [ "$(scx_vcpu list --json 2>/dev/null | grep -o '"tid"' | wc -l)" = 4 ]
}

ln -sf /bin/scx_vcpu /usr/bin/scx_vcpu
vm --cpus 0-1 --for 901s
vm --cpus 0-1 --for 902s
until_ok there 4

systemctl start scx_vcpu.service
echo "start $?"
until_ok scheduled && echo "scheduled first"
echo "state $(show ActiveState)"
echo "labels $(labels)"
change 901s --weight 512
measure service
pid=$(show MainPID)
echo "protects $(awk '/^NoNewPrivs:/ { print $2 }' "/proc/$pid/status")"

# Killed, it is started again, and gives back what was narrowed.
masks() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-*) sed -n 's/^Cpus_allowed_list:\t//p' "$task/status" ;;
		esac
	done | sort | tr '\n' ' '
}
vcpus_on 3
change 901s --cpus 1
echo "narrowed $(masks)"
kill -KILL "$pid"
restarted() {
	[ "$(show NRestarts)" -ge 1 ] && scheduled
}
until_ok restarted && echo "scheduled again"
echo "widened $(masks)"

# What systemd waits for: the programs are detached in the kernel's own time.
centiseconds() {
	awk '{ printf "%d", $1 * 100 }' /proc/uptime
}
timed_stop() {
	since=$(centiseconds)
	systemctl stop scx_vcpu.service
	stopped=$?
	took="$took $((($(centiseconds) - since) * 10))"
}
took=
# On a host that computes more than it has CPUs, and on a calm one.
for _ in $(seq 1 "$stops"); do
	hogs=
	for _ in 1 2 3 4 5 6; do
		while :; do :; done &
		hogs="$hogs $!"
	done
	timed_stop
	kill $hogs
	wait $hogs
	systemctl start scx_vcpu.service
	until_ok scheduled
done
timed_stop
echo "stop $stopped"
echo "stops-ms$took"
echo "result $(show ActiveState) $(show Result)"
echo "after $(cat /sys/kernel/sched_ext/state)"
echo "labels-after $(labels)"

# Killed and never started again: what it has left is given back by hand.
scx_vcpu run --policy credit2 >/tmp/by-hand 2>&1 &
by_hand=$!
until_ok scheduled
change 901s --cpus 1
scx_vcpu restore
echo "in-use $?"
kill -KILL "$by_hand"
wait "$by_hand"
unscheduled() {
	state_is disabled
}
until_ok unscheduled
echo "left $(masks)"
echo "labels-left $(labels)"
echo "restored $(scx_vcpu restore)"
echo "again $(scx_vcpu restore)"
echo "masks-restored $(masks)"
echo "labels-restored $(labels)"

# As at a boot at which KVM comes late: the unit has its module loaded, and the CPU's comes when
# the scheduler waits already.
kill $(pidof vlab)
until_ok there 0
unloaded() {
	rmmod kvm_amd 2>/dev/null
	rmmod kvm 2>/dev/null
	[ ! -e /sys/module/kvm ]
}
until_ok unloaded && echo "kvm-before none"
systemctl start scx_vcpu.service
echo "late-start $?"
waits() {
	[ "$(scx_vcpu list --json 2>/dev/null)" = "[]" ]
}
until_ok waits && echo "late-waits 1"
echo "late-state $(show ActiveState) $(show NRestarts)"
insmod /vlab/modules/kvm_amd.ko
vm --cpus 0-1 --for 903s
vm --cpus 0-1 --for 904s
until_ok scheduled && echo "late-scheduled 1"
systemctl stop scx_vcpu.service

# A machine without KVM: whoever starts it is told, and it is not tried again and again.
kill $(pidof vlab)
until_ok there 0
until_ok unloaded
mv /vlab/modules/kvm.ko /vlab/modules/none.ko
systemctl start scx_vcpu.service >/tmp/without 2>&1
echo "without-start $?"
echo "without-said $(tr '\n' ' ' </tmp/without)"
echo "without-state $(show ActiveState) $(show AssertResult)"
