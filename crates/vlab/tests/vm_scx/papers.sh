# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by papers.rs, which sets $rounds, $arms and $window: the papers' mixes of VMs
# under each arm. Each round has each arm once, and each round begins with another one.

# vms MIX: a line of arguments for each of its VMs, which have two vCPUs on two pCPUs, all but
# the first one of three (docs/lab.md, "What loses them").
vms() {
	io="--io 2ms --io-work 20000"
	case $1 in
	# One VM does I/O, and all four compute.
	ische-1+3) set -- "$io --computing 1" "" "" "" ;;
	hybrid-1+3) set -- "$io" "" "" "" ;;
	hybrid-2+2) set -- "$io" "$io" "" "" ;;
	mixed-2) set -- "$io --computing 1" "$io --computing 1" ;;
	mixed-4) set -- "$io --computing 1" "$io --computing 1" "$io --computing 1" "$io --computing 1" ;;
	esac
	for vm in "$@"; do
		echo "$vm"
	done
}

# counted MIX LEAD: all its VMs count in the same window, LEAD seconds from now; their vCPUs
# begin a second earlier.
counted() {
	at=$(awk -v lead="$2" '{ printf "%dms", ($1 + lead) * 1000 }' /proc/uptime)
	vms "$1" >/tmp/vms
	rm -f /tmp/vm-*
	pids=""
	number=0
	while read -r arguments; do
		number=$((number + 1))
		# Not nice: the devices' threads and the vCPUs are equals to the kernel, and share
		# their pCPUs.
		# shellcheck disable=SC2086 # words
		taskset 6 vlab load vm --cpus 1-2 --free --at "$at" --for "$window" $arguments \
			>/tmp/vm-$number 2>>/tmp/vm-errors &
		pids="$pids $!"
	done </tmp/vms
	all=0
	for pid in $pids; do
		wait "$pid" || all=1
	done
	return $all
}

# cell KEY MIX: a VM that was not there in time spoils the window of all.
# Some cells may be lost: papers.rs counts them.
cell() {
	counted "$2" 2.5 || counted "$2" 4 || counted "$2" 8 || echo "lost $1 $(tail -n 1 /tmp/vm-errors)"
	for number in $(seq 1 "$number"); do
		echo "$1-$number $(cat /tmp/vm-$number)"
	done
}

# settings ARM FILE: the file of this arm, /tmp/arm.toml.
settings() {
	cp "$2" /tmp/arm.toml
	case $1 in
	*+*) printf '[%s]\n%s\n' "${1%%+*}" "${1#*+}" | tr + '\n' >>/tmp/arm.toml ;;
	esac
}

cat >/tmp/apart.toml <<EOF
[[vm]]
match = "--io"
class = "io"
[ische]
cpus = "1-2"
general_cores = 1
seed = 0
EOF
# Every VM does both: iSche has nothing to separate, and vSlicer only VMs that want short turns.
sed 's/general_cores = 1/general_cores = 2/' /tmp/apart.toml >/tmp/alike.toml
sed 's/class = "io"/class = "cpu"/' /tmp/alike.toml >/tmp/alike-ische.toml

# shellcheck disable=SC2086 # words
set -- $arms
for round in $(seq 1 "$rounds"); do
	for arm in "$@"; do
		for mixes in "apart ische-1+3 hybrid-1+3 hybrid-2+2" "alike mixed-2 mixed-4"; do
			file=/tmp/${mixes%% *}
			[ -f "$file-$arm.toml" ] && file=$file-$arm
			settings "$arm" "$file.toml"
			[ "$arm" = none ] || start "${arm%%+*}" --config /tmp/arm.toml
			for mix in ${mixes#* }; do
				cell "$round-$arm-$mix" "$mix"
			done
			[ "$arm" = none ] || finish papers
		done
	done
	now "$round-at"
	first=$1
	shift
	set -- "$@" "$first"
done
