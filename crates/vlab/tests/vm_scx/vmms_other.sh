# SPDX-License-Identifier: Apache-2.0 OR MIT
# Run in a VM by vmms.rs: two VMs of a VMM, whose `vmm NAME` runs one until it ends, and whose
# command line has that name.

# nicely WORDS: a VMM, nice, as VMs of ours are.
nicely() {
	sh -c 'renice -n 19 -p $$ >/dev/null; exec "$@"' vm "$@"
}

begin() {
	vmm "$1" >"/tmp/vmm-$1" 2>&1 &
}

start credit1
begin web
# In the order in which they run for the first time, which two at once may do in any.
until_ok listed 2 || echo "first-lost $(cat /tmp/vmm-* /tmp/errors)"
begin db
until_ok listed 4 || echo "found-lost $(cat /tmp/vmm-* /tmp/errors)"
change web --weight 512
pin
# Not a wait: what was handed out before counts no more.
sleep 1
measure credit1 5
finish credit1

printf '[[vm]]\nmatch = "web"\nweight = 512\n' >/tmp/policy.toml
start credit2 --config /tmp/policy.toml
until_ok listed 4 || echo "listed-lost $(cat /tmp/errors)"
sleep 1
measure credit2 5
finish credit2
