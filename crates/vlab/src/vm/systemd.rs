// SPDX-License-Identifier: Apache-2.0 OR MIT
//! systemd as a guest's first process, to try a unit as a package installs it.

use std::path::Path;

use super::image::Builder;

/// For [`Options::append`](super::Options::append) of an image that has systemd.
pub const APPEND: &str = "rdinit=/bin/systemd systemd.unit=vlab.service systemd.show_status=0";

/// systemd's only job is the script, as `/init` runs it without systemd.
const JOB: &str = "\
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/init
StandardOutput=null
TimeoutStartSec=infinity
";

/// What every service waits for, here without anything behind it.
const TARGET: &str = "[Unit]\nDescription=There\n";

/// Systemd's own loads modules from where a distribution has them; here they are elsewhere
/// (`init.sh`). Like that one it does not fail.
const MODPROBE: &str = "\
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=-/bin/insmod /vlab/modules/%i.ko
";

/// Where administrators' units are.
const UNITS: &str = "/etc/systemd/system";

impl Builder {
    /// This machine's systemd and systemctl, and a unit of ours under its own name, which may
    /// want a module by `modprobe@.service`. Needs [`APPEND`] on the kernel's command line.
    #[must_use]
    pub fn systemd(self, unit: &Path) -> Self {
        let at = |name: &str| format!("{UNITS}/{name}");
        let name = unit.file_name().unwrap_or_default().to_string_lossy();
        self.binary("/lib/systemd/systemd")
            .binary("/usr/bin/systemctl")
            .text(at("vlab.service"), JOB)
            .text(at("modprobe@.service"), MODPROBE)
            .text(at("sysinit.target"), TARGET)
            .text(at("basic.target"), TARGET)
            .text(at("shutdown.target"), TARGET)
            .file(unit, at(&name))
    }
}
