// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 13.1's other figures: 2, 11 to 15.

use sim::device::Elevator;
use sim::device::HddSettings;
use sim::machine::NORMAL_WEIGHT;
use units::Ns;

use super::mix::Dev;
use super::mix::Effort;
use super::mix::Mix;
use super::mix::Pins;
use super::mix::Task;
use super::mix::UNCOUNTED;
use super::mix::Vm;
use super::mix::Work;
use super::mix::run;
use super::mix::series;
use super::mix::session;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::vmigrater::APPS;
use super::vmigrater::ARMS;
use super::vmigrater::app_vm;
use super::vmigrater::cpus;
use super::vmigrater::daemon;
use super::vmigrater::host;
use super::vmigrater::kernel;
use super::vmigrater::same;
use super::vmigrater::ssd;
use super::workloads::reader;
use super::workloads::work;

/// The disk of Fig 2 and 15: CFQ with its 8 ms (C15).
fn hdd(p: &Parameters) -> anyhow::Result<Dev> {
    Ok(Dev::Hdd(HddSettings {
        seek: p.us("hdd.seek_us")?,
        rate: p.whole("hdd.mb_per_s")? * 1_000_000,
        elevator: Elevator::Cfq {
            wait: p.ms("hdd.wait_ms")?,
            slice: p.us("hdd.cfq_slice_us")?,
        },
    }))
}

/// A sequential reader of a disk, each in a region of its own.
fn sequential(p: &Parameters, n: u64) -> anyhow::Result<Work> {
    reader(p, "testdfsio", 0, n << 34)
}

/// A VM of `vcpus` that computes on all of them and has these I/O tasks.
fn busy_vm(p: &Parameters, vcpus: u32, io: &[Work]) -> anyhow::Result<Vm> {
    let compute = work(p, "compute", 0)?;
    let all = (0..vcpus).map(|v| Task::pinned(v, compute)).collect();
    let mut tasks = session(p, all)?;
    for (n, work) in io.iter().enumerate() {
        tasks.push(Task::on(n as u32 % vcpus, *work));
    }
    let mut vm = Vm::new(vcpus, tasks);
    vm.pins = Pins::RoundRobin;
    vm.kernel = kernel(p, vcpus, p.us("micro.migration_us")?)?;
    Ok(vm)
}

/// One VM or two, a reader or two.
pub(super) fn fig2(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let cpus = p.count("fig2.pcpus")?;
    let (first, second) = (sequential(p, 0)?, sequential(p, 1)?);
    let under = |policy: &str, vms: Vec<Vm>| -> anyhow::Result<Vec<f64>> {
        let did = run(&host(p, cpus, vms, hdd(p)?)?, policy, effort)?;
        Ok(did.vms.iter().map(|d| d.bytes).collect())
    };
    let bytes = |vms: Vec<Vm>| under("cfs", vms);
    let total = |bytes: &[f64]| bytes.iter().sum::<f64>();
    let none = busy_vm(p, cpus, &[])?;
    let solo = total(&bytes(vec![busy_vm(p, cpus, &[first])?])?);
    let shared = bytes(vec![busy_vm(p, cpus, &[first])?, none.clone()])?;
    let drop = |now: f64, before: f64| (1.0 - now / before.max(1.0)) * 100.0;
    outcome.row("a: throughput drop, %", drop(total(&shared), solo));
    let solo_two = total(&bytes(vec![busy_vm(p, cpus, &[first, second])?])?);
    let two = bytes(vec![
        busy_vm(p, cpus, &[first])?,
        busy_vm(p, cpus, &[second])?,
    ])?;
    outcome.row("b: total throughput drop, %", drop(total(&two), solo_two));
    let mut unequal = [busy_vm(p, cpus, &[first])?, busy_vm(p, cpus, &[second])?];
    unequal[0].weight = NORMAL_WEIGHT / 4;
    let shares = bytes(unequal.to_vec())?;
    outcome.row("c: VM2 over VM1", shares[1] / shares[0].max(1.0));
    let mut equal = true;
    for (shown, policy) in [("no sharing", "cfs"), ("bare metal", "fixed")] {
        // Two runs that differ in nothing but which of the two tasks is counted.
        let of =
            |n| -> anyhow::Result<f64> { Ok(total(&under(policy, vec![instances(p, cpus, n)?])?)) };
        let ratio = of(1)? / of(0)?.max(1.0);
        outcome.row(format!("c, {shown}: task 2 over task 1"), ratio);
        equal &= (0.9..1.1).contains(&ratio);
    }
    let bare = total(&under("fixed", vec![busy_vm(p, cpus, &[first])?])?);
    let same = (bare / solo.max(1.0) - 1.0).abs() < 0.05;
    outcome.shape("a: no sharing is about as bare metal", same);
    let more = drop(total(&two), solo_two) > 50.0;
    outcome.shape("b: more is lost than the CPU share", more);
    outcome.shape("c: both tasks about equal without sharing", equal);
    Ok(outcome)
}

/// Fig 2(c) without sharing: two I/O tasks with 20 and 80 % as their shares in one VM
/// that computes on all of its vCPUs. Only the I/O of the `counted` one is.
fn instances(p: &Parameters, cpus: u32, counted: u32) -> anyhow::Result<Vm> {
    let mut vm = busy_vm(p, cpus, &[])?;
    for (n, share) in [(0, 20), (1, 80)] {
        let mut task = Task::on(n, sequential(p, u64::from(n))?);
        // As in Fig 15: 50 % is the normal weight.
        task.weight = NORMAL_WEIGHT * share / 50;
        task.group = (n != counted).then_some(UNCOUNTED);
        vm.tasks.push(task);
    }
    Ok(vm)
}

pub(super) fn fig11(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut ratios = Vec::new();
    // By system, against vanilla: the most of the others, and MediaTomb's.
    let mut most = [(0.0, 0.0); 4];
    for name in APPS {
        let mut ms = [0.0; 4];
        for (ms, arm) in ms.iter_mut().zip(ARMS) {
            *ms = same(p, name, arm, 2, effort)?.vms[0].latency_ms;
            outcome.row(format!("{name}/{}, ms", arm.0), *ms);
        }
        ratios.push(ms[1] / ms[3].max(1e-6));
        for (most, own) in most.iter_mut().zip(ms) {
            let against = own / ms[0].max(1e-6);
            if name == "mediatomb" {
                most.1 = against;
            } else {
                most.0 = f64::max(most.0, against);
            }
        }
    }
    let high = most[1..].iter().all(|(others, own)| own > others);
    outcome.shape("MediaTomb is high for all three", high);
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let equal = (0.75..1.33).contains(&mean);
    outcome.shape("vMigrater and xBalloon about equal", equal);
    Ok(outcome)
}

/// What computes beside which applications (13.1): ClamAV's scan beside PostMark. One
/// computes as the other here, so what tells them apart is what they run beside.
const CO_RUNNERS: [(&str, &[&str]); 3] = [
    ("TeraSort", &["hdfs", "hbase"]),
    ("WordCount", &["leveldb", "mongodb"]),
    ("ClamAV", &["postmark"]),
];

/// What compute beside I/O loses; the number of VMs is not stated: 2.
pub(super) fn fig12(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut sums = [0.0; 4];
    let mut count = 0.0;
    for (co_runner, apps) in CO_RUNNERS {
        for app in apps {
            let mut kept = [0.0; 4];
            for (kept, arm) in kept.iter_mut().zip(ARMS) {
                *kept = same(p, app, arm, 2, effort)?.sum(|d| d.compute);
            }
            for (n, arm) in ARMS.iter().enumerate().skip(1) {
                let against = kept[n] / kept[0].max(1e-9);
                let name = format!("{co_runner} with {app}/{}: compute", arm.0);
                outcome.row(name + " against vanilla", against);
                sums[n] += against;
            }
            count += 1.0;
        }
    }
    let kept = sums.map(|sum| sum / f64::max(count, 1.0));
    for (n, arm) in ARMS.iter().enumerate().skip(1) {
        outcome.row(format!("{}: compute against vanilla", arm.0), kept[n]);
    }
    outcome.shape("xBalloon costs more than vSlicer", kept[3] < kept[2]);
    outcome.shape("vSlicer costs more than vMigrater", kept[2] < kept[1]);
    outcome.shape("vMigrater costs about nothing", kept[1] > 0.95);
    Ok(outcome)
}

/// A client that uses a fifth of a CPU if nothing is in its way.
fn client(p: &Parameters, n: u64) -> anyhow::Result<Work> {
    reader(p, "client", 0, n << 30)
}

/// Two VMs, with clients in each.
fn served(p: &Parameters, arm: &str, clients: &[(Ns, u32)]) -> anyhow::Result<super::mix::Mix> {
    let cpus = p.count("client.pcpus")?;
    let start_up = p.ms("client.start_up_ms")?;
    let mut tasks = Vec::new();
    for (at, count) in clients {
        for _ in 0..*count {
            let n = tasks.len() as u32;
            let mut task = Task::on(n % cpus, client(p, u64::from(n))?);
            task.at = *at;
            if *at > Ns::ZERO {
                task.start_up = start_up;
            }
            tasks.push(task);
        }
    }
    let mut vm = Vm::new(cpus, tasks);
    vm.pins = Pins::RoundRobin;
    vm.kernel = kernel(p, cpus, p.us("micro.migration_us")?)?;
    let demand_permille = 1000 / (1 + p.count("client.waits")?);
    vm.daemon = daemon(p, arm, demand_permille, 2)?;
    host(p, cpus, vec![vm; 2], ssd(p)?)
}

pub(super) fn fig13(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut all = Vec::new();
    for clients in [4, 8, 12, 16, 20, 24, 32, 40] {
        let mut rates = [0.0; 4];
        for (rate, arm) in rates.iter_mut().zip(ARMS) {
            let mix = served(p, arm.0, &[(Ns::ZERO, clients / 2)])?;
            *rate = run(&mix, arm.1, effort)?.sum(|d| d.bytes) / 1e6;
            outcome.row(format!("{clients} clients/{}, MB/s", arm.0), *rate);
        }
        all.push((clients, rates));
    }
    let within = |a: f64, b: f64, part: f64| (a / b.max(1e-9) - 1.0).abs() < part;
    let few = all.iter().filter(|(clients, _)| *clients < 10);
    let equal = few
        .clone()
        .all(|(_, r)| within(r[2], r[1], 0.1) && within(r[3], r[1], 0.1));
    outcome.shape("below 10 clients all are equal", equal);
    let at = |clients| {
        all.iter()
            .find(|(n, _)| *n == clients)
            .map_or([0.0; 4], |a| a.1)
    };
    let twenty = at(20);
    outcome.shape(
        "20 clients: xBalloon about vMigrater",
        within(twenty[3], twenty[1], 0.15),
    );
    let forty = at(40);
    let ahead = forty[1] > 1.2 * forty[2].max(forty[3]);
    outcome.shape("40 clients: vMigrater far ahead", ahead);
    Ok(outcome)
}

/// Clients that come in three steps.
pub(super) fn fig14(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let begin = effort.warmup;
    let mut steps = Vec::new();
    let mut clients = vec![(Ns::ZERO, p.count("fig14.clients")? / 2)];
    for step in 1..=3 {
        let at = p.ms(&format!("fig14.step_{step}_ms"))?;
        clients.push((begin + at, p.count(&format!("fig14.more_{step}"))? / 2));
        steps.push((at.as_ns() / Ns::from_secs(1).as_ns()) as usize);
    }
    let mix = served(p, "vMigrater", &clients)?;
    let effort = Effort {
        window: Ns::from_secs(14),
        ..effort
    };
    let rates = rates(&mix, effort, Ns::from_ms(250))?;
    let mb = |from: usize, to: usize| {
        rates[from..to].iter().sum::<f64>() / f64::max((to - from) as f64, 1.0) / 1e6
    };
    outcome.row("before the last step, MB/s", mb(40, 44));
    outcome.row("plateau at the end, MB/s", mb(50, 56));
    let dip = |s: usize| {
        rates[s * 4..s * 4 + 4]
            .iter()
            .copied()
            .fold(f64::MAX, f64::min)
            / 1e6
    };
    for s in &steps {
        outcome.row(format!("least in the second after {s} s, MB/s"), dip(*s));
    }
    let dips = steps.iter().any(|s| dip(*s) < 0.9 * mb(s * 4 - 4, s * 4));
    outcome.shape("a dip after a step", dips);
    outcome.shape("then back to the plateau", mb(50, 56) > 0.9 * mb(40, 44));
    doubled(p, effort, &mut outcome)?;
    Ok(outcome)
}

/// I/O bytes per second in each step.
fn rates(mix: &Mix, effort: Effort<'_>, step: Ns) -> anyhow::Result<Vec<f64>> {
    let steps = series(mix, "cfs", None, effort, step)?;
    Ok(steps.iter().map(|step| step.rate).collect())
}

/// V25: 16 clients become 32. By how much throughput falls, against the mean of the
/// second before, and how long it takes until it is back at nine tenths of that.
fn doubled(p: &Parameters, effort: Effort<'_>, outcome: &mut Outcome) -> anyhow::Result<()> {
    const STEP: Ns = Ns::from_ms(100);
    let at = effort.warmup + Ns::from_secs(2);
    let mix = served(p, "vMigrater", &[(Ns::ZERO, 8), (at, 8)])?;
    let effort = Effort {
        window: Ns::from_secs(6),
        ..effort
    };
    let rates = rates(&mix, effort, STEP)?;
    let before = rates[10..20].iter().sum::<f64>() / 10.0;
    let least = rates[20..30].iter().copied().fold(f64::MAX, f64::min);
    outcome.row(
        "16 to 32 clients: throughput falls by, %",
        (1.0 - least / before.max(1.0)) * 100.0,
    );
    let low = |rate: &f64| *rate < 0.9 * before;
    let back = rates[20..].iter().rposition(low).map_or(0, |n| n + 1);
    outcome.row(
        "16 to 32 clients: until it is back, s",
        (STEP * back as u64).as_secs_f64(),
    );
    Ok(())
}

/// HDD with CFQ, two VMs with unequal CPU shares, equal I/O priority.
pub(super) fn fig15(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut fair = true;
    let mut follows = true;
    for (first, second) in [(90, 10), (80, 20), (70, 30), (60, 40)] {
        let mut ratios = [0.0; 2];
        for (ratio, arm) in ratios.iter_mut().zip(ARMS) {
            let mut vms = Vec::new();
            for (n, share) in [(0, first), (1, second)] {
                let mut vm = app_vm(p, "hdfs", arm.0, 2, 0)?;
                // Each VM's reader has its own region of the disk.
                vm.tasks.push(Task::on(0, sequential(p, n)?));
                vm.weight = NORMAL_WEIGHT * share / 50;
                vms.push(vm);
            }
            let did = run(&host(p, cpus(p)?, vms, hdd(p)?)?, arm.1, effort)?;
            *ratio = did.vms[0].bytes / did.vms[1].bytes.max(1.0);
            outcome.row(format!("{first}/{second}: VM1 over VM2, {}", arm.0), *ratio);
        }
        follows &= ratios[0] > 1.1;
        fair &= (0.85..1.18).contains(&ratios[1]);
    }
    outcome.shape("vanilla follows the CPU shares", follows);
    outcome.shape("vMigrater: both VMs about equal", fair);
    Ok(outcome)
}
