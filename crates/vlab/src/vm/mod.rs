// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual machines with stock Debian kernels.
//!
//! # What it is for
//! The daemon must load, run and restore on kernels that this machine does not
//! run. A guest here is one QEMU process, one Debian kernel and one initramfs
//! built for the occasion; it runs one script and powers off. Guests run under
//! TCG (no `/dev/kvm` needed), so they answer "does it work on this kernel" and
//! never "how fast".
//!
//! # Use
//! ```no_run
//! use std::time::Duration;
//! use vlab::vm::{Guest, Image, Kernel, Options, Qemu, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open("target/vm")?;
//! let kernel = Kernel::debian(&store, "6.12")?;
//! let image = Image::builder(&kernel).script("uname -r").build()?;
//! let output = Guest::boot(&image, &Options::new(Qemu::debian(&store)?))?.run(Duration::from_secs(60))?;
//! assert_eq!(output.exit_code, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//! [`store`] the cache directory, [`apt`] exact packages without touching the
//! machine's own package state, [`kernels`] which kernels and how they unpack,
//! [`userland`] QEMU and other programs, [`modules`] which kernel modules in which order, [`image`] the initramfs, `pack` its bytes,
//! [`systemd`] as its first process, `libvirt` for VMs of its own,
//! [`boot`] the QEMU process and its result, `sharing` takes vCPUs away in turn,
//! `autopsy` finds out what a guest did that hung.
//!
//! # Limits
//! x86-64 only. Nothing of a guest is measured: TCG's vCPU threads block each
//! other and there is no steal time.

pub mod apt;
pub mod boot;
pub mod image;
pub mod kernels;
pub mod modules;
pub mod store;
pub mod systemd;
pub mod userland;

mod arguments;
pub(crate) mod autopsy;
mod command;
mod libvirt;
mod pack;
mod sharing;
mod words;

pub use boot::BootError;
pub use boot::Disk;
pub use boot::Guest;
pub use boot::Options;
pub use boot::Output;
pub use command::ToolError;
pub use image::Image;
pub use image::ImageError;
pub use kernels::Kernel;
pub use kernels::KernelError;
pub use kernels::SCHED_EXT;
pub use kernels::SERIES;
pub use sharing::Sharing;
pub use store::Store;
pub use userland::Qemu;

pub(crate) use kernels::unpack;

/// Shell functions for a script that suspends its machine: after `speak_again` what the script
/// says is heard again.
pub const SPEAK_AGAIN: &str = include_str!("speak_again.sh");
