// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu doctor`: all that stands in the way of the scheduler, and what it cannot see.

use std::path::Path;

use clap::ValueEnum;
use scx_vcpu::config::Config;
use scx_vcpu::control;
use scx_vcpu::policy::Policy;
use scx_vcpu::policy::fixed;
use scx_vcpu::probe;
use scx_vcpu::run;
use scx_vcpu::run::Rules;
use units::Ns;

use crate::cli::DoctorArgs;

/// So many things stand in the way; each has been said.
#[derive(Debug, thiserror::Error)]
#[error("this machine cannot run it as it is ({0} of the lines above: no)")]
pub(crate) struct NotHere(usize);

/// Says all that stands in the way.
///
/// # Errors
/// [`NotHere`]; a policy file that cannot be used; programs that the kernel refuses.
pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<()> {
    let config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::default(),
    };
    let checks = [
        (
            probe::files(Path::new("/")),
            "sched_ext, BTF and KVM are there, and no other sched_ext scheduler",
        ),
        (
            control::alone(Path::new(control::SOCKET)),
            "no other scx_vcpu runs",
        ),
        (
            probe::privileges(Path::new("/proc/self/status")),
            "privileges are there",
        ),
        (
            probe::core_scheduling(),
            "no thread has a core-scheduling cookie",
        ),
    ];
    let mut bad = 0;
    for (check, good) in checks {
        match check {
            Ok(()) => println!("ok: {good}"),
            Err(why) => {
                println!("no: {why}");
                bad += 1;
            }
        }
    }
    for what in probe::unseen(Path::new("/")) {
        println!("note: {what}");
    }
    anyhow::ensure!(bad == 0, NotHere(bad));
    if args.programs {
        programs(&config, args.policy)?;
    }
    Ok(())
}

/// What the verifier says of each program under each policy.
fn programs(config: &Config, only: Option<Policy>) -> anyhow::Result<()> {
    let all = Policy::value_variants().iter().copied();
    // Of the one that is broken only if it is asked for.
    let wanted = all.filter(|policy| match only {
        Some(only) => *policy == only,
        None => *policy != Policy::Never,
    });
    for policy in wanted {
        for (program, instructions) in run::verified(rules(policy, config)?)? {
            println!("verified: {policy} {program} {instructions}");
        }
    }
    Ok(())
}

fn rules(policy: Policy, config: &Config) -> anyhow::Result<Rules> {
    Ok(match policy {
        Policy::Fixed => {
            let cpus = run::possible_cpus()?;
            Rules::Fixed(fixed::slices(Ns::from_ms(11), 0, cpus)?)
        }
        Policy::Credit1 => Rules::Credit1(config.credit1.settings()),
        Policy::Credit2 => Rules::Credit2(config.credit2.settings()),
        Policy::Vslicer => Rules::Vslicer(config.vslicer.settings()),
        Policy::Ische => Rules::Ische(config.ische.settings(&config.credit1)),
        Policy::Isacs => Rules::Isacs(config.isacs.settings()),
        Policy::Never => Rules::Never,
    })
}
