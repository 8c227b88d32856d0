// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's command line.

use std::path::Path;

use super::Image;
use super::autopsy::SPEAKING;
use super::boot::Disk;
use super::boot::Options;

/// All of it for one guest whose files are in `dir`.
pub(super) fn arguments(image: &Image, options: &Options, dir: &Path) -> Vec<String> {
    let mut args: Vec<String> = [
        "-cpu",
        "max",
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-device",
        "virtio-serial-pci",
        // Threads of vCPUs have their vCPU's name.
        "-name",
        "guest,debug-threads=on",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |key: &str, value: String| args.extend([key.to_owned(), value]);
    if options.counted {
        // Without waiting when all vCPUs are idle: their time is not this machine's.
        add("-accel", "tcg,thread=single".to_owned());
        add("-icount", "shift=0,sleep=off".to_owned());
    } else {
        add("-accel", "tcg,thread=multi".to_owned());
    }
    add("-smp", options.vcpus.to_string());
    add("-m", options.memory_mib.to_string());
    add("-kernel", image.kernel().vmlinuz().display().to_string());
    add("-initrd", image.initramfs().display().to_string());
    // A panic ends the guest at once (-no-reboot), so that a broken kernel
    // costs seconds and not the deadline.
    add(
        "-append",
        format!(
            "console=ttyS0 loglevel=5 panic=-1 oops=panic {SPEAKING} {}",
            options.append
        ),
    );
    add("-serial", format!("file:{}", dir.join("serial").display()));
    let monitor = dir.join("monitor").display().to_string();
    add("-qmp", format!("unix:{monitor},server=on,wait=off"));
    for name in ["out", "ctl"] {
        add(
            "-chardev",
            format!("file,id={name},path={}", dir.join(name).display()),
        );
        add(
            "-device",
            format!("virtserialport,chardev={name},name=vlab.{name}"),
        );
    }
    for (nr, disk) in options.disks.iter().enumerate() {
        let Disk::Null { size, latency_ns } = disk;
        add(
            "-blockdev",
            format!(
                "driver=null-co,node-name=disk{nr},size={size},latency-ns={latency_ns},read-zeroes=on"
            ),
        );
        add(
            "-device",
            format!("virtio-blk-pci,drive=disk{nr},num-queues={}", options.vcpus),
        );
    }
    args
}
