# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by own.rs: what is a vCPU's own, under each policy: its slice and its latency; and
# a table that has no entry left for it.

printf '[ische]\ngeneral_cores = 1\nseed = 2\n' >/tmp/own.toml
vm --cpus 0-1 --for 501s
vm --cpus 0-1 --for 502s
vm --cpus 0 --io 50ms --work 100000 --for 503s
until_ok there 5

# It leaves its pCPU by itself, whoever schedules it. One that never does computes for ever:
# emulated nested virtualisation has done that to one, too (check_vms).
leaves() {
	[ "$(cat /proc/"$!"/task/*/status | awk '/^voluntary/ { sum += $2 } END { print sum }')" -gt 20 ]
}
until_ok leaves || echo "it computes, which is the machine's fault" >>/tmp/vms

for policy in fixed credit1 credit2 vslicer ische isacs; do
	start "$policy" --config /tmp/own.toml
	change 501s --slice 4ms
	# It has a slice of its own for this class only.
	[ "$policy" != vslicer ] || change 501s --class io
	change 503s --latency 2ms
	settled "$policy" 1
	# Each time another turn.
	scx_vcpu stats --every 200ms --count 8 --json >/tmp/turns
	look=0
	while read -r line; do
		look=$((look + 1))
		echo "$policy-turn-$look $line"
	done </tmp/turns
	finish "$policy"
done

start credit2 --table 2
echo "from $(by_kernel)"
measure full
echo "to $(by_kernel)"
finish full
echo "full-said $(grep 'no free entry' /tmp/errors | tr '\n' ' ')"
