# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by vmms.rs: VMs of Alioth, a VMM in Rust.

# alioth_vm NAME: a VM. It wants a terminal, and ignores the words for a kernel that its
# firmware does not boot.
alioth_vm() {
	sh -c 'renice -n 19 -p $$ >/dev/null; exec "$@"' vm alioth boot --firmware "$ROM" \
		--cpu count=2 --memory size=64M,backend=memfd --cmdline "name=$1" \
		</dev/ttyS0 >"/tmp/alioth-$1" 2>&1 &
}

start credit1
alioth_vm web
alioth_vm db
until_ok listed 4 || echo "found-lost $(cat /tmp/alioth-* /tmp/errors)"
change name=web --weight 512
pin
# Not a wait: what was handed out before counts no more.
sleep 1
measure credit1 5
finish credit1

printf '[[vm]]\nmatch = "name=web"\nweight = 512\n' >/tmp/policy.toml
start credit2 --config /tmp/policy.toml
until_ok listed 4 || echo "listed-lost $(cat /tmp/errors)"
sleep 1
measure credit2 5
finish credit2
