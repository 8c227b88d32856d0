// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu`: the command line.

mod cli;
mod doctor;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use scx_vcpu::config::Config;
use scx_vcpu::config::ConfigError;
use scx_vcpu::control;
use scx_vcpu::look;
use scx_vcpu::lost::Lost;
use scx_vcpu::policy::Policy;
use scx_vcpu::policy::fixed;
use scx_vcpu::probe::Unsupported;
use scx_vcpu::restore;
use scx_vcpu::roster::Change;
use scx_vcpu::run;
use scx_vcpu::run::Rules;
use scx_vcpu::table;
use units::Ns;

use crate::cli::Cli;
use crate::cli::Command;
use crate::cli::ListArgs;
use crate::cli::RunArgs;
use crate::cli::SetArgs;
use crate::cli::StatsArgs;
use crate::cli::TraceArgs;
use crate::doctor::NotHere;
use crate::doctor::doctor;

/// Something failed.
const FAILED: u8 = 1;
/// The command line is wrong; clap uses the same.
const USAGE: u8 = 2;
/// This machine lacks what the scheduler needs, or has another one.
const UNSUPPORTED: u8 = 3;

fn main() -> ExitCode {
    let cli = match cmdline::parse::<Cli>() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
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

fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    Ok(stop)
}
