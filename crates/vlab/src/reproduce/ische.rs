// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSche beside Xen's credit scheduler (13.3): dd, netperf and ping beside CPU loops.
//!
//! 4 pCPUs, the driver domain and 4 VMs, a CPU loop on each vCPU of all of them, dd
//! and a ping in one, or netperf. Not stated (S8): vCPUs per VM and I/O cores.

use sim::device::Elevator;
use sim::device::HddSettings;
use sim::device::NetSettings;

use super::mix::Dev;
use super::mix::Driver;
use super::mix::Effort;
use super::mix::Mix;
use super::mix::Task;
use super::mix::Vm;
use super::mix::Work;
use super::mix::run;
use super::mix::session;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::platforms;
use super::tuning::Tuning;
use super::workloads::work;

const DISK: u32 = 0;
const NET: u32 = 1;

/// What the I/O-intensive VM does beside its loops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// dd reads 64 kB after 64 kB, and the kernel reads ahead.
    Read,
    /// dd writes into the page cache, which has as much under way as in 13.2.
    Write,
    /// netperf's TCP_STREAM: as Iperf in 13.2.
    Stream,
    /// Nothing but the pings.
    Pings,
}

fn io(p: &Parameters, load: Load) -> anyhow::Result<Option<Work>> {
    Ok(Some(match load {
        Load::Read => work(p, "ische-dd", DISK)?,
        Load::Write => work(p, "ische-dd-write", DISK)?,
        Load::Stream => work(p, "netperf", NET)?,
        Load::Pings => return Ok(None),
    }))
}

/// So many pCPUs, vCPUs of each VM, and VMs.
fn machine(
    p: &Parameters,
    (pcpus, vcpus, vms): (u32, u32, usize),
    load: Load,
) -> anyhow::Result<Mix> {
    let one = work(p, "compute", 0)?;
    let loops = || session(p, (0..vcpus).map(|v| Task::pinned(v, one)).collect());
    let backend = work(p, "ische-back-end", 0)?;
    let mut dom0 = Vm::new(vcpus, (0..vcpus).map(|v| Task::on(v, backend)).collect());
    dom0.io = false;
    let mut tasks = loops()?;
    tasks.extend(io(p, load)?.map(|work| Task::on(0, work)));
    // A ping would wait behind all that netperf has under way.
    if load != Load::Stream {
        tasks.push(Task::on(vcpus - 1, work(p, "ping", NET)?));
    }
    let mut all = vec![dom0, Vm::new(vcpus, tasks)];
    all.extend(vec![Vm::new(vcpus, loops()?); vms - 1]);
    Ok(Mix {
        pcpus,
        smt: None,
        costs: platforms::costs(p, "paper-xen")?,
        devices: vec![
            Dev::Hdd(HddSettings {
                seek: p.us("hdd.seek_us")?,
                rate: (p.get("ische.disk_mb_per_s")? * 1e6) as u64,
                elevator: Elevator::WorkConserving,
            }),
            Dev::Net(NetSettings {
                rate: (p.get("ische.net_mb_per_s")? * 1e6) as u64,
                under_way: p.us("ische.under_way_us")?,
                spread_permille: p.count("xen.spread_permille")?,
                interval: p.us("ische.ping_interval_us")?,
            }),
        ],
        driver: Some(Driver::of(0)),
        vms: all,
        slice: p.ms("ische.slice_ms")?,
        tuning: Tuning::default(),
    })
}

pub(super) fn ische(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let pcpus = p.count("ische.pcpus")?;
    let all = (pcpus, p.count("ische.vcpus")?, 4);
    let mix = machine(p, all, Load::Read)?;
    let writes = machine(p, all, Load::Write)?;
    let streams = machine(p, all, Load::Stream)?;
    let mut mb = [0.0; 2];
    let mut trip = [0.0; 2];
    for (n, policy) in ["credit1", "ische"].into_iter().enumerate() {
        let did = run(&mix, policy, effort)?.vms[1];
        mb[n] = did.bytes / 1e6;
        trip[n] = did.trip_ms;
        outcome.row(format!("dd, MB/s/{policy}"), mb[n]);
        outcome.row(format!("ping, ms/{policy}"), trip[n]);
        outcome.row(format!("largest ping, ms/{policy}"), did.trip_max_ms);
        let did = run(&writes, policy, effort)?.vms[1];
        outcome.row(format!("dd write, MB/s/{policy}"), did.bytes / 1e6);
        let did = run(&streams, policy, effort)?.vms[1];
        let megabits = did.bytes * 8.0 / 1e6;
        outcome.row(format!("netperf TCP_STREAM, Mb/s/{policy}"), megabits);
    }
    outcome.row("dd, iSche over credit", mb[1] / mb[0].max(1e-9));
    outcome.shape("ping is faster under iSche", trip[1] < trip[0]);
    let mut worst = Vec::new();
    let mut means = Vec::new();
    for vms in [2, 3, 4] {
        // One vCPU each: with 4 VMs an answer waits for three slices of others (S9).
        let did = run(&machine(p, (1, 1, vms), Load::Pings)?, "credit1", effort)?.vms[1];
        outcome.row(format!("one pCPU, {vms} VMs: ping, ms"), did.trip_ms);
        outcome.row(
            format!("one pCPU, {vms} VMs: largest ping, ms"),
            did.trip_max_ms,
        );
        worst.push(did.trip_max_ms);
        means.push(did.trip_ms);
    }
    outcome.row("worst ping, 4 VMs over 2", worst[2] / worst[0].max(1e-9));
    outcome.shape("ping grows with VMs per core", means[2] > means[0]);
    Ok(outcome)
}
