# SPDX-License-Identifier: Apache-2.0 OR MIT
# For vmms_other.sh: VMs of Firecracker.

vmm() {
	cat >"/tmp/$1.json" <<EOF
{
	"boot-source": { "kernel_image_path": "$PVH", "boot_args": "" },
	"drives": [],
	"machine-config": { "vcpu_count": 2, "mem_size_mib": 64 }
}
EOF
	nicely firecracker --id "$1" --no-api --no-seccomp --config-file "/tmp/$1.json" </dev/null
}
