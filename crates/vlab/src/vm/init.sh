#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# First process of a guest, or the only service of its init system: makes the
# usual file systems, loads the modules,
# runs /vlab/script and tells the host its exit code.
#
# Two virtio ports instead of one console: what the script prints goes to
# vlab.out byte for byte, what this file has to say goes to vlab.ctl, so no
# output of a script can be taken for a result.

export PATH=/bin:/sbin:/usr/bin:/usr/sbin
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin /proc /sys /dev /tmp /run /root /etc /var/lib
/bin/busybox --install -s /bin

# Unless an init system has (see `Image`), and then keeps its own things there.
usual() {
	grep -q " $2 " /proc/mounts || mount -t "$1" "$1" "$2"
}
mount -t proc proc /proc 2>/dev/null
usual sysfs /sys
usual devtmpfs /dev
mkdir -p /dev/shm /dev/pts
usual tmpfs /dev/shm
usual tmpfs /tmp
usual tmpfs /run
usual cgroup2 /sys/fs/cgroup
usual bpf /sys/fs/bpf
usual tracefs /sys/kernel/tracing
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd

# What a kernel command line, its input, has for module $1: the rest of words MODULE.PARAM=VALUE,
# in their order, so that the last one counts. modprobe looks there, insmod does not.
parameters() {
	name=$(echo "$1" | sed 's/_/[-_]/g')
	tr -s ' \n' '\n' | sed -n "s/^$name\\.//p"
}
while read -r module; do
	# Words, not one word: each is a parameter.
	insmod "/vlab/modules/$module" $(parameters "${module%.ko}" </proc/cmdline) ||
		echo "vlab: cannot load $module"
done </vlab/modules.list

# The ports appear some time after their driver was loaded.
port() {
	for dir in /sys/class/virtio-ports/*; do
		if [ "$(cat "$dir/name" 2>/dev/null)" = "$1" ]; then
			basename "$dir"
			return
		fi
	done
}
tries=0
while [ -z "$(port vlab.out)" ] || [ -z "$(port vlab.ctl)" ]; do
	tries=$((tries + 1))
	if [ "$tries" -gt 600 ]; then
		echo "vlab: the virtio ports did not appear"
		poweroff -f
	fi
	usleep 50000
done
# Opened for each line: a script may have bound the ports' driver anew.
tell() {
	echo "$* $(cut -d ' ' -f 1 /proc/uptime)" >"/dev/$(port vlab.ctl)"
}
tell start
(
	cd /root
	exec sh /vlab/script
) >"/dev/$(port vlab.out)" 2>&1 </dev/null
tell exit $?
poweroff -f
