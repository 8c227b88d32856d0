// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Platforms: what a simulated machine, its guests' kernel and its system calls
//! cost. One set of constants per platform, never one per configuration.

use experiment::scenario::SimSpec;
use sim::guest::DaemonCosts;
use sim::guest::KernelSettings;
use sim::machine::Costs;
use sim::machine::Smt;
use units::Ns;

use crate::reproduce::platforms;

/// A platform.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Platform {
    /// Host.
    pub(crate) costs: Costs,
    /// Hyperthreads.
    pub(crate) smt: Smt,
    /// Guest kernel.
    pub(crate) kernel: KernelSettings,
    /// The daemon's own work.
    pub(crate) daemon: DaemonCosts,
    /// CPU time to submit one request.
    pub(crate) submit: Ns,
    /// Median CPU time to take one completion.
    pub(crate) process: Ns,
    /// Its spread: sigma of the logarithm, in thousandths.
    pub(crate) process_spread: u32,
    /// CPU time of each further completion that one wake-up finds; none: every completion
    /// costs `submit` and `process`.
    pub(crate) further: Option<Ns>,
    /// How late the timer of a request without a device is, up to the wake-up.
    pub(crate) timer_late: Ns,
    /// Median device time of a disk request of one block.
    pub(crate) disk_latency: Ns,
    /// Its spread: sigma of the logarithm, in thousandths.
    pub(crate) disk_spread: u32,
    /// Requests that the disk works on at once.
    pub(crate) disk_channels: u32,
    /// Bytes per second of the disk.
    pub(crate) disk_rate: u64,
}

/// Without sharing the pulse load does 65 979 requests/s at depth 8 and 8452 at depth 1 on
/// the same day, 7.81 times as many (docs/results/throughput-2026-11-24.json).
const FURTHER: Ns = Ns(470);

/// The names that [`by_name`] knows.
pub(crate) const NAMES: &[&str] = &[
    "bed",
    "paper-kvm",
    "paper-xen",
    "paper-smt",
    "paper-jupiter",
];

/// The platform of a scenario.
///
/// # Errors
/// There is none of its name.
pub(super) fn of(spec: &SimSpec, cpus: u32) -> anyhow::Result<Platform> {
    let mut platform = by_name(&spec.platform, cpus)?.at_speed(spec.cpu_speed_permille);
    platform.timer_late = spec.timer_late.unwrap_or(platform.timer_late);
    let daemon = &mut platform.daemon;
    daemon.beat = spec.heartbeat.unwrap_or(daemon.beat);
    daemon.traced_switch = spec.traced_switch.unwrap_or(daemon.traced_switch);
    daemon.traced_request = spec.traced_request.unwrap_or(daemon.traced_request);
    Ok(platform)
}

impl Platform {
    /// The same on CPUs of this speed. What its devices take is as before.
    fn at_speed(mut self, permille: u32) -> Self {
        if permille == 1000 {
            return self;
        }
        let scaled = |time: &mut Ns| *time = time.scaled(1000, u64::from(permille));
        let (kernel, daemon) = (&mut self.kernel, &mut self.daemon);
        for time in [
            &mut self.submit,
            &mut self.process,
            &mut self.costs.resume,
            &mut kernel.interrupt,
            &mut kernel.switch,
            &mut kernel.catch_up,
            &mut kernel.migration,
            &mut daemon.bell,
            &mut daemon.resume,
            &mut daemon.first_look,
            &mut daemon.timer,
            &mut daemon.react,
            &mut daemon.think,
            &mut daemon.beat,
            &mut daemon.hold,
        ] {
            scaled(time);
        }
        self.further.iter_mut().for_each(scaled);
        for time in [&mut kernel.batched, &mut kernel.completion, &mut kernel.ipi] {
            time.iter_mut().for_each(scaled);
        }
        self
    }
}

/// A platform by its name: this bed, or a paper's with the parameters of `vlab
/// reproduce`.
///
/// # Errors
/// There is none.
pub(crate) fn by_name(name: &str, cpus: u32) -> anyhow::Result<Platform> {
    Ok(match name {
        // This project's bed: 2 CPUs, Linux 6.18, the freezer as host, which costs
        // nothing between slices. The costs of a request and their spread are fixed
        // by what was measured without sharing alone: 7450 and 7523 requests/s
        // (scenarios/check-freezer.toml). Their 99th percentile of 151 to 171 us would have
        // a spread of 800; nine tenths of the spells on the CPU, of a later bed, one of
        // 400 (docs/check-freezer.md). A logarithmic normal distribution has only one.
        "bed" => Platform {
            costs: Costs {
                // Alone on its CPU, which halts while it waits and is itself a VM's, a
                // request takes 50, 70 and 123 us longer than with compute beside it
                // (1 / 5263, 4855 and 3833 against 1 / 7139, 7378 and 7273 with
                // SCHED_FIFO: docs/results/co-runners.json, demo, parts-pulse).
                resume: Ns::from_us(70),
                ..Costs::FREE
            },
            smt: Smt::default(),
            kernel: KernelSettings {
                steal_accounted: false,
                // From wake-up to switch 11 to 14 us (docs/performance.md, "Where
                // the time goes"), of which `switch` is the last part.
                interrupt: Ns::from_us(12),
                // A disk's completion and another vCPU's interrupt take 2.0 and 10 us up
                // to the switch on CPUs 1.84 times as fast: medians of a reader with
                // SCHED_FIFO, on the vCPU where its completions arrive and on the other one
                // (docs/check-freezer.md).
                completion: Some(Ns(3680)),
                ipi: Some(Ns(18_400)),
                // In `further`.
                batched: Some(Ns::ZERO),
                // 138 us until a monitor runs after a gap (the same, "After a
                // gap"), less the switch to it.
                catch_up: Ns::from_us(125),
                ..KernelSettings::eevdf(cpus)
            },
            daemon: DaemonCosts::default(),
            submit: Ns::from_us(6),
            process: Ns(6900),
            process_spread: 600,
            further: Some(FURTHER),
            // Without sharing a thread waits 102.5, 104.0 and 106.9 us for a timer of
            // 100 us (docs/results/demo.json).
            timer_late: Ns::from_us(4),
            disk_latency: Ns::from_us(45),
            disk_spread: 300,
            disk_channels: 8,
            disk_rate: 1_000_000_000,
        },
        _ => {
            let paper = platforms::named(name)?;
            Platform {
                costs: paper.costs,
                smt: paper.smt,
                kernel: KernelSettings {
                    steal_accounted: paper.steal_accounted,
                    completes_where_it_runs: paper.completes_where_it_runs,
                    ..KernelSettings::scaled(cpus)
                },
                daemon: platforms::DAEMON,
                submit: paper.submit,
                process: paper.submit,
                process_spread: paper.process_spread,
                further: None,
                timer_late: Ns::ZERO,
                disk_latency: paper.disk_latency,
                disk_spread: paper.disk_spread,
                disk_channels: paper.disk_channels,
                disk_rate: paper.disk_rate,
            }
        }
    })
}
