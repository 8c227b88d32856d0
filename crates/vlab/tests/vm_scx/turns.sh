# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by turns.rs: vCPUs that compute, and a thread of the host that comes again
# and again.

vm --cpus 0-1 --for 801s
vm --cpus 0-1 --for 802s
until_ok there 4
cat >/tmp/policy.toml <<EOF
[[vm]]
match = "801s"
weight = 512
[ische]
general_cores = 1
seed = 0
# As long as the others' turns, so that the same threads come into each.
[credit2]
slice = "30ms"
[isacs]
slice = "30ms"
EOF
# Turns that end with the credit, of which a reset gives less than a slice.
cat >/tmp/ends.toml <<EOF
[credit2]
slice = "30ms"
default_credit = "10ms"
slice_ends_with_credit = true
EOF

# turns POLICY [FILE]
turns() {
	start "$1" --config "/tmp/${2:-policy}.toml" --trace /tmp/trace
	key=${2:-$1}
	sleep 1
	now "$key-from"
	taskset 1 sh -c 'while :; do usleep 40000; done' &
	comes=$!
	sleep 5
	kill "$comes"
	finish "$key"
	echo "$key-trace $(xxd -p /tmp/trace | tr -d '\n')"
}
for policy in credit1 credit2 isacs vslicer; do
	turns $policy
done
turns credit2 ends
vcpus_on 3
turns ische
