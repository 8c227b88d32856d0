// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the command line may say.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::Subcommand;
use scx_vcpu::config::Class;
use scx_vcpu::policy::Policy;
use scx_vcpu::run;
use units::CpuSet;
use units::Ns;

const AFTER_HELP: &str = "\
Try this on a KVM host, as root:
  scx_vcpu run                           every VM in turn, 11 ms each, until Ctrl-C
  scx_vcpu run --trace /tmp/t --for 10s  the same for 10 s, with every on and off instant
  scx_vcpu run --policy credit1          Xen's credit scheduler
  scx_vcpu list                          what each vCPU has had so far
  scx_vcpu stats --monitor               what happens, second by second
  scx_vcpu set guest=web --weight 512    twice the CPU time of others, from now on
  scx_vcpu trace /tmp/t --for 10s        what the kernel's own scheduler does with vCPUs

Exit codes: 0 done; 1 something failed; 2 wrong command line; 3 this machine
lacks something (the message says what).";

/// Schedules the vCPUs of this host's virtual machines.
#[derive(Debug, Parser)]
#[command(name = "scx_vcpu", version, after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    List(ListArgs),
    Stats(StatsArgs),
    Set(SetArgs),
    Trace(TraceArgs),
    Doctor(DoctorArgs),
    /// Gives back what a scheduler that was killed has left: CPUs that `set --cpus` narrowed,
    /// and vCPU threads' class. The next `run` does so too.
    Restore,
}

/// Loads a policy and keeps it until Ctrl-C; then the kernel's own scheduler
/// has the machine again, as it has after a crash or a kill. While there is no
/// vCPU that wants CPU time it is not in the kernel's way.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Who decides which vCPU is next.
    #[arg(long, value_enum, default_value_t = Policy::Fixed)]
    pub(crate) policy: Policy,
    /// Parameters of the policy and weights of VMs: a TOML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Policy fixed: how long a vCPU runs before the next one of its pCPU does [default: 11ms].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) slice: Option<Ns>,
    /// Policy fixed: so much longer is the slice of the last pCPU, in thousandths [default: 0].
    #[arg(long, value_name = "PERMILLE")]
    pub(crate) sweep: Option<u32>,
    /// Multiply all times of the policy by this: for a host that is emulated.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), hide = true)]
    pub(crate) dilation: u32,
    /// Record every on and off instant of every vCPU in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// End after so long.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) length: Option<Duration>,
    /// How long a vCPU may wait for its turn until the kernel ends the scheduler.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = watchdog)]
    pub(crate) watchdog: Duration,
    /// Leave the kernel after so long in which no vCPU ran for a tenth of the time, or waited for
    /// half of it, and come back with the first that does; 0s: stay.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) rest_after: Duration,
    /// Entries of the table of vCPUs: to see what happens when it is full.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide = true)]
    pub(crate) table: Option<u32>,
}

/// Whether this machine can run it; changes nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Also whether the kernel's verifier takes the programs of each policy, and how many
    /// instructions it went through.
    #[arg(long)]
    pub(crate) programs: bool,
    /// The programs with what this policy file says, not with the defaults: a switch that is off
    /// is code that the verifier never sees.
    #[arg(long, value_name = "FILE", requires = "programs")]
    pub(crate) config: Option<PathBuf>,
    /// The programs of this policy only.
    #[arg(long, value_enum, requires = "programs")]
    pub(crate) policy: Option<Policy>,
}

/// The vCPUs of the scheduler that runs, and what each has had since it was found.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// One JSON array instead of a table for people.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The same as differences, again and again.
#[derive(Debug, clap::Args)]
pub(crate) struct StatsArgs {
    /// A table every second until Ctrl-C; the same as without --every.
    #[arg(long, conflicts_with = "every")]
    pub(crate) monitor: bool,
    /// Time between two tables.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) every: Duration,
    /// End after so many tables.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u32>,
    /// One JSON array a line instead of tables for people.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Changes what a VM is worth while it runs, until the scheduler ends or its policy
/// file is changed.
#[derive(Debug, clap::Args)]
// Not #[group(args)]: that one has the VM among its arguments, and would ask for nothing more.
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["weight", "class", "cap", "slice", "latency", "cpus"]))]
pub(crate) struct SetArgs {
    /// The VM: the process id of its VMM, or a part of the VMM's command line that is not a number.
    pub(crate) vm: String,
    /// More is more CPU time.
    #[arg(long, value_name = "N")]
    pub(crate) weight: Option<u32>,
    /// What kind of VM it is.
    #[arg(long, value_enum)]
    pub(crate) class: Option<Class>,
    /// Most CPU time it may use, in per cent of one pCPU, all its vCPUs together; 0: no limit.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) cap: Option<u32>,
    /// How long a turn of its vCPUs may last (policy vslicer: a micro slice); 0s: as the policy says.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) slice: Option<Ns>,
    /// How long a vCPU of it that wakes may wait for a pCPU, as long as it has credit; 0s: as the policy says.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) latency: Option<Ns>,
    /// Of the pCPUs that its owner allows, these only, for instance 0-3,8; any: all of those.
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub(crate) cpus: Option<CpuSet>,
}

/// Records every on and off instant of every vCPU until Ctrl-C and schedules nothing:
/// whatever has the vCPUs keeps them.
#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// Where the trace goes.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// End after so long.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) length: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write for instance 11ms or 30s"))
}

fn time(text: &str) -> Result<Ns, String> {
    let time = duration(text)?;
    u64::try_from(time.as_nanos())
        .map(Ns)
        .map_err(|_| "too long".to_owned())
}

fn cpus(text: &str) -> Result<CpuSet, String> {
    if text == "any" {
        return Ok(CpuSet::first(CpuSet::CAPACITY));
    }
    let cpus: CpuSet = text.parse().map_err(|error| format!("{error}"))?;
    if cpus.is_empty() {
        return Err("name at least one, or any".to_owned());
    }
    Ok(cpus)
}

fn watchdog(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if run::WATCHDOG.contains(&time) {
        return Ok(time);
    }
    let (from, to) = (run::WATCHDOG.start(), run::WATCHDOG.end());
    Err(format!("use {from:?} to {to:?}"))
}
