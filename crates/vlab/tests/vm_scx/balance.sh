# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by balance.rs: four vCPUs that may go where they like, three of them on the
# first pCPU.

vm --cpus 0-1 --for 301s
until_ok there 2

# Two that have no right to run but in turn: does an idle pCPU take the other one? One that
# host threads keep from its pCPU goes over by relief.h, hence several starts.
cat >/tmp/under.toml <<EOF
[credit1]
idle_takes = "under"
EOF
: >/tmp/anybody.toml
for takes in anybody under-1 under-2 under-3; do
	vcpus_on 1
	start credit1 --config /tmp/${takes%-*}.toml
	vcpus_on 3
	measure "$takes" 1
	finish takes
done

vm --cpus 0-1 --for 302s
until_ok there 4
cat >/tmp/off.toml <<EOF
[credit2]
balances = false
[isacs]
balances = false
EOF
cat >/tmp/on.toml <<EOF
[isacs]
balances = true
EOF
for policy in credit2 isacs; do for how in off on; do
	vcpus_on 3
	start "$policy" --config /tmp/$how.toml
	vcpus_on 1
	one=""
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-0) one=${task##*/} ;;
		esac
	done
	taskset -p 2 "$one" >/dev/null
	sleep 1
	vcpus_on 3
	# Whoever looks on holds a pCPU at times, on which nobody is put then: more than one look.
	settled "$policy-$how" 3
	finish balance
done; done

# A vCPU that wakes another one of its VM again and again.
start credit2
vm --cpus 0-1 --ipi --work 100000 --for 303s
pair=$!
until_ok there 6
until_ok listed 6
measure ipi
# Two maps have these counts, read one after the other: nothing may happen in between.
kill -STOP "$pair"
stopped() {
	! grep -q '^State:.*[RDS] (' /proc/"$pair"/task/*/status
}
until_ok stopped
echo "still $(scx_vcpu list --json)"
kill -CONT "$pair"
finish balance

# Its second vCPU never leaves the guest by itself.
vlab load vm --cpus 0-1 --ipi --work 100000 --for 1s >/dev/null
echo "ipi-exit $?"
