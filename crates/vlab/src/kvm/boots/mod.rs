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
//!
//! # Layout
//! `arm` what is compared, `fates` what became of it; here is what happens in between.

mod arm;
mod fates;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use experiment::lab::Lab;
use experiment::result::Environment;
use experiment::scenario::Scenario;
use units::Ns;

use self::arm::Arm;
use self::fates::Fate;
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

/// What guests do while they are watched, all at once: on two vCPUs they compute, fork and
/// wake each other, round after round. A vCPU that stands still ends the rounds.
const BUSY: &str = "while :; do for a in 1 2; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; for b in 1 2 3 4 5; do cat /proc/stat; done >/dev/null) & done; wait; echo >>/tmp/rounds; done </dev/null >/dev/null 2>&1 &";

/// Returns when another round is over, and says how many there have been.
const ROUND: &str = "n=$(wc -l </tmp/rounds); until [ \"$(wc -l </tmp/rounds)\" != \"$n\" ]; do sleep 1; done 2>/dev/null; wc -l </tmp/rounds";

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

/// Runs what the log does not have yet.
///
/// # Errors
/// What `vlab run --backend kvm` fails with, but a lost lab; or the log cannot be written.
pub fn run(args: &BootsArgs) -> anyhow::Result<String> {
    let interrupt = Arc::new(Interrupt::catch().context("cannot catch signals")?);
    let begun = Instant::now();
    check_json(Some(&args.log))?;
    let mut fates = fates::load(&args.log)?;
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
            fates::append(&args.log, &fate)?;
            fates.push(fate);
        }
    }
    Ok(fates::table(&args.arms, &fates))
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
            FromHost::Exit(exit) if exit.code == 0 => Ok(exit.output),
            other => anyhow::bail!("the host says {other:?}"),
        }
    };
    let up = Instant::now();
    for guest in 0..args.guests {
        sh(machine, guest, BUSY)?;
    }
    let mut rounds = vec![0; args.guests as usize];
    fate.rounds = Some(0);
    while up.elapsed() < args.hold {
        for (guest, rounds) in (0..).zip(&mut rounds) {
            let said = sh(machine, guest, ROUND)?;
            *rounds = rounds_in(&said).with_context(|| format!("guest {guest} says {said}"))?;
            fate.watched_s = up.elapsed().as_secs();
        }
        fate.rounds = Some(rounds.iter().sum());
    }
    // All is seen: a host that has gone by now has lost nothing.
    let _ = machine.tell(&ToHost::Quit);
    Ok(())
}

/// The first thing that [`ROUND`] says; errors follow, as long as there was no round yet.
fn rounds_in(said: &str) -> Option<u64> {
    said.split_whitespace().next()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_are_the_first_thing_said() {
        assert_eq!(rounds_in("17\n"), Some(17));
        let first = "1\nsh: can't open /tmp/rounds: no such file\n";
        assert_eq!(rounds_in(first), Some(1));
        assert_eq!(rounds_in("Killed\n"), None);
        assert_eq!(rounds_in(""), None);
    }

    #[test]
    fn another_program_gets_the_same_firmware() {
        let stock = ["ld", "--library-path", "x", "qemu", "-L", "a", "-L", "b"];
        let stock = stock.map(str::to_owned);
        assert_eq!(emulator(&stock, "/q"), ["/q", "-L", "a", "-L", "b"]);
    }
}
