# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by vmms.rs: VMs of libvirt, which only virsh ever speaks to.

mkdir -p /var/lib/libvirt /var/log/libvirt /var/cache/libvirt
ln -sf /run /var/run
libvirtd >/tmp/libvirtd 2>&1 &
libvirtd=$!

# One that has ended never will.
answers() {
	timeout 20 virsh -c qemu:///system version >/tmp/version 2>&1 || ! kill -0 "$libvirtd"
}
until_ok answers
grep -q '^Running hypervisor: ' /tmp/version || echo "libvirt-lost $(cat /tmp/version /tmp/libvirtd)"
sed -n 's/^Using library: /library /p; s/^Running hypervisor: /hypervisor /p' /tmp/version

# virsh's own words for what went wrong.
virsh_ok() {
	timeout 60 virsh -q -c qemu:///system "$@" >/tmp/virsh 2>&1 ||
		echo "virsh-lost $*: $(cat /tmp/virsh) $(tail -n 5 /tmp/libvirtd)"
}

# domain NAME ROM SHARES VCPUS: a VM of so many vCPUs, as 2 or current='1'>2.
domain() {
	cat >"/tmp/$1.xml" <<EOF
<domain type='kvm'>
  <name>$1</name>
  <memory unit='MiB'>16</memory>
  <vcpu $4</vcpu>
  <cputune><shares>$3</shares></cputune>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <loader readonly='yes' type='rom'>$2</loader>
  </os>
  <features><acpi/></features>
  <cpu mode='host-passthrough' check='none'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
EOF
	virsh_ok create "/tmp/$1.xml"
}

# pinned_to MASK: each vCPU on the pCPU of its number, or with 0 all on the first.
pinned_to() {
	for vm in web db; do
		for vcpu in 0 1; do
			virsh_ok vcpupin "$vm" "$vcpu" "$((vcpu & $1))"
		done
	done
}

start credit1
domain web "$ROM" 200 ">2"
domain db "$ROM" 100 ">2"
until_ok listed 4 || echo "found-lost $(cat /tmp/errors /var/log/libvirt/qemu/*.log)"
pinned_to 1
# cgroups are looked at once a second.
weighs() {
	[ "$(scx_vcpu list --json | grep -o '"weight":512' | wc -l)" = 2 ]
}
until_ok weighs || echo "weighs-lost $(scx_vcpu list --json)"
# Not a wait: what was handed out before counts no more.
sleep 1
measure credit1 5
finish credit1

start credit2
until_ok listed 4 || echo "listed-lost $(cat /tmp/errors)"
until_ok weighs || echo "weighs-lost $(scx_vcpu list --json)"
sleep 1
measure credit2 5

# One vCPU more while a VM runs, and one less.
domain grows "$EJECTS" 100 "current='1'>2"
until_ok listed 5 || echo "grows-lost $(tail -n 5 /var/log/libvirt/qemu/grows.log)"
virsh_ok setvcpus grows 2 --live
until_ok listed 6 || echo "plugged-lost"
echo "plugged $(scx_vcpu list --json)"
virsh_ok setvcpus grows 1 --live
until_ok listed 5 || echo "unplugged-lost"
echo "unplugged $(scx_vcpu list --json)"
virsh_ok destroy grows
until_ok listed 4

# Where they may run.
pinned_to 0
together() {
	! scx_vcpu list --json | grep -q '"cpu":1,'
}
until_ok together || echo "together-lost"
echo "pinned $(scx_vcpu list --json)"
pinned_to 1

virsh_ok suspend web
sleep 1
measure paused
virsh_ok resume web
finish credit2

virsh_ok destroy web
virsh_ok destroy db
gone() {
	[ "$(find /sys/fs/cgroup -name '*.libvirt-qemu' | wc -l)" = 0 ]
}
until_ok gone
echo "left $(find /sys/fs/cgroup -name '*.libvirt-qemu' | wc -l)"
kill "$libvirtd"
wait "$libvirtd"
echo "libvirtd-exit $?"
