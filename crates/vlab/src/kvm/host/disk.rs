// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk whose latency is known: the kernel's null_blk, one queue per vCPU,
//! each request completed by a timer.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use units::Ns;

/// Where configfs is, and null_blk in it.
const CONFIGFS: &str = "/sys/kernel/config";
const NULLB: &str = "/sys/kernel/config/nullb";

/// The disk; removed on drop.
#[derive(Debug)]
pub(super) struct NullDisk {
    config: PathBuf,
    device: PathBuf,
}

impl NullDisk {
    /// Makes the `number`th of this lab, of `mib` MiB, that answers after `latency`. What is
    /// written is in this machine's memory if it `stores`, else nowhere.
    pub(super) fn create(
        number: u32,
        mib: u32,
        stores: bool,
        latency: Ns,
        queues: u32,
    ) -> anyhow::Result<Self> {
        if !Path::new(NULLB).exists() {
            let mounted = std::process::Command::new("mount")
                .args(["-t", "configfs", "configfs", CONFIGFS])
                .output();
            tracing::debug!(?mounted, "configfs");
        }
        anyhow::ensure!(
            Path::new(NULLB).exists(),
            "no {NULLB}; load the module: modprobe null_blk nr_devices=0"
        );
        let name = format!("vlab{}-{number}", std::process::id());
        let config = Path::new(NULLB).join(&name);
        fs::create_dir(&config).with_context(|| format!("cannot make {}", config.display()))?;
        let mut disk = Self {
            device: PathBuf::new(),
            config,
        };
        for (key, value) in [
            ("size", u64::from(mib)),
            ("memory_backed", u64::from(stores)),
            // Multi-queue, completed by a timer.
            ("queue_mode", 2),
            ("irqmode", 2),
            ("completion_nsec", latency.0),
            ("submit_queues", u64::from(queues)),
            ("power", 1),
        ] {
            disk.set(key, value)
                .with_context(|| format!("null_blk refuses {key} = {value}"))?;
        }
        disk.device = disk.find(&name)?;
        Ok(disk)
    }

    /// The device's file.
    pub(super) fn path(&self) -> &Path {
        &self.device
    }

    fn set(&self, key: &str, value: u64) -> io::Result<()> {
        fs::write(self.config.join(key), value.to_string())
    }

    /// Newer kernels name the device as its directory, older ones by number.
    fn find(&self, name: &str) -> anyhow::Result<PathBuf> {
        let number = fs::read_to_string(self.config.join("index")).unwrap_or_default();
        let names = [name.to_owned(), format!("nullb{}", number.trim())];
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            for name in &names {
                let path = Path::new("/dev").join(name);
                if path.exists() {
                    return Ok(path);
                }
            }
            anyhow::ensure!(
                Instant::now() < give_up,
                "null_blk made no /dev/{} or /dev/{}",
                names[0],
                names[1]
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for NullDisk {
    fn drop(&mut self) {
        let _ = self.set("power", 0);
        let _ = fs::remove_dir(&self.config);
    }
}
