// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libvirt in a guest, for VMs that are started and set as administrators do it.
//!
//! # Limits
//! The one daemon, `libvirtd`, with nothing but its QEMU driver: no networks, no storage, no
//! `virtlogd`. All runs as root.

use super::Store;
use super::image::Builder;
use super::userland::Packages;
use super::userland::RELEASE;
use super::userland::Userland;
use super::userland::inside;

const LIBVIRT: Packages = Packages {
    name: "libvirt",
    packages: &[
        "qemu-system-x86",
        "libvirt-daemon",
        "libvirt-daemon-driver-qemu",
        "libvirt-clients",
    ],
};

const DRIVER: &str = "usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so";

/// Models of CPUs, without which no capabilities are told.
const CPU_MAP: &str = "usr/share/libvirt/cpu_map";

/// What Debian asks polkit for.
const DAEMON: &str = "auth_unix_rw = \"none\"\n";

/// Its defaults need users, security modules and daemons that are not there.
const QEMU: &str = "\
user = \"root\"
group = \"root\"
dynamic_ownership = 0
remember_owner = 0
security_driver = \"none\"
namespaces = []
stdio_handler = \"file\"
";

/// Those that Debian's libvirt looks for before it reads what it is to use.
const USERS: &str = "\
root:x:0:0:root:/root:/bin/sh
libvirt-qemu:x:64055:64055:libvirt:/var/lib/libvirt:/bin/false
";
const GROUPS: &str = "root:x:0:\nkvm:x:103:\nlibvirt-qemu:x:64055:\n";

impl Builder {
    /// libvirt's daemon and `virsh`, and QEMU at `/usr/bin/qemu-system-x86_64`.
    ///
    /// # Errors
    /// The packages cannot be fetched or unpacked.
    pub fn libvirt(self, store: &Store) -> anyhow::Result<Self> {
        let userland = Userland::open(store, RELEASE, LIBVIRT)?;
        let mut image = self.qemu_of(&userland)?;
        let files = userland.files(&["libvirtd", "virsh"])?;
        for (here, inside) in files
            .into_iter()
            .chain(userland.plugin(DRIVER)?)
            .chain(userland.data(CPU_MAP)?)
        {
            image = image.file(here, inside);
        }
        Ok(image
            .command("/usr/sbin/libvirtd", &inside("libvirtd"))
            .command("/usr/bin/virsh", &inside("virsh"))
            .command("/usr/bin/qemu-system-x86_64", &Userland::qemu_inside())
            .text("/etc/libvirt/libvirtd.conf", DAEMON)
            .text("/etc/libvirt/qemu.conf", QEMU)
            .text("/etc/passwd", USERS)
            .text("/etc/group", GROUPS))
    }
}
