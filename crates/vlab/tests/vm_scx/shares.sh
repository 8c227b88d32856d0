# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by shares.rs: two VMs that compute on two pCPUs, with weights. Not on the first
# of the three that there are (docs/lab.md, "What loses them").

vm --cpus 1-2 --for 1601s
vm --cpus 1-2 --for 1602s
until_ok there 4
cat >/tmp/debt.toml <<EOF
[credit2]
keeps_debt = true
[isacs]
keeps_debt = true
EOF
printf '[ische]\ncpus = "1-2"\n' >/tmp/published.toml
for run in $RUNS; do
	policy=${run%-*}
	start "$policy" --config "/tmp/${run#*-}.toml"
	# A policy that has no weights refuses to set one.
	case $policy in
	fixed | vslicer) weights=256 ;;
	*) weights="256 512 1024" ;;
	esac
	for weight in $weights; do
		[ "$weight" = "$weights" ] || change 1601s --weight $weight
		scx_vcpu stats --every "$WINDOW" --count 1 --json >/tmp/stats
		echo "$run-$weight $(cat /tmp/stats)"
	done
	finish shares
done
