# SPDX-License-Identifier: Apache-2.0 OR MIT
# For vmms_other.sh: VMs of Alioth, a VMM in Rust.

# It wants a terminal, and ignores the words for a kernel that its firmware does not boot.
vmm() {
	nicely alioth boot --firmware "$ROM" --cpu count=2 --memory size=64M,backend=memfd \
		--cmdline "name=$1" </dev/ttyS0
}
