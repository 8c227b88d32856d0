// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a run takes place.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use experiment::result::Disk;
use experiment::result::Environment;
use serde::Deserialize;
use serde::Serialize;
use sha2::Digest as _;
use sha2::Sha256;

use super::disk::DiskUnder;

/// What of it differs between a guest and the machine that started it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Inside {
    /// `uname -r`.
    pub(crate) kernel: String,
    /// As [`Environment::preemption`].
    pub(crate) preemption: String,
    /// The disk that is read, if there is one.
    pub(crate) disk: Option<Disk>,
}

/// Describes the guest that this program runs in; `disk` is a device without a file
/// system.
pub(crate) fn inside(disk: &Path) -> Inside {
    let (kernel, preemption) = kernel();
    Inside {
        kernel,
        preemption,
        disk: DiskUnder::raw(disk).map(|under| under.disk),
    }
}

/// The kernel's release and its preemption mode.
fn kernel() -> (String, String) {
    let uname = rustix::system::uname();
    let mode = preemption(
        &uname.version().to_string_lossy(),
        &fs::read_to_string("/sys/kernel/debug/sched/preempt").unwrap_or_default(),
    );
    (uname.release().to_string_lossy().into_owned(), mode)
}

/// Describes this machine; `programs` of ours take part, beside this one. What cannot be
/// found out stays empty: a result without the CPU's name is still a result.
pub(super) fn describe(disk: Option<Disk>, programs: &[&Path], with_fio: bool) -> Environment {
    let (kernel, preemption) = kernel();
    let mut tools = BTreeMap::new();
    if with_fio {
        tools.extend(version_of("fio".as_ref(), "fio-").map(|version| ("fio".to_owned(), version)));
    }
    let own = std::env::current_exe().unwrap_or_default();
    let own = build(env!("CARGO_PKG_VERSION"), &own);
    tools.insert("vlab".to_owned(), own);
    tools.extend(programs.iter().filter_map(|program| {
        let name = program.file_name()?.to_str()?;
        let version = version_of(program.as_os_str(), &format!("{name} "))?;
        Some((name.to_owned(), build(&version, program)))
    }));
    Environment {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        kernel,
        preemption,
        cpu_model: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        cpus: freezer::online_cpus().map_or(0, |cpus| cpus.len()),
        load_average: load_average(&fs::read_to_string("/proc/loadavg").unwrap_or_default()),
        // Nothing is emulated here.
        dilation: Some(1.0),
        hypervisor: hypervisor(
            &fs::read_to_string(
                "/sys/devices/system/clocksource/clocksource0/available_clocksource",
            )
            .unwrap_or_default(),
            &fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
        ),
        disk,
        tools,
    }
}

/// A hypervisor offers its clock to its guests, which names it; one that does not
/// still sets the CPU's flag.
fn hypervisor(clocks: &str, cpuinfo: &str) -> String {
    let named = [("kvm-clock", "KVM"), ("hyperv", "Hyper-V"), ("xen", "Xen")];
    let by_clock = named.iter().find(|(clock, _)| clocks.contains(clock));
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let is_guest = flags.is_some_and(|flags| flags.split_whitespace().any(|f| f == "hypervisor"));
    match by_clock {
        Some((_, name)) => (*name).to_owned(),
        None if is_guest => "some hypervisor".to_owned(),
        None => String::new(),
    }
}

/// The mode in parentheses of the scheduler's debug file, else the word of
/// `uname -v`.
fn preemption(version: &str, debug: &str) -> String {
    let build = version
        .split_whitespace()
        .find(|word| word.starts_with("PREEMPT"))
        .unwrap_or("no PREEMPT");
    let mode = debug
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    mode.map_or(build.to_owned(), |(mode, _)| format!("{build}, {mode}"))
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.and_then(|rest| rest.split_once(':'))
        .map_or(String::new(), |(_, name)| name.trim().to_owned())
}

fn load_average(loadavg: &str) -> f64 {
    loadavg
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// The version of a program of ours with what `sha256sum` says first of its file: versions
/// are rare, and results of several days are put together. A commit would say less, of a tree
/// with changes, and every commit would build all programs again.
fn build(version: &str, program: &Path) -> String {
    fs::read(program).map_or(version.to_owned(), |file| {
        let start: String = Sha256::digest(&file)
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{version} (sha256 {start})")
    })
}

fn version_of(program: &std::ffi::OsStr, prefix: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().trim_start_matches(prefix).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_told_by_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        // What is unknown is left out.
        assert_eq!(build("0.1.0", &program), "0.1.0");
        fs::write(&program, "abc").unwrap();
        // FIPS 180-4, its own example.
        assert_eq!(build("0.1.0", &program), "0.1.0 (sha256 ba7816bf)");
    }

    #[test]
    fn the_preemption_mode_comes_from_the_debug_file_if_it_is_there() {
        let version = "#1 SMP PREEMPT_DYNAMIC Mon Jan 1";
        assert_eq!(
            preemption(version, "none (voluntary) full\n"),
            "PREEMPT_DYNAMIC, voluntary"
        );
        assert_eq!(preemption(version, ""), "PREEMPT_DYNAMIC");
        assert_eq!(preemption("#1 SMP Mon", ""), "no PREEMPT");
    }

    #[test]
    fn the_hypervisor_is_named_by_its_clock() {
        let guest = "processor: 0\nflags\t: fpu hypervisor lahf_lm\n";
        assert_eq!(hypervisor("kvm-clock tsc\n", guest), "KVM");
        assert_eq!(hypervisor("tsc hpet\n", guest), "some hypervisor");
        assert_eq!(hypervisor("tsc hpet\n", "flags: fpu\n"), "");
    }

    #[test]
    fn what_is_missing_stays_empty() {
        assert_eq!(cpu_model("processor: 0\n"), "");
        assert_eq!(
            cpu_model("model name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        assert!((load_average("0.25 0.1 0.0 1/2 3\n") - 0.25).abs() < 1e-9);
    }
}
