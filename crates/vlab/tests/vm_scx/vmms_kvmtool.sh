# SPDX-License-Identifier: Apache-2.0 OR MIT
# For vmms_other.sh: VMs of kvmtool.

# It wants a terminal. By default it would make a root file system of its own.
vmm() {
	nicely lkvm run --name "$1" --kernel "$FLAT" -c 2 -m 64 --nodefaults </dev/ttyS0
}
