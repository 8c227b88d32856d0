# SPDX-License-Identifier: Apache-2.0 OR MIT
# For suspend.rs: how a host is suspended to memory and wakes.

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

warnings() {
	echo "warnings $(dmesg | grep -c -e 'WARNING:' -e 'stall')"
	dmesg | grep -A 20 -e 'WARNING:' -e 'stall'
}
