# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by suspend.rs, after suspend_common.sh: two pCPUs, of which one goes and comes.

# Says that it was suspended.
export RUST_LOG=scx_vcpu=info
vm --cpus 0-1 --for 951s
vm --cpus 0-1 --for 952s
until_ok there 4

# All pCPUs but the first go and come back, and the kernel ends the scheduler.
start credit2
change 951s --weight 512
suspended both 12
# Now and then the emulator loses a CPU over this, see vm_events.rs: the machine is given
# up and booted again.
if [ "$(online)" != 0-1 ]; then
	echo "suspend lost a CPU: $(online)"
	echo c >/proc/sysrq-trigger
fi
again() {
	state_is enabled && listed 4 && kill -0 "$scx"
}
until_ok again || echo "both-lost $(cat /tmp/errors)"
measure both 5
echo "both-list $(scx_vcpu list --json)"
change 951s --weight 256
measure both-even 3
echo "both-loads-after $(loads)"
finish both
warnings
