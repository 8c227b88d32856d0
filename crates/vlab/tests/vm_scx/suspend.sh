# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by suspend.rs: a host that is suspended to memory while vCPUs compete.

listed() {
	[ "$(scx_vcpu list --json 2>/dev/null | grep -o '"tid"' | wc -l)" = "$1" ]
}

online() {
	cat /sys/devices/system/cpu/online
}

# Times that a scheduler was loaded.
loads() {
	cat /sys/kernel/sched_ext/enable_seq
}

# clocks KEY: CLOCK_BOOTTIME, which counts the time asleep, and CLOCK_MONOTONIC, ns.
clocks() {
	now "$1-boottime"
	echo "$1-monotonic $(awk '/^now at/ { print $3; exit }' /proc/timer_list)"
}

find_port() {
	for dir in /sys/class/virtio-ports/*; do
		port=/dev/$(basename "$dir")
		[ "$(cat "$dir/name")" = vlab.out ] && [ -c "$port" ] && return
	done
	return 1
}

# As vmigrater's vm_events.rs, where it is explained: 7.3 wakes with ports to which nobody
# can write until their driver is bound anew.
speak_again() {
	driver=/sys/bus/virtio/drivers/virtio_console
	device=$(basename "$driver"/virtio*)
	echo "$device" >"$driver/unbind"
	echo "$device" >"$driver/bind"
	until_ok find_port
	exec >"$port" 2>&1
}

# suspended KEY SECONDS: until the clock wakes the machine.
suspended() {
	clocks "$1-before"
	echo "$1-loads-before $(loads)"
	echo 0 >/sys/class/rtc/rtc0/wakealarm
	echo "+$2" >/sys/class/rtc/rtc0/wakealarm
	echo mem >/sys/power/state
	woke=$?
	speak_again
	echo "$1-woke $woke"
	clocks "$1-after"
}

# Says that it was suspended.
export RUST_LOG=scx_vcpu=info
vm --cpus 0-1 --for 951s
vm --cpus 0-1 --for 952s
until_ok there 4

# All pCPUs but the first go and come back, and the kernel ends the scheduler.
start credit2
change 951s --weight 512
suspended both 12
# Now and then the emulator loses a CPU over this, see vm_events.rs: the machine is given
# up and booted again.
if [ "$(online)" != 0-1 ]; then
	echo "suspend lost a CPU: $(online)"
	echo c >/proc/sysrq-trigger
fi
again() {
	state_is enabled && listed 4 && kill -0 "$scx"
}
until_ok again || echo "both-lost $(cat /tmp/errors)"
measure both 5
echo "both-list $(scx_vcpu list --json)"
change 951s --weight 256
measure both-even 3
echo "both-loads-after $(loads)"
finish both

# With one pCPU no CPU goes: the scheduler stays.
echo 0 >/sys/devices/system/cpu/cpu1/online
start credit1
change 951s --weight 512
until_ok listed 4
echo "one-list-before $(scx_vcpu list --json)"
suspended one 12
echo "one-list-after $(scx_vcpu list --json)"
echo "one-loads-after $(loads)"
measure one 6
finish one
echo "warnings $(dmesg | grep -c -e 'WARNING:' -e 'stall')"
dmesg | grep -A 20 -e 'WARNING:' -e 'stall'
