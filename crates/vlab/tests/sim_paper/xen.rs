// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of 13.2 and 13.3.

use units::Ns;

use super::Brief;
use super::Case;
use super::File;
use super::ISCHE_PING;
use super::NEAR;
use super::NEAR_PING;
use super::PRINTED;
use super::bytes;
use super::case;
use super::sum;

pub(crate) const CASES: &[Case] = &[
    case("paper-isacs-hybrid", |file| {
        let silent = silent(file);
        for (vms, host, row) in [(3, "credit2", "i3c9/credit2"), (7, "isacs", "i7c5/isacs")] {
            let words = [
                format!("vm.io.count = {vms},"),
                format!("sim.host = {host},"),
            ];
            let did = silent.vms(&[&words[0], &words[1]]);
            let gb = sum(&did[..vms], bytes) * 60.0 / 1e9;
            silent.agrees("isacs-network", row, gb, NEAR);
        }
        // A few answers wait for a whole turn: how many is chance in a shorter one.
        let pings = pinging(&lasting(file, Ns::from_ms(2400)), 10);
        for host in ["credit2", "isacs"] {
            let host_is = format!("sim.host = {host},");
            let vms = pings.vms(&["vm.io.count = 1,", &host_is]);
            let trip = vms[0].loads[1].trip.as_ms_f64();
            let row = format!("hybrid, 1 VMs, ms/{host}");
            pings.agrees("isacs-latency", &row, trip, NEAR_PING);
        }
    }),
    case("paper-isacs-mixed", |file| {
        // Who shares a pCPU with whom is chance for longer than the shortest window.
        let silent = silent(&lasting(file, Ns::from_ms(1600)));
        for (vms, host) in [(2, "credit2"), (6, "isacs")] {
            let words = [
                format!("vm.mixed.count = {vms}"),
                format!("sim.host = {host},"),
            ];
            let did = silent.vms(&[&words[0], &words[1]]);
            let gb = sum(&did[..vms], bytes) * 60.0 / 1e9;
            silent.agrees("isacs-network", &format!("m{vms}/{host}"), gb, NEAR);
        }
        let pings = pinging(&lasting(file, Ns::from_ms(1200)), 20);
        for host in ["credit2", "isacs"] {
            let host_is = format!("sim.host = {host},");
            let vms = pings.vms(&["vm.mixed.count = 6", &host_is]);
            let trips = vms[..6].iter().map(|vm| vm.loads[1].trip.as_ms_f64());
            let row = format!("mixed, 6 VMs, ms/{host}");
            pings.agrees("isacs-latency", &row, trips.sum::<f64>() / 6.0, NEAR_PING);
        }
    }),
    case("paper-isacs-disk", |file| {
        let file = lasting(file, Ns::from_ms(800));
        for (source, vms, host) in [
            ("zero", 1, "credit2"),
            ("zero", 9, "isacs"),
            ("urandom", 5, "isacs"),
        ] {
            let submit = format!("load.dd.submit = $xen.dd_{source}_us,");
            let words = [
                format!("vm.io.count = {vms},"),
                format!("sim.host = {host},"),
            ];
            let did = file.vms(&[&words[0], &words[1], &submit]);
            let mb = sum(&did[..vms], bytes) / 1e6;
            let row = format!("{source}/i{vms}c{}/{host}", 12 - vms);
            file.agrees("isacs-disk", &row, mb, NEAR);
        }
    }),
    case("paper-isacs-cpu", |file| {
        let kept = |words: &[&str]| {
            let of = |host: &str| {
                let target = file.vms(&[&["count = 5", host], words].concat()).remove(0);
                let stress = target.loads.iter().find(|load| load.load == "stress");
                stress.expect("it computes").ops_per_s
            };
            of("= isacs") / of("= credit2")
        };
        let target = "vm.target.loads = [\"stress\"],";
        let mixed = kept(&[target, "vm.beside.loads = [\"iperf\", \"stress\"]"]);
        file.agrees("isacs-cpu", "beside 5 mixed VMs", mixed, NEAR);
        let only = kept(&[target, "vm.beside.loads = [\"iperf\"]"]);
        file.agrees("isacs-cpu", "beside 5 I/O VMs", only, NEAR);
    }),
    case("paper-ische", |file| {
        let vm = &file.vms(&["ische"])[0];
        file.agrees("ische", "dd, MB/s/ische", bytes(vm) / 1e6, PRINTED);
        let trip = vm.loads[1].trip.as_ms_f64();
        file.agrees("ische", "ping, ms/ische", trip, ISCHE_PING);
    }),
    case("paper-ische-motivation", |file| {
        // One ping in 37 ms.
        let long = lasting(file, Ns::from_secs(6));
        for cpu in [1, 3] {
            let vm = &long.vms(&[&format!("vm.cpu.count = {cpu}")])[0];
            let row = format!("one pCPU, {} VMs: ping, ms", cpu + 1);
            long.agrees("ische", &row, vm.loads[0].trip.as_ms_f64(), NEAR_PING);
        }
    }),
];

/// Without the pings, as in tables 5 and 6: they are I/O events, and under ISACS each makes
/// a VM's I/O stronger.
fn silent(file: &File) -> File {
    let mut file = file.clone();
    let vms = file.points.iter_mut().flat_map(|point| &mut point.vms);
    for loads in vms.filter_map(|vm| vm.loads.as_mut()) {
        loads.retain(|load| load.name != "ping");
    }
    file
}

/// With a longer window.
fn lasting(file: &File, window: Ns) -> File {
    let mut file = file.clone();
    (file.own.window, file.told.window) = (window, window);
    file
}

/// Pings: `vlab reproduce` takes the middle half of `seconds` of them, in a shorter round
/// a part of that.
fn pinging(file: &File, seconds: u64) -> File {
    let told = file.told;
    let all = Ns::from_secs(seconds).scaled(told.window.as_ns(), Ns::from_secs(4).as_ns());
    let own = Brief {
        warmup: all / 4,
        window: all / 2,
    };
    File {
        told,
        own,
        points: file.points.clone(),
    }
}
