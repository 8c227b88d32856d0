# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by cost.rs: what ordinary threads of a host pay, in seconds, with and
# without vCPUs that compute on both pCPUs. Arms are interleaved.

bench() {
	echo "$1-messaging $(perf bench -f simple sched messaging -g 1 -l 100 2>&1 | tail -n 1)"
	echo "$1-pipe $(perf bench -f simple sched pipe -l 1000 2>&1 | tail -n 1)"
}

for vms in 0 2; do
	# Not nice: the host's own threads and vCPUs are equals to the kernel.
	for vm in $(seq 1 $vms); do
		vlab load vm --cpus 0-1 --for 70"$vm"s >/dev/null &
	done
	until_ok there $((vms * 2))
	for round in 1 2 3; do
		bench "$vms-none-$round"
		for policy in fixed credit2; do
			start $policy
			bench "$vms-$policy-$round"
			finish cost
		done
	done
done
