# SPDX-License-Identifier: Apache-2.0 OR MIT
# For suspend.rs, with vlab::vm::SPEAK_AGAIN: how a host is suspended to memory and wakes.

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
