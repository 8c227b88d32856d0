// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network between a guest and its host: a tap device with vhost, nobody else on it.
//!
//! The addresses are of the range for benchmarks (RFC 2544): the host is 198.18.N.1 to guest
//! N, which is 198.18.N.2 and learns N from its hardware address (`kvm::images`).

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::Context;

/// The host's address on the network of a guest.
pub(super) const fn host_address(guest: u32) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, guest as u8, 1)
}

/// The guest's.
pub(super) const fn guest_address(guest: u32) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, guest as u8, 2)
}

/// Its hardware address, of those that are nobody's; the last byte is the guest's number.
fn hardware_address(guest: u32) -> String {
    format!("52:54:00:c6:12:{:02x}", guest as u8)
}

/// The tap device of a guest: two labs of one host have their own.
fn device(guest: u32) -> String {
    format!("vl{:x}n{guest}", std::process::id())
}

/// What QEMU is told. The device is made when it starts, and goes with it.
pub(super) fn arguments(guest: u32) -> [String; 4] {
    let tap = format!(
        "tap,id=net,ifname={},script=no,downscript=no,vhost=on",
        device(guest)
    );
    // Nobody boots from it, and its ROM would be a file more in the images.
    let card = format!(
        "virtio-net-pci,netdev=net,romfile=,mac={}",
        hardware_address(guest)
    );
    ["-netdev".to_owned(), tap, "-device".to_owned(), card]
}

/// Gives the host's end its address, when QEMU has made the device.
pub(super) fn connect(guest: u32) -> anyhow::Result<()> {
    let (device, address) = (device(guest), host_address(guest));
    ip(&format!("address add {address}/24 dev {device}"))?;
    ip(&format!("link set {device} up"))
}

fn ip(words: &str) -> anyhow::Result<()> {
    let done = Command::new("ip")
        .args(words.split_whitespace())
        .output()
        .context(
            "cannot run ip, which gives guests a network; on Debian: apt-get install iproute2",
        )?;
    anyhow::ensure!(
        done.status.success(),
        "ip {words}: {}: {}",
        done.status,
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_that_the_kernel_takes() {
        // IFNAMSIZ is 16, with the zero behind it; the largest process id is 2^22.
        assert!(device(3).len() < 16, "{}", device(3));
        assert!("vl400000n99".len() < 16);
        let words = arguments(3);
        assert!(words[1].contains(&device(3)), "{words:?}");
        assert!(words[3].ends_with("mac=52:54:00:c6:12:03"), "{words:?}");
    }

    #[test]
    fn what_ip_refuses_is_told_with_its_words() {
        let why = ip("link set vlab-has-no-such up").unwrap_err().to_string();
        assert!(
            why.starts_with("ip link set vlab-has-no-such up: "),
            "{why}"
        );
    }
}
