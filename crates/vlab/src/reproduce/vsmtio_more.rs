// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 13.4's other figures: 3.1 (timeouts), 3.6 (parts), 3.8 and 3.9 (mixes).

use units::Ns;

use super::mix::Effort;
use super::mix::run;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::vsmtio::BENCHMARKS;
use super::vsmtio::cpu_vm;
use super::vsmtio::io_vm;
use super::vsmtio::machine;
use super::vsmtio::motivation_machine;
use super::vsmtio::rates;
use super::workloads::wait as waits;

/// Fig 3.1, Redis and PageRank: (a) longest timeouts of enhanced HaltPoll, (b) scheduling
/// delays of vanilla KVM. Only the ends of the axis of (a) are stated, none of (b)'s.
pub(super) fn timeout(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let threads = p.count("smt.threads")?;
    let mut outcome = Outcome::default();
    let vms = vec![io_vm(p, threads, "smt-redis")?, cpu_vm(p, threads)?];
    let mut mix = motivation_machine(p, waits(p, "smt-redis")?, vms)?;
    let vanilla = rates(&run(&mix, "cfs", effort)?);
    let gain = |got: (f64, f64)| {
        (
            (got.0 / vanilla.0 - 1.0) * 100.0,
            (got.1 / vanilla.1 - 1.0) * 100.0,
        )
    };
    let mut gains = Vec::new();
    for us in [10, 50, 200, 500, 1000, 2000, 5000] {
        mix.tuning.poll_max = Ns::from_us(us);
        let gained = gain(rates(&run(&mix, "haltpoll-enhanced", effort)?));
        outcome.row(format!("{us} us, I/O, %"), gained.0);
        outcome.row(format!("{us} us, compute, %"), gained.1);
        gains.push(gained);
    }
    let flat = |a: (f64, f64), b: (f64, f64)| (a.0 - b.0).abs() < 5.0 && (a.1 - b.1).abs() < 5.0;
    outcome.shape("flat between 200 and 500 us", flat(gains[2], gains[3]));
    outcome.shape("Redis is slower beyond 500 us", gains[6].0 < gains[3].0);
    let mut delays = Vec::new();
    for ms in [1, 2, 4, 8, 16] {
        mix.tuning.delay = Some(Ns::from_ms(ms));
        let gained = gain(rates(&run(&mix, "cfs", effort)?));
        outcome.row(format!("delay of {ms} ms, I/O against 4 ms, %"), gained.0);
        outcome.row(
            format!("delay of {ms} ms, compute against 4 ms, %"),
            gained.1,
        );
        delays.push(gained);
    }
    let trades = delays[4].0 < delays[0].0 && delays[4].1 > delays[0].1;
    outcome.shape("a longer delay trades I/O for compute", trades);
    let mean = |d: &(f64, f64)| (d.0 + d.1) / 2.0;
    outcome.shape(
        "a longer delay barely changes the mean",
        (mean(&delays[4]) - mean(&delays[0])).abs() < 10.0,
    );
    Ok(outcome)
}

/// Retention alone, with unbalanced scheduling, with all.
pub(super) fn parts(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let threads = p.count("smt.threads")?;
    let mut outcome = Outcome::default();
    let mut io_from_retention = true;
    let mut compute_from_rass = true;
    let (mut hardly, mut helps) = (true, true);
    for b in BENCHMARKS
        .iter()
        .filter(|b| matches!(b.name, "HBase" | "MongoDB"))
    {
        let (io, cpu) = (io_vm(p, threads / 2, b.load)?, cpu_vm(p, threads / 2)?);
        let mix = machine(
            p,
            threads,
            waits(p, b.load)?,
            vec![io.clone(), io, cpu.clone(), cpu],
        )?;
        let base = rates(&run(&mix, "cfs", effort)?);
        let mut gains = Vec::new();
        for (shown, policy) in [
            ("retention alone", "vsmtio-ltcr"),
            ("and unbalanced", "vsmtio-unbalanced"),
            ("and adjuster", "vsmtio"),
        ] {
            let got = rates(&run(&mix, policy, effort)?);
            let gain = (
                (got.0 / base.0 - 1.0) * 100.0,
                (got.1 / base.1 - 1.0) * 100.0,
            );
            outcome.row(format!("{}, {shown}, %", b.name), gain.0);
            outcome.row(format!("{}, {shown}, %", b.partner), gain.1);
            gains.push(gain);
        }
        io_from_retention &= gains[0].0 > gains[1].0 - gains[0].0;
        compute_from_rass &= gains[1].1 - gains[0].1 > gains[0].1;
        hardly &= gains[0].1.abs() < 5.0;
        helps &= gains[1].0 > gains[0].0 && gains[1].1 > gains[0].1;
    }
    outcome.shape("I/O gains come mainly from retention", io_from_retention);
    outcome.shape(
        "compute gains come mainly from unbalanced scheduling",
        compute_from_rass,
    );
    outcome.shape("retention alone hardly helps PageRank and Kmeans", hardly);
    outcome.shape("unbalanced scheduling added helps all four", helps);
    Ok(outcome)
}

/// 96 vCPUs, more and more of them for I/O; 8 VMs.
pub(super) fn mixes(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let threads = p.count("smt.threads")?;
    let mut outcome = Outcome::default();
    let mut gains = Vec::new();
    for b in BENCHMARKS
        .iter()
        .filter(|b| matches!(b.name, "HBase" | "MongoDB"))
    {
        for (io, cpu) in [(12, 36), (18, 30), (24, 24), (30, 18), (36, 12)] {
            let io_vm = io_vm(p, io, b.load)?;
            let cpu_vm = cpu_vm(p, cpu)?;
            let vms = vec![io_vm.clone(), io_vm, cpu_vm.clone(), cpu_vm];
            let mix = machine(p, threads, waits(p, b.load)?, vms)?;
            let base = rates(&run(&mix, "cfs", effort)?);
            let got = rates(&run(&mix, "vsmtio", effort)?);
            let mean = (got.0 / base.0 + got.1 / base.1) / 2.0;
            outcome.row(
                format!("{}+{}, {}:{}", b.name, b.partner, 2 * io, 2 * cpu),
                mean,
            );
            gains.push(mean);
        }
    }
    let homogeneous = machine(
        p,
        threads,
        waits(p, "smt-other")?,
        vec![cpu_vm(p, threads)?; 2],
    )?;
    let base = rates(&run(&homogeneous, "cfs", effort)?).1;
    let got = rates(&run(&homogeneous, "vsmtio", effort)?).1;
    outcome.row("0:96, compute against vanilla", got / base);
    let peak = gains.chunks(5).all(|g| g.iter().all(|gain| *gain <= g[2]));
    outcome.shape("gain is largest at equal numbers", peak);
    outcome.shape("computation alone loses less than 2 %", got > 0.98 * base);
    let b = BENCHMARKS[5];
    let (io, cpu) = (io_vm(p, threads / 2, b.load)?, cpu_vm(p, threads / 2)?);
    let mut eight = vec![io; 4];
    eight.extend(vec![cpu; 4]);
    let mix = machine(p, threads, waits(p, b.load)?, eight)?;
    let base = rates(&run(&mix, "cfs", effort)?);
    let got = rates(&run(&mix, "vsmtio", effort)?);
    let mean = (got.0 / base.0 + got.1 / base.1) / 2.0;
    outcome.row("8 VMs, 192 vCPUs, HBase+PageRank", mean);
    let similar = (mean / gains[2] - 1.0).abs() < 0.2;
    outcome.shape("8 VMs gain about as much as 4", similar);
    Ok(outcome)
}
