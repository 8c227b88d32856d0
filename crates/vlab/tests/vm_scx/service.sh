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

# Killed, it is started again.
kill -KILL "$pid"
restarted() {
	[ "$(show NRestarts)" -ge 1 ] && scheduled
}
until_ok restarted && echo "scheduled again"

systemctl stop scx_vcpu.service
echo "stop $?"
echo "result $(show ActiveState) $(show Result)"
echo "after $(cat /sys/kernel/sched_ext/state)"
echo "labels-after $(labels)"
