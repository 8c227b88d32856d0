// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab`: the command line.

use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;
use experiment::scenario::ScenarioError;
use vlab::kvm::boots::BootsArgs;
use vlab::load::compute::ComputeArgs;
use vlab::load::echo::EchoArgs;
use vlab::load::fsync::FsyncArgs;
use vlab::load::pulse::PulseArgs;
use vlab::load::stream::StreamArgs;
use vlab::load::vm::VmArgs;
use vlab::load::wake::WakeArgs;
use vlab::report::CompareArgs;
use vlab::report::ReportArgs;
use vlab::reproduce::ReproduceArgs;
use vlab::run::Interrupted;
use vlab::run::RunArgs;
use vlab::run::Unusable;
use vlab::sim::SimArgs;
use vlab::sim::sweep::MergeArgs;
use vlab::sim::sweep::SweepArgs;
use vlab::trace::TraceArgs;

/// Everything went well.
const OK: u8 = 0;
/// Something failed.
const FAILED: u8 = 1;
/// The command line or the scenario is wrong; clap uses the same.
const USAGE: u8 = 2;
/// This machine lacks what the experiment needs.
const UNSUPPORTED: u8 = 3;
/// Ended by Ctrl-C or another signal: 128 + SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

const AFTER_HELP: &str = "\
Try this, as root:
  vlab run scenarios/demo.toml --quick        does it work here? (about a minute)
  vlab run scenarios/demo.toml --json d.json  what does vmigrater gain? (under 4 minutes)
  vlab report d.json                          the same report again
  vlab report d.json --html d.html            with plots and a timeline of every move
As anybody:
  vlab reproduce --quick --json r.json        the papers' experiments, simulated
  vlab report r.json --html r.html            their figures, ours beside the published

Exit codes: 0 done; 1 something failed; 2 wrong command line or scenario;
3 this machine lacks something (the message says what); 130 interrupted.";

/// Measures what time sharing of CPUs costs I/O, and what helps.
#[derive(Debug, Parser)]
#[command(name = "vlab", version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunArgs),
    Sim(SimArgs),
    Reproduce(ReproduceArgs),
    Sweep(SweepArgs),
    Merge(MergeArgs),
    Freeze(vlab::freeze::Args),
    Report(ReportArgs),
    Compare(CompareArgs),
    Trace(TraceArgs),
    #[command(hide = true)]
    KvmBoots(BootsArgs),
    /// The part of a lab that runs on the KVM host; `vlab run` starts it.
    #[command(hide = true)]
    KvmHost,
    /// The part of a lab that runs in a guest; the guest's init starts it.
    #[command(hide = true)]
    KvmAgent,
    /// Load and attach the freezer's BPF programs, then unload them again.
    #[command(hide = true)]
    BpfSelftest,
    /// Runs one of the loads by itself.
    #[command(subcommand)]
    Load(Load),
}

#[derive(Debug, Subcommand)]
enum Load {
    Compute(ComputeArgs),
    /// The same as compute, of SCHED_EXT threads.
    #[command(hide = true)]
    Ext(ComputeArgs),
    Echo(EchoArgs),
    Fsync(FsyncArgs),
    Pulse(PulseArgs),
    Stream(StreamArgs),
    Vm(VmArgs),
    Wake(WakeArgs),
}

fn main() -> ExitCode {
    let cli = match cmdline::parse::<Cli>() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match dispatch(cli.command) {
        Ok(()) => ExitCode::from(OK),
        Err(error) => {
            eprintln!("vlab: {error:#}");
            ExitCode::from(code_of(&error))
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => print!("{}", vlab::run::run(&args)?),
        Command::Reproduce(args) => print!("{}", vlab::reproduce::run(&args)?),
        Command::Sweep(args) => print!("{}", vlab::sim::sweep::sweep(&args)?),
        Command::Merge(args) => print!("{}", vlab::sim::sweep::merge(&args)?),
        Command::Sim(args) => print!("{}", vlab::sim::run(&args)?),
        Command::Freeze(args) => vlab::freeze::run(args)?,
        Command::Report(args) => print!("{}", vlab::report::report(&args)?),
        Command::Compare(args) => print!("{}", vlab::report::compare(&args)?),
        Command::Trace(args) => print!("{}", vlab::trace::run(&args)?),
        Command::KvmBoots(args) => print!("{}", vlab::kvm::boots::run(&args)?),
        Command::KvmHost => vlab::kvm::host::run()?,
        Command::KvmAgent => vlab::kvm::agent::run()?,
        Command::BpfSelftest => vlab::selftest::run()?,
        Command::Load(Load::Compute(args)) => vlab::load::compute::run(&args)?,
        Command::Load(Load::Ext(args)) => vlab::load::compute::run_ext(&args)?,
        Command::Load(Load::Echo(args)) => vlab::load::echo::run(&args)?,
        Command::Load(Load::Fsync(args)) => vlab::load::fsync::run(&args)?,
        Command::Load(Load::Pulse(args)) => vlab::load::pulse::run(&args)?,
        Command::Load(Load::Stream(args)) => vlab::load::stream::run(&args)?,
        Command::Load(Load::Vm(args)) => vlab::load::vm::run(&args)?,
        Command::Load(Load::Wake(args)) => vlab::load::wake::run(&args)?,
    }
    Ok(())
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<Interrupted>() {
        INTERRUPTED
    } else if error.chain().any(cannot_freeze) {
        UNSUPPORTED
    } else if error
        .chain()
        .any(|cause| cause.is::<ScenarioError>() || cause.is::<Unusable>())
    {
        USAGE
    } else {
        FAILED
    }
}

/// [`freezer::StartError`] speaks for the reason that it holds, which is then no cause
/// of its own in a chain.
fn cannot_freeze(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<freezer::Unsupported>()
        || matches!(
            cause.downcast_ref(),
            Some(freezer::StartError::Unsupported(_))
        )
}
