// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of 13.5.

use units::Ns;

use super::Case;
use super::SAME;
use super::case;
use super::ops;
use super::sum;

/// A point with this program, or this one beside that.
fn program(load: &str, name: &str) -> String {
    format!("load.{load}.work = $jupiter.round_us * $jupiter.{name}_rounds,")
}

pub(crate) const CASES: &[Case] = &[
    case("paper-jupiter", |file| {
        let words = [
            program("program", "streamcluster"),
            program("partner", "freqmine"),
        ];
        let speed = |host: &str| {
            let vms = file.vms(&[&words[0], &words[1], host]);
            (ops(&vms[0]) * ops(&vms[1])).sqrt()
        };
        let over = speed("= jupiter") / speed("= balance");
        file.agrees(
            "jupiter-pairs",
            "streamcluster with freqmine/JUPITER",
            over,
            SAME,
        );
    }),
    case("paper-jupiter-motivation", |file| {
        let beside = program("partner", "partner");
        let words = |host| [host, "topology.cpus = $jupiter.pcpus", &*beside];
        let solo = ops(&file.solo(&words("= balance"))[0]);
        for (host, shown) in [
            ("= balance", "BS"),
            ("= demand", "DC"),
            ("= leaky-bucket", "leaky bucket"),
        ] {
            let slowdown = solo / ops(&file.vms(&words(host))[0]);
            file.agrees(
                "jupiter-motivation",
                &format!("{shown}: slowdown"),
                slowdown,
                SAME,
            );
        }
        let one = ["= balance", "topology.cpus = 1,"];
        let slowdown = ops(&file.solo(&one)[0]) / ops(&file.vms(&one)[0]);
        file.agrees("jupiter-motivation", "one thread: slowdown", slowdown, SAME);
    }),
    case("paper-jupiter-homogeneous", |file| {
        for (name, host, shown) in [
            (
                "streamcluster",
                "sim.host = jupiter, sim.policy = {}",
                "jupiter",
            ),
            (
                "dedup",
                "{ dasl = false, elb = false, rcr = false }",
                "jupiter-dats",
            ),
            ("volrend", "sim.host = demand", "demand"),
        ] {
            let program = program("program", name);
            let of = |host: &str| sum(&file.vms(&[&program, host]), ops);
            let over = of(host) / of("sim.host = balance");
            file.agrees(
                "jupiter-homogeneous",
                &format!("{name}: {shown} over BS"),
                over,
                SAME,
            );
        }
    }),
    case("paper-jupiter-heterogeneous", |file| {
        for (name, host, shown) in [
            ("streamcluster", "= balance", "BS"),
            ("xgboost", "= jupiter", "JUPITER"),
        ] {
            let words = [&*program("program", name), host];
            let solo = ops(&file.solo(&words)[0]);
            let kept = ops(&file.vms(&words)[0]) / solo;
            let row = format!("{name}/{shown}, of solo");
            file.agrees("jupiter-heterogeneous", &row, kept, SAME);
        }
    }),
    case("paper-jupiter-size", |file| {
        // Alone is under balance scheduling in the experiment, whatever it is compared with.
        let all = "topology.cpus = 16, vm.own.vcpus = 16";
        let solo = ops(&file.solo(&["= balance", all])[0]);
        let kept = sum(&file.vms(&["= jupiter", all]), ops) / 4.0 / solo;
        file.agrees("jupiter-size", "16 vCPUs/JUPITER, of solo", kept, SAME);
        let words = ["= balance", "topology.cpus = 4, vm.own.vcpus = 4"];
        let solo = ops(&file.solo(&words)[0]);
        let kept = sum(&file.vms(&words), ops) / solo;
        let row = "4 vCPUs on 4 pCPUs/BS: of its share";
        file.agrees("jupiter-size", row, kept, SAME);
    }),
    case("paper-jupiter-adversary", |file| {
        // Clients that come and go do so from the beginning in the file, and from the end of
        // the warm-up in the experiment.
        let mut file = file.clone();
        (file.own.warmup, file.told.warmup) = (Ns::ZERO, Ns::ZERO);
        (file.own.window, file.told.window) = (Ns::from_secs(1), Ns::from_secs(1));
        let of = |host: &str| {
            let vms = file.vms(&[host]);
            let loads = vms.iter().flat_map(|vm| &vm.loads);
            loads.map(|load| load.ops_per_s).sum::<f64>()
        };
        let over = of("sim.host = jupiter, sim.policy = {}") / of("sim.host = balance");
        file.agrees(
            "jupiter-adversary",
            "turning load: JUPITER over BS",
            over,
            SAME,
        );
    }),
];
