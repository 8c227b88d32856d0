// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One lab after the other until everything is measured.
//!
//! # Problem
//! An emulated host loses a guest now and then, and then another lab is worth a try. But
//! a guest that cannot boot at all takes the whole time that a lab has for it, again and
//! again: half an hour until nobody tries any more.
//!
//! # Approach
//! Labs whose guests came up may be lost a few times. Where no guest has come up in the
//! first labs of a run, the next one is not booted.

use std::path::Path;

use super::BOOT;
use super::keep::Kept;
use super::machine::Machine;
use super::protocol::FromHost;
use super::protocol::Setup;
use super::protocol::ToHost;
use crate::run::Interrupted;
use crate::run::Unusable;
use crate::run::in_guest;
use crate::run::interrupt::Interrupt;
use units::Ns;

/// Labs that may be lost before the run gives up.
const MAX_LOST: usize = 5;

/// Labs in which no guest comes up before the run gives up, if none ever has. Not one:
/// hosts have been lost before their guests could come up.
const NEVER_UP: usize = 2;

/// Added to the length of a step: the host's scheduler is exchanged, loads start and
/// end, guests answer.
const STEP_GRACE: Ns = Ns::from_secs(300);

/// What was lost so far, and whether any guest ever came up.
#[derive(Debug, Default)]
struct Losses {
    labs: usize,
    any_up: bool,
}

impl Losses {
    /// Another lab was lost: why the next one is not worth a try, if it is not.
    fn another(&mut self) -> Option<String> {
        self.labs += 1;
        let lost = self.labs;
        if !self.any_up && lost >= NEVER_UP {
            Some(format!(
                "no guest has come up in {lost} labs, which have {BOOT} each; try another --guest-kernel, docs/lab.md has more; the last one"
            ))
        } else if lost > MAX_LOST {
            Some(format!("{lost} labs were lost; the last one"))
        } else {
            None
        }
    }
}

/// Labs from `boot` until there are all phases. What a lost one said is kept in `logs`.
///
/// # Errors
/// [`Interrupted`], a lab that cannot be booted, [`Unusable`] if its host lacks something,
/// or more lost ones than are worth another try.
pub(super) fn measure_all(
    kept: &mut Kept,
    boot: &mut dyn FnMut(&Kept) -> anyhow::Result<(Machine, Setup)>,
    logs: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let mut losses = Losses::default();
    while kept.next().is_some() {
        kept.lab.boots += 1;
        let (mut machine, setup) = boot(kept)?;
        let Err(error) = measure(&mut machine, setup, kept, &mut losses, interrupt) else {
            continue;
        };
        if interrupt.is_set() || error.is::<Interrupted>() {
            return Err(Interrupted.into());
        }
        // Nothing was lost: the next lab would miss the same.
        if error.is::<Unusable>() {
            return Err(error);
        }
        let kept_in = machine.keep(logs);
        let kept_in = kept_in.map_or(String::new(), |dir| format!("; logs in {}", dir.display()));
        let done = kept.next().unwrap_or(kept.steps());
        let what = format!(
            "after {done} of {} phases: {error:#}{kept_in}",
            kept.steps()
        );
        eprintln!("lab lost {what}");
        kept.lab.lost.push(what);
        if let Some(why) = losses.another() {
            return Err(error.context(why));
        }
    }
    Ok(())
}

/// Steps until all are measured or the lab is lost.
fn measure(
    machine: &mut Machine,
    setup: Setup,
    kept: &mut Kept,
    losses: &mut Losses,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    machine.tell(&ToHost::Setup(Box::new(setup)))?;
    loop {
        match machine.hear(interrupt, BOOT)? {
            FromHost::Says(what) => eprintln!("  {what}"),
            FromHost::Up { guest, seconds } => {
                eprintln!("  guest {guest} is up after {seconds} s");
                losses.any_up = true;
            }
            FromHost::Restarted(what) => {
                eprintln!("  lost while it booted, and started again: {what}");
                kept.lab.restarted.push(what);
            }
            FromHost::Ready {
                kernel,
                guest,
                qemu,
            } => {
                kept.is_up(kernel, guest, qemu);
                break;
            }
            other => anyhow::bail!("the host says {other:?}"),
        }
    }
    while let Some(step) = kept.next() {
        eprintln!(
            "  {}/{} {}",
            step + 1,
            kept.steps(),
            in_guest::describe(kept.scenario(), step)
        );
        let length = in_guest::outline(kept.scenario(), step, kept.lab.dilation)?.length;
        machine.tell(&ToHost::Measure(step))?;
        let (phase, lab) = loop {
            match machine.hear(interrupt, length + STEP_GRACE)? {
                FromHost::Says(what) => eprintln!("  {what}"),
                FromHost::Measured(measured) => break *measured,
                other => anyhow::bail!("the host says {other:?}"),
            }
        };
        kept.push(phase, lab);
    }
    // All is measured: a host that has gone by now cannot lose anything.
    let _ = machine.tell(&ToHost::Quit);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use experiment::lab::LabPhase;

    use super::super::keep::tests::kept;
    use super::super::keep::tests::phase;
    use super::super::protocol::tests::setup;
    use super::*;
    use crate::run::environment::Inside;

    /// A host that answers each line that it is told with one of these lists, then goes.
    /// Its last line does not end before it does: who has read it writes to nobody.
    fn host(answers: &[Vec<FromHost>]) -> Command {
        let mut script = String::new();
        for (nr, answer) in (1..).zip(answers) {
            let lines = answer
                .iter()
                .map(|message| serde_json::to_string(message).unwrap() + "\n");
            let lines = lines.collect::<String>();
            script.push_str("read -r _ || exit\n");
            let lines = if nr == answers.len() {
                format!("printf %s '{}'\n", lines.trim_end())
            } else {
                format!("cat <<'END'\n{lines}END\n")
            };
            script.push_str(&lines);
        }
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    }

    fn up(guest: u32) -> FromHost {
        FromHost::Up { guest, seconds: 1 }
    }

    fn lost() -> FromHost {
        FromHost::Failed("guest 1 does not answer".to_owned())
    }

    fn ready() -> FromHost {
        FromHost::Ready {
            kernel: "7.3".to_owned(),
            guest: Inside::default(),
            qemu: "11".to_owned(),
        }
    }

    fn measured(arm: &str) -> FromHost {
        FromHost::Measured(Box::new((phase(arm, 0), LabPhase::default())))
    }

    /// A run on these hosts, one after the other; the last one again and again.
    fn run(hosts: &[Vec<Vec<FromHost>>]) -> (Kept, anyhow::Result<()>) {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = kept(1, 100, &dir.path().join("r.json"));
        kept.lab.boots = 0;
        let interrupt = Interrupt::catch().unwrap();
        let mut boot = |kept: &Kept| -> anyhow::Result<(Machine, Setup)> {
            let nr = kept.lab.boots as usize - 1;
            let machine = Machine::direct(host(&hosts[nr.min(hosts.len() - 1)]))?;
            Ok((machine, setup()))
        };
        let result = measure_all(&mut kept, &mut boot, &dir.path().join("logs"), &interrupt);
        (kept, result)
    }

    #[test]
    fn where_no_guest_ever_comes_up_two_labs_are_enough() {
        let (kept, result) = run(&[vec![vec![lost()]]]);
        let error = format!("{:#}", result.unwrap_err());
        assert!(
            error.starts_with("no guest has come up in 2 labs, which have 300 s each"),
            "{error}"
        );
        assert!(
            error.ends_with("the last one: guest 1 does not answer"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
        assert_eq!((kept.lab.boots, kept.lab.lost.len()), (2, 2));
    }

    #[test]
    fn what_the_host_lacks_is_told_at_once_and_is_no_loss() {
        let why = "no /sys/kernel/config/nullb; load the module: modprobe null_blk nr_devices=0";
        let (kept, result) = run(&[vec![vec![FromHost::CannotSetUp(why.to_owned())]]]);
        let error = result.unwrap_err();
        assert!(error.is::<Unusable>(), "{error:#}");
        assert_eq!(format!("{error:#}"), why);
        assert_eq!((kept.lab.boots, kept.lab.lost.len()), (1, 0));
    }

    #[test]
    fn labs_whose_guests_come_up_are_lost_more_often_and_counted() {
        let (kept, result) = run(&[vec![vec![lost()]], vec![vec![up(0), lost()]]]);
        let error = format!("{:#}", result.unwrap_err());
        assert!(
            error.starts_with("6 labs were lost; the last one"),
            "{error}"
        );
        assert_eq!((kept.lab.boots, kept.lab.lost.len()), (6, 6));
        assert!(
            kept.lab.lost[0].starts_with("after 0 of 3 phases: guest 1 does not answer; logs in")
        );
    }

    #[test]
    fn a_host_that_goes_after_its_last_phase_has_lost_nothing() {
        let (kept, result) = run(&[vec![
            vec![up(0), up(1), ready()],
            vec![measured("solo")],
            vec![measured("e")],
            vec![measured("f")],
        ]]);
        result.unwrap();
        assert_eq!((kept.lab.boots, kept.lab.lost.len()), (1, 0));
        assert_eq!(kept.result(None).phases.len(), 3);
    }

    #[test]
    fn a_lost_lab_is_booted_again_and_its_open_phases_are_measured() {
        let restarted = FromHost::Restarted("guest 0 after 9 s: QEMU ended".to_owned());
        let (kept, result) = run(&[
            vec![vec![up(0), ready()], vec![measured("solo")], vec![lost()]],
            vec![
                vec![restarted, up(0), up(1), ready()],
                vec![FromHost::Says("eevdf".to_owned()), measured("e")],
                vec![measured("f")],
                vec![],
            ],
        ]);
        result.unwrap();
        let result = kept.result(None);
        let boots: Vec<u32> = result.phases.iter().map(|phase| phase.boot).collect();
        assert_eq!(boots, [1, 2, 2]);
        let lab = result.lab.unwrap();
        assert!(lab.lost[0].starts_with("after 1 of 3 phases"));
        assert_eq!(lab.restarted, ["guest 0 after 9 s: QEMU ended"]);
    }
}
