// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What guests and the emulated host boot.

use std::path::Path;
use std::path::PathBuf;

use experiment::scenario::Arm;
use experiment::scenario::ArmKind;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use experiment::scenario::Scenario;

use crate::vm::Image;
use crate::vm::Kernel;
use crate::vm::userland::Userland;
use crate::vm::userland::inside;

use super::fit;

/// Where the guests' files are on the emulated host.
pub(super) const GUEST_KERNEL: &str = "/vlab/guest/vmlinuz";
/// See [`GUEST_KERNEL`].
pub(super) const GUEST_INITRAMFS: &str = "/vlab/guest/initramfs";

/// Programs of Debian that guests may have.
const IN_GUESTS: [&str; 4] = ["fio", "stress-ng", "sysbench", MKE2FS];

/// Makes the file system that writers need; and [`wanted`] for nothing else.
pub(super) const MKE2FS: &str = "mke2fs";

/// Finds the virtio port `$1`: there is no udev that would name it. A port can be
/// opened once only, hence `<>`.
const FIND_PORT: &str = "\
port() {
	for dir in /sys/class/virtio-ports/*; do
		[ \"$(cat \"$dir/name\")\" = \"$1\" ] && echo \"/dev/${dir##*/}\"
	done
}
";

/// Gives a guest its end of the network to its host, if it has one: the last byte of its
/// hardware address says which (`host::network`).
const JOIN_NETWORK: &str = "\
card=/sys/class/net/eth0
if [ -e $card ]; then
	net=198.18.$((0x$(cut -d: -f6 $card/address)))
	ip address add $net.2/24 dev eth0
	ip link set eth0 up
	ip route add default via $net.1
fi
";

/// The project's own programs.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) vlab: PathBuf,
    pub(super) vmigrater: PathBuf,
    pub(super) scx_vcpu: PathBuf,
}

/// Which programs of Debian a scenario runs. Their libraries are most of an
/// image, and a guest of an emulated host unpacks some MiB a second.
pub(super) fn wanted(scenario: &Scenario) -> Vec<&'static str> {
    let reads = |load: &Load| matches!(load.kind, LoadKind::Disk { .. });
    let names = |arm: &Arm, program: &str| match &arm.kind {
        ArmKind::Command { command, .. } => command.iter().any(|word| word.contains(program)),
        _ => false,
    };
    IN_GUESTS
        .into_iter()
        .filter(|program| {
            (*program == "fio" && scenario.all_loads().any(reads))
                || (*program == MKE2FS && fit::needs_files(scenario))
                || scenario.arms.iter().any(|arm| names(arm, program))
        })
        .collect()
}

/// What a guest boots, with the programs of Debian that are `wanted`, and with a driver for a
/// `network`.
pub(super) fn guest(
    kernel: &Kernel,
    userland: &Userland,
    programs: &Programs,
    wanted: &[&str],
    network: bool,
) -> anyhow::Result<Image> {
    // The kernel's preemption mode is in debugfs.
    let script = format!(
        "{FIND_PORT}{JOIN_NETWORK}mount -t debugfs debugfs /sys/kernel/debug\n\
         exec 5<>$(port vlab.agent)\nexec vlab kvm-agent <&5 >&5\n"
    );
    let mut image = Image::builder(kernel).binary(&programs.vlab).script(script);
    if programs.vmigrater.is_file() {
        image = image.binary(&programs.vmigrater);
    }
    if wanted.contains(&MKE2FS) {
        image = image.module("ext4");
    }
    if network {
        image = image.module("virtio_net");
    }
    for (here, inside) in userland.files(wanted)? {
        image = image.file(here, inside);
    }
    for program in wanted {
        image = image.command(Path::new("/bin").join(program), &inside(program));
    }
    Ok(image.build()?)
}

/// What the emulated host boots: KVM, QEMU, the scheduler, and the guests' files; the drivers
/// of a `network` to the guests.
pub(super) fn host(
    kernel: &Kernel,
    userland: &Userland,
    programs: &Programs,
    guest: &Image,
    network: bool,
) -> anyhow::Result<Image> {
    // What the guests' consoles said is printed last: when the lab is lost, it is
    // all that is left of them.
    let script = format!(
        "{FIND_PORT}mount -t configfs configfs /sys/kernel/config\n\
         mkdir -p /tmp/lab\n\
         exec 5<>$(port vlab.host)\n\
         vlab kvm-host <&5 >&5\n\
         code=$?\n\
         dmesg | tail -n 100\n\
         for file in /tmp/lab/scx_vcpu /tmp/lab/guest*/console /tmp/lab/guest*/out /tmp/lab/guest*/registers; do\n\
         \techo \"== $file\"; tail -n 60 \"$file\"\n\
         done\n\
         exit $code\n"
    );
    let mut image = Image::builder(kernel).module("kvm_amd").module("null_blk");
    if network {
        image = image.module("tun").module("vhost_net");
    }
    let image = image
        .binary(&programs.vlab)
        .binary(&programs.scx_vcpu)
        .file(guest.kernel().vmlinuz(), GUEST_KERNEL)
        .file(guest.initramfs(), GUEST_INITRAMFS)
        .script(script)
        .qemu_of(userland)?;
    Ok(image.build()?)
}
