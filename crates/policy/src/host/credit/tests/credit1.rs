// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;
use units::Ns;

use crate::host::credit::Credit;
use crate::host::credit::Wake;
use crate::host::credit::Weight;
use crate::host::credit::credit1::*;

fn vcpu(credit_ms: i64) -> Vcpu {
    Vcpu {
        credit: Credit(credit_ms * 1_000_000),
        ..Vcpu::default()
    }
}

fn queue(of: &[usize], table: &[Vcpu]) -> RunQ {
    let mut queue = RunQ::default();
    for &v in of {
        queue.insert(v, table, &Settings::default());
    }
    queue
}

/// K2, K3: UNDER (1, 3) before OVER (0, 2, 4), each in order of arrival; BOOST
/// goes before both.
#[test]
fn the_queue_is_sorted_by_class_then_by_arrival() {
    let mut table = vec![vcpu(-1), vcpu(5), vcpu(0), vcpu(9), vcpu(-7), vcpu(-3)];
    let settings = Settings::default();
    let mut queue = queue(&[0, 1, 2, 3, 4], &table);
    assert_eq!(queue.as_slice(), [1, 3, 0, 2, 4], "credit 0 is OVER");
    table[5].on_wake(Wake::Io, &settings);
    queue.insert(5, &table, &settings);
    assert_eq!(queue.head(&table, &settings), Some(5));
    assert!(queue.remove(5) && !queue.remove(5));

    let zero_is_under = Settings {
        zero_is_under: true,
        ..settings
    };
    queue.resort(&table, &zero_is_under);
    assert_eq!(queue.as_slice(), [1, 3, 2, 0, 4]);
}

/// K4, K6: 10 ms and above all others after a wake-up by I/O, 30 ms else.
#[test]
fn io_boosts_for_one_run() {
    let settings = Settings::default();
    let mut io = vcpu(-2);
    let hog = vcpu(20);
    io.on_wake(Wake::Other, &settings);
    assert!(!io.preempts(&hog, &settings));
    io.on_wake(Wake::Io, &settings);
    assert!(io.preempts(&hog, &settings));
    assert_eq!(io.slice(&settings), Ns::from_ms(10));
    io.on_charge(Ns::from_ms(10), &settings);
    io.on_stop();
    assert_eq!(io.priority(&settings), Priority::Over);
    assert_eq!(io.slice(&settings), Ns::from_ms(30));
    assert_eq!(io.credit, Credit(-12_000_000));
}

#[test]
fn boosted_ones_do_not_preempt_each_other() {
    let settings = Settings::default();
    let (mut a, mut b) = (vcpu(5), vcpu(10));
    a.on_wake(Wake::Io, &settings);
    b.on_wake(Wake::Io, &settings);
    assert!(!a.preempts(&b, &settings) && !b.preempts(&a, &settings));
}

/// K5: 30 ms of 2 pCPUs, weights 256, 512, 256: 15, 30, 15 ms. The one that is not
/// active gets nothing.
#[test]
fn credit_is_handed_out_by_weight() {
    let mut table = vec![vcpu(-10), vcpu(0), vcpu(3), vcpu(-1)];
    table[1].weight = Weight::new(512);
    refill(&mut table, &[0, 1, 2], 2, &Settings::default());
    let credits: Vec<i64> = table.iter().map(|v| v.credit.0 / 1_000_000).collect();
    assert_eq!(credits, [5, 30, 18, -1]);
    refill(&mut table, &[0, 1, 2], 2, &Settings::default());
    assert_eq!(table[1].credit.0 / 1_000_000, 30, "at the limit");
}

/// K1: a cap of 200 is 6 of 30 ms, even if nobody else wants the pCPU.
#[test]
fn a_capped_vcpu_waits_for_the_next_period() {
    let settings = Settings::default();
    let mut table = vec![Vcpu {
        cap_permille: 200,
        ..vcpu(30)
    }];
    let queue = queue(&[0], &table);
    table[0].on_charge(Ns::from_us(5999), &settings);
    assert_eq!(queue.head(&table, &settings), Some(0));
    table[0].on_charge(Ns::from_us(1), &settings);
    assert_eq!(queue.head(&table, &settings), None);
    refill(&mut table, &[0], 1, &settings);
    assert_eq!(queue.head(&table, &settings), Some(0));
}

/// K7.
#[test]
fn a_pcpu_without_under_work_takes_some() {
    let table = vec![vcpu(-1), vcpu(-2), vcpu(4), vcpu(7)];
    let settings = Settings::default();
    let own = queue(&[0], &table);
    let (over, under) = (queue(&[1], &table), queue(&[2, 3], &table));
    let take = |own: &RunQ, others: &[&RunQ], settings: &Settings| {
        steal_from(own, others, &table, |_| true, settings)
    };
    assert_eq!(take(&own, &[&over, &under], &settings), Some((1, 2)));
    assert_eq!(take(&under, &[&own], &settings), None);
    assert_eq!(take(&own, &[&over], &settings), None);
    let empty = RunQ::default();
    assert_eq!(take(&empty, &[&over, &under], &settings), Some((1, 2)));
    assert_eq!(take(&empty, &[&over], &settings), Some((0, 1)));
    let as_worded = Settings {
        idle_takes: IdleTakes::Under,
        ..settings.clone()
    };
    assert_eq!(take(&empty, &[&over], &as_worded), None);
    assert_eq!(
        steal_from(&own, &[&over, &under], &table, |v| v == 3, &settings),
        Some((1, 3)),
        "pins are kept"
    );
}

/// K8: an I/O vCPU that is not boosted waits for three slices of 30 ms.
#[test]
fn behind_three_hogs_it_waits_90_ms() {
    let settings = Settings::default();
    let table = vec![vcpu(9), vcpu(9), vcpu(9), vcpu(9)];
    let queue = queue(&[0, 1, 2, 3], &table);
    let before = queue.as_slice().iter().take_while(|&&v| v != 3);
    let wait: Ns = before.map(|&v| table[v].slice(&settings)).sum();
    assert_eq!(wait, Ns::from_ms(90));
}

#[test]
fn sampled_charging_takes_a_whole_tick_or_nothing() {
    let settings = Settings {
        charging: Charging::Sampled {
            tick: Ns::from_ms(10),
        },
        ..Settings::default()
    };
    let mut v = vcpu(30);
    v.on_charge(Ns::from_ms(9), &settings);
    assert_eq!(v.credit, Credit(30_000_000));
    v.on_tick(&settings);
    assert_eq!(v.credit, Credit(20_000_000));
}

proptest! {
    /// What a refill gives adds up to the pool, but for the rounding.
    #[test]
    fn refills_add_up(
        weights in proptest::collection::vec(1u32..65_536, 1..40), pcpus in 1u32..64,
    ) {
        let settings = Settings { credit_limit: Ns::ZERO, ..Settings::default() };
        let mut table: Vec<Vcpu> = weights.iter()
            .map(|&w| Vcpu { weight: Weight::new(w), ..Vcpu::default() }).collect();
        let active: Vec<usize> = (0..table.len()).collect();
        refill(&mut table, &active, pcpus, &settings);
        let given: i64 = table.iter().map(|v| v.credit.0).sum();
        let pool = 30_000_000 * i64::from(pcpus);
        prop_assert!(given <= pool && given > pool - table.len() as i64);
        for pair in table.windows(2) {
            let by_weight = pair[0].weight.cmp(&pair[1].weight);
            prop_assert!(by_weight.is_eq() || pair[0].credit.cmp(&pair[1].credit) == by_weight);
        }
    }

    /// However it is filled, the queue is in order and nobody is lost.
    #[test]
    fn the_queue_keeps_its_order(
        credits in proptest::collection::vec((-5i64..6, any::<bool>()), 0..30),
    ) {
        let settings = Settings::default();
        let table: Vec<Vcpu> = credits.iter()
            .map(|&(c, boosted)| Vcpu { boosted, ..vcpu(c) }).collect();
        let all: Vec<usize> = (0..table.len()).collect();
        let queue = queue(&all, &table);
        let mut seen = queue.as_slice().to_vec();
        for pair in seen.windows(2) {
            let class = |v: usize| table[v].priority(&settings);
            prop_assert!(class(pair[0]) >= class(pair[1]));
            prop_assert!(class(pair[0]) > class(pair[1]) || pair[0] < pair[1]);
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, all);
    }
}
