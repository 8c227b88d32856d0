// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of 13.1.

use experiment::result::SOLO;
use units::Ns;

use super::Case;
use super::SAME;
use super::bytes;
use super::case;
use super::compute;
use super::sum;

pub(crate) const CASES: &[Case] = &[
    case("paper-fig2", |file| {
        let point = |words: &str| file.arm(&[words], "reads", "vanilla");
        let alone = "vm.second.loads = [], vm.first.weight = 1024";
        let solo = bytes(&file.arm(&[alone], "reads", SOLO)[0]);
        let drop = (1.0 - bytes(&point(alone)[0]) / solo) * 100.0;
        file.agrees("fig2", "a: throughput drop, %", drop, SAME);
        let unequal = point("vm.first.weight = 256");
        let ratio = bytes(&unequal[1]) / bytes(&unequal[0]);
        file.agrees("fig2", "c: VM2 over VM1", ratio, SAME);
    }),
    case("paper-vmigrater", |file| {
        // xBalloon is told there what an I/O task would use, here it finds out.
        for (load, vms, arm, experiment, shown) in [
            ("seq-read", 2, "published", "fig8", "vMigrater"),
            ("bursty-read", 4, "vanilla", "fig8", "vanilla"),
            ("nginx", 2, "vslicer", "fig9", "vSlicer"),
            ("hdfs", 8, "published", "fig9", "vMigrater"),
            ("mediatomb", 2, "vanilla", "fig9", "vanilla"),
        ] {
            let point = format!("vm.app.count = {vms}");
            let all = sum(&file.arm(&[&point], load, arm), bytes);
            let solo = bytes(&file.arm(&[&point], load, SOLO)[0]);
            file.agrees(
                experiment,
                &format!("{load}/{vms} VMs/{shown}"),
                all / solo,
                SAME,
            );
        }
    }),
    case("paper-fig10", |file| {
        for (load, npb) in [("hdfs", 1), ("leveldb", 3)] {
            let point = format!("vm.npb.count = {npb}");
            let of = |arm| bytes(&file.arm(&[&point], load, arm)[0]);
            let gain = of("published") / of("vanilla");
            file.agrees("fig10", &format!("{load}/{} VMs", npb + 1), gain, SAME);
        }
    }),
    case("paper-tables", |file| {
        for (arm, shown) in [
            ("vanilla", "vanilla"),
            ("published", "vMigrater"),
            ("vslicer", "vSlicer"),
        ] {
            let vms = file.arm(&["vm.app.count = 2"], "mongodb", arm);
            let ms = vms[0].loads[0].latency.as_ms_f64();
            file.agrees("fig11", &format!("mongodb/{shown}, ms"), ms, 1e-4);
        }
        let kept = |arm| sum(&file.arm(&["vm.app.count = 2"], "postmark", arm), compute);
        let row = "ClamAV with postmark/vMigrater: compute against vanilla";
        file.agrees("fig12", row, kept("published") / kept("vanilla"), SAME);
        // Four VMs, as in table 2.
        let four = sum(
            &file.arm(&["vm.app.count = 4"], "leveldb", "published"),
            bytes,
        );
        let solo = bytes(&file.arm(&["vm.app.count = 4"], "leveldb", SOLO)[0]);
        file.agrees("fig9", "leveldb/4 VMs/vMigrater", four / solo, SAME);
    }),
    case("paper-fig13", |file| {
        for (threads, arm, shown) in [
            (2, "vanilla", "vanilla"),
            (20, "published", "vMigrater"),
            (10, "vslicer", "vSlicer"),
        ] {
            let point = format!("load.clients.threads = {threads}");
            let mb = sum(&file.arm(&[&point], "clients", arm), bytes) / 1e6;
            file.agrees(
                "fig13",
                &format!("{} clients/{shown}, MB/s", 2 * threads),
                mb,
                SAME,
            );
        }
    }),
    case("paper-fig14", |file| {
        // A file has the mean of its window, so what is read in its last 1.5 s is the
        // difference of two.
        let mb = |window| {
            let mut file = file.clone();
            file.own.window = window;
            let vms = file.arm(&[], "clients", "published");
            sum(&vms, bytes) * window.as_secs_f64() / 1e6
        };
        let end = (mb(Ns::from_secs(14)) - mb(Ns::from_ms(12_500))) / 1.5;
        file.agrees("fig14", "plateau at the end, MB/s", end, SAME);
    }),
    case("paper-fig15", |file| {
        for (weight, panel) in [(1843, "90/10"), (1228, "60/40")] {
            for (arm, shown) in [("vanilla", "vanilla"), ("published", "vMigrater")] {
                let point = format!("vm.first.weight = {weight}");
                let vms = file.arm(&[&point], "testdfsio", arm);
                let row = format!("{panel}: VM1 over VM2, {shown}");
                file.agrees("fig15", &row, bytes(&vms[0]) / bytes(&vms[1]), SAME);
            }
        }
        // Nobody waits for ever for a vCPU that is overdue (decision 0035): 1.5 and 4.0 before.
        // The file's window has some twenty requests of each.
        let mut file = file.clone();
        file.own.window = Ns::from_secs(4);
        for weight in [1433, 1228] {
            let vms = file.arm(
                &[&format!("vm.first.weight = {weight}")],
                "testdfsio",
                "published",
            );
            let ratio = bytes(&vms[0]) / bytes(&vms[1]);
            assert!((0.8..1.25).contains(&ratio), "{weight}: {ratio}");
        }
    }),
];
