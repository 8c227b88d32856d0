// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks on the whole machine: a VM that dodges the tick, fakes I/O or waits for a
//! device at the right moment, beside two that compute. `policy::host::gaming` tries
//! far more of them on the rules alone.

use units::Ns;

use super::bed::FREE;
use super::bed::Task;
use super::bed::Task::Hog;
use super::bed::Task::Reads;
use super::bed::Vm;
use super::bed::run;
use super::bed::vm;
use crate::hypervisor::Sharing;
use crate::hypervisor::by_name;

const SHARING: Sharing = Sharing {
    vms_per_pcpu: 3,
    slice: Ns::from_ms(11),
    sweep_permille: 0,
};
const DURATION: Ns = Ns::from_ms(9000);

/// What the attacker gets, in thousandths of its third.
fn gain(policy: &str, attack: Task) -> u64 {
    let vms = [vm(&[&[attack]]), vm(&[&[Hog]]), vm(&[&[Hog]])];
    let policy = by_name(policy, &SHARING).unwrap();
    let outcome = run(policy, 1, false, FREE, &vms, DURATION);
    outcome.ran()[0].as_ns() * 3000 / DURATION.as_ns()
}

/// Ticks of 10 ms and slices of 10 and 30 ms, and a device of 1 ms.
fn attacks() -> Vec<Task> {
    let dodges = [10, 30].into_iter().flat_map(|tick| {
        [100, 500, 1000].map(|early| Task::Dodges(Ns::from_ms(tick), Ns::from_us(early)))
    });
    let fakes = [20, 100, 1000, 5000, 10_000].map(|every| Task::Fakes(Ns::from_us(every)));
    let waits = [1000, 3000, 5000, 9000, 9990, 19_000, 29_000];
    let waits = waits.map(|works| Task::Works(Ns::from_us(works)));
    dodges.chain(fakes).chain(waits).collect()
}

fn worst(policy: &str) -> (u64, Task) {
    let gains = attacks().into_iter().map(|task| (gain(policy, task), task));
    gains.max_by_key(|(gain, _)| *gain).unwrap()
}

/// What the best attack gets under the published rules, as a record, and that it gets no
/// more than its part under those with our fixes: 9.99 ms of work before each wait under
/// Credit1 and iSche, which keeps its rules (BOOST), and ISACS, naps around each 10 ms under Credit2 (resets forgive).
#[test]
fn hardened_policies_give_no_attacker_more_than_its_part() {
    let recorded = [
        ("credit1", 2727),
        ("ische", 2727),
        ("credit2", 1470),
        ("isacs", 1460),
    ];
    for (policy, recorded) in recorded {
        let (published, attack) = worst(policy);
        assert_eq!(published, recorded, "{policy}: {attack:?}");
        let (hardened, attack) = worst(&format!("{policy}-hardened"));
        assert!(hardened <= 1010, "{policy}: {hardened} by {attack:?}");
    }
}

/// What the attacker gets, in thousandths of its half of a pCPU: two general and two I/O
/// cores (S1), beside it three that compute and four that read, a sixth of a pCPU each.
fn gain_by_class(policy: &str, attack: Task) -> u64 {
    let mut vms: Vec<Vm> = vec![vm(&[&[attack]])];
    vms.extend((0..3).map(|_| vm(&[&[Hog]])));
    vms.extend((0..4).map(|_| vm(&[&[Reads]])));
    let policy = by_name(policy, &SHARING).unwrap();
    let outcome = run(policy, 4, false, FREE, &vms, DURATION);
    outcome.ran()[0].as_ns() * 2000 / DURATION.as_ns()
}

/// S4 by counters: a VM that has read for a while is taken for I/O-intensive. Then it
/// computes, fakes I/O events and sleeps just enough to look like one that waits, and has
/// more of an I/O core than those that compute have of theirs. Bursts of four periods of
/// 30 ms with a pause in the fifth are never noticed at all. With our fix who wants more
/// than its share is CPU-intensive, whatever events it makes.
#[test]
fn fake_events_buy_an_io_core_unless_it_is_hardened() {
    let sleeps = [
        (2, 1),
        (6, 3),
        (10, 5),
        (20, 10),
        (50, 50),
        (75, 75),
        (100, 50),
        (120, 30),
        (150, 150),
    ];
    let attacks =
        sleeps.map(|(works, sleeps)| Task::Pretends(Ns::from_ms(works), Ns::from_ms(sleeps)));
    let attacks = attacks.into_iter().chain([Task::Fakes(Ns::from_ms(1))]);
    let worst = |policy: &str| {
        let gains = attacks
            .clone()
            .map(|task| (gain_by_class(policy, task), task));
        gains.max_by_key(|(gain, _)| *gain).unwrap()
    };
    let (published, attack) = worst("ische-auto");
    assert!(published > 1300, "{published} by {attack:?}");
    let (hardened, attack) = worst("ische-auto-hardened");
    assert!(hardened <= 1010, "{hardened} by {attack:?}");
}
