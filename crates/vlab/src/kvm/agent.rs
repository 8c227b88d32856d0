// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab kvm-agent`: the part of a lab that runs in each guest.
//!
//! Told by the host over a virtio port, on standard input and output: what time
//! it is, compute or not, measure a step, run a command. One thing at a time.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use experiment::scenario::Scenario;
use units::Ns;

use super::fit;
use super::images;
use super::protocol::FromGuest;
use super::protocol::Measured;
use super::protocol::Stolen;
use super::protocol::ToGuest;
use super::protocol::execute;
use super::protocol::receive;
use super::protocol::send;
use crate::load::now;
use crate::run::in_guest::InGuest;
use crate::run::in_guest::Moment;

/// The disk of the guest under test.
const DISK: &str = "/dev/vda";

/// Where its file system is, if a load needs one.
const FILES: &str = "/disk";

/// Serves the host until it has gone.
///
/// # Errors
/// The host has gone in the middle of a sentence.
pub fn run() -> anyhow::Result<()> {
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let inside = crate::run::environment::inside(Path::new(DISK));
    send(&mut output, &FromGuest::Up(inside))?;
    let mut agent = Agent::default();
    while let Some(message) = receive(&mut input)? {
        let answer = agent
            .serve(message, &mut input, &mut output)
            .unwrap_or_else(|error| FromGuest::Failed(format!("{error:#}")));
        send(&mut output, &answer)?;
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Agent {
    inside: Option<InGuest>,
}

impl Agent {
    fn serve(
        &mut self,
        message: ToGuest,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> anyhow::Result<FromGuest> {
        match message {
            ToGuest::Time => return Ok(FromGuest::Time(now().0)),
            ToGuest::Exec(words) => return Ok(FromGuest::Exit(execute(&words))),
            ToGuest::Scenario(scenario, dilation) => {
                self.inside = Some(inside(*scenario, dilation)?);
            }
            ToGuest::Compute(on) => self.told()?.compute(on)?,
            ToGuest::Measure { step, guest, room } => {
                let mut steal = Vec::new();
                let mut meet = |others: FromGuest| {
                    send(output, &others)?;
                    match receive(input)? {
                        Some(ToGuest::Go) => Ok(()),
                        other => anyhow::bail!("told {other:?} where it waits for Go"),
                    }
                };
                let mut at = |moment| {
                    match moment {
                        Moment::Armed => meet(FromGuest::Armed)?,
                        Moment::Started => meet(FromGuest::Started)?,
                        Moment::Opens | Moment::Closes => steal.push(stolen()?),
                        Moment::Ends => meet(FromGuest::Closed)?,
                    }
                    Ok(())
                };
                let inside = self.told()?;
                let (phase, window, recording) = inside.measure(step, guest, room, &mut at)?;
                let mut steal = steal.into_iter();
                return Ok(FromGuest::Measured(Box::new(Measured {
                    phase,
                    from: window.from.0,
                    to: window.to.0,
                    steal_from: steal.next().unwrap_or_default(),
                    steal_to: steal.next().unwrap_or_default(),
                    recording,
                })));
            }
            ToGuest::Go => anyhow::bail!("told to go, and measures nothing"),
        }
        Ok(FromGuest::Done)
    }

    fn told(&mut self) -> anyhow::Result<&mut InGuest> {
        self.inside.as_mut().context("no scenario has been given")
    }
}

fn inside(scenario: Scenario, dilation: u32) -> anyhow::Result<InGuest> {
    let disk = Some(Path::new(DISK)).filter(|disk| disk.exists());
    let files = match disk {
        Some(disk) if fit::needs_files(&scenario) => make_files(disk)?,
        _ => Path::new("/tmp"),
    };
    InGuest::new(scenario, disk, files, dilation)
}

/// Puts a file system on a disk, which holds nothing that anyone wants; where it is then.
fn make_files(disk: &Path) -> anyhow::Result<&'static Path> {
    let dir = Path::new(FILES);
    fs::create_dir_all(dir).with_context(|| format!("cannot make {FILES}"))?;
    let disk = disk.display();
    let make = format!("{} -q -F -t ext4 {disk}", images::MKE2FS);
    let mount = format!("mount -t ext4 {disk} {FILES}");
    for command in [make, mount] {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let done = execute(&words);
        anyhow::ensure!(
            done.code == 0,
            "no file system on the guest's disk: {command}: exit code {}: {}",
            done.code,
            done.output.trim()
        );
    }
    Ok(dir)
}

/// Steal time of each vCPU. It is in ticks of 10 ms; the kernel adds to it what
/// the page shared with KVM says, once a tick.
fn stolen() -> anyhow::Result<Vec<Stolen>> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let at = now().0;
    Ok(parse_steal(&text)
        .into_iter()
        .map(|stolen| Stolen { at, stolen })
        .collect())
}

fn parse_steal(text: &str) -> Vec<Ns> {
    text.lines()
        .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "))
        .map(|line| {
            let ticks = line.split_whitespace().nth(8);
            Ns::from_ms(10 * ticks.and_then(|ticks| ticks.parse().ok()).unwrap_or(0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_each_cpus_line() {
        let text = "cpu  1 2 3 4 5 6 7 300 9 10\n\
            cpu0 1 2 3 4 5 6 7 100 9 10\n\
            cpu1 1 2 3 4 5 6 7 200 9 10\nintr 5\n";
        assert_eq!(parse_steal(text), [Ns::from_secs(1), Ns::from_secs(2)]);
    }

    #[test]
    fn what_needs_a_scenario_says_so_and_the_rest_does_not() {
        let mut agent = Agent::default();
        let mut serve = |message| agent.serve(message, &mut std::io::empty(), &mut Vec::new());
        assert!(matches!(serve(ToGuest::Time), Ok(FromGuest::Time(_))));
        assert!(serve(ToGuest::Compute(true)).is_err());
        assert!(serve(ToGuest::Go).is_err());
    }
}
