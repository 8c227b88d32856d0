# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by held.rs: vCPUs that may run on both pCPUs, and a host thread that computes
# on one of them.

# hog CPU: its pid is in $hog.
hog() {
	taskset $((1 + $1)) sh -c 'while :; do :; done' &
	hog=$!
}

calm() {
	kill "$hog"
	wait "$hog"
}

vm --cpus 0 --for 901s
first=$!
until_ok there 1
for policy in fixed credit1 credit2 vslicer isacs; do
	start $policy
	until_ok listed 1

	# The other pCPU is idle.
	vcpus_on 3
	sleep 1
	cpu=$(scx_vcpu list --json | grep -o '"cpu":[01]')
	hog "${cpu#*:}"
	measure "idle-$policy"
	calm

	# It runs another vCPU. Each has one for itself before.
	vm --cpus 0 --for 902s
	second=$!
	until_ok listed 2
	vcpus_on 3
	sleep 1
	hog 0
	measure "shared-$policy" 5
	calm

	# And it is free again.
	measure "free-$policy"
	kill "$second"
	wait "$second"
	until_ok listed 1
	finish "$policy"
done
kill "$first"
wait "$first"
