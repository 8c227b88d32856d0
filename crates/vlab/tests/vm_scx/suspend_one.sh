# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by suspend.rs, after suspend_common.sh: one pCPU, so none goes and the scheduler
# stays.

vm --cpus 0 --for 951s
vm --cpus 0 --for 952s
until_ok there 2

start credit1
change 951s --weight 512
until_ok listed 2
echo "one-list-before $(scx_vcpu list --json)"
suspended one 12
echo "one-list-after $(scx_vcpu list --json)"
echo "one-loads-after $(loads)"
measure one 6
finish one
warnings
