# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by knobs.rs: three small VMs, of which some is said.

scx_vcpu doctor --programs 2>&1 | grep '^verified: '
# The same with every switch on the other side.
for policy in credit1 credit2 ische isacs; do
	scx_vcpu doctor --programs --config /switches.toml --policy "$policy" >/tmp/switched 2>&1
	echo "switched-$policy $?"
	sed -n 's/^verified: /switched: /p' /tmp/switched
	grep '^no: \|^scx_vcpu: ' /tmp/switched
done

# denied KEY: what each command says to nobody: exit code, lines, command, text.
echo 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
# As everywhere else: only root puts something there.
chmod 755 /run
denied() {
	for command in run "trace /tmp/trace" restore list "stats --count 1" "set 401s --weight 5"; do
		su -s /bin/sh nobody -c "exec scx_vcpu $command" >/dev/null 2>/tmp/denied
		echo "denied-$1 $? $(wc -l </tmp/denied) ${command%% *} $(cat /tmp/denied)"
	done
}
denied alone

vm --cpus 0-1 --for 401s
vm --cpus 0-1 --for 402s
second=$!
vm --cpus 0 --io 50ms --work 100000 --for 403s
until_ok there 5

# Turns of 5 ms beside those of 50 ms, and a device that is answered soon.
start fixed --slice 50ms
measure fixed
change 401s --slice 5ms
change 403s --latency 2ms
measure fixed-knobs
echo "pinned $(scx_vcpu set 402s --cpus 0 2>&1)"
echo "unweighed $(scx_vcpu set 402s --weight 5 2>&1)"
finish fixed

# charged KEY: what each vCPU has run by our counters and by the kernel's, which are read
# before and after ours.
charged() {
	echo "$1-before $(by_kernel)"
	echo "$1-ours $(scx_vcpu list --json)"
	echo "$1-after $(by_kernel)"
}
printf '[[vm]]\nmatch = "401s"\nweight = 512\n' >/tmp/policy.toml
start credit2 --config /tmp/policy.toml
denied beside
charged from
# Not a wait: the window whose charges are compared.
sleep 3
charged to

# Did all vCPUs of the VM with this in its command line run on the second pCPU last?
on_second() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-*) ;;
		*) continue ;;
		esac
		grep -q "$1" "${task%/task/*}/cmdline" || continue
		[ "$(cut -d ' ' -f 39 "$task/stat")" = 1 ] || return 1
	done
}

# cgroups: 256 times 4, and the second pCPU alone.
mkdir -p /sys/fs/cgroup
[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup
echo "+cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/web
echo "$second" >/sys/fs/cgroup/web/cgroup.procs
echo 400 >/sys/fs/cgroup/web/cpu.weight
weighs() {
	scx_vcpu list --json | grep -q '"weight":1024'
}
until_ok weighs && echo "weighs 1024"
measure credit2-cgroup
echo 1 >/sys/fs/cgroup/web/cpuset.cpus
until_ok on_second 402s
measure credit2-cpuset 1
echo 0-1 >/sys/fs/cgroup/web/cpuset.cpus
finish credit2

# Where they may run, until it ends: on the second one, then where they were let before.
allowed() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		case $(cat "$task/comm" 2>/dev/null) in
		vcpu-*) awk '/^Cpus_allowed_list:/ { print $2 }' "$task/status" ;;
		esac
	done | sort | uniq -c | tr -s ' \n' ' '
}
vcpus_on 3
start credit2
change 401s --cpus 1
until_ok on_second 401s
measure cpus 1
echo "allowed $(allowed)"
finish masks
echo "allowed-after $(allowed)"
