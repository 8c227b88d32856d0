// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 13.5's latency experiment: DBT1 (TPC-W) or MongoDB in one VM, PgSql in three.
//!
//! Every server answers a client with a thread of its own, one for each vCPU; a client
//! asks again as soon as it is answered. DBT1 and PgSql compute and wait as in 13.4, which
//! the same author ran; MongoDB as in Fig 4.14. Neither the numbers of clients nor
//! what they wait for are stated.

use super::jupiter::SYSTEMS;
use super::jupiter::cpus;
use super::jupiter::machine;
use super::jupiter_more::client;
use super::mix::Effort;
use super::mix::Mix;
use super::mix::Task;
use super::mix::Vm;
use super::mix::run;
use super::outcome::Outcome;
use super::parameters::Parameters;
use super::vmigrater;
use super::vsmtio::device;
use super::workloads::wait;
use super::workloads::work;

/// What PgSql and DBT1 wait for; device 0 is the SSD, MongoDB's.
const PGSQL: u32 = 1;
const DBT1: u32 = 2;

/// A server with its clients.
fn server(p: &Parameters, task: impl Fn(u32) -> anyhow::Result<Task>) -> anyhow::Result<Vm> {
    let vcpus = cpus(p)?;
    let clients = p.count("jupiter.server_clients")?;
    let tasks = (0..clients).map(|n| task(n % vcpus));
    Ok(Vm::new(vcpus, tasks.collect::<anyhow::Result<_>>()?).grouped())
}

fn beside(p: &Parameters, vms: Vec<Vm>) -> anyhow::Result<Mix> {
    let mut mix = machine(p, vms)?;
    mix.devices = vec![
        vmigrater::ssd(p)?,
        device(p, wait(p, "smt-pgsql")?)?,
        device(p, wait(p, "smt-dbt1")?)?,
    ];
    Ok(mix)
}

pub(super) fn latency(p: &Parameters, effort: Effort<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (dbt1, pgsql) = (work(p, "smt-dbt1", DBT1)?, work(p, "smt-pgsql", PGSQL)?);
    let servers = [
        ("DBT1", server(p, |v| Ok(Task::on(v, dbt1)))?),
        ("MongoDB", server(p, |v| client(p, v, None))?),
    ];
    let other = server(p, |v| Ok(Task::on(v, pgsql)))?;
    let clients = f64::from(p.count("jupiter.server_clients")?);
    // Each client has one request, so by Little's law they take this long.
    let response = |requests: f64| clients / requests.max(1e-9) * 1000.0;
    for (name, own) in servers {
        let alone = run(&beside(p, vec![own.clone()])?, "balance", effort)?;
        let solo = response(alone.vms[0].requests);
        outcome.row(format!("{name}/alone: response time, ms"), solo);
        let mut vms = vec![own];
        vms.extend(vec![other.clone(); 3]);
        let mix = beside(p, vms)?;
        for (shown, policy) in SYSTEMS {
            let did = run(&mix, policy, effort)?;
            let ms = response(did.vms[0].requests);
            outcome.row(format!("{name}/{shown}: response time, ms"), ms);
            let against = ms / solo.max(1e-9);
            outcome.row(format!("{name}/{shown}: against alone"), against);
            let throughput = did.sum_of(1..4, |d| d.requests) / 1000.0;
            let name = format!("PgSql beside {name}/{shown}: requests, K/s");
            outcome.row(name, throughput);
        }
    }
    Ok(outcome)
}
