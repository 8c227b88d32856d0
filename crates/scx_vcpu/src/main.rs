// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu`: the command line.

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use clap::Subcommand;
use scx_vcpu::config::Class;
use scx_vcpu::config::Config;
use scx_vcpu::config::ConfigError;
use scx_vcpu::control;
use scx_vcpu::look;
use scx_vcpu::lost::Lost;
use scx_vcpu::policy::Policy;
use scx_vcpu::policy::fixed;
use scx_vcpu::probe;
use scx_vcpu::probe::Unsupported;
use scx_vcpu::restore;
use scx_vcpu::roster::Change;
use scx_vcpu::run;
use scx_vcpu::run::Rules;
use scx_vcpu::table;
use units::CpuSet;
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
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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
struct RunArgs {
    /// Who decides which vCPU is next.
    #[arg(long, value_enum, default_value_t = Policy::Fixed)]
    policy: Policy,
    /// Parameters of the policy and weights of VMs: a TOML file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Policy fixed: how long a vCPU runs before the next one of its pCPU does [default: 11ms].
    #[arg(long, value_name = "TIME", value_parser = time)]
    slice: Option<Ns>,
    /// Policy fixed: so much longer is the slice of the last pCPU, in thousandths [default: 0].
    #[arg(long, value_name = "PERMILLE")]
    sweep: Option<u32>,
    /// Multiply all times of the policy by this: for a host that is emulated.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), hide = true)]
    dilation: u32,
    /// Record every on and off instant of every vCPU in this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// End after so long.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    length: Option<Duration>,
    /// How long a vCPU may wait for its turn until the kernel ends the scheduler.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = watchdog)]
    watchdog: Duration,
    /// Leave the kernel after so long in which no vCPU ran for a tenth of the time, or waited for
    /// half of it, and come back with the first that does; 0s: stay.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    rest_after: Duration,
    /// Entries of the table of vCPUs: to see what happens when it is full.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide = true)]
    table: Option<u32>,
}

/// Whether this machine can run it; changes nothing.
#[derive(Debug, clap::Args)]
struct DoctorArgs {
    /// Also whether the kernel's verifier takes the programs of each policy, and how many
    /// instructions it went through.
    #[arg(long)]
    programs: bool,
}

/// The vCPUs of the scheduler that runs, and what each has had since it was found.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// One JSON array instead of a table for people.
    #[arg(long)]
    json: bool,
}

/// The same as differences, again and again.
#[derive(Debug, clap::Args)]
struct StatsArgs {
    /// A table every second until Ctrl-C; the same as without --every.
    #[arg(long, conflicts_with = "every")]
    monitor: bool,
    /// Time between two tables.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    every: Duration,
    /// End after so many tables.
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    /// One JSON array a line instead of tables for people.
    #[arg(long)]
    json: bool,
}

/// Changes what a VM is worth while it runs, until the scheduler ends or its policy
/// file is changed.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true, args = ["weight", "class", "cap", "slice", "latency", "cpus"])]
struct SetArgs {
    /// The VM: the process id of its VMM, or a part of the VMM's command line that is not a number.
    vm: String,
    /// More is more CPU time.
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// What kind of VM it is.
    #[arg(long, value_enum)]
    class: Option<Class>,
    /// Most CPU time it may use, in per cent of one pCPU, all its vCPUs together; 0: no limit.
    #[arg(long, value_name = "PERCENT")]
    cap: Option<u32>,
    /// How long a turn of its vCPUs may last (policy vslicer: a micro slice); 0s: as the policy says.
    #[arg(long, value_name = "TIME", value_parser = time)]
    slice: Option<Ns>,
    /// How long a vCPU of it that wakes may wait for a pCPU, as long as it has credit; 0s: as the policy says.
    #[arg(long, value_name = "TIME", value_parser = time)]
    latency: Option<Ns>,
    /// Of the pCPUs that its owner allows, these only, for instance 0-3,8; any: all of those.
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<CpuSet>,
}

/// Records every on and off instant of every vCPU until Ctrl-C and schedules nothing:
/// whatever has the vCPUs keeps them.
#[derive(Debug, clap::Args)]
struct TraceArgs {
    /// Where the trace goes.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// End after so long.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    length: Option<Duration>,
}

fn time(text: &str) -> Result<Ns, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
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
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if run::WATCHDOG.contains(&time) {
        return Ok(time);
    }
    let (from, to) = (run::WATCHDOG.start(), run::WATCHDOG.end());
    Err(format!("use {from:?} to {to:?}"))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            // What an administrator has to know is a warning, and he sets no RUST_LOG.
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
                .from_env_lossy(),
        )
        .with_writer(std::io::stderr)
        .init();
    let done = match &cli.command {
        Command::Run(args) => schedule(args),
        Command::List(args) => list(args),
        Command::Stats(args) => stats(args),
        Command::Set(args) => set(args),
        Command::Trace(args) => trace(args),
        Command::Doctor(args) => doctor(args),
        Command::Restore => restore::restore().map(|restored| println!("{restored}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scx_vcpu: {error:#}");
            let code = if error.is::<fixed::FixedError>()
                || error.is::<ConfigError>()
                || error.is::<WrongPolicy>()
            {
                USAGE
            } else if error.is::<Unsupported>() || error.is::<NotHere>() {
                UNSUPPORTED
            } else {
                FAILED
            };
            ExitCode::from(code)
        }
    }
}

/// `--slice` or `--sweep` beside a policy that has its own slices.
#[derive(Debug, thiserror::Error)]
#[error("--{0} is for policy fixed; policy {1} takes its slices from --config")]
struct WrongPolicy(&'static str, &'static str);

fn schedule(args: &RunArgs) -> anyhow::Result<()> {
    let config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::default(),
    }
    .dilated(args.dilation);
    let only_fixed = |name| {
        if args.slice.is_some() {
            return Err(WrongPolicy("slice", name));
        }
        if args.sweep.is_some() {
            return Err(WrongPolicy("sweep", name));
        }
        Ok(())
    };
    let (rules, what) = match args.policy {
        Policy::Fixed => {
            let slice = args.slice.unwrap_or(Ns::from_ms(11));
            let sweep = args.sweep.unwrap_or(0);
            let slices = fixed::slices(slice, sweep, run::possible_cpus()?)?;
            (Rules::Fixed(slices), format!("fixed slices of {slice}"))
        }
        Policy::Credit1 => {
            only_fixed("credit1")?;
            let rules = config.credit1.settings();
            let what = format!("credit1, slices of {}", rules.slice);
            (Rules::Credit1(rules), what)
        }
        Policy::Credit2 => {
            only_fixed("credit2")?;
            let rules = config.credit2.settings();
            let what = format!("credit2, slices of {}", rules.slice);
            (Rules::Credit2(rules), what)
        }
        Policy::Vslicer => {
            only_fixed("vslicer")?;
            let rules = config.vslicer.settings();
            let what = format!(
                "vslicer, slices of {}, {} for class io",
                rules.slice, rules.micro
            );
            (Rules::Vslicer(rules), what)
        }
        Policy::Ische => {
            only_fixed("ische")?;
            let rules = config.ische.settings(&config.credit1);
            let what = format!(
                "ische, slices of {} and {}",
                rules.general_slice, rules.io_slice
            );
            (Rules::Ische(rules), what)
        }
        Policy::Isacs => {
            only_fixed("isacs")?;
            let rules = config.isacs.settings();
            let what = format!("isacs, slices of {}", rules.slice);
            (Rules::Isacs(rules), what)
        }
        Policy::Never => {
            only_fixed("never")?;
            (Rules::Never, "nobody is dispatched".to_owned())
        }
    };
    let options = run::Options {
        rules,
        config,
        file: args.config.clone(),
        trace: args.trace.clone(),
        length: args.length,
        watchdog: args.watchdog,
        table: args.table,
        rest_after: (!args.rest_after.is_zero()).then_some(args.rest_after),
    };
    run::run(&options, &stop_flag()?, |vms, vcpus, cores| {
        let cores = cores.map_or(String::new(), |cores| format!(", {cores}"));
        match vcpus {
            0 => println!("{what}{cores}: no vCPU yet, waits for the first; Ctrl-C ends it"),
            _ => println!("{what}{cores}: {vcpus} vCPUs of {vms} VMs; Ctrl-C ends it"),
        }
    })
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    show(&table::read()?, args.json)?;
    warn_of(&table::lost(), &Lost::default());
    Ok(())
}

/// Says on standard error, beside tables and JSON alike, what was lost, if that is more than
/// `before`.
fn warn_of(lost: &Lost, before: &Lost) {
    if lost.is_more(before) {
        eprintln!("scx_vcpu: {lost}");
    }
}

fn stats(args: &StatsArgs) -> anyhow::Result<()> {
    let stop = stop_flag()?;
    let mut before = table::read()?;
    let mut lost = Lost::default();
    let mut left = args.count;
    while left != Some(0) {
        let until = std::time::Instant::now() + args.every;
        while std::time::Instant::now() < until {
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(());
            }
            let rest = until.saturating_duration_since(std::time::Instant::now());
            std::thread::sleep(rest.min(Duration::from_millis(100)));
        }
        let now = table::read()?;
        show(&table::since(&before, &now), args.json)?;
        let so_far = table::lost();
        warn_of(&so_far, &lost);
        lost = so_far;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

fn set(args: &SetArgs) -> anyhow::Result<()> {
    let change = Change {
        vm: args.vm.clone(),
        weight: args.weight,
        class: args.class,
        cap: args.cap,
        slice: args.slice,
        latency: args.latency,
        cpus: args.cpus,
    };
    match control::ask(Path::new(control::SOCKET), &change)? {
        control::Answer::Done { vm, worth, vcpus } => {
            let cap = worth
                .cap
                .map_or("none".to_owned(), |cap| format!("{cap} %"));
            let (weight, class) = (worth.weight, worth.class);
            let time = |time: Option<Ns>| time.map_or("the policy's".to_owned(), |t| t.to_string());
            let (slice, latency) = (time(worth.slice), time(worth.latency));
            let cpus = worth.cpus.map_or("any".to_owned(), |cpus| cpus.to_string());
            println!(
                "VM {vm}, {vcpus} vCPUs: weight {weight}, class {class}, cap {cap}, slice {slice}, latency {latency}, cpus {cpus}"
            );
            Ok(())
        }
        control::Answer::Refused(why) => anyhow::bail!(why),
    }
}

fn trace(args: &TraceArgs) -> anyhow::Result<()> {
    let stop = stop_flag()?;
    look::run(&args.file, args.length, &stop, |vms, vcpus| {
        println!("nothing is scheduled here: {vcpus} vCPUs of {vms} VMs; Ctrl-C ends it");
    })
}

fn show(vcpus: &[table::Vcpu], json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(vcpus)?);
    } else {
        print!("{}", table::text(vcpus));
        if vcpus.is_empty() {
            println!("no vCPU: it waits for the first one");
        } else if vcpus.iter().all(|vcpu| vcpu.state == table::State::Rests) {
            println!("no vCPU wants CPU time: the kernel's own scheduler has them until one does");
        }
    }
    Ok(())
}

/// So many things stand in the way; each has been said.
#[derive(Debug, thiserror::Error)]
#[error("this machine cannot run it as it is ({0} of the lines above: no)")]
struct NotHere(usize);

/// Says all that stands in the way.
fn doctor(args: &DoctorArgs) -> anyhow::Result<()> {
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
        programs()?;
    }
    Ok(())
}

/// What the verifier says of each program under each policy.
fn programs() -> anyhow::Result<()> {
    let config = Config::default();
    let fixed = fixed::slices(Ns::from_ms(11), 0, run::possible_cpus()?)?;
    for (policy, rules) in [
        ("fixed", Rules::Fixed(fixed)),
        ("credit1", Rules::Credit1(config.credit1.settings())),
        ("credit2", Rules::Credit2(config.credit2.settings())),
        ("vslicer", Rules::Vslicer(config.vslicer.settings())),
        (
            "ische",
            Rules::Ische(config.ische.settings(&config.credit1)),
        ),
        ("isacs", Rules::Isacs(config.isacs.settings())),
    ] {
        for (program, instructions) in run::verified(rules)? {
            println!("verified: {policy} {program} {instructions}");
        }
    }
    Ok(())
}

fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    Ok(stop)
}
