// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab reproduce`: the papers' experiments (13.1 to 13.5), simulated, beside what
//! was published.
//!
//! `parameters.toml` has every open parameter with the rows that fixed it,
//! `published.toml` the figures; one module per paper has the set-ups, `mix` builds
//! machines, `did` says what they did, `outcome` compares. One set of parameters
//! for all configurations; misses are shown as they are. Configurations for which
//! no figure is known are predicted all the same.

mod did;
mod isacs;
mod ische;
mod jupiter;
mod jupiter_more;
mod mix;
mod outcome;
mod parameters;
mod tuning;
mod vmigrater;
mod vmigrater_more;
mod vsmtio;
mod vsmtio_more;

use std::time::Instant;

use clap::Args;
use rayon::prelude::*;
use units::Ns;

use self::mix::Effort;
use self::outcome::Outcome;
use self::outcome::Tally;
use self::parameters::Parameters;
use crate::run::Unusable;

/// Simulates the papers' experiments and compares.
///
/// A `*` marks a published figure that fixed a parameter: its error says nothing.
#[derive(Args, Clone, Debug)]
pub struct ReproduceArgs {
    /// Only this one, for instance fig9; a prefix will do. Without: all.
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: Option<String>,
    /// One short round.
    #[arg(long)]
    pub quick: bool,
    /// Names of the experiments, nothing else.
    #[arg(long)]
    pub list: bool,
    /// Another value for an open parameter: how much does it matter?
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Shows the parameters, with the rows that fixed them.
    #[arg(long)]
    pub parameters: bool,
}

type Simulate = fn(&Parameters, Effort) -> anyhow::Result<Outcome>;

/// Name, what it shows, how it is simulated; in the order of the sources.
const EXPERIMENTS: &[(&str, &str, Simulate)] = &[
    (
        "fig2",
        "I/O inactivity, wasted waits, unfairness (13.1)",
        vmigrater_more::fig2,
    ),
    (
        "fig8",
        "vMigrater, micro-benchmarks (13.1)",
        vmigrater::fig8,
    ),
    (
        "fig9",
        "vMigrater, seven applications (13.1)",
        vmigrater::fig9,
    ),
    ("fig10", "vMigrater in one VM only (13.1)", vmigrater::fig10),
    (
        "table2",
        "I/O inactivity time, 4 VMs, s (13.1)",
        vmigrater::table2,
    ),
    ("table3", "migrations, 2 VMs (13.1)", vmigrater::table3),
    (
        "fig11",
        "response times, 2 VMs (13.1)",
        vmigrater_more::fig11,
    ),
    ("fig12", "compute co-runners (13.1)", vmigrater_more::fig12),
    (
        "fig13",
        "throughput against clients (13.1)",
        vmigrater_more::fig13,
    ),
    (
        "fig14",
        "clients that come later (13.1)",
        vmigrater_more::fig14,
    ),
    (
        "fig15",
        "fairness of the I/O scheduler (13.1)",
        vmigrater_more::fig15,
    ),
    (
        "isacs-latency",
        "ping, tables 3 and 4 (13.2)",
        isacs::latency,
    ),
    (
        "isacs-network",
        "Iperf, tables 5 and 6, GB in 60 s (13.2)",
        isacs::network,
    ),
    ("isacs-disk", "dd, tables 7 and 8, MB/s (13.2)", isacs::disk),
    ("isacs-cpu", "Sysbench, figures 13 to 15 (13.2)", isacs::cpu),
    ("ische", "dd and ping beside CPU loops (13.3)", ische::ische),
    (
        "vsmtio-smt",
        "hyperthreads that disturb each other (13.4)",
        vsmtio::smt,
    ),
    ("vsmtio-motivation", "table 3.1 (13.4)", vsmtio::motivation),
    (
        "vsmtio-setting1",
        "one vCPU per hyperthread (13.4)",
        vsmtio::setting_1,
    ),
    (
        "vsmtio-setting2",
        "two vCPUs per hyperthread (13.4)",
        vsmtio::setting_2,
    ),
    (
        "vsmtio-timeout",
        "polling timeouts, figure 3.1 (13.4)",
        vsmtio_more::timeout,
    ),
    (
        "vsmtio-parts",
        "its parts, figure 3.6 (13.4)",
        vsmtio_more::parts,
    ),
    (
        "vsmtio-mix",
        "mixes, figures 3.8 and 3.9 (13.4)",
        vsmtio_more::mixes,
    ),
    (
        "jupiter-motivation",
        "figures 4.1, 4.3, 4.4 (13.5)",
        jupiter::motivation,
    ),
    (
        "jupiter-homogeneous",
        "four VMs alike, figures 4.5, 4.13 (13.5)",
        jupiter::homogeneous,
    ),
    (
        "jupiter-heterogeneous",
        "one of four synchronises, 4.6 (13.5)",
        jupiter_more::heterogeneous,
    ),
    (
        "jupiter-pairs",
        "weighted speedup, figures 4.9, 4.10 (13.5)",
        jupiter::pairs,
    ),
    (
        "jupiter-size",
        "vCPUs per VM, figures 4.11, 4.12 (13.5)",
        jupiter_more::size,
    ),
    (
        "jupiter-adversary",
        "load that turns, figure 4.14 (13.5)",
        jupiter_more::adversary,
    ),
];

/// Simulates and returns the comparison as text.
///
/// # Errors
/// There is no such experiment or parameter, or the embedded files are broken.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<String> {
    let parameters = Parameters::load(&args.set)?;
    if args.list {
        let line = |(name, title, _): &(&str, &str, Simulate)| format!("{name:<22} {title}\n");
        return Ok(EXPERIMENTS.iter().map(line).collect());
    }
    if args.parameters {
        return Ok(described(&parameters));
    }
    let wanted = args.experiment.as_deref().unwrap_or("");
    let exact = EXPERIMENTS.iter().any(|(name, ..)| *name == wanted);
    let chosen: Vec<&(&str, &str, Simulate)> = EXPERIMENTS
        .iter()
        .filter(|(name, ..)| {
            if exact {
                *name == wanted
            } else {
                name.starts_with(wanted)
            }
        })
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, ..)| *name).collect();
        return Err(Unusable(format!(
            "there is no experiment \"{wanted}\"; there are {}",
            names.join(", ")
        ))
        .into());
    }
    let effort = if args.quick {
        Effort {
            warmup: Ns::from_ms(600),
            window: Ns::from_ms(1200),
            seeds: 1,
        }
    } else {
        Effort {
            warmup: Ns::from_secs(1),
            window: Ns::from_secs(4),
            seeds: 3,
        }
    };
    let outcomes: Vec<Outcome> = chosen
        .par_iter()
        .map(|(name, _, simulate)| {
            let began = Instant::now();
            let mut effort = effort;
            if name.starts_with("jupiter") || name.starts_with("vsmtio") {
                // Loops of 100 ms that change a tenth at a time.
                let loops = if name.starts_with("jupiter") { 10 } else { 4 };
                effort.warmup = Ns::from_secs(loops);
            }
            let outcome = simulate(&parameters, effort);
            tracing::info!(name, took = ?began.elapsed(), "simulated");
            outcome
        })
        .collect::<anyhow::Result<_>>()?;
    let published = outcome::published()?;
    let mut tally = Tally::default();
    let mut text = String::new();
    for ((name, title, _), outcome) in chosen.iter().zip(&outcomes) {
        text.push_str(&tally.table(name, title, outcome, &published, &parameters));
    }
    text.push_str(&tally.summary());
    Ok(text)
}

fn described(parameters: &Parameters) -> String {
    let line = |p: &parameters::Parameter| {
        let fixed_by = if p.fixed_by.is_empty() {
            "a choice".to_owned()
        } else {
            format!("fixed by {}", p.fixed_by.join(", "))
        };
        format!("{:<28} {:>9}  {fixed_by}; {}\n", p.name, p.value, p.why)
    };
    parameters.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fixed a parameter is a published figure of an experiment that exists.
    #[test]
    fn parameters_name_rows_that_exist() {
        let published = outcome::published().unwrap();
        for name in published.keys() {
            assert!(EXPERIMENTS.iter().any(|(n, ..)| n == name), "{name}");
        }
        for parameter in Parameters::load(&[]).unwrap().iter() {
            assert!(!parameter.why.is_empty(), "{}", parameter.name);
            for row in &parameter.fixed_by {
                let (experiment, name) = row.split_once('/').unwrap();
                assert!(published[experiment].contains_key(name), "{row}");
            }
        }
    }

    #[test]
    fn bad_overrides_say_what_is_right() {
        let error = |text: &str| {
            Parameters::load(&[text.to_owned()])
                .unwrap_err()
                .to_string()
        };
        assert!(error("nothing=1").contains("there is no parameter"));
        assert!(error("kvm.switch_us=fast").contains("name=number"));
        assert!(error("kvm.switch_us").contains("name=number"));
    }
}
