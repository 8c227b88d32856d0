// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab kvm-agent`: the part of a lab that runs in each guest.
//!
//! Told by the host over a virtio port, on standard input and output: what time
//! it is, compute or not, measure a step, run a command. One thing at a time.

use std::fs;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context;
use experiment::scenario::Scenario;
use units::Ns;

use super::protocol::FromGuest;
use super::protocol::Measured;
use super::protocol::Stolen;
use super::protocol::ToGuest;
use super::protocol::execute;
use super::protocol::receive;
use super::protocol::send;
use crate::load::now;
use crate::run::in_guest::InGuest;

/// The disk of the guest under test.
const DISK: &str = "/dev/vda";

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
            .serve(message)
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
    fn serve(&mut self, message: ToGuest) -> anyhow::Result<FromGuest> {
        match message {
            ToGuest::Time => return Ok(FromGuest::Time(now().0)),
            ToGuest::Exec(words) => return Ok(FromGuest::Exit(execute(&words))),
            ToGuest::Scenario(scenario, dilation) => {
                self.inside = Some(inside(*scenario, dilation)?);
            }
            ToGuest::Compute(on) => self.told()?.compute(on)?,
            ToGuest::Measure(step, room) => {
                let mut steal = Vec::new();
                let (phase, window, recording) = self.told()?.measure(step, room, || {
                    steal.push(stolen()?);
                    Ok(())
                })?;
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
        }
        Ok(FromGuest::Done)
    }

    fn told(&mut self) -> anyhow::Result<&mut InGuest> {
        self.inside.as_mut().context("no scenario has been given")
    }
}

fn inside(scenario: Scenario, dilation: u32) -> anyhow::Result<InGuest> {
    let disk = Path::new(DISK);
    InGuest::new(scenario, disk.exists().then_some(disk), dilation)
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
        assert!(matches!(agent.serve(ToGuest::Time), Ok(FromGuest::Time(_))));
        assert!(agent.serve(ToGuest::Compute(true)).is_err());
    }
}
