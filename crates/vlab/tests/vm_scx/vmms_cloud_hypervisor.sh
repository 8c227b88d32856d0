# SPDX-License-Identifier: Apache-2.0 OR MIT
# For vmms_other.sh: VMs of cloud-hypervisor.

vmm() {
	nicely cloud-hypervisor --kernel "$PVH" --cmdline "name=$1" --cpus boot=2 --memory size=64M \
		--serial off --console off --seccomp false </dev/null
}
