// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;
use units::Permille;

use super::classify::Classifier;
use super::classify::Period;
use super::*;
use crate::host::credit::Credit;
use crate::host::credit::Wake;

/// Table of positions 0..: I/O, CPU, DOM0, I/O, all with the same credit.
const KINDS: [Kind; 4] = [Kind::Io, Kind::Cpu, Kind::Dom0, Kind::Io];

fn table() -> Vec<credit1::Vcpu> {
    vec![
        credit1::Vcpu {
            credit: Credit(1),
            ..credit1::Vcpu::default()
        };
        4
    ]
}

fn queue(of: &[usize]) -> credit1::RunQ {
    let mut queue = credit1::RunQ::default();
    for &v in of {
        queue.insert(v, &table(), &credit1::Settings::default());
    }
    queue
}

fn picks(core: Core, of: &[usize], idle_io_core: IdleIoCore) -> Option<usize> {
    let settings = Settings {
        idle_io_core,
        ..Settings::default()
    };
    pick(core, &queue(of), &table(), |v| KINDS[v], &settings)
}

/// S2: exactly as many general cores as configured, the rest for I/O; the choice
/// is random and can be repeated.
#[test]
fn labels_count_and_repeat() {
    let labels = label(8, 3, 7);
    assert_eq!(labels.iter().filter(|&&c| c == Core::General).count(), 3);
    assert_eq!(labels, label(8, 3, 7));
    let different = (0..20).map(|seed| label(8, 3, seed));
    let distinct: std::collections::BTreeSet<_> = different
        .map(|l| l.iter().map(|&c| c == Core::Io).collect::<Vec<_>>())
        .collect();
    assert!(distinct.len() > 5);
    assert!(label(4, 0, 1).contains(&Core::General), "DOM0 needs one");
    assert_eq!(label(2, 9, 1), [Core::General; 2]);
    assert_eq!(label(0, 1, 1), []);
}

/// S3, S5.
#[test]
fn vms_are_pinned_by_type() {
    let labels = [Core::Io, Core::General, Core::General, Core::Io];
    assert_eq!(pins(Kind::Dom0, &labels), [1]);
    assert_eq!(pins(Kind::Cpu, &labels), [1, 2]);
    assert_eq!(pins(Kind::Io, &labels), [0, 3]);
    assert_eq!(
        pins(Kind::Io, &[Core::General; 2]),
        [0, 1],
        "no I/O core at all"
    );
}

/// S6: 30 ms and 10 ms, so up to three times as many switches.
#[test]
fn slices_by_core() {
    let settings = Settings::default();
    let mut vcpu = credit1::Vcpu::default();
    assert_eq!(slice(Core::General, &vcpu, &settings), Ns::from_ms(30));
    assert_eq!(slice(Core::Io, &vcpu, &settings), Ns::from_ms(10));
    vcpu.on_wake(Wake::Io, &settings.credit);
    assert_eq!(
        slice(Core::General, &vcpu, &settings),
        Ns::from_ms(10),
        "BOOST"
    );
}

/// S5: an I/O core takes the I/O vCPU behind a CPU vCPU; S8 for an empty list.
#[test]
fn an_io_core_takes_from_the_io_list() {
    assert_eq!(picks(Core::Io, &[1, 0, 3], IdleIoCore::Idles), Some(0));
    assert_eq!(picks(Core::Io, &[1, 2], IdleIoCore::Idles), None);
    assert_eq!(picks(Core::Io, &[2, 1], IdleIoCore::TakesCpuVms), Some(1));
    assert_eq!(
        picks(Core::Io, &[2], IdleIoCore::TakesCpuVms),
        None,
        "DOM0 stays (S3)"
    );
    assert_eq!(picks(Core::General, &[1, 0], IdleIoCore::Idles), Some(1));
}

fn period(events: u64, demand_ms: u64) -> Period {
    Period {
        length: Ns::from_ms(100),
        vcpus: 2,
        events,
        demand: Ns::from_ms(demand_ms),
    }
}

/// Two vCPUs, 100 ms: 20 events are 100 per second and vCPU.
#[test]
fn a_vm_is_classified_by_events_and_demand() {
    let settings = classify::Settings::default();
    let mut vm = Classifier::new(Kind::Cpu);
    for n in 1..=5 {
        assert_eq!(vm.on_period(&period(20, 60), &settings), n == 5);
    }
    assert_eq!(vm.kind(), Kind::Io);
    // Half as many keep it, fewer do not, five times in a row.
    for _ in 0..20 {
        assert!(!vm.on_period(&period(10, 60), &settings));
    }
    for n in 1..=5 {
        assert_eq!(vm.on_period(&period(9, 60), &settings), n == 5);
    }
    // Many events beside saturated vCPUs: CPU-intensive.
    for _ in 0..20 {
        assert!(!vm.on_period(&period(5000, 150), &settings));
    }
    assert_eq!(settings.cpu_max, Permille::new(700));
}

/// With a share of 500 per vCPU, five periods of 100 ms and two vCPUs: 500 ms of demand
/// are the limit, however they are spread. Four idle periods do not hide a fifth of 520.
#[test]
fn whoever_wants_more_than_its_share_is_cpu_intensive() {
    let settings = classify::Settings::default();
    let share = Permille::new(500);
    let after = |demands: &[u64]| {
        let mut vm = Classifier::new(Kind::Cpu);
        for ms in demands {
            vm.on_period_of_share(&period(500, *ms), share, &settings);
        }
        vm.kind()
    };
    assert_eq!(after(&[100; 4]), Kind::Cpu, "not known yet");
    assert_eq!(after(&[100; 5]), Kind::Io);
    assert_eq!(after(&[200, 200, 100, 0, 0]), Kind::Io);
    assert_eq!(after(&[200, 200, 102, 0, 0]), Kind::Cpu);
    // I/O-intensive and then a burst: at once.
    assert_eq!(after(&[100, 100, 100, 100, 100, 102]), Kind::Cpu);
    // The limit for all still is one.
    let mut vm = Classifier::new(Kind::Cpu);
    for _ in 0..9 {
        vm.on_period_of_share(&period(500, 150), Permille::new(1000), &settings);
    }
    assert_eq!(vm.kind(), Kind::Cpu);
    // Published: verdicts in a row, and four of five periods are forgotten.
    let mut vm = Classifier::new(Kind::Io);
    for n in 0..50 {
        let ms = if n % 5 == 4 { 10 } else { 200 };
        vm.on_period(&period(500, ms), &settings);
    }
    assert_eq!(vm.kind(), Kind::Io);
}

#[test]
fn one_odd_period_changes_nothing_and_dom0_never_changes() {
    let settings = classify::Settings::default();
    let mut vm = Classifier::new(Kind::Cpu);
    let mut dom0 = Classifier::new(Kind::Dom0);
    for n in 0..50 {
        let seen = if n % 5 == 4 {
            period(0, 60)
        } else {
            period(500, 60)
        };
        assert!(!vm.on_period(&seen, &settings));
        assert!(!dom0.on_period(&period(500, 0), &settings));
    }
    assert!(!vm.on_period(&Period::default(), &settings));
}

proptest! {
    /// Every VM can run somewhere, on cores of its kind if there are any, and no
    /// core is left to nobody.
    #[test]
    fn pins_cover_all_cores(cores in 1usize..50, general in 0usize..60, seed in any::<u64>()) {
        let labels = label(cores, general, seed);
        let mut covered = pins(Kind::Cpu, &labels);
        covered.extend(pins(Kind::Io, &labels));
        covered.sort_unstable();
        covered.dedup();
        prop_assert_eq!(covered, (0..cores).collect::<Vec<_>>());
        prop_assert_eq!(pins(Kind::Dom0, &labels).len(), 1);
    }
}
