// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What schedules the VMs: a policy of `scx_vcpu`, or the kernel's own scheduler, which
//! `scx_vcpu trace` looks at.

use std::fs;
use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use experiment::scenario::HostPolicy;
use rustix::process::Signal;
use units::CpuSet;
use units::Ns;
use units::Time;

use super::super::protocol::Setup;
use crate::child::ends_with_parent;

/// How long the trace may be behind. Its writer needs a tenth of a second on a real host; on
/// an emulated one it shares its CPU with all that computes.
const TRACE_PATIENCE: Duration = Duration::from_secs(30);

/// How long a policy may take to unload: programs are detached in the kernel's own time.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// Where the kernel's own scheduler has its parameters.
const DEBUG: &str = "/sys/kernel/debug";
const BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";

/// A scheduler that runs as a child, or the child that looks at the kernel's.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) policy: HostPolicy,
    /// What it said when it was ready.
    pub(super) said: String,
    child: Child,
    trace: PathBuf,
    errors: PathBuf,
    _slice: Option<BaseSlice>,
}

impl Scheduler {
    /// Returns when it schedules. Guests run on `cpus`.
    ///
    /// # Errors
    /// It does not; with what it said.
    pub(super) fn start(setup: &Setup, cpus: CpuSet, policy: HostPolicy) -> anyhow::Result<Self> {
        let dir = PathBuf::from(&setup.dir);
        let (trace, errors) = (dir.join("trace"), dir.join("scx_vcpu"));
        let own = policy == HostPolicy::Eevdf;
        let slice = own.then(|| BaseSlice::dilate(setup.dilation)).transpose()?;
        let mut command = Command::new(&setup.scx_vcpu);
        command
            .args(arguments(setup, cpus, policy, &dir)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        ends_with_parent(&mut command, Signal::TERM);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", setup.scx_vcpu))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            // It prints one line when it schedules, or ends.
            BufReader::new(stdout).read_line(&mut said)?;
        }
        let mut scheduler = Self {
            policy,
            said: said.trim().to_owned(),
            child,
            trace,
            errors,
            _slice: None,
        };
        if scheduler.said.is_empty() {
            let _ = scheduler.child.wait();
        }
        scheduler.alive()?;
        if let Some(slice) = slice {
            scheduler.said = format!("the kernel's own scheduler, {slice}; {}", scheduler.said);
            scheduler._slice = Some(slice);
        }
        Ok(scheduler)
    }

    /// Fails if it has ended.
    pub(super) fn alive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let errors = fs::read_to_string(&self.errors).unwrap_or_default();
            anyhow::bail!("the host scheduler ended ({status}): {}", errors.trim());
        }
        Ok(())
    }

    /// Ends it and waits until the kernel's own scheduler has the machine.
    ///
    /// # Errors
    /// It does not end, or not well: the machine is not to be trusted any more.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        let status = self.end_within(END_PATIENCE);
        let status = status.with_context(|| {
            let (policy, seconds) = (self.policy, END_PATIENCE.as_secs());
            format!("policy {policy} does not unload within {seconds} s")
        })?;
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        anyhow::ensure!(
            status.success(),
            "policy {} ended badly ({status}): {}",
            self.policy,
            errors.trim()
        );
        Ok(())
    }

    fn end_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let give_up = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < give_up => {}
                Ok(None) | Err(_) => return None,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The trace, complete up to an instant.
    ///
    /// # Errors
    /// It ends before that: half a trace would make everybody wait less than they did.
    pub(super) fn events_until(
        &mut self,
        until: Time,
    ) -> anyhow::Result<Vec<scx_vcpu::trace::Event>> {
        let give_up = Instant::now() + TRACE_PATIENCE;
        loop {
            let events = scx_vcpu::trace::read(File::open(&self.trace)?)?;
            let last = events.last().map(|event| event.at);
            if last.is_some_and(|last| last > until) {
                return Ok(events);
            }
            anyhow::ensure!(
                Instant::now() < give_up,
                "the host's trace ends {} before the window does, {} s after that",
                last.map_or(Ns::ZERO, |last| until.since(last)),
                TRACE_PATIENCE.as_secs()
            );
            self.alive()?;
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None))
            && self.end_within(Duration::from_secs(5)).is_none()
        {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The words after `scx_vcpu`. Writes the policy's file to `dir` if it has one.
fn arguments(
    setup: &Setup,
    cpus: CpuSet,
    policy: HostPolicy,
    dir: &Path,
) -> anyhow::Result<Vec<String>> {
    let trace = dir.join("trace").display().to_string();
    if policy == HostPolicy::Eevdf {
        return Ok(vec!["trace".to_owned(), trace]);
    }
    let sharing = &setup.scenario.sharing;
    let mut words = vec!["run".to_owned(), format!("--policy={policy}")];
    if policy == HostPolicy::Fixed {
        // Dilated already.
        words.push(format!("--slice={}ns", sharing.slice.0));
        words.push(format!("--sweep={}", sharing.sweep_permille));
    } else {
        words.push(format!("--dilation={}", setup.dilation));
    }
    if let Some(text) = &setup.scenario.host_config {
        let file = dir.join("policy.toml");
        fs::write(&file, for_guests(text, cpus)?)?;
        words.push(format!("--config={}", file.display()));
    }
    words.push(format!("--trace={trace}"));
    Ok(words)
}

/// A policy's file whose cores (iSche's) are those that guests have, unless it names others: an
/// emulated host has one more.
fn for_guests(text: &str, cpus: CpuSet) -> anyhow::Result<String> {
    let mut file: toml::Table = text.parse()?;
    if let Some(toml::Value::Table(ische)) = file.get_mut("ische") {
        ische
            .entry("cpus")
            .or_insert_with(|| toml::Value::String(cpus.to_string()));
    }
    Ok(file.to_string())
}

/// The kernel's own slice, as much longer as everything else is on an emulated host.
/// Its tick is not.
#[derive(Debug)]
struct BaseSlice {
    before: Ns,
    by: u32,
}

impl BaseSlice {
    fn dilate(by: u32) -> anyhow::Result<Self> {
        if by > 1 && !Path::new(BASE_SLICE).exists() {
            let mounted = Command::new("mount")
                .args(["-t", "debugfs", "debugfs", DEBUG])
                .output();
            tracing::debug!(?mounted, "debugfs");
        }
        let text = fs::read_to_string(BASE_SLICE).unwrap_or_default();
        let before = text.trim().parse().map(Ns);
        let slice = match before {
            Ok(before) => Self { before, by },
            // Without a change nothing has to be known.
            Err(_) if by == 1 => Self {
                before: Ns::ZERO,
                by,
            },
            Err(_) => {
                anyhow::bail!("cannot read {BASE_SLICE}: the kernel's own slices cannot be dilated")
            }
        };
        slice.set(slice.before * u64::from(by))?;
        Ok(slice)
    }

    fn set(&self, slice: Ns) -> anyhow::Result<()> {
        if self.by == 1 {
            return Ok(());
        }
        fs::write(BASE_SLICE, slice.0.to_string())
            .with_context(|| format!("cannot write {slice} to {BASE_SLICE}"))
    }
}

impl Drop for BaseSlice {
    fn drop(&mut self) {
        let _ = self.set(self.before);
    }
}

impl std::fmt::Display for BaseSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "base slice {} x {}", self.before, self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isches_cores_are_those_of_the_guests() {
        let cpus: CpuSet = "1-2".parse().unwrap();
        let text =
            "[ische]\ngeneral_cores = 1\n\n[[vm]]\nmatch = \"-name vlab0,\"\nclass = \"io\"\n";
        let file = for_guests(text, cpus).unwrap();
        let config = scx_vcpu::config::Config::parse(&file, "test").unwrap();
        assert_eq!(config.ische.cpus, Some(cpus));
        assert_eq!(config.vm[0].pattern, "-name vlab0,");
        let own = for_guests("[ische]\ncpus = \"0\"\n", cpus).unwrap();
        let config = scx_vcpu::config::Config::parse(&own, "test").unwrap();
        assert_eq!(config.ische.cpus, Some("0".parse().unwrap()));
    }
}
