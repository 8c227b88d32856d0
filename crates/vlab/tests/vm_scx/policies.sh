# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by policies.rs: three small VMs under each policy of scx_vcpu, and
# what has to hold while it comes and goes.

echo "doctor $(scx_vcpu doctor >/dev/null 2>&1; echo $?)"

# The lengths are the VMs' names: the policy file matches command lines.
vm --cpus 0-1 --for 401s
vm --cpus 0-1 --for 402s
vm --cpus 0 --io 50ms --work 100000 --for 403s
until_ok there 5 || echo "vcpus $(cat /proc/[0-9]*/task/[0-9]*/comm | grep -c vcpu)"
cat >/tmp/policy.toml <<EOF
[[vm]]
match = "401s"
weight = 512
[[vm]]
match = "403s"
class = "io"
[ische]
general_cores = 1
seed = 0
# The device is slower than the published cut-off: its intervals are to count here, and
# periods are to have some of them.
[isacs]
cutoff = "200ms"
default_credit = "50ms"
EOF

start fixed --slice 50ms --trace /tmp/trace
echo "fixed-labels $(labels)"
measure fixed
scx_vcpu run --policy fixed >/dev/null 2>/tmp/second
echo "second-exit $?"
echo "second $(cat /tmp/second)"
# An ordinary thread beside busy vCPUs: its time on the CPU and in the queue.
taskset 1 sh -c 'while :; do :; done' &
hog=$!
sleep 3
echo "hog $(cat /proc/$hog/schedstat)"
kill "$hog"
finish fixed
echo "fixed-labels-after $(labels)"
echo "fixed-trace $(xxd -p /tmp/trace | tr -d '\n')"

# Nothing but vCPUs: the default slice, one that is no multiple of a tick either, and one
# that is long.
for slice in 11ms 30ms 50ms; do
	start fixed --slice $slice --trace /tmp/trace
	sleep 3
	finish "fixed-$slice"
	echo "fixed-$slice-trace $(xxd -p /tmp/trace | tr -d '\n')"
done

start fixed
kill -9 "$scx"
wait "$scx" 2>/dev/null
until_ok state_is disabled && echo "killed-state disabled"
# Without a scheduler the same threads run in the fair class: they still compute.
before=$(ran)
sleep 2
echo "killed-ran-ms $(($(ran) - before))"

# The first of these finds the vCPUs as the killed one has left them.
start credit1 --config /tmp/policy.toml
measure credit1
# 1000 % would be no cap on two pCPUs; nobody else could use what these leave.
change 401s --cap 40
change 402s --cap 60
measure capped
echo "nobody $(scx_vcpu set 999s --cap 1 2>&1)"
finish credit1

start credit2 --config /tmp/policy.toml
measure credit2
change 402s --weight 2048
measure credit2-set
finish credit2

start isacs --config /tmp/policy.toml
measure isacs
echo "isacs-then $(scx_vcpu list --json)"
finish isacs

start vslicer --config /tmp/policy.toml --trace /tmp/trace
measure vslicer
change 402s --class io
now vslicer-set
measure vslicer-micro
finish vslicer
echo "vslicer-trace $(xxd -p /tmp/trace | tr -d '\n')"

# iSche decides where they run, if their owner does not.
vcpus_on 3
# The pCPU of each vCPU, 0 or 1.
homes() {
	scx_vcpu list --json | grep -o '"cpu":[01]' | tr '\n' ' '
}
moved() {
	[ "$(homes | tr 01 10)" = "$before" ]
}
start ische --config /tmp/policy.toml --trace /tmp/trace
echo "ische-said $(cat /tmp/said)"
measure ische
before=$(homes)
change 402s --class io
now ische-set
measure ische-io
# The other core is the general one; what was set counts no longer.
sed -i 's/^seed = .*/seed = 2/' /tmp/policy.toml
until_ok moved
echo "ische-moved $(scx_vcpu list --json)"
finish ische
echo "ische-trace $(xxd -p /tmp/trace | tr -d '\n')"
echo "dmesg $(dmesg | grep -c 'sched_ext.*\(error\|stall\|runnable\)')"
