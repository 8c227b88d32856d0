// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab freeze`: the freezer from the command line.

mod report;

use std::fs::File;
use std::io::BufWriter;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::bail;
use freezer::Event;
use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::plan::DEFAULT_SWEEP_PERMILLE;
use freezer::plan::Pair;
use freezer::trace::Span;
use freezer::trace::Trace;
use report::Report;
use rustix::process::Pid;
use rustix::process::Signal;
use units::CpuSet;
use units::Ns;

use crate::run::Interrupted;

/// In the command's environment: the id of the BPF map with the steal pages.
pub const STEAL_MAP_ID_ENV: &str = "VMIGRATER_STEAL_MAP_ID";

/// How often the end of the run is looked for. Coarse: it only delays the report.
const POLL: Duration = Duration::from_millis(10);
/// How long a command has to end after a signal before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Take this machine's CPUs away, as a host does with the vCPUs of a VM.
///
/// Each CPU runs for a slice and then stops altogether, interrupts off, for the
/// slices of the other VMs: no task, no timer, no interrupt, and whatever was
/// running stays where it is. That is what a guest sees on a shared host, at native
/// speed and without a VM. The phases of the CPUs sweep, so that every overlap
/// occurs. Needs root, an x86 kernel 6.7 or later with BTF, and a machine that
/// nobody else is using.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  vlab freeze                                 4 VMs per CPU, 11 ms each, for 5 s
  vlab freeze --vms 8 --for 30s               the same with 8 VMs
  vlab freeze --on 5ms --off 25ms             any lengths
  vlab freeze --vms 2 -- fio job.fio          for as long as fio runs
  vlab freeze --record host.csv --for 20s     write down the slices ...
  vlab freeze --replay host.csv               ... and repeat them

The command finds in its environment VMIGRATER_STEAL_MAP_ID, the id of a BPF map
with a steal page per CPU, laid out as KVM's. The machine comes back by itself at
the end, on Ctrl-C, when this program is killed, and after ten minutes at most.")]
pub struct Args {
    /// VMs that share each CPU: one slice on, this many less one off [2..=16]
    #[arg(long, value_name = "N", default_value_t = 4)]
    vms: u32,

    /// Length of a slice
    #[arg(long, value_name = "TIME", default_value = "11ms", value_parser = parse_time)]
    slice: Ns,

    /// Time on, instead of --slice [200us..=10s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "off", conflicts_with_all = ["vms", "slice"])]
    on: Option<Ns>,

    /// Time off, instead of --vms [100us..=400ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "on")]
    off: Option<Ns>,

    /// Repeat the slices of a file: CSV with the header cpu,on_ns,off_ns, or JSON
    /// with these keys
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vms", "slice", "on", "off", "cpus", "sweep"])]
    replay: Option<PathBuf>,

    /// CPUs to take away, as in 0-3,7 [default: all that are online]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,

    /// How much longer the period of the last CPU is than that of the first, in
    /// thousandths; 0 locks the phases
    #[arg(long, value_name = "PERMILLE", default_value_t = DEFAULT_SWEEP_PERMILLE)]
    sweep: u32,

    /// Stop after this time, at most 10m [default: 5s, or when COMMAND ends]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    span: Option<Ns>,

    /// All CPUs may be off at once for this long [default: 100ms, or as long as
    /// the plan asks for, at most 500ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    all_off_limit: Option<Ns>,

    /// Write every gap to this file, as CSV
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Write the slices as they were to this file, for --replay
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Run this meanwhile, and stop when it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn parse_time(text: &str) -> Result<Ns, humantime::DurationError> {
    humantime::parse_duration(text).map(Ns::from)
}

/// Runs it.
///
/// # Errors
/// If the machine cannot be frozen, a file cannot be written, or the command fails;
/// [`Interrupted`] after a signal, when all that was asked for has been written.
pub fn run(args: Args) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let span = args.span.unwrap_or(if args.command.is_empty() {
        Ns::from_secs(5)
    } else {
        freezer::MAX_RUN
    });
    let options = Options {
        all_off_limit: args.all_off_limit,
        ..Options::new(span)
    };
    // Before the start: a file that cannot be written should not cost a run.
    let log_file = args.log.as_deref().map(create).transpose()?;
    let record_file = args.record.as_deref().map(create).transpose()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot catch signals")?;
    }

    let mut freezer = Freezer::start(&plan, &options)?;
    let status = match args.command.split_first() {
        Some((program, arguments)) => run_command(program, arguments, &freezer, &interrupted)?,
        None => {
            while freezer.is_running() && !interrupted.load(Ordering::Relaxed) {
                std::thread::sleep(POLL);
            }
            None
        }
    };
    freezer.stop();

    let report = Report::new(&plan, &freezer);
    let log = freezer.log();
    if let Some(file) = log_file {
        write_log(file, &log).context("cannot write the log")?;
    }
    if let Some(file) = record_file {
        write_record(file, &log, report.span, &plan).context("cannot write the record")?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    if interrupted.load(Ordering::Relaxed) {
        return Err(Interrupted.into());
    }
    match status {
        Some(status) if !status.success() => {
            bail!("{} ended with {status}", args.command.join(" "))
        }
        _ => Ok(()),
    }
}

impl Args {
    fn plan(&self) -> anyhow::Result<Plan> {
        if let Some(path) = &self.replay {
            return Plan::read(path).with_context(|| format!("cannot replay {}", path.display()));
        }
        let cpus = match self.cpus {
            Some(cpus) => cpus,
            None => freezer::online_cpus()?,
        };
        let plan = match (self.on, self.off) {
            (Some(on), Some(off)) => Plan::fixed(on, off, self.sweep, &cpus)?,
            _ => Plan::shared_swept(self.vms, self.slice, self.sweep, &cpus)?,
        };
        Ok(plan)
    }
}

/// Starts the command and waits for its end, the freezer's, or a signal. In the
/// last two cases it is told to end, and killed if it does not: how it then ends says
/// nothing (`None`).
fn run_command(
    program: &str,
    arguments: &[String],
    freezer: &Freezer,
    interrupted: &AtomicBool,
) -> anyhow::Result<Option<ExitStatus>> {
    let mut child = Command::new(program)
        .args(arguments)
        .env(STEAL_MAP_ID_ENV, freezer.steal_map_id()?.to_string())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if interrupted.load(Ordering::Relaxed) || !freezer.is_running() {
            return end(&mut child).map(|()| None);
        }
        std::thread::sleep(POLL);
    }
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    let give_up = Instant::now() + GRACE;
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended in the meantime; `try_wait` below tells.
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    while Instant::now() < give_up {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(file))
}

fn write_log(mut file: BufWriter<File>, log: &[Event]) -> std::io::Result<()> {
    writeln!(file, "cpu,planned_out_ns,out_ns,planned_back_ns,back_ns")?;
    for event in log {
        writeln!(
            file,
            "{},{},{},{},{}",
            event.cpu, event.planned_out.0, event.out.0, event.planned_back.0, event.back.0
        )?;
    }
    file.flush()
}

fn write_record(
    mut file: BufWriter<File>,
    log: &[Event],
    span: Span,
    plan: &Plan,
) -> std::io::Result<()> {
    let trace = Trace::new(log.iter().copied(), span);
    writeln!(file, "cpu,on_ns,off_ns")?;
    for cpu in plan.cpus().iter() {
        let mut pairs = trace.pairs(cpu);
        // The end of the run cut the last gap.
        pairs.pop();
        for Pair { on, off } in pairs {
            writeln!(file, "{cpu},{},{}", on.0, off.0)?;
        }
    }
    file.flush()
}
