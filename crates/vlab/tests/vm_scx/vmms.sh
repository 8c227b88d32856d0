# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by vmms.rs: VMs of QEMU, of which only the descriptors of their vCPUs tell what
# they are.

# qemu NAME ARGUMENTS: a VM. Nice, as those of ours.
qemu() {
	name=$1
	shift
	sh -c 'renice -n 19 -p $$ >/dev/null; exec "$@"' vm $QEMU -name "$name" -accel kvm -cpu host \
		-machine pc -m 16 -nodefaults -no-user-config -display none -bios "$ROM" "$@" \
		</dev/null >"/tmp/qemu-$name" 2>&1 &
}

# policy VM TID: the thread's scheduling policy; its name may have blanks.
policy() {
	sed 's/.*) //' "/proc/$1/task/$2/stat" | cut -d ' ' -f 39
}

# One has names of vCPUs for its threads, the other has not.
start credit1
qemu guest=web,debug-threads=on -smp 2
web=$!
qemu db -smp 2
until_ok listed 4 || echo "found-lost $(cat /tmp/qemu-* /tmp/errors)"
change guest=web --weight 512
pin
# Not a wait: what was handed out before counts no more.
sleep 1
measure credit1 5
finish credit1

printf '[[vm]]\nmatch = "guest=web"\nweight = 512\n' >/tmp/policy.toml
start credit2 --config /tmp/policy.toml
until_ok listed 4 || echo "listed-lost $(cat /tmp/errors)"
sleep 1
measure credit2 5

# One more vCPU while it runs, and one less.
mkfifo /tmp/monitor.in /tmp/monitor.out
ROM=$EJECTS
qemu grows -smp 1,maxcpus=2,sockets=2,cores=1,threads=1 \
	-chardev pipe,id=monitor,path=/tmp/monitor -mon chardev=monitor
grows=$!
# Both ways: one that only writes waits for a reader.
exec 7<>/tmp/monitor.in
cat /tmp/monitor.out >/tmp/said-by-qemu &
cat=$!
until_ok listed 5 || echo "grows-lost $(cat /tmp/qemu-grows)"
echo "device_add host-x86_64-cpu,id=second,socket-id=1,core-id=0,thread-id=0" >&7
until_ok listed 6 || echo "plugged-lost $(cat /tmp/said-by-qemu)"
echo "plugged $(scx_vcpu list --json)"
echo "device_del second" >&7
until_ok listed 5 || echo "unplugged-lost $(cat /tmp/said-by-qemu)"
echo "unplugged $(scx_vcpu list --json)"
echo "parked $(ls -l /proc/"$grows"/fd | grep -c 'kvm-vcpu:')"
kill "$grows" "$cat"
wait "$grows" "$cat"
exec 7>&-
until_ok listed 4
finish credit2

# What the owner has said of threads: real time for one, and batch.
set -- $(grep -l 'CPU [01]/KVM' /proc/"$web"/task/*/comm | cut -d / -f 5)
chrt -f -p 1 "$1" >/dev/null
chrt -b -p 0 "$2" >/dev/null
owners() {
	echo "$(policy "$web" "$1") $(policy "$web" "$2")"
}
echo "owners $(owners "$@")"
start credit1
until_ok listed 3
# Out of the guest and into it again, as an interrupt would.
kill -STOP "$web"
kill -CONT "$web"
sleep 1
echo "owners-scheduled $(owners "$@")"
# It is no real-time thread any more, and its guest gives no sign: it only computes.
chrt -o -p 0 "$1" >/dev/null
until_ok listed 4 || echo "back-lost $(cat /tmp/errors)"
chrt -f -p 1 "$1" >/dev/null
until_ok listed 3
finish owners
echo "owners-after $(owners "$@")"
