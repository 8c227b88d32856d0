# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by kernels.rs: what this kernel makes of the scheduler.

echo "release $(uname -r)"
scx_vcpu doctor >/tmp/doctor 2>&1
echo "doctor $? $(grep '^no: ' /tmp/doctor | tr '\n' ' ')"
scx_vcpu doctor --programs >/tmp/programs 2>&1
echo "programs $?"
grep '^verified: ' /tmp/programs
grep -q '^verified: ' /tmp/programs ||
	RUST_LOG=libbpf=debug scx_vcpu doctor --programs 2>&1 | grep -v ': relo\|collecting relocation\|found data map\|found map\|found extern' | tail -n 40
scx_vcpu run --for 1s >/dev/null 2>/tmp/refused
echo "run $? $(tr '\n' ' ' </tmp/refused)"
# The freezer has BPF timers too.
vlab freeze -- true >/tmp/frozen 2>&1
echo "freeze $? $(tr '\n' ' ' </tmp/frozen)"

printf '[ische]\ngeneral_cores = 1\n' >/tmp/ische.toml
vm --cpus 0-1 --for 601s
vm --cpus 0-1 --for 602s
until_ok there 4
for policy in fixed credit1 credit2 vslicer ische isacs; do
	start "$policy" --config /tmp/ische.toml
	kill -0 "$scx" 2>/dev/null || continue
	settled "$policy" 1
	finish "$policy"
done
