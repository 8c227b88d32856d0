// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu`: the command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Parser;
use clap::Subcommand;
use scx_vcpu::policy::Policy;
use scx_vcpu::policy::fixed;
use scx_vcpu::probe::Unsupported;
use scx_vcpu::run;
use units::Ns;

/// Something failed.
const FAILED: u8 = 1;
/// The command line is wrong; clap uses the same.
const USAGE: u8 = 2;
/// This machine lacks what the scheduler needs, or has another one.
const UNSUPPORTED: u8 = 3;

const AFTER_HELP: &str = "\
Try this on a KVM host, as root:
  scx_vcpu run                           every VM in turn, 11 ms each, until Ctrl-C
  scx_vcpu run --trace /tmp/t --for 10s  the same for 10 s, with every on and off instant

Exit codes: 0 done; 1 something failed; 2 wrong command line; 3 this machine
lacks something (the message says what).";

/// Schedules the vCPUs of this host's virtual machines.
#[derive(Debug, Parser)]
#[command(name = "scx_vcpu", version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunArgs),
}

/// Loads a policy and keeps it until Ctrl-C; then the kernel's own scheduler
/// has the machine again, as it has after a crash or a kill.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Who decides which vCPU is next.
    #[arg(long, value_enum, default_value_t = Policy::Fixed)]
    policy: Policy,
    /// How long a vCPU runs before the next one of its pCPU does.
    #[arg(long, value_name = "TIME", default_value = "11ms", value_parser = time)]
    slice: Ns,
    /// So much longer is the slice of the last pCPU, in thousandths.
    #[arg(long, value_name = "PERMILLE", default_value_t = 0)]
    sweep: u32,
    /// Record every on and off instant of every vCPU in this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// End after so long.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    length: Option<std::time::Duration>,
}

fn time(text: &str) -> Result<Ns, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(time.as_nanos())
        .map(Ns)
        .map_err(|_| "too long".to_owned())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let Command::Run(args) = cli.command;
    match schedule(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scx_vcpu: {error:#}");
            let code = if error.is::<fixed::FixedError>() {
                USAGE
            } else if error.is::<Unsupported>() {
                UNSUPPORTED
            } else {
                FAILED
            };
            ExitCode::from(code)
        }
    }
}

fn schedule(args: &RunArgs) -> anyhow::Result<()> {
    let Policy::Fixed = args.policy;
    let slices = fixed::slices(args.slice, args.sweep, run::possible_cpus()?)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let options = run::Options {
        slices,
        trace: args.trace.clone(),
        length: args.length,
    };
    run::run(&options, &stop, |vms, vcpus| {
        println!(
            "fixed slices of {}: {vcpus} vCPUs of {vms} VMs; Ctrl-C ends it",
            args.slice
        );
    })
}
