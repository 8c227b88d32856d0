# SPDX-License-Identifier: Apache-2.0 OR MIT
# For a script that suspends its machine (vlab::vm::SPEAK_AGAIN). After a suspension of Linux
# 7.3 the driver takes the host's side of the port that the script writes to for closed
# (`host_connected` in debugfs), and whoever writes waits for ever. Bound anew, it asks the
# host, as at boot; what was open stays dead.

find_port() {
	for dir in /sys/class/virtio-ports/*; do
		port=/dev/$(basename "$dir")
		[ "$(cat "$dir/name")" = vlab.out ] && [ -c "$port" ] && return
	done
	return 1
}

# Without a port nobody hears why: the machine's own deadline ends this wait.
speak_again() {
	driver=/sys/bus/virtio/drivers/virtio_console
	device=$(basename "$driver"/virtio*)
	echo "$device" >"$driver/unbind"
	echo "$device" >"$driver/bind"
	until find_port; do
		usleep 50000
	done
	exec >"$port" 2>&1
}
