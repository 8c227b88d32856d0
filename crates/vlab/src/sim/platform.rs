// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Platforms: what a simulated machine, its guests' kernel and its system calls
//! cost. One set of constants per platform, never one per configuration.

use sim::guest::DaemonCosts;
use sim::guest::KernelSettings;
use sim::machine::Costs;
use sim::machine::Smt;
use units::Ns;

/// A platform.
#[derive(Clone, Copy, Debug)]
pub(super) struct Platform {
    /// Host.
    pub(super) costs: Costs,
    /// Hyperthreads.
    pub(super) smt: Smt,
    /// Guest kernel.
    pub(super) kernel: KernelSettings,
    /// The daemon's own work.
    pub(super) daemon: DaemonCosts,
    /// CPU time to submit one request.
    pub(super) submit: Ns,
    /// Median CPU time to take one completion.
    pub(super) process: Ns,
    /// Its spread: sigma of the logarithm, in thousandths.
    pub(super) process_spread: u32,
    /// Median device time of a disk request of one block.
    pub(super) disk_latency: Ns,
    /// Its spread: sigma of the logarithm, in thousandths.
    pub(super) disk_spread: u32,
    /// Requests that the disk works on at once.
    pub(super) disk_channels: u32,
    /// Bytes per second of the disk.
    pub(super) disk_rate: u64,
}

/// The names that [`by_name`] knows.
pub(super) const NAMES: &[&str] = &["bed", "paper-kvm"];

/// A platform by its name.
pub(super) fn by_name(name: &str, cpus: u32) -> Option<Platform> {
    match name {
        // This project's bed: 2 CPUs, Linux 6.18, the freezer as host, which costs
        // nothing between slices. The costs of a request and their spread are fixed
        // by what was measured without sharing alone: 7450 and 7523 requests/s, a
        // 99th percentile of 151 to 171 us (scenarios/check-freezer.toml).
        "bed" => Some(Platform {
            costs: Costs {
                vcpu_switch: Ns::ZERO,
                vcpu_wake: Ns::ZERO,
                vcpu_cache: Ns::ZERO,
                cache_after: Ns::from_ms(1),
                vcpu_migration: Ns::ZERO,
                ipi: Ns::ZERO,
                resume: Ns::ZERO,
            },
            smt: Smt::default(),
            kernel: KernelSettings {
                steal_accounted: false,
                // From wake-up to switch 11 to 14 us (docs/performance.md, "Where
                // the time goes"), of which `switch` is the last part.
                interrupt: Ns::from_us(12),
                // 138 us until a monitor runs after a gap (the same, "After a
                // gap"), less the switch to it.
                catch_up: Ns::from_us(125),
                ..KernelSettings::eevdf(cpus)
            },
            daemon: DaemonCosts::default(),
            submit: Ns::from_us(6),
            process: Ns::from_us(6),
            process_spread: 800,
            disk_latency: Ns::from_us(45),
            disk_spread: 300,
            disk_channels: 8,
            disk_rate: 1_000_000_000,
        }),
        // 13.1: R430, KVM, Ubuntu 16.04 (Linux 4.4) in the guests, SSD of 1 GB/s
        // (C19).
        "paper-kvm" => Some(Platform {
            costs: Costs::default(),
            smt: Smt::default(),
            kernel: KernelSettings {
                steal_accounted: false,
                ..KernelSettings::scaled(cpus)
            },
            daemon: DaemonCosts {
                bell: Ns::from_us(50),
                timer: Ns::from_us(30),
                react: Ns::from_us(50),
                think: Ns::from_us(20),
                beat: Ns::from_us(5),
                hold: Ns::from_us(50),
            },
            submit: Ns::from_us(5),
            process: Ns::from_us(5),
            process_spread: 200,
            disk_latency: Ns::from_us(90),
            disk_spread: 300,
            disk_channels: 16,
            disk_rate: 1_000_000_000,
        }),
        _ => None,
    }
}
