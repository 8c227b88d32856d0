// SPDX-License-Identifier: Apache-2.0 OR MIT
//! JUPITER beside balance scheduling, conventional and demand-based coscheduling
//! (13.5): Fig 4.1, 4.3, 4.4, 4.5, 4.9, 4.10, 4.13.
//!
//! 16 pCPUs, VMs of 16 vCPUs, each VM a control group. A program is 16 threads that
//! compute for a while and meet; how long is what tells programs apart
//! ([`PROGRAMS`]). Nothing of a program is published but its name, so figures of
//! single programs mean little; means and orderings are what can be compared.

use units::Ns;

use super::did::Run;
use super::mix::Effort;
use super::mix::Mix;
use super::mix::Task;
use super::mix::Vm;
use super::mix::Work;
use super::mix::run;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::platforms;
use super::workloads::work;

/// Systems with the names of their policies.
pub(super) const SYSTEMS: [(&str, &str); 4] = [
    ("BS", "balance"),
    ("CC", "cosched"),
    ("DC", "demand"),
    ("JUPITER", "jupiter"),
];
/// The synchronisation-intensive set of 13.5; profiles.toml has what they do. XGBoost stands for its four programs.
pub(super) const PROGRAMS: [&str; 8] = [
    "streamcluster",
    "ocean_cp",
    "dedup",
    "bodytrack",
    "facesim",
    "volrend",
    "pbzip2",
    "xgboost",
];

/// pCPUs, and vCPUs of each VM.
pub(super) fn cpus(p: &Parameters) -> anyhow::Result<u32> {
    p.count("jupiter.pcpus")
}

/// The threads of the program, or partner, of this name: no device is theirs.
pub(super) fn program(p: &Parameters, name: &str) -> anyhow::Result<Work> {
    work(p, name, 0)
}

pub(super) fn vm(vcpus: u32, work: Work) -> Vm {
    Vm::new(vcpus, (0..vcpus).map(|v| Task::pinned(v, work)).collect()).grouped()
}

pub(super) fn machine(p: &Parameters, vms: Vec<Vm>) -> anyhow::Result<Mix> {
    Ok(Mix {
        pcpus: cpus(p)?,
        smt: None,
        costs: platforms::costs(p, "paper-jupiter")?,
        devices: Vec::new(),
        driver: None,
        vms,
        slice: Ns::from_ms(p.whole("jupiter.slice_ms")?),
        tuning: platforms::tuning(p, "paper-jupiter")?,
    })
}

/// Fig 4.1: streamcluster beside a partner: fft, radiosity, raytrace, programs that keep
/// more than half of the CPUs busy and talk all the while.
pub(super) fn motivation(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let vcpus = cpus(p)?;
    let sync = program(p, "streamcluster")?;
    let partner = program(p, "partner")?;
    let alone = |work| run(&machine(p, vec![vm(vcpus, work)])?, "balance", effort);
    let (did, other) = (alone(sync)?, alone(partner)?);
    let (solo, partner_solo) = (did.vms[0].rounds, other.vms[0].rounds);
    outcome.row("streamcluster alone: CPU use, %", did.busy * 100.0);
    outcome.row("partner alone: CPU use, %", other.busy * 100.0);
    let half = did.busy.min(other.busy) > 0.5;
    outcome.shape("alone each uses more than half of the CPUs", half);
    let mix = machine(p, vec![vm(vcpus, sync), vm(vcpus, partner)])?;
    let mut slow = Vec::new();
    let mut throughput = Vec::new();
    let mut busy = Vec::new();
    let all = SYSTEMS
        .into_iter()
        .chain([("leaky bucket", "leaky-bucket"), ("relaxed", "relaxed")]);
    let share = |run: &Run, n: usize| run.vms[n].cpu / f64::from(vcpus) * 100.0;
    for (shown, policy) in all {
        let did = run(&mix, policy, effort)?;
        slow.push(solo / did.vms[0].rounds.max(1e-9));
        let speeds = did.vms[0].rounds / solo * did.vms[1].rounds / partner_solo;
        throughput.push(speeds.sqrt());
        busy.push((share(&did, 0), share(&did, 1)));
        outcome.row(format!("{shown}: slowdown"), slow[slow.len() - 1]);
        outcome.row(format!("{shown}: CPU of streamcluster, %"), share(&did, 0));
        outcome.row(format!("{shown}: CPU of the partner, %"), share(&did, 1));
    }
    outcome.row(
        "DC: time less than BS, %",
        (1.0 - slow[2] / slow[0]) * 100.0,
    );
    outcome.row(
        "CC: time less than BS, %",
        (1.0 - slow[1] / slow[0]) * 100.0,
    );
    // One thread in one vCPU, two such VMs on one pCPU.
    let single = |vms: usize| -> anyhow::Result<Mix> {
        let mut mix = machine(p, vec![vm(1, sync); vms])?;
        mix.pcpus = 1;
        Ok(mix)
    };
    let alone = run(&single(1)?, "balance", effort)?.vms[0].rounds;
    let shared = run(&single(2)?, "balance", effort)?.vms[0].rounds;
    outcome.row("one thread: slowdown", alone / shared.max(1e-9));
    let far = busy[0].0 < 40.0 && busy[0].1 > 50.0;
    outcome.shape("the partner above 50 %, streamcluster far below", far);
    outcome.shape("far more than the fair 2 under BS", slow[0] > 3.0);
    outcome.shape("the leaky bucket shortens streamcluster", slow[4] < slow[0]);
    // Fig 4.3: of both programs, as in 4.9 the geometric mean of speeds.
    let relaxed = 1.0 - throughput[5] / throughput[1].max(1e-9);
    outcome.row("relaxed: throughput below strict, %", relaxed * 100.0);
    outcome.shape("relaxed gangs lower throughput", relaxed > 0.0);
    let both = busy[0].0 + busy[0].1;
    outcome.shape("both together use less than 70 % under BS", both < 70.0);
    Ok(outcome)
}

/// Rounds of all VMs, over a policy.
fn rounds(mix: &Mix, policy: &str, effort: Effort<'_>) -> anyhow::Result<f64> {
    Ok(run(mix, policy, effort)?.sum(|d| d.rounds))
}

/// Four VMs that run the same program.
pub(super) fn homogeneous(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let vcpus = cpus(p)?;
    let mut outcome = Outcome::default();
    let policies = [
        "balance",
        "cosched",
        "demand",
        "jupiter",
        "jupiter-dats",
        "jupiter-dasl",
        "jupiter-elb",
        "jupiter-no-rcr",
    ];
    let mut means = [0.0; 8];
    let part = 1.0 / PROGRAMS.len() as f64;
    for name in PROGRAMS {
        let mix = machine(p, vec![vm(vcpus, program(p, name)?); 4])?;
        let base = rounds(&mix, "balance", effort)?.max(1e-9);
        for (n, policy) in policies.into_iter().enumerate() {
            let over = rounds(&mix, policy, effort)? / base;
            if n > 0 {
                outcome.row(format!("{name}: {policy} over BS"), over);
            }
            means[n] += over * part;
        }
    }
    let [_, cc, dc, all, dats, dasl, elb, no_rcr] = means;
    outcome.row("JUPITER over BS", all);
    outcome.row("JUPITER over CC", all / cc);
    outcome.row("JUPITER over DC", all / dc);
    outcome.row("DATS alone over BS", dats);
    outcome.row("DASL alone over BS", dasl);
    outcome.row("ELB alone over BS", elb);
    outcome.row("DATS+DASL+ELB over BS", no_rcr);
    outcome.row("RCR added", all / no_rcr);
    outcome.shape("DASL before DATS before ELB", dasl > dats && dats > elb);
    outcome.shape(
        "JUPITER before all others",
        all > 1.0 && all > cc && all > dc,
    );
    Ok(outcome)
}

/// Two VMs, one with freqmine (little synchronisation) or dedup.
pub(super) fn pairs(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let vcpus = cpus(p)?;
    for co_runner in ["freqmine", "dedup"] {
        let work = program(p, co_runner)?;
        let mut weighted = [0.0; 4];
        let mut busy = [0.0; 4];
        let solo = |work| -> anyhow::Result<f64> {
            Ok(run(&machine(p, vec![vm(vcpus, work)])?, "balance", effort)?.vms[0].rounds)
        };
        let other = solo(work)?;
        let mut worst = 0;
        for name in PROGRAMS {
            let own = program(p, name)?;
            let alone = solo(own)?;
            let mix = machine(p, vec![vm(vcpus, own), vm(vcpus, work)])?;
            let mut speeds = [0.0; 4];
            for (n, (shown, policy)) in SYSTEMS.into_iter().enumerate() {
                let did = run(&mix, policy, effort)?;
                let speed = (did.vms[0].rounds / alone * did.vms[1].rounds / other).sqrt();
                speeds[n] = speed;
                outcome.row(
                    format!("{name} with {co_runner}/{shown}"),
                    speed / speeds[0].max(1e-9),
                );
                weighted[n] += speed / speeds[0].max(1e-9) / PROGRAMS.len() as f64;
                busy[n] += did.busy * 100.0 / PROGRAMS.len() as f64;
            }
            worst += usize::from(speeds[1] <= speeds.iter().copied().fold(f64::MAX, f64::min));
        }
        for (n, (shown, _)) in SYSTEMS.into_iter().enumerate() {
            outcome.row(
                format!("{co_runner}: JUPITER over {shown}"),
                weighted[3] / weighted[n],
            );
            outcome.row(format!("{co_runner}/{shown}: CPU use, %"), busy[n]);
        }
        // Fig 4.10's "deficits" of conventional coscheduling are more than all of it.
        for (n, shown) in [(0, "BS"), (2, "DC")] {
            let over = weighted[n] / weighted[1].max(1e-9);
            outcome.row(format!("{co_runner}: {shown} over CC"), over);
        }
        let most = worst * 2 > PROGRAMS.len();
        outcome.shape(&format!("{co_runner}: CC is worst for most programs"), most);
        // Sequential phases leave CPUs idle.
        let claim = format!("{co_runner}: CPU use of JUPITER below 100 %");
        outcome.shape(&claim, busy[3] < 99.9);
    }
    Ok(outcome)
}
