# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by cost.rs, which sets $rounds and $arms: what ordinary threads of a host
# pay, with and without vCPUs that compute on both pCPUs. Each round has each arm once,
# and each round begins with another one.

# bench KEY: seconds, but for the waits of threads that are woken.
bench() {
	echo "$1-messaging $(perf bench -f simple sched messaging -g 1 -l 100 2>&1 | tail -n 1)"
	echo "$1-pipe $(perf bench -f simple sched pipe -l 1000 2>&1 | tail -n 1)"
	echo "$1-wake $(vlab load wake --threads 4 --every 5ms --for 2s)"
}

for vms in 0 2; do
	# Not nice: the host's own threads and vCPUs are equals to the kernel.
	for vm in $(seq 1 $vms); do
		vlab load vm --cpus 0-1 --for 70"$vm"s >/dev/null &
	done
	until_ok there $((vms * 2))
	# shellcheck disable=SC2086 # words
	set -- $arms
	for round in $(seq 1 "$rounds"); do
		for arm in "$@"; do
			[ "$arm" = none ] || start "$arm"
			bench "$vms-$arm-$round"
			[ "$arm" = none ] || finish cost
		done
		first=$1
		shift
		set -- "$@" "$first"
	done
	now "$vms-at"
done
