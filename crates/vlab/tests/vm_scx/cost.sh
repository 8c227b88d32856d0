# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by cost.rs, which sets $rounds, $besides, $policies, $few (of them) and $empty: what
# ordinary threads of a host pay: without a VM, beside one that sleeps (with a scheduler that stays, and
# with one that rests meanwhile), beside one that works now and then, and beside vCPUs that
# compute on both pCPUs. Each round has each arm once, and each round begins with another one.
# The empty scheduler would keep vCPUs from running. Where none is attached policies do not
# differ: a few will do.

printf '[ische]\ngeneral_cores = 1\n' >/tmp/ische.toml

mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
features=/sys/kernel/debug/sched/features

# Context switches of the machine since its start.
switches() {
	awk '/^ctxt/ { print $2 }' /proc/stat
}

# counted KEY COMMAND...: its last line, and how many context switches it took.
counted() {
	key=$1
	shift
	before=$(switches)
	said=$("$@" 2>&1 | tail -n 1)
	after=$(switches)
	echo "$key $said"
	echo "$key-switches $((after - before))"
}

# bench KEY LOOPS: seconds, but for the waits of threads that are woken.
bench() {
	counted "$1-messaging" perf bench -f simple sched messaging -g 1 -l 100
	counted "$1-pipe" perf bench -f simple sched pipe -l "$2"
	# Both threads on one pCPU: what the scheduler takes, without where the kernel puts them.
	counted "$1-pinned" taskset 1 perf bench -f simple sched pipe -l "$2"
	# Where it looks for an idle CPU at every wake-up, however busy it believes them to be.
	echo NO_SIS_UTIL >$features
	grep -q NO_SIS_UTIL $features || echo "$1-feature-lost"
	counted "$1-searched" perf bench -f simple sched pipe -l "$2"
	echo SIS_UTIL >$features
	counted "$1-wake" vlab load wake --threads 1 --every 1ms --for 3s
}

# It rests, and what that took is over.
loaded_anew() {
	state_is disabled && loaded_again
}

# measured BESIDE LOOPS REST ARM...
measured() {
	beside=$1 loops=$2 rest=$3
	shift 3
	for round in $(seq 1 "$rounds"); do
		for arm in "$@"; do
			case $arm in
			none) ;;
			ische) start ische --config /tmp/ische.toml --rest-after "$rest" ;;
			*) start "$arm" --rest-after "$rest" ;;
			esac
			if [ "$beside" = rests ] && [ "$arm" != none ]; then
				table=$(table)
				until_ok loaded_anew || echo "$arm-lost"
			fi
			echo "$beside-$arm-$round-state $(cat /sys/kernel/sched_ext/state)"
			bench "$beside-$arm-$round" "$loops"
			[ "$arm" = none ] || finish cost
		done
		first=$1
		shift
		set -- "$@" "$first"
	done
	now "$beside-at"
}

# Is it to be measured beside this?
wanted() {
	case " $besides " in
	*" $1 "*) ;;
	*) return 1 ;;
	esac
}

# alone ID: its VM ends.
alone() {
	kill -KILL "$1"
	until_ok there 0
}

# shellcheck disable=SC2086 # words
wanted nothing && measured nothing 10000 30s none $few
if wanted asleep || wanted rests; then
	# Its vCPUs are there and never wake: the scheduler is attached and has nothing to do.
	vlab load vm --cpus 0-1 --for 1700s >/dev/null &
	asleep=$!
	until_ok there 2
	kill -STOP "$asleep"
	# shellcheck disable=SC2086 # words
	wanted asleep && measured asleep 10000 0s none $empty $policies
	# shellcheck disable=SC2086 # words
	wanted rests && measured rests 10000 1s none $few
	alone "$asleep"
fi
if wanted partly; then
	# A fifth of the time or so.
	vlab load vm --cpus 0-1 --io 10ms --work 1000000 --for 1700s >/dev/null &
	partly=$!
	until_ok there 2
	now partly-from
	# shellcheck disable=SC2086 # words
	measured partly 10000 30s none $policies
	echo "partly-had $(cat /proc/$partly/task/*/schedstat | awk '{ sum += $1 } END { print sum / 1000000000 }') s of CPU time"
	alone "$partly"
fi
if wanted computing; then
	# Not nice: the host's own threads and vCPUs are equals to the kernel.
	for vm in 1 2; do
		vlab load vm --cpus 0-1 --for 170"$vm"s >/dev/null &
	done
	until_ok there 4
	# shellcheck disable=SC2086 # words
	measured computing 1000 30s none $policies
fi
