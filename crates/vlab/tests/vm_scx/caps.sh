# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by caps.rs: two VMs that compute on both pCPUs under each policy, first as
# they like, then one of them with a cap.

vm --cpus 0-1 --for 701s
first=$!
vm --cpus 0-1 --for 702s
second=$!
until_ok there 4
cat >/tmp/policy.toml <<EOF
[ische]
general_cores = 1
seed = 0
EOF
for policy in fixed credit1 credit2 vslicer ische isacs; do
	start $policy --config /tmp/policy.toml --trace /tmp/trace
	# Not a wait: the window whose turns are counted.
	sleep 3
	now "$policy-to"
	echo "$policy-set $(scx_vcpu set 701s --cap 40 2>&1; echo "exit $?")"
	if [ $policy != fixed ]; then
		# What was handed out before counts no more.
		sleep 1
		measure "$policy" 5
	fi
	finish $policy
	echo "$policy-trace $(xxd -p /tmp/trace | tr -d '\n')"
done

# A vCPU that may run on both pCPUs, and a host thread that comes to the one where it waits
# for its cap; the other one is idle.
kill "$first" "$second"
wait "$first" "$second"
vm --cpus 0 --for 703s
until_ok there 1
for policy in credit1 credit2; do
	start $policy
	change 703s --cap 20
	vcpus_on 3
	for round in 1 2; do
		cpu=$(scx_vcpu list --json | grep -o '"cpu":[01]')
		taskset $((1 + ${cpu#*:})) sh -c 'while :; do :; done' &
		hog=$!
		measure "roams-$policy-$round"
		kill "$hog"
		wait "$hog"
	done
	finish "roams-$policy"
done
