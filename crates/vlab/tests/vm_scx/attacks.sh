# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by attacks.rs, which sets $runs and $window: a VM that wants more
# than its share of the second pCPU (docs/lab.md, "What loses them"), beside two that
# compute, all with one vCPU and the same weight.

vm --cpus 1 --for 9901s
vm --cpus 1 --for 9902s
until_ok there 2
# Its VMs are of one class and may run on one pCPU only, a general core.
printf '[ische]\ngeneral_cores = 1\nseed = 2\n' >/tmp/published.toml
cp /tmp/published.toml /tmp/hardened.toml
cat >>/tmp/hardened.toml <<EOF
[credit1]
boost_needs_under = true
[credit2]
keeps_debt = true
[isacs]
hardened = true
EOF

# attack KEY ARGUMENTS: what each VM has in the window, the attacker's last.
attack() {
	key=$1
	shift
	vm --cpus 1 "$@" --for 9903s
	attacker=$!
	until_ok listed 3 || echo "$key-lost $(cat /tmp/errors)"
	# Not a wait: what each had before it came counts no more.
	sleep 2
	measure "$key" "$window"
	kill "$attacker"
	until_ok listed 2
}

for run in $runs; do
	start "${run%-*}" --config "/tmp/${run#*-}.toml"
	until_ok listed 2 || echo "$run-lost $(cat /tmp/errors)"
	# Computes, and sleeps a moment for a device of its own before anybody could find that it
	# has had enough.
	attack "$run-sleeps" --io 1us --io-work 50000
	# Computes, and its device never stops to raise interrupts: less than the published
	# cut-off of ISACS apart (I6).
	attack "$run-storm" --storm 2ms
	finish "$run"
done
