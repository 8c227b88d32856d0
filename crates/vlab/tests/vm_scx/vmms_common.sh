# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the scripts of vmms.rs have in common.

# Each vCPU on the pCPU of its number.
pin() {
	scx_vcpu list --json | sed 's/},{/}\n{/g' |
		sed -n 's/.*"tid":\([0-9]*\),"vcpu":\([0-9]*\),.*/\1 \2/p' |
		while read -r tid vcpu; do
			taskset -p $((1 << vcpu)) "$tid" >/dev/null
		done
}
