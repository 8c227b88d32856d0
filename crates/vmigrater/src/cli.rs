// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: names and help texts, nothing that touches the system.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use guest::settings::ModeChoice;
use guest::settings::SourceChoice;
use tracing::level_filters::LevelFilter;

use crate::config::Overrides;
use crate::config::Part;
use crate::config::Profile;
use crate::exit::Exit;

/// Keeps I/O-bound tasks of a virtual machine on the vCPUs that run.
#[derive(Debug, Parser)]
#[command(version, after_help = Exit::help())]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    args_override_self = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// The daemon's UNIX socket.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/vmigrater/socket"
    )]
    pub(crate) socket: PathBuf,
    /// The daemon's journal: what to restore, written before the first change.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/vmigrater/journal"
    )]
    pub(crate) journal: PathBuf,
    /// The file that keeps a second daemon out; one per machine, because two
    /// daemons would take each other's moves for the user's (test beds only).
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/vmigrater/lock",
        hide = true
    )]
    pub(crate) lock: PathBuf,
    /// Log only what is at least this important, on stderr.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LogLevel,
}

/// The levels' meanings are those of `docs/configuration.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing.
    Off,
    /// It will exit, or what the user asked for failed.
    Error,
    /// Check this before trusting the results.
    Warn,
    /// Rare changes of state.
    Info,
    /// What led to a decision.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground; SIGTERM or SIGINT restores every task and ends it.
    Run(RunArgs),
    /// Say what this machine offers, what is missing, and whether there is anything to gain.
    Doctor(DoctorArgs),
    /// Show what the running daemon does and what it gains.
    Status(StatusArgs),
    /// Undo what a killed daemon left behind; refuses while one runs.
    Restore,
    /// Load, attach and run every BPF program, then unload them again; a line for each.
    #[command(hide = true)]
    BpfSelftest,
    /// Print docs/configuration.md.
    #[command(hide = true)]
    ConfigReference,
}

/// Where the settings come from, in `run` and `doctor`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Configuration file [default: /etc/vmigrater/config.toml if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Named set of values underneath the file.
    #[arg(long, value_enum, value_name = "NAME")]
    profile: Option<Profile>,
    /// Where knowledge of the vCPUs' slices comes from: auto, steal-page or heartbeat.
    #[arg(long, value_name = "SOURCE", value_parser = source)]
    source: Option<SourceChoice>,
    /// The id of a BPF map that stands in for KVM's steal pages (test beds only) [env: VMIGRATER_STEAL_MAP_ID].
    #[arg(long, value_name = "ID", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    steal_map_id: Option<u32>,
}

impl ConfigArgs {
    /// As the configuration wants them; `env_steal_map_id` is the environment's word.
    pub(crate) fn overrides(&self, dry_run: bool, env_steal_map_id: Option<u32>) -> Overrides {
        Overrides {
            file: self.config.clone(),
            profile: self.profile,
            source: self.source,
            steal_map_id: self.steal_map_id.or(env_steal_map_id),
            dry_run,
            ..Overrides::default()
        }
    }
}

impl RunArgs {
    /// As the configuration wants them.
    pub(crate) fn overrides(&self, env_steal_map_id: Option<u32>) -> Overrides {
        Overrides {
            mode: self.mode,
            without: self.without.clone(),
            dilation: self.dilation,
            ..self.config.overrides(self.dry_run, env_steal_map_id)
        }
    }
}

/// `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// What is done for I/O-bound tasks: vmigrater or xballoon.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<ModeChoice>,
    /// Leave out parts of it, separated by commas.
    #[arg(long, value_enum, value_name = "PARTS", value_delimiter = ',')]
    pub(crate) without: Vec<Part>,
    /// Decide and record, but move nothing; `status` says what it would have saved.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Multiply every duration: this machine is emulated and so much slower than a real one (labs only).
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) dilation: Option<u32>,
    /// Print the effective configuration and exit.
    #[arg(long)]
    pub(crate) show_config: bool,
}

/// `doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// How long to look, such as 3s or 1m.
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = look)]
    pub(crate) look: Duration,
    /// For programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Read /proc and /sys under this directory (tests); takes no live look.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) root: Option<PathBuf>,
}

/// `status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// For programs: one document, guest::report::Report.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show it again every so often, such as 2s, until interrupted.
    #[arg(long, value_name = "DURATION", value_parser = look, num_args = 0..=1, default_missing_value = "2s")]
    pub(crate) watch: Option<Duration>,
}

fn source(word: &str) -> Result<SourceChoice, String> {
    let words = &crate::config::SOURCES;
    words.value(word).ok_or_else(|| expected(&words.0))
}

fn mode(word: &str) -> Result<ModeChoice, String> {
    let words = &crate::config::MODES;
    words.value(word).ok_or_else(|| expected(&words.0))
}

fn expected(words: &[&str]) -> String {
    format!("expected {}", words.join(" or "))
}

fn look(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    humantime::parse_duration(text)
        .ok()
        .filter(|duration| range.contains(duration))
        .ok_or_else(|| "expected a duration from 100ms to 1h".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
