// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon and its command line: configuration, socket, service manager, and
//! what people read. What it senses, decides and does lives in `guest` and
//! `policy`.

mod cli;
mod config;
mod control;
mod doctor;
mod exit;
mod lock;
mod restore;
mod run;
mod status;

use std::io::Write;
use std::process::ExitCode;

use cli::Cli;
use cli::Command;
use exit::Exit;
use exit::Failure;

fn main() -> ExitCode {
    let cli = match cmdline::parse::<Cli>() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    start_logging(&cli);
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, log_libbpf)));
    match dispatch(&cli) {
        Ok(code) => code,
        Err(failure) => {
            // Not through the log: an error that ends the program is its answer,
            // whatever --log-level says.
            eprintln!("vmigrater: {failure}");
            failure.exit.into()
        }
    }
}

fn dispatch(cli: &Cli) -> Result<ExitCode, Failure> {
    let exit = match &cli.command {
        Command::Run(args) => return run::run(&cli.global, args),
        Command::Doctor(args) => {
            let config = config::load(&args.config.overrides(true, steal_map_id()?))?;
            doctor::doctor(&cli.global, args, &config)
        }
        Command::Status(args) => status::status(&cli.global.socket, args),
        Command::Restore => restore::restore(&cli.global),
        Command::BpfSelftest => run::bpf_selftest(),
        Command::ConfigReference => print(&config::markdown()).map(|()| Exit::Ok),
    };
    exit.map(ExitCode::from)
}

/// To stderr, which systemd's journal collects with time and unit: no time stamp
/// of ours there, and the level as the prefix that journald understands.
fn start_logging(cli: &Cli) {
    let level = tracing::level_filters::LevelFilter::from(cli.global.log_level);
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        builder.without_time().init();
    } else {
        builder.init();
    }
}

/// libbpf prints on stderr by itself, dozens of lines where a kernel lacks
/// something; our own message says what matters. Nor what it says of each section of
/// an object that loads, hundreds of lines in which our own were lost.
fn log_libbpf(_level: libbpf_rs::PrintLevel, message: String) {
    for line in message.lines() {
        tracing::debug!("{line}");
    }
}

/// Test beds that start the daemon through something else cannot pass a flag.
pub(crate) fn steal_map_id() -> Result<Option<u32>, Failure> {
    const NAME: &str = "VMIGRATER_STEAL_MAP_ID";
    match std::env::var(NAME) {
        Err(std::env::VarError::NotPresent) => Ok(None),
        Ok(text) if text.parse::<u32>().is_ok_and(|id| id > 0) => Ok(text.parse().ok()),
        Ok(text) => Err(Failure::new(
            Exit::Usage,
            format!("{NAME}={text} is not the id of a BPF map"),
            "unset it, or take an id from `bpftool map`",
        )),
        Err(error) => Err(Failure::new(
            Exit::Usage,
            format!("{NAME}: {error}"),
            "unset it",
        )),
    }
}

/// To stdout; a reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Runtime,
            format!("cannot print: {error}"),
            "check where stdout goes",
        )),
        _ => Ok(()),
    }
}
