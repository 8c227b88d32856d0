// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 13.5's other figures: 4.6, 4.11, 4.12, 4.14.

use units::Ns;

use super::jupiter::PROGRAMS;
use super::jupiter::SYSTEMS;
use super::jupiter::cpus;
use super::jupiter::machine;
use super::jupiter::program;
use super::jupiter::vm;
use super::mix::Effort;
use super::mix::Task;
use super::mix::Vm;
use super::mix::run;
use super::mix::series;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::workloads::work;

/// One synchronising VM beside three that compute, against a solo run.
pub(super) fn heterogeneous(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let vcpus = cpus(p)?;
    let mut outcome = Outcome::default();
    let mut computes = [0.0; 4];
    for name in PROGRAMS {
        let own = program(p, name)?;
        let solo = run(&machine(p, vec![vm(vcpus, own)])?, "balance", effort)?.vms[0].rounds;
        let mut vms = vec![vm(vcpus, own)];
        vms.extend(vec![vm(vcpus, work(p, "compute", 0)?); 3]);
        let mix = machine(p, vms)?;
        for (n, (shown, policy)) in SYSTEMS.into_iter().enumerate() {
            let did = run(&mix, policy, effort)?;
            outcome.row(
                format!("{name}/{shown}, of solo"),
                did.vms[0].rounds / solo.max(1e-9),
            );
            computes[n] += did.sum(|d| d.compute) / PROGRAMS.len() as f64;
        }
    }
    for (n, (shown, _)) in SYSTEMS.into_iter().enumerate() {
        outcome.row(
            format!("MatMul/{shown}, of all CPUs"),
            computes[n] / f64::from(vcpus),
        );
    }
    let least = computes.iter().copied().fold(f64::MAX, f64::min);
    let most = computes.iter().copied().fold(0.0, f64::max);
    outcome.shape("MatMul is comparable under all four", least > 0.75 * most);
    Ok(outcome)
}

/// Four VMs of 2 to 16 vCPUs, streamcluster in each, on the 16 pCPUs that 13.5 states.
/// With 2 and 4 vCPUs nobody has to share, so what is left is also given against what
/// a VM's share of the pCPUs allows: otherwise no scheduler could "hardly degrade". The
/// other way to read it, as many pCPUs as a VM has vCPUs, is shown as well.
pub(super) fn size(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let own = program(p, "streamcluster")?;
    let all = cpus(p)?;
    let mut against = Vec::new();
    for vcpus in [2, 4, 8, 16] {
        let mix = |vms: usize, pcpus: u32| -> anyhow::Result<super::mix::Mix> {
            let mut mix = machine(p, vec![vm(vcpus, own); vms])?;
            mix.pcpus = pcpus;
            Ok(mix)
        };
        let share = f64::min(1.0, f64::from(all) / f64::from(4 * vcpus));
        let solo = run(&mix(1, all)?, "balance", effort)?.vms[0].rounds;
        let mut parts = [0.0; 4];
        for (part, (shown, policy)) in parts.iter_mut().zip(SYSTEMS) {
            let each = run(&mix(4, all)?, policy, effort)?.sum(|d| d.rounds) / 4.0;
            let kept = each / solo.max(1e-9);
            *part = kept / share;
            outcome.row(format!("{vcpus} vCPUs/{shown}, of solo"), kept);
            outcome.row(format!("{vcpus} vCPUs/{shown}: of its share"), *part);
        }
        against.push(parts);
        // With 16 vCPUs this is the same machine.
        if vcpus == all {
            continue;
        }
        let solo = run(&mix(1, vcpus)?, "balance", effort)?.vms[0].rounds;
        for (shown, policy) in [SYSTEMS[0], SYSTEMS[3]] {
            let sum = run(&mix(4, vcpus)?, policy, effort)?.sum(|d| d.rounds);
            let name = format!("{vcpus} vCPUs on {vcpus} pCPUs/{shown}: of its share");
            outcome.row(name, sum / solo.max(1e-9));
        }
    }
    let fall = |n: usize| against[3][n] / against[0][n].max(1e-9);
    outcome.shape("BS degrades with more vCPUs", fall(0) < 0.8);
    outcome.shape("JUPITER hardly does", fall(3) > 0.8);
    Ok(outcome)
}

/// Clients of each MongoDB (13.5), and how many more come and go.
const CLIENTS: u32 = 2;
const MORE: u32 = 3;

/// What MongoDB does for one client: a thread of its own, as it has one for each
/// connection. `turning`: the client is there in every other period of 100 ms from the
/// one instant until the other.
pub(super) fn client(
    p: &Parameters,
    vcpu: u32,
    turning: Option<(Ns, Option<Ns>)>,
) -> anyhow::Result<Task> {
    let name = match turning {
        None => "mongodb-client",
        Some(_) => "mongodb-turning",
    };
    let reads = work(p, name, 0)?;
    let (at, until) = turning.unwrap_or_default();
    Ok(Task {
        at,
        until,
        ..Task::on(vcpu, reads)
    })
}

/// The n-th MongoDB. Which vCPUs its threads come to sit on is chance in a guest: here
/// clients are spread over the pCPUs as evenly as they can be.
fn server(p: &Parameters, n: u32, turning: Option<(Ns, Option<Ns>)>) -> anyhow::Result<Vm> {
    let vcpus = cpus(p)?;
    let clients = (0..CLIENTS + MORE).filter(|c| *c < CLIENTS || turning.is_some());
    let task = |c| {
        let vcpu = (n * (CLIENTS + MORE) + c) % vcpus;
        client(p, vcpu, turning.filter(|_| c >= CLIENTS))
    };
    let tasks = clients.map(task).collect::<anyhow::Result<_>>()?;
    Ok(Vm::new(vcpus, tasks).grouped())
}

/// Fig 4.14: four VMs of MongoDB with two clients each; three more in every other
/// period, for a second and for good.
pub(super) fn adversary(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let machine = |turning: Option<(Ns, Option<Ns>)>| -> anyhow::Result<super::mix::Mix> {
        let servers = (0..4).map(|n| server(p, n, turning));
        let mut mix = machine(p, servers.collect::<anyhow::Result<_>>()?)?;
        mix.devices.push(super::vmigrater::ssd(p)?);
        Ok(mix)
    };
    let mut ratios = Vec::new();
    for (what, turning) in [("steady", None), ("turning", Some((effort.warmup, None)))] {
        let mix = machine(turning)?;
        let requests =
            |policy| -> anyhow::Result<f64> { Ok(run(&mix, policy, effort)?.sum(|d| d.requests)) };
        let ratio = requests("jupiter")? / requests("balance")?.max(1e-9);
        outcome.row(format!("{what} load: JUPITER over BS"), ratio);
        ratios.push(ratio);
    }
    outcome.shape("no worse than BS while the load turns", ratios[1] > 0.97);
    outcome.shape("better than BS while it is steady", ratios[0] > 1.0);
    timeline(&machine, effort, &mut outcome)?;
    Ok(outcome)
}

/// When JUPITER disables and enables itself, counted from the beginning and from the
/// end of the turning.
fn timeline(
    machine: &dyn Fn(Option<(Ns, Option<Ns>)>) -> anyhow::Result<super::mix::Mix>,
    effort: Effort<'_>,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    const PERIOD: Ns = Ns::from_ms(100);
    // The turning begins after 1 s of the window and lasts 1 s.
    const BEGIN: usize = 10;
    const END: usize = 20;
    let from = effort.warmup + PERIOD * BEGIN as u64;
    let until = effort.warmup + PERIOD * END as u64;
    let mix = machine(Some((from, Some(until))))?;
    let effort = Effort {
        window: Ns::from_secs(4),
        ..effort
    };
    let seen = |policy| series(&mix, policy, Some("disabled_periods"), effort, PERIOD);
    let (ours, base) = (seen("jupiter")?, seen("balance")?);
    // With most of the seeds.
    let off = |n: usize| ours[n].counted > 0.5;
    let steady = (0..BEGIN).filter(|n| off(*n)).count();
    outcome.row("periods disabled in the second before", steady as f64);
    // At the end of the period in which the switch turns the counter has counted it.
    let disabled = (BEGIN..END).find(|n| off(*n));
    let enabled = disabled.and_then(|_| (END..ours.len()).find(|n| !off(*n)));
    let turns = [
        ("disabled after, s", disabled, BEGIN),
        ("enabled again after, s", enabled, END),
    ];
    for (name, at, since) in turns {
        if let Some(at) = at {
            let seconds = (PERIOD * (at + 1 - since) as u64).as_secs_f64();
            outcome.row(name, seconds);
        }
    }
    // JUPITER over BS in some of the periods, if it is anything.
    let over = |periods: &dyn Fn(usize) -> bool| -> Option<f64> {
        let chosen = || (0..ours.len()).filter(|n| periods(*n));
        let bs: f64 = chosen().map(|n| base[n].rate).sum();
        (bs > 0.0).then(|| chosen().map(|n| ours[n].rate).sum::<f64>() / bs)
    };
    outcome.shape(
        "it disables itself while the load turns",
        disabled.is_some(),
    );
    outcome.shape("and comes back when it is steady", enabled.is_some());
    // "At first" is while the load turns and it has not noticed yet: before that the load
    // is the one of the end, when it is above.
    let first = disabled.and_then(|end| over(&|n| (BEGIN..end).contains(&n)));
    let during = over(&off);
    let after = enabled.and_then(|from| over(&|n| n > from));
    for (name, ratio) in [
        ("turning, still enabled: JUPITER over BS", first),
        ("enabled again: JUPITER over BS", after),
    ] {
        if let Some(ratio) = ratio {
            outcome.row(name, ratio);
        }
    }
    if let Some(during) = during {
        let below = (1.0 - during) * 100.0;
        outcome.row("while disabled: below BS, %", below);
        outcome.shape("while disabled less than 3 % below BS", below < 3.0);
    }
    let within = |ratio: Option<f64>, range: std::ops::Range<f64>| {
        ratio.is_some_and(|ratio| range.contains(&ratio))
    };
    outcome.shape("at first slightly below BS", within(first, 0.9..1.0));
    outcome.shape("then equal while disabled", within(during, 0.97..1.03));
    outcome.shape("then above", after.is_some_and(|ratio| ratio > 1.0));
    Ok(())
}
