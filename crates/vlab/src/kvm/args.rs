// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line's part of a lab.

use std::path::PathBuf;

use clap::Args;

use crate::vm::kernels;
use crate::vm::userland;

/// Options of the backend `kvm`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of --backend kvm")]
pub struct KvmArgs {
    /// Kernel of the guests, of those that Debian has.
    #[arg(long, value_name = "SERIES", default_value = "6.12", value_parser = kernels::names())]
    pub guest_kernel: String,
    /// Multiply all times of the scenario by this [default: 20 nested, 1 direct].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub dilation: Option<u32>,
    /// Time that the guests' disk takes for a request, before dilation.
    #[arg(long, value_name = "TIME", default_value = "150us", value_parser = humantime::parse_duration)]
    pub disk_latency: std::time::Duration,
    /// Emulate the host even where this machine could be it.
    #[arg(long)]
    pub nested: bool,
    /// `-cpu` of the emulated host. Page tables of four levels; docs/lab.md counts what is lost
    /// with four and with five.
    #[arg(
        long,
        value_name = "MODEL",
        default_value = "max,la57=off",
        hide = true
    )]
    pub host_cpu: String,
    /// `-accel` of the emulated host.
    #[arg(
        long,
        value_name = "ACCEL",
        default_value = "tcg,thread=multi",
        hide = true
    )]
    pub host_accel: String,
    /// `-cpu` of the guests.
    #[arg(long, value_name = "MODEL", default_value = "host", hide = true)]
    pub guest_cpu: String,
    /// Added to the emulated host's kernel command line.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide = true,
        allow_hyphen_values = true
    )]
    pub host_append: String,
    /// Added to the guests' kernel command line.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide = true,
        allow_hyphen_values = true
    )]
    pub guest_append: String,
    /// Added to the words that start the guests' QEMU. Their memory is theirs before they
    /// run: no host has to find any while something is measured.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "-mem-prealloc",
        hide = true,
        allow_hyphen_values = true
    )]
    pub guest_qemu: String,
    /// Release of Debian that QEMU and the loads come from.
    #[arg(long, value_name = "SUITE", default_value = userland::RELEASE, hide = true)]
    pub packages: String,
    /// Where kernels and packages are kept.
    #[arg(long, value_name = "DIR", default_value = "target/vm")]
    pub cache: PathBuf,
}
