// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of 13.4.

use experiment::result::VmWork;

use super::Case;
use super::SAME;
use super::case;
use super::ops;
use super::sum;

/// Requests of the first half of the VMs, and what the others get done.
fn halves(vms: &[VmWork]) -> (f64, f64) {
    let (io, others) = vms.split_at(vms.len() / 2);
    let served = |vm: &VmWork| vm.loads.iter().map(|load| load.ops_per_s).sum::<f64>();
    (
        sum(io, ops),
        others.iter().map(|vm| vm.compute + served(vm)).sum(),
    )
}

const CLAMAV: &str = "device.disk.mean = $smt.clamav_wait_us";

pub(crate) const CASES: &[Case] = &[
    case("paper-vsmtio", |file| {
        let of = |host: &str| halves(&file.vms(&[CLAMAV, host]));
        let (cfs, ours) = (of("= cfs"), of("= vsmtio"));
        let row = |what: &str| format!("ClamAV+BinaryClassify/vSMT-IO: {what} against vanilla");
        file.agrees("vsmtio-setting2", &row("I/O"), ours.0 / cfs.0, SAME);
        file.agrees("vsmtio-setting2", &row("compute"), ours.1 / cfs.1, SAME);
    }),
    case("paper-vsmtio-nginx", |file| {
        let of = |host: &str| halves(&file.vms(&[host]));
        let (cfs, ours) = (of("= cfs"), of("= vsmtio"));
        let row = |what: &str| format!("RocksDB+Nginx/vSMT-IO: {what} against vanilla");
        file.agrees("vsmtio-setting2", &row("I/O"), ours.0 / cfs.0, SAME);
        file.agrees("vsmtio-setting2", &row("compute"), ours.1 / cfs.1, SAME);
    }),
    case("paper-vsmtio-setting1", |file| {
        let of = |host: &str| file.vms(&[CLAMAV, host]);
        let (blocking, ours) = (of("= blocking"), of("= vsmtio"));
        let row = |what: &str| format!("ClamAV, {what}, vSMT-IO over blocking");
        let io = ops(&ours[0]) / ops(&blocking[0]);
        file.agrees("vsmtio-setting1", &row("I/O"), io, SAME);
        let matmul = ours[1].compute / blocking[1].compute;
        file.agrees("vsmtio-setting1", &row("MatMul"), matmul, SAME);
    }),
    case("paper-vsmtio-motivation", |file| {
        let redis = "device.disk.mean = $smt.redis_wait_us";
        let io = |host: &str| halves(&file.vms(&[redis, host])).0;
        let vanilla = io("sim.host = cfs, sim.policy = {}");
        let gain = |host| (io(host) / vanilla - 1.0) * 100.0;
        let ours = gain("sim.host = vsmtio");
        file.agrees(
            "vsmtio-motivation",
            "Redis+PageRank/vsmtio: I/O, %",
            ours,
            1e-4,
        );
        for (row, host) in [
            ("200 us, I/O, %", "poll_max = \"200 us\""),
            (
                "delay of 16 ms, I/O against 4 ms, %",
                "wakeup_granularity = \"16 ms\"",
            ),
        ] {
            file.agrees("vsmtio-timeout", row, gain(host), 1e-4);
        }
    }),
    case("paper-vsmtio-parts", |file| {
        let io = |host: &str| halves(&file.vms(&[host])).0;
        let vanilla = io("sim.host = cfs");
        for (row, host) in [
            ("HBase, retention alone, %", "rass = false"),
            ("HBase, and unbalanced, %", "{ adjuster = false }"),
            (
                "HBase, and adjuster, %",
                "sim.host = vsmtio, sim.policy = {}",
            ),
        ] {
            let gain = (io(host) / vanilla - 1.0) * 100.0;
            file.agrees("vsmtio-parts", row, gain, 1e-4);
        }
    }),
    case("paper-vsmtio-mixes", |file| {
        for (vms, row) in [
            (
                "= 2, vm.compute.count = 2, vm.io.vcpus = 12,",
                "HBase+PageRank, 24:72",
            ),
            (
                "= 4, vm.compute.count = 4,",
                "8 VMs, 192 vCPUs, HBase+PageRank",
            ),
        ] {
            let of = |host: &str| halves(&file.vms(&[&format!("vm.io.count {vms}"), host]));
            let (base, got) = (of("= cfs"), of("= vsmtio"));
            let mean = (got.0 / base.0 + got.1 / base.1) / 2.0;
            file.agrees("vsmtio-mix", row, mean, SAME);
        }
    }),
    case("paper-vsmtio-compute", |file| {
        let of = |host: &str| sum(&file.vms(&[host]), ops);
        let kept = of("= vsmtio") / of("= cfs");
        file.agrees("vsmtio-mix", "0:96, compute against vanilla", kept, SAME);
    }),
];
