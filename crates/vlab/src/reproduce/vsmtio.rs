// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vSMT-IO beside Blocking, Polling, HaltPoll and its enhanced form (13.4): table B7,
//! table 3.1, settings 1 and 2.
//!
//! 24 cores of two hyperthreads. An I/O benchmark is a task per vCPU that computes,
//! waits for a request of its own, and so on; how long it computes and waits between
//! two halts follows from tables 3.5 and 3.7 under vanilla (see [`BENCHMARKS`]).
//! Computing partners compute.

use anyhow::bail;
use experiment::scenario::median_of_mean;
use sim::device::SsdSettings;
use sim::program::ReaderSettings;
use units::Ns;

use super::did::Run;
use super::mix::Dev;
use super::mix::Effort;
use super::mix::Mix;
use super::mix::Pins;
use super::mix::Task;
use super::mix::Vm;
use super::mix::Work;
use super::mix::run;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::platforms;
use super::workloads::Wait;
use super::workloads::wait as waits;
use super::workloads::work;

/// A benchmark of 13.4 and its partner of setting 2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Benchmark {
    pub(super) name: &'static str,
    pub(super) partner: &'static str,
    /// Its workload.
    pub(super) load: &'static str,
    /// That of a partner that waits, too: a server.
    serves: Option<&'static str>,
}

const fn benchmark(name: &'static str, partner: &'static str, load: &'static str) -> Benchmark {
    Benchmark {
        name,
        partner,
        load,
        serves: None,
    }
}

/// A vCPU of a benchmark halts once per run, ready and wait; each halt is two
/// switches of its hyperthread. So a cycle is 2 x 48 / (switches per second of table
/// 3.5) long, and table 3.7 divides it. The four without rows share the medians of
/// those with; DBT1 waits for a disk (M27).
pub(super) const BENCHMARKS: [Benchmark; 8] = [
    Benchmark {
        serves: Some("smt-nginx"),
        ..benchmark("RocksDB", "Nginx", "smt-rocksdb")
    },
    benchmark("ClamAV", "BinaryClassify", "smt-clamav"),
    benchmark("PgSql", "Regression", "smt-pgsql"),
    benchmark("MySQL", "Prediction", "smt-mysql"),
    benchmark("DBT1", "MultipleClassify", "smt-dbt1"),
    benchmark("HBase", "PageRank", "smt-other"),
    benchmark("MongoDB", "Kmeans", "smt-other"),
    benchmark("HDFS", "TeraSort", "smt-other"),
];

const PLATFORM: &str = "paper-smt";

/// What serves who waits so.
pub(super) fn device(p: &Parameters, wait: Wait) -> anyhow::Result<Dev> {
    let spread_permille = (p.get("smt.wait_spread")? * 1000.0) as u32;
    Ok(Dev::Ssd(SsdSettings {
        latency: median_of_mean(wait.mean, spread_permille),
        spread_permille,
        channels: wait.at_once,
        rate: p.whole("smt.mb_per_s")? * 1_000_000,
        turn: Ns::ZERO,
    }))
}

/// A machine of `threads` hyperthreads and a device for these waits.
pub(super) fn machine(
    p: &Parameters,
    threads: u32,
    wait: Wait,
    vms: Vec<Vm>,
) -> anyhow::Result<Mix> {
    machine_of(p, "smt.groups", threads, wait, vms)
}

/// That of table 3.1 and Fig 3.1: two VMs of 48 vCPUs.
pub(super) fn motivation_machine(p: &Parameters, wait: Wait, vms: Vec<Vm>) -> anyhow::Result<Mix> {
    let threads = p.count("smt.threads")?;
    machine_of(p, "smt.motivation_groups", threads, wait, vms)
}

/// VMs are control groups, as under libvirt, if the parameter `groups` says so.
fn machine_of(
    p: &Parameters,
    groups: &str,
    threads: u32,
    wait: Wait,
    mut vms: Vec<Vm>,
) -> anyhow::Result<Mix> {
    if p.get(groups)? != 0.0 {
        vms = vms.into_iter().map(Vm::grouped).collect();
    }
    Ok(Mix {
        pcpus: threads,
        smt: Some(platforms::smt(p)?),
        costs: platforms::costs(p, PLATFORM)?,
        devices: vec![device(p, wait)?, device(p, waits(p, "smt-nginx")?)?],
        driver: None,
        vms,
        slice: Ns::from_ms(p.whole("smt.slice_ms")?),
        tuning: platforms::tuning(p, PLATFORM)?,
    })
}

/// The device that an I/O benchmark waits for, and the one behind which a server's
/// clients are.
const DISK: u32 = 0;
const NETWORK: u32 = 1;

/// A VM with a task of this workload for each vCPU.
pub(super) fn io_vm(p: &Parameters, vcpus: u32, load: &str) -> anyhow::Result<Vm> {
    Ok(on_each(vcpus, work(p, load, DISK)?))
}

/// A VM with such a task for each vCPU, which stays there.
fn on_each(vcpus: u32, work: Work) -> Vm {
    let tasks = (0..vcpus).map(|v| Task::pinned(v, work)).collect();
    Vm::new(vcpus, tasks)
}

pub(super) fn cpu_vm(p: &Parameters, vcpus: u32) -> anyhow::Result<Vm> {
    Ok(on_each(vcpus, work(p, "compute", DISK)?))
}

/// The partner of a benchmark. Most compute; a server answers requests.
pub(super) fn partner_vm(p: &Parameters, b: &Benchmark, vcpus: u32) -> anyhow::Result<Vm> {
    match b.serves {
        None => cpu_vm(p, vcpus),
        Some(load) => Ok(on_each(vcpus, work(p, load, NETWORK)?)),
    }
}

/// Requests of the first half of the VMs, and what their partners get done.
pub(super) fn rates(run: &Run) -> (f64, f64) {
    let (half, all) = (run.vms.len() / 2, run.vms.len());
    let served = run.sum_of(half..all, |d| d.requests);
    (
        run.sum_of(0..half, |d| d.requests),
        run.sum(|d| d.compute) + served,
    )
}

/// Table 3.2: one core.
pub(super) fn smt(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    const SHORT: Ns = Ns::from_us(1);
    let mut outcome = Outcome::default();
    let pinned = |mut vm: Vm, pcpu: u32| {
        vm.pins = Pins::On(vec![pcpu]);
        vm
    };
    let matmul = || -> anyhow::Result<Vm> { Ok(pinned(cpu_vm(p, 1)?, 0)) };
    let message = waits(p, "smt-sockperf")?;
    let speed = |others: Vec<Vm>, mean: Ns, policy: &str| -> anyhow::Result<f64> {
        let mut vms = vec![matmul()?];
        vms.extend(others);
        let wait = Wait { mean, ..message };
        let mut mix = machine(p, 2, wait, vms)?;
        // Who switches all the time does nothing else: what they do in between is short.
        mix.costs.vcpu_switch = Ns::from_ms(1);
        Ok(run(&mix, policy, effort)?.vms[0].compute)
    };
    let alone = speed(Vec::new(), SHORT, "cfs")?;
    // Two vCPUs that hand the hyperthread to and fro all the time.
    let flick = || -> anyhow::Result<Vm> {
        let Work::Io(reader) = work(p, "smt-sockperf", DISK)? else {
            bail!("Sockperf sends no messages");
        };
        let submit = SHORT / p.whole("smt.submit_part")?.max(1);
        let briefest = Work::Io(ReaderSettings {
            submit,
            process: SHORT - submit,
            ..reader
        });
        Ok(pinned(on_each(1, briefest), 1))
    };
    let switching = speed(vec![flick()?, flick()?], SHORT, "blocking")?;
    let polls = speed(vec![flick()?], Ns::from_secs(1000), "polling")?;
    let computing = speed(vec![pinned(cpu_vm(p, 1)?, 1)], SHORT, "cfs")?;
    outcome.row("sibling idle, %", 100.0);
    outcome.row("sibling switches vCPUs, %", switching / alone * 100.0);
    outcome.row("sibling polls, %", polls / alone * 100.0);
    outcome.row("sibling computes, %", computing / alone * 100.0);
    Ok(outcome)
}

/// Table 3.1: two VMs of 48 vCPUs. Sockperf answers at once, Redis is as RocksDB.
pub(super) fn motivation(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let threads = p.count("smt.threads")?;
    let mut outcome = Outcome::default();
    for (pair, load) in [
        ("Sockperf+MatMul", "smt-sockperf"),
        ("Redis+PageRank", "smt-redis"),
    ] {
        let vms = vec![io_vm(p, threads, load)?, cpu_vm(p, threads)?];
        let mix = motivation_machine(p, waits(p, load)?, vms)?;
        let vanilla = run(&mix, "cfs", effort)?;
        for policy in ["haltpoll-enhanced", "vsmtio"] {
            let did = run(&mix, policy, effort)?;
            let (base, got) = (rates(&vanilla), rates(&did));
            outcome.row(
                format!("{pair}/{policy}: switches, K/s"),
                did.switches / 1000.0,
            );
            outcome.row(format!("{pair}/{policy}: spinning, %"), did.polling * 100.0);
            outcome.row(
                format!("{pair}/{policy}: I/O, %"),
                (got.0 / base.0 - 1.0) * 100.0,
            );
            outcome.row(
                format!("{pair}/{policy}: compute, %"),
                (got.1 / base.1 - 1.0) * 100.0,
            );
        }
    }
    Ok(outcome)
}

/// Fig 3.4: MatMul beside each benchmark.
pub(super) fn setting_1(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    const OTHERS: [&str; 3] = ["blocking", "polling", "haltpoll"];
    let threads = p.count("smt.threads")?;
    let mut outcome = Outcome::default();
    let mut sums = [(0.0, 0.0); 3];
    let mut worst: f64 = 0.0;
    for b in BENCHMARKS {
        let vms = vec![io_vm(p, threads / 2, b.load)?, cpu_vm(p, threads / 2)?];
        let mix = machine(p, threads, waits(p, b.load)?, vms)?;
        let ours = rates(&run(&mix, "vsmtio", effort)?);
        for (n, policy) in OTHERS.into_iter().enumerate() {
            let other = rates(&run(&mix, policy, effort)?);
            let gain = (ours.0 / other.0, ours.1 / other.1);
            outcome.row(format!("{}, I/O, vSMT-IO over {policy}", b.name), gain.0);
            outcome.row(format!("{}, MatMul, vSMT-IO over {policy}", b.name), gain.1);
            sums[n].0 += gain.0 / 8.0;
            sums[n].1 += gain.1 / 8.0;
            if policy == "polling" {
                worst = worst.max((1.0 - gain.0) * 100.0);
            }
        }
    }
    outcome.row("mean deficit to Polling, %", (1.0 - sums[1].0) * 100.0);
    outcome.row("largest deficit to Polling, %", worst);
    for (n, policy) in OTHERS.into_iter().enumerate() {
        outcome.row(
            format!("mean, MatMul over {policy}, %"),
            (sums[n].1 - 1.0) * 100.0,
        );
    }
    outcome.shape(
        "MatMul is fastest beside vSMT-IO",
        sums.iter().all(|s| s.1 > 1.0),
    );
    outcome.shape(
        "Polling costs MatMul most",
        sums[1].1 >= sums[0].1.max(sums[2].1),
    );
    Ok(outcome)
}

/// Fig 3.5, 3.7, tables 3.5 to 3.7: two VMs of each kind, two vCPUs per thread.
pub(super) fn setting_2(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    const POLICIES: [&str; 3] = ["cfs", "haltpoll-enhanced", "vsmtio"];
    const SHOWN: [&str; 3] = ["vanilla", "enhanced HaltPoll", "vSMT-IO"];
    let threads = p.count("smt.threads")?;
    let mut outcome = Outcome::default();
    let mut means = [(0.0, 0.0, 0.0, 0.0); 3];
    let mut ready_less = [0.0; 3];
    let mut most_switches = [0.0, f64::MAX, f64::MAX];
    // Table 3.6, over all pairs.
    let mut computing = 0.0;
    let mut hurt = true;
    for b in BENCHMARKS {
        let io = io_vm(p, threads / 2, b.load)?;
        let partner = partner_vm(p, &b, threads / 2)?;
        let mix = machine(
            p,
            threads,
            waits(p, b.load)?,
            vec![io.clone(), io, partner.clone(), partner],
        )?;
        let runs: Vec<Run> = POLICIES
            .iter()
            .map(|policy| run(&mix, policy, effort))
            .collect::<anyhow::Result<_>>()?;
        let base = rates(&runs[0]);
        for (n, did) in runs.iter().enumerate() {
            let pair = format!("{}+{}/{}", b.name, b.partner, SHOWN[n]);
            let got = rates(did);
            outcome.row(format!("{pair}: switches, K/s"), did.switches / 1000.0);
            let requests = did.sum_of(0..2, |d| d.requests).max(1.0);
            let of = |of: fn(&super::did::Did) -> f64| did.sum_of(0..2, of) * 1000.0 / requests;
            let (ran, ready, waited) = (of(|d| d.cpu), of(|d| d.ready), of(|d| d.halted));
            let response = ran + ready + waited;
            // Table 3.7 counts requests of the application: shares can be compared.
            outcome.row(format!("{pair}: running, share"), ran / response);
            outcome.row(format!("{pair}: ready, share"), ready / response);
            outcome.row(format!("{pair}: waiting, share"), waited / response);
            let base_ready =
                runs[0].sum_of(0..2, |d| d.ready) / runs[0].sum_of(0..2, |d| d.requests).max(1.0);
            let own_ready = did.sum_of(0..2, |d| d.ready) / requests;
            outcome.row(
                format!("{pair}: ready against vanilla, %"),
                (own_ready / base_ready - 1.0) * 100.0,
            );
            // HDFS is not among the seven of the mean.
            if b.name != "HDFS" {
                ready_less[n] += (1.0 - own_ready / base_ready) * 100.0 / 7.0;
            }
            if n == 1 && matches!(b.partner, "Nginx" | "Regression") {
                hurt &= got.1 < base.1;
            }
            if n > 0 {
                outcome.row(format!("{pair}: I/O against vanilla"), got.0 / base.0);
                outcome.row(format!("{pair}: compute against vanilla"), got.1 / base.1);
            }
            if n == 2 {
                let retained = did.odd_retaining * 100.0;
                outcome.row(format!("{pair}: retention on I/O threads, %"), retained);
                let had =
                    |vms: std::ops::Range<usize>| did.odd_for_vm[vms].iter().sum::<f64>() * 100.0;
                outcome.row(format!("{pair}: I/O work on I/O threads, %"), had(0..2));
                let compute = had(2..4);
                outcome.row(format!("{pair}: compute on I/O threads, %"), compute);
                computing += compute / 8.0;
            }
            let saved = 1.0 - did.switches / runs[0].switches.max(1.0);
            means[n].0 += got.0 / base.0 / 8.0;
            means[n].1 += got.1 / base.1 / 8.0;
            means[n].2 += saved * 100.0 / 8.0;
            means[n].3 += (1.0 - base.0 / got.0) * 100.0 / 8.0;
            most_switches[n] = f64::min(most_switches[n], 1.0 - saved);
        }
    }
    let [_, haltpoll, ours] = means;
    outcome.row(
        "mean, I/O, enhanced HaltPoll over vanilla, %",
        (haltpoll.0 - 1.0) * 100.0,
    );
    outcome.row(
        "mean, I/O, vSMT-IO over enhanced HaltPoll, %",
        (ours.0 / haltpoll.0 - 1.0) * 100.0,
    );
    outcome.row(
        "mean, compute, vSMT-IO over vanilla, %",
        (ours.1 - 1.0) * 100.0,
    );
    outcome.row(
        "mean, compute, vSMT-IO over enhanced HaltPoll, %",
        (ours.1 / haltpoll.1 - 1.0) * 100.0,
    );
    outcome.row("mean, compute on I/O threads, %", computing);
    outcome.row("switches saved by enhanced HaltPoll, %", haltpoll.2);
    outcome.row("switches saved by vSMT-IO, %", ours.2);
    outcome.row(
        "most switches saved by enhanced HaltPoll, %",
        (1.0 - most_switches[1]) * 100.0,
    );
    outcome.row(
        "most switches saved by vSMT-IO, %",
        (1.0 - most_switches[2]) * 100.0,
    );
    outcome.row("response time, enhanced HaltPoll, % less", haltpoll.3);
    outcome.row("response time, vSMT-IO, % less", ours.3);
    outcome.row("ready per request, vSMT-IO, % less", ready_less[2]);
    outcome.shape(
        "I/O: vSMT-IO before enhanced HaltPoll before vanilla",
        ours.0 > haltpoll.0 && haltpoll.0 > 1.0,
    );
    outcome.shape("enhanced HaltPoll hurts Nginx and Regression", hurt);
    outcome.shape("compute: vSMT-IO before both", ours.1 > haltpoll.1.max(1.0));
    outcome.shape("fewest switches under vSMT-IO", ours.2 > haltpoll.2);
    Ok(outcome)
}
