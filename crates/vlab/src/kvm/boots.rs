// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab kvm-boots`: which options of an emulated KVM host lose guests, and how many.
//!
//! # Problem
//! A lab is lost for reasons that say nothing of themselves, now and then. One boot
//! proves nothing about an option, and boots of different days cannot be compared.
//!
//! # Approach
//! The arms take turns: one lab each, again and again, so that all have the same machine
//! around them. A lab is booted as `vlab run` does, its guests compute for a while, and
//! what became of them is a line in a file; what is there already is not done again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use experiment::lab::Lab;
use experiment::result::Environment;
use experiment::scenario::Scenario;
use experiment::stats::quantile;
use serde::Deserialize;
use serde::Serialize;
use units::Ns;

use super::BOOT;
use super::KvmArgs;
use super::Parts;
use super::keep::Kept;
use super::machine::Machine;
use super::protocol::FromHost;
use super::protocol::ToHost;
use crate::run::Interrupted;
use crate::run::check_json;
use crate::run::interrupt::Interrupt;

/// Keys of an arm; a word that is none of them belongs to the option before it.
const KEYS: [&str; 8] = [
    "guest-qemu",
    "qemu",
    "cpu",
    "vcpus",
    "accel",
    "host-cpu",
    "append",
    "host-append",
];

/// What guests do while they are watched, all at once: on two vCPUs they compute, fork and
/// wake each other, round after round. A vCPU that stands still ends the rounds.
const BUSY: &str = "while :; do for a in 1 2; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; for b in 1 2 3 4 5; do cat /proc/stat; done >/dev/null) & done; wait; echo >>/tmp/rounds; done </dev/null >/dev/null 2>&1 &";

/// Returns when another round is over.
const ROUND: &str = "n=$(wc -l </tmp/rounds); until [ \"$(wc -l </tmp/rounds)\" != \"$n\" ]; do sleep 1; done 2>/dev/null";

/// Boots the emulated KVM host and its guests again and again, and counts what is lost.
#[derive(Args, Clone, Debug)]
pub struct BootsArgs {
    /// Labs of each arm.
    #[arg(long, value_name = "N", default_value_t = 20)]
    count: u32,
    /// What to compare: NAME or NAME:KEY=VALUE,... with the keys qemu (program that emulates
    /// the host), accel, host-cpu, host-append (of the host), cpu, vcpus, append, guest-qemu
    /// (of the guests).
    #[arg(long = "arm", value_name = "ARM", default_value = "base")]
    arms: Vec<Arm>,
    /// Guests of a lab.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    guests: u32,
    /// How long guests that are up are watched, while they compute.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    hold: Duration,
    /// Begin no lab after this time.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    within: Option<Duration>,
    /// A line for each lab; those that are there count.
    #[arg(long, value_name = "FILE", default_value = "target/kvm-boots.jsonl")]
    log: PathBuf,
    #[command(flatten)]
    kvm: KvmArgs,
}

/// One set of options.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Arm {
    name: String,
    options: BTreeMap<String, String>,
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() {
            return Err("an arm needs a name, as in lean:cpu=host,pmu=off".to_owned());
        }
        let mut options = BTreeMap::<String, String>::new();
        let mut last: Option<String> = None;
        for word in rest.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if KEYS.contains(&key) {
                if options.insert(key.to_owned(), value.to_owned()).is_some() {
                    return Err(format!("arm {name} has {key} twice"));
                }
                last = Some(key.to_owned());
            } else if let Some(before) = last.as_ref().and_then(|last| options.get_mut(last)) {
                before.push(',');
                before.push_str(word);
            } else {
                return Err(format!("arm {name}: {word} is none of {}", KEYS.join(", ")));
            }
        }
        if let Some(vcpus) = options.get("vcpus")
            && !matches!(vcpus.parse(), Ok(1..=2u32))
        {
            return Err(format!("arm {name}: vcpus={vcpus} is not 1 or 2"));
        }
        Ok(Self {
            name: name.to_owned(),
            options,
        })
    }
}

impl Arm {
    fn get<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.options.get(key).map_or(default, String::as_str)
    }
}

/// What became of one lab.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Fate {
    arm: String,
    /// Guests that were begun to boot, those started again included.
    booted: u32,
    /// Guests lost while they booted, with the reason.
    restarted: Vec<String>,
    /// Seconds from the host's start until all guests were up; `None`: they never were.
    up_s: Option<u64>,
    /// For so many seconds all of them were watched.
    watched_s: u64,
    /// Why the lab ended early, if it did.
    lost: Option<String>,
}

/// Runs what the log does not have yet.
///
/// # Errors
/// What `vlab run --backend kvm` fails with, but a lost lab; or the log cannot be written.
pub fn run(args: &BootsArgs) -> anyhow::Result<String> {
    let interrupt = Arc::new(Interrupt::catch().context("cannot catch signals")?);
    let begun = Instant::now();
    check_json(Some(&args.log))?;
    let mut fates = load(&args.log)?;
    let sure = Some("as asked".to_owned());
    let vmigrater = std::env::current_exe()?.with_file_name("vmigrater");
    let scenario = scenario(args.guests)?;
    let prepared = super::prepare(
        &scenario,
        &args.kvm,
        vmigrater,
        args.guests,
        sure,
        &interrupt,
    );
    if interrupt.is_set() {
        return Err(Interrupted.into());
    }
    let (mut parts, _) = prepared?;
    for nr in 1..=args.count as usize {
        for arm in &args.arms {
            let late = args.within.is_some_and(|most| begun.elapsed() > most);
            if late || fates.iter().filter(|fate| fate.arm == arm.name).count() >= nr {
                continue;
            }
            let fate = one(arm, &mut parts, &scenario, args, &interrupt)?;
            eprintln!("{}", serde_json::to_string(&fate)?);
            append(&args.log, &fate)?;
            fates.push(fate);
        }
    }
    Ok(table(&args.arms, &fates))
}

/// One lab from its start to its end.
fn one(
    arm: &Arm,
    parts: &mut Parts,
    scenario: &Scenario,
    args: &BootsArgs,
    interrupt: &Interrupt,
) -> anyhow::Result<Fate> {
    let mut scenario = scenario.clone();
    let mut kvm = args.kvm.clone();
    let of_arm = |key: &str, mine: &mut String| *mine = arm.get(key, mine).to_owned();
    of_arm("cpu", &mut kvm.guest_cpu);
    of_arm("append", &mut kvm.guest_append);
    of_arm("guest-qemu", &mut kvm.guest_qemu);
    of_arm("host-cpu", &mut kvm.host_cpu);
    of_arm("accel", &mut kvm.host_accel);
    of_arm("host-append", &mut kvm.host_append);
    parts.host_qemu = match arm.options.get("qemu") {
        Some(program) => emulator(&parts.qemu, program),
        None => parts.qemu.clone(),
    };
    let mut machine = super::boot(parts, &scenario, &kvm)?;
    if let Some(vcpus) = arm.options.get("vcpus") {
        scenario.topology.cpus = vcpus.parse()?;
    }
    let kept = Kept::new(
        scenario,
        Environment::default(),
        Lab {
            dilation: 1,
            disk_latency: Ns::from(kvm.disk_latency),
            ..Lab::default()
        },
        None,
    );
    let setup = super::setup(parts, &kept, &kvm, &machine);
    let mut fate = Fate {
        arm: arm.name.clone(),
        booted: args.guests,
        ..Fate::default()
    };
    machine.tell(&ToHost::Setup(Box::new(setup)))?;
    if let Err(error) = watch(&mut machine, &mut fate, args, interrupt) {
        if interrupt.is_set() || error.is::<Interrupted>() {
            return Err(Interrupted.into());
        }
        let logs = machine.keep(&args.kvm.cache.join("logs"));
        let logs = logs.map_or(String::new(), |dir| format!("; logs in {}", dir.display()));
        fate.lost = Some(format!("{error:#}{logs}"));
    }
    Ok(fate)
}

/// Waits for the guests, then has them compute.
fn watch(
    machine: &mut Machine,
    fate: &mut Fate,
    args: &BootsArgs,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        match machine.hear(interrupt, BOOT)? {
            FromHost::Says(_) | FromHost::Up { .. } => {}
            FromHost::Restarted(why) => {
                fate.booted += 1;
                fate.restarted.push(why);
            }
            FromHost::Ready { .. } => break,
            other => anyhow::bail!("the host says {other:?}"),
        }
    }
    fate.up_s = Some(started.elapsed().as_secs());
    let sh = |machine: &mut Machine, guest: u32, script: &str| {
        let words = ["sh", "-c", script].map(str::to_owned);
        machine.tell(&ToHost::Exec(guest, words.to_vec()))?;
        match machine.hear(interrupt, Ns::from_secs(150))? {
            FromHost::Exit(exit) if exit.code == 0 => Ok(()),
            other => anyhow::bail!("the host says {other:?}"),
        }
    };
    let up = Instant::now();
    for guest in 0..args.guests {
        sh(machine, guest, BUSY)?;
    }
    while up.elapsed() < args.hold {
        for guest in 0..args.guests {
            sh(machine, guest, ROUND)?;
            fate.watched_s = up.elapsed().as_secs();
        }
    }
    machine.tell(&ToHost::Quit)
}

/// Another program instead of the one in `stock`, with the same firmware.
fn emulator(stock: &[String], program: &str) -> Vec<String> {
    let firmware = stock.iter().position(|word| word == "-L");
    let firmware = &stock[firmware.unwrap_or(stock.len())..];
    [&[program.to_owned()], firmware].concat()
}

/// As a lab's guests usually are: two vCPUs, a disk, fio in their image.
fn scenario(guests: u32) -> anyhow::Result<Scenario> {
    let text = format!(
        r#"
        name = "kvm-boots"
        title = "Boots of an emulated KVM host"
        topology = {{ cpus = 2 }}
        sharing = {{ vms_per_pcpu = [{guests}], slice = "11 ms" }}
        measure = {{ rounds = 1, window = "300 ms" }}
        load = [{{ name = "read", kind = "disk", pattern = "random-read", file_mib = 64 }}]
        arm = [{{ name = "vanilla" }}]
        "#
    );
    Ok(Scenario::parse(&text, "kvm-boots")?)
}

fn load(log: &Path) -> anyhow::Result<Vec<Fate>> {
    let text = match fs::read_to_string(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", log.display()))?,
    };
    parse(&text).with_context(|| format!("{}: delete it to begin anew", log.display()))
}

fn parse(text: &str) -> anyhow::Result<Vec<Fate>> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty());
    lines
        .map(|(nr, line)| {
            serde_json::from_str(line).with_context(|| format!("line {} is no lab", nr + 1))
        })
        .collect()
}

fn append(log: &Path, fate: &Fate) -> anyhow::Result<()> {
    let line = serde_json::to_string(fate)? + "\n";
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write {}", log.display()))
}

/// One row for each arm.
fn table(arms: &[Arm], fates: &[Fate]) -> String {
    let mut text = "| arm | labs | whole | guests booted | lost while booting | labs lost before all were up | later | watched | up after (median) |\n|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for arm in arms {
        let of: Vec<&Fate> = fates.iter().filter(|fate| fate.arm == arm.name).collect();
        let count = |what: &dyn Fn(&Fate) -> bool| of.iter().filter(|fate| what(fate)).count();
        let restarted: usize = of.iter().map(|fate| fate.restarted.len()).sum();
        let ups = of.iter().filter_map(|fate| Some(fate.up_s? as f64));
        let up = quantile(&ups.collect::<Vec<_>>(), 0.5);
        let up = up.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0} s"));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {restarted} | {} | {} | {} s | {up} |",
            arm.name,
            of.len(),
            count(&|fate| fate.lost.is_none() && fate.restarted.is_empty()),
            of.iter().map(|fate| fate.booted).sum::<u32>(),
            count(&|fate| fate.lost.is_some() && fate.up_s.is_none()),
            count(&|fate| fate.lost.is_some() && fate.up_s.is_some()),
            of.iter().map(|fate| fate.watched_s).sum::<u64>(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_has_a_name_and_options_which_may_hold_commas() {
        let lean: Arm = "lean:cpu=host,pmu=off,-x2apic,vcpus=1".parse().unwrap();
        assert_eq!(lean.name, "lean");
        assert_eq!(lean.get("cpu", ""), "host,pmu=off,-x2apic");
        assert_eq!(lean.get("vcpus", "2"), "1");
        assert_eq!(lean.get("accel", "tcg"), "tcg");
        let base: Arm = "base".parse().unwrap();
        assert!(base.options.is_empty());
    }

    #[test]
    fn an_arm_that_cannot_be_meant_is_refused() {
        for (bad, says) in [
            (":cpu=host", "needs a name"),
            ("a:smp=2", "smp=2 is none of"),
            ("a:vcpus=3", "is not 1 or 2"),
            ("a:vcpus=1,vcpus=2", "twice"),
        ] {
            let error = bad.parse::<Arm>().unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn another_program_gets_the_same_firmware() {
        let stock = ["ld", "--library-path", "x", "qemu", "-L", "a", "-L", "b"];
        let stock = stock.map(str::to_owned);
        assert_eq!(emulator(&stock, "/q"), ["/q", "-L", "a", "-L", "b"]);
    }

    #[test]
    fn a_log_comes_back_as_it_was_written_and_says_where_it_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(load(&log).unwrap(), []);
        let fates = [fate("a", Some(80), 0, None), fate("b", None, 2, Some("x"))];
        for fate in &fates {
            append(&log, fate).unwrap();
        }
        assert_eq!(load(&log).unwrap(), fates);
        fs::write(&log, "{}\n").unwrap();
        let error = format!("{:#}", load(&log).unwrap_err());
        assert!(error.contains("line 1 is no lab"), "{error}");
    }

    fn fate(arm: &str, up_s: Option<u64>, restarted: u32, lost: Option<&str>) -> Fate {
        Fate {
            arm: arm.to_owned(),
            booted: 2 + restarted,
            restarted: (0..restarted).map(|nr| nr.to_string()).collect(),
            up_s,
            watched_s: up_s.map_or(0, |_| 20),
            lost: lost.map(str::to_owned),
        }
    }

    #[test]
    fn the_table_counts_each_kind_of_loss_by_itself() {
        let arms = ["a", "b", "c", "d"].map(|name| name.parse().unwrap());
        let fates = [
            fate("a", Some(80), 0, None),
            fate("a", Some(90), 1, None),
            fate("a", Some(70), 0, Some("later")),
            fate("b", None, 2, Some("boot")),
            fate("d", Some(60), 0, None),
            fate("d", Some(100), 0, None),
        ];
        let text = table(&arms, &fates);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| a | 3 | 1 | 7 | 1 | 0 | 1 | 60 s | 80 s |",
                "| b | 1 | 0 | 4 | 2 | 1 | 0 | 0 s | - |",
                "| c | 0 | 0 | 0 | 0 | 0 | 0 | 0 s | - |",
                "| d | 2 | 2 | 4 | 0 | 0 | 0 | 40 s | 80 s |",
            ]
        );
    }
}
