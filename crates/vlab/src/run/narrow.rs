// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the command line and this machine make of a scenario.

use std::path::PathBuf;

use anyhow::Context;
use experiment::scenario::ArmKind;
use experiment::scenario::LoadKind;
use experiment::scenario::Scenario;
use units::CpuSet;
use units::Ns;

use super::Backend;
use super::RunArgs;
use super::Unusable;
use super::schedule;

/// `--quick`: rounds and window at most.
const QUICK_ROUNDS: u32 = 1;
const QUICK_WINDOW: Ns = Ns::from_ms(500);

/// Like `anyhow::ensure`, with the error that leads to its own exit code.
macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(Unusable(format!($($message)*)).into());
        }
    };
}

/// The scenario's file; of a sweep the point that is asked for.
pub(super) fn load(args: &RunArgs) -> anyhow::Result<Scenario> {
    if args.backend == Backend::Freezer {
        ensure!(
            args.point.is_none_or(|point| point == 1),
            "--point: only real VMs (--backend kvm) and the simulator know points of a [sweep]"
        );
        return Ok(Scenario::load(&args.scenario)?);
    }
    point(Scenario::load_real_points(&args.scenario)?, args.point)
}

/// One of the points of a file.
fn point(mut points: Vec<Scenario>, wanted: Option<u32>) -> anyhow::Result<Scenario> {
    let named = || {
        let numbered = (1..).zip(&points);
        let named = numbered.map(|(number, point)| format!("{number}: {}", point.point));
        named.collect::<Vec<_>>().join("; ")
    };
    let index = match wanted {
        Some(point) => point as usize - 1,
        None if points.len() == 1 => 0,
        None => usize::MAX,
    };
    ensure!(
        index < points.len(),
        "the scenario is a sweep of {} point(s), and real VMs measure one at a time: name it with --point N ({})",
        points.len(),
        named()
    );
    Ok(points.swap_remove(index))
}

/// The scenario with the command line's wishes.
pub(super) fn scenario(mut scenario: Scenario, args: &RunArgs) -> anyhow::Result<Scenario> {
    args.part
        .of_scenario(&mut scenario)
        .map_err(|missing| Unusable(missing.to_string()))?;
    if let Some(rounds) = args.rounds {
        // Arms that the scenario measures less often keep their share.
        let before = scenario.measure.rounds;
        for arm in &mut scenario.arms {
            arm.rounds = arm.rounds.map(|n| (n * rounds).div_ceil(before).max(1));
        }
        scenario.measure.rounds = rounds;
    }
    ensure!(
        scenario.topology.disk_queues.is_none() || args.backend == Backend::Kvm,
        "topology.disk_queues: this machine's disk has the queues that it has; use --backend kvm, or leave it out"
    );
    // What only the simulator has must not look as if it had been measured.
    for load in &scenario.loads {
        ensure!(
            !matches!(load.kind, LoadKind::Profile { .. }),
            "load {}: applications exist in the simulator only; use `vlab sim`",
            load.name
        );
    }
    for arm in &scenario.arms {
        ensure!(
            !matches!(arm.kind, ArmKind::Host { .. }),
            "arm {}: kind = \"host\" is for `vlab sim`; on real VMs (--backend kvm) an arm says host_policy",
            arm.name
        );
    }
    if args.quick {
        scenario.measure.rounds = scenario.measure.rounds.min(QUICK_ROUNDS);
        scenario.measure.window = scenario.measure.window.min(QUICK_WINDOW);
    }
    Ok(scenario)
}

/// The CPUs of the VM under test: the first of this machine's.
pub(super) fn cpus(scenario: &Scenario) -> anyhow::Result<CpuSet> {
    let online = freezer::online_cpus()?;
    let wanted = scenario.topology.cpus;
    ensure!(
        wanted == online.len(),
        "the scenario asks for {wanted} CPUs, this machine has {online} online; the freezer measures whole machines: \
         set topology.cpus = {} or use another backend",
        online.len()
    );
    Ok(online)
}

/// The daemon's program.
pub(super) fn vmigrater(args: &RunArgs, scenario: &Scenario) -> anyhow::Result<PathBuf> {
    let program = match &args.vmigrater {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .context("cannot find our own program")?
            .with_file_name("vmigrater"),
    };
    ensure!(
        program.is_file() || !schedule::needs_daemon(scenario),
        "there is no daemon at {}; build it with `cargo build --release -p vmigrater`, give --vmigrater PATH, or leave its arms out with --arms",
        program.display()
    );
    Ok(program)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn narrowed(words: &[&str]) -> anyhow::Result<Scenario> {
        narrowed_with("", words)
    }

    /// The same with more in `[topology]`.
    fn narrowed_with(topology: &str, words: &[&str]) -> anyhow::Result<Scenario> {
        let text = r#"
            name = "s"
            title = "s"
            topology.cpus = 2
            sharing = { vms_per_pcpu = [2, 4], slice = "11 ms" }
            measure = { rounds = 4, window = "2 s" }
            load = [{ name = "a", kind = "pulse" }, { name = "b", kind = "idle" }]
            arm = [{ name = "vanilla" }, { name = "fifo", rounds = 2 }, { name = "c2", kind = "vanilla", host_policy = "credit2" }]
        "#;
        let more = match topology {
            "" => String::new(),
            key => format!("topology.{key}\n"),
        };
        let line = ["vlab", "s.toml"].iter().chain(words);
        scenario(
            Scenario::parse(&(more + text), "s.toml").unwrap(),
            &Line::parse_from(line).run,
        )
    }

    #[test]
    fn arms_keep_their_share_of_the_rounds() {
        let rounds_of_fifo = |words: &[&str]| {
            let words = [words, &["--arms=vanilla,fifo"]].concat();
            narrowed(&words).unwrap().arms[1].rounds
        };
        assert_eq!(rounds_of_fifo(&[]), Some(2));
        assert_eq!(rounds_of_fifo(&["--rounds=10"]), Some(5));
        assert_eq!(rounds_of_fifo(&["--rounds=1"]), Some(1));
        assert_eq!(
            narrowed(&["--quick", "--backend=kvm"])
                .unwrap()
                .measure
                .window,
            Ns::from_ms(500)
        );
    }

    #[test]
    fn what_the_scenario_has_not_has_its_exit_code() {
        assert!(narrowed(&["--arms=magic"]).unwrap_err().is::<Unusable>());
    }

    #[test]
    fn queues_of_a_disk_are_for_real_vms() {
        let queues = |words: &[&str]| narrowed_with("disk_queues = 1", words);
        assert_eq!(
            queues(&["--backend=kvm"]).unwrap().topology.disk_queues,
            Some(1)
        );
        let error = queues(&["--arms=vanilla"]).unwrap_err();
        assert!(error.is::<Unusable>());
        assert!(error.to_string().starts_with("topology.disk_queues"));
    }
}
