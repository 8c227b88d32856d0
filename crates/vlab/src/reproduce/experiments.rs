// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments, in the order of the sources.

use super::isacs;
use super::ische;
use super::jupiter;
use super::jupiter_latency;
use super::jupiter_more;
use super::mix::Effort;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::vmigrater;
use super::vmigrater_more;
use super::vsmtio;
use super::vsmtio_more;

/// How an experiment is simulated.
type Simulate = fn(&Parameters, Effort<'_>) -> anyhow::Result<Outcome>;

/// One experiment.
#[derive(Debug)]
pub(super) struct Experiment {
    pub(super) name: &'static str,
    /// What it shows, and the section with its set-up.
    pub(super) title: &'static str,
    pub(super) simulate: Simulate,
}

const fn new(name: &'static str, title: &'static str, simulate: Simulate) -> Experiment {
    Experiment {
        name,
        title,
        simulate,
    }
}

/// All of them.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    new(
        "fig2",
        "I/O inactivity, wasted waits, unfairness (13.1)",
        vmigrater_more::fig2,
    ),
    new(
        "fig8",
        "vMigrater, micro-benchmarks (13.1)",
        vmigrater::fig8,
    ),
    new(
        "fig9",
        "vMigrater, seven applications (13.1)",
        vmigrater::fig9,
    ),
    new("fig10", "vMigrater in one VM only (13.1)", vmigrater::fig10),
    new(
        "table2",
        "I/O inactivity time, 4 VMs, s (13.1)",
        vmigrater::table2,
    ),
    new("table3", "migrations, 2 VMs (13.1)", vmigrater::table3),
    new(
        "fig11",
        "response times, 2 VMs (13.1)",
        vmigrater_more::fig11,
    ),
    new("fig12", "compute co-runners (13.1)", vmigrater_more::fig12),
    new(
        "fig13",
        "throughput against clients (13.1)",
        vmigrater_more::fig13,
    ),
    new(
        "fig14",
        "clients that come later (13.1)",
        vmigrater_more::fig14,
    ),
    new(
        "fig15",
        "fairness of the I/O scheduler (13.1)",
        vmigrater_more::fig15,
    ),
    new(
        "isacs-latency",
        "ping, tables 3 and 4 (13.2)",
        isacs::latency,
    ),
    new(
        "isacs-network",
        "Iperf, tables 5 and 6, GB in 60 s (13.2)",
        isacs::network,
    ),
    new("isacs-disk", "dd, tables 7 and 8, MB/s (13.2)", isacs::disk),
    new("isacs-cpu", "Sysbench, figures 13 to 15 (13.2)", isacs::cpu),
    new(
        "ische",
        "dd, netperf and ping beside CPU loops (13.3)",
        ische::ische,
    ),
    new(
        "vsmtio-smt",
        "hyperthreads that disturb each other (13.4)",
        vsmtio::smt,
    ),
    new("vsmtio-motivation", "table 3.1 (13.4)", vsmtio::motivation),
    new(
        "vsmtio-setting1",
        "one vCPU per hyperthread (13.4)",
        vsmtio::setting_1,
    ),
    new(
        "vsmtio-setting2",
        "two vCPUs per hyperthread (13.4)",
        vsmtio::setting_2,
    ),
    new(
        "vsmtio-timeout",
        "polling timeouts, figure 3.1 (13.4)",
        vsmtio_more::timeout,
    ),
    new(
        "vsmtio-parts",
        "its parts, figure 3.6 (13.4)",
        vsmtio_more::parts,
    ),
    new(
        "vsmtio-mix",
        "mixes, figures 3.8 and 3.9 (13.4)",
        vsmtio_more::mixes,
    ),
    new(
        "jupiter-motivation",
        "figures 4.1, 4.3, 4.4 (13.5)",
        jupiter::motivation,
    ),
    new(
        "jupiter-homogeneous",
        "four VMs alike, figures 4.5, 4.13 (13.5)",
        jupiter::homogeneous,
    ),
    new(
        "jupiter-heterogeneous",
        "one of four synchronises, 4.6 (13.5)",
        jupiter_more::heterogeneous,
    ),
    new(
        "jupiter-latency",
        "DBT1 or MongoDB beside three PgSql (13.5)",
        jupiter_latency::latency,
    ),
    new(
        "jupiter-pairs",
        "weighted speedup, figures 4.9, 4.10 (13.5)",
        jupiter::pairs,
    ),
    new(
        "jupiter-size",
        "vCPUs per VM, figures 4.11, 4.12 (13.5)",
        jupiter_more::size,
    ),
    new(
        "jupiter-adversary",
        "load that turns, figure 4.14 (13.5)",
        jupiter_more::adversary,
    ),
];
