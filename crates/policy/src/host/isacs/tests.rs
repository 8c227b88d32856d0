// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;
use units::Time;

use super::*;

mod shares;

const MS: i64 = 1_000_000;

fn us(us: u64) -> Ns {
    Ns::from_us(us)
}

fn queue(n: usize) -> RunQ {
    RunQ {
        members: (0..n).collect(),
        ..RunQ::default()
    }
}

fn vcpu(credit: i64, endcredit: i64, cvcredit: Option<i64>) -> Vcpu {
    Vcpu {
        credit: Credit(credit),
        endcredit: Credit(endcredit),
        cvcredit: Credit(cvcredit.unwrap_or(0)),
        in_group: cvcredit.is_some(),
        ..Vcpu::default()
    }
}

/// Consumed this much, with this much I/O strength as one long interval.
fn used(consumed: Ns, strength: Ns) -> Vcpu {
    Vcpu {
        consumed,
        events: Events {
            counted: u64::from(strength > Ns::ZERO),
            total: u64::from(strength > Ns::ZERO),
            ema: Some(strength),
            ..Events::default()
        },
        ..Vcpu::default()
    }
}

/// Equation (1) by hand. Events at 0, 1, 3, 3.5, 20, 21 ms: intervals 1, 2, 0.5,
/// 16.5 (above the cut-off), 1. EMA = 1; 1.9; 0.64; -; 0.964. E_n = 4.
#[test]
fn the_newest_interval_weighs_nine_tenths() {
    let settings = Settings::default();
    let mut events = Events::default();
    let mut emas = Vec::new();
    for at in [0, 1000, 3000, 3500, 20_000, 21_000] {
        events.on_event(Time(at * 1000), &settings);
        emas.push(events.ema.map(|e| e.as_ns() / 1000));
    }
    assert_eq!(
        emas,
        [
            None,
            Some(1000),
            Some(1900),
            Some(640),
            Some(640),
            Some(964)
        ]
    );
    assert_eq!((events.counted, events.total), (4, 6));
    assert_eq!(events.strength(Ns::MAX, &settings), us(3856));

    let counts_late = Settings {
        late_events_count: true,
        ..settings.clone()
    };
    events.on_event(Time(90_000_000), &counts_late);
    assert_eq!(events.counted, 5);
    events.restart();
    assert_eq!(events.strength(Ns::MAX, &settings), Ns::ZERO);
    assert_eq!(events.last, Some(Time(90_000_000)));
}

/// 1000 events 1 us apart and one 9 ms later: 8.1 s of "DOM0 time" in 10 ms. With
/// the limit it is what has passed.
#[test]
fn strength_can_exceed_time_unless_limited() {
    let settings = Settings::default();
    let mut events = Events::default();
    for i in 0..1000 {
        events.on_event(Time(i * 1000), &settings);
    }
    events.on_event(Time(10_000_000), &settings);
    assert!(events.strength(Ns::from_ms(10), &settings) > Ns::from_secs(8));
    let limited = Settings {
        limit_strength: true,
        ..settings
    };
    assert_eq!(events.strength(Ns::from_ms(10), &limited), Ns::from_ms(10));
}

/// Equations (2), (3), (4) and I16 by hand. Strength 6 ms and 4 ms consumed of 20:
/// IVCredit 1.2 ms. The two hogs join; j = 2: CVCredit = 1.2 / 2 * cc / 10.
#[test]
fn a_reallocation_by_hand() {
    let settings = Settings::default();
    let mut queue = queue(3);
    let mut table = vec![
        used(us(4000), us(6000)),
        used(us(10_000), Ns::ZERO),
        used(us(6000), Ns::ZERO),
    ];
    let totals = reallocate(&mut queue, &mut table, Ns::from_ms(20), &settings);
    assert_eq!(
        totals,
        Totals {
            ivcredit: us(1200),
            nr_io: 1,
            group: 2
        }
    );
    let of = |f: fn(&Vcpu) -> i64| [f(&table[0]), f(&table[1]), f(&table[2])].map(|n| n / 1000);
    assert_eq!(of(|v| v.credit.0), [11_200, 10_000, 10_000]);
    assert_eq!(of(|v| v.endcredit.0), [1200, 0, 0]);
    assert_eq!(of(|v| v.cvcredit.0), [0, 600, 360]);
    assert_eq!((queue.io_load, queue.io_events), (us(1200), 1));
    assert!(
        table
            .iter()
            .all(|v| v.consumed == Ns::ZERO && v.events.counted == 0)
    );

    // A4 as printed: the first member's CVCredit is computed with j = 1.
    let one_pass = Settings {
        one_pass: true,
        ..settings
    };
    let mut table = vec![
        used(us(4000), us(6000)),
        used(us(10_000), Ns::ZERO),
        used(us(6000), Ns::ZERO),
    ];
    reallocate(&mut queue, &mut table, Ns::from_ms(20), &one_pass);
    assert_eq!(table[1].cvcredit, Credit(1_200_000));
    assert_eq!(table[2].cvcredit, Credit(360_000));
}

/// I8 as printed, in milliseconds: 6 * 4 / (20 / (4 * 10 * 6)) = 288 ms.
#[test]
fn equation_2_as_printed_multiplies_by_the_product() {
    let printed = Settings {
        equation_2: Equation2::AsPrinted,
        ..Settings::default()
    };
    let mut table = vec![
        used(us(4000), us(6000)),
        used(us(10_000), Ns::ZERO),
        used(us(6000), Ns::ZERO),
    ];
    reallocate(&mut queue(3), &mut table, Ns::from_ms(20), &printed);
    assert_eq!(table[0].ivcredit, Ns::from_ms(288));
}

/// I14: small but positive IVCredit: both credits. IVCredits 1 and 9 of strengths
/// 2 and 18 with equal consumption: mean 5; 1 + 1 ns < 5.
#[test]
fn a_vcpu_can_hold_both_credits() {
    let mut table = vec![used(us(5000), us(2000)), used(us(5000), us(18_000))];
    let totals = reallocate(
        &mut queue(2),
        &mut table,
        Ns::from_ms(20),
        &Settings::default(),
    );
    assert_eq!((totals.nr_io, totals.group), (2, 1));
    assert!(table[0].in_group && table[0].ivcredit == us(1000));
    // (1 + 9) / 1 * 5 / 10
    assert_eq!(table[0].cvcredit, Credit(5 * MS));
    assert!(!table[1].in_group);
}

/// I11, I15: nothing consumed, no events, nobody there.
#[test]
fn corner_cases_are_plain_credit2() {
    let settings = Settings::default();
    let mut table = vec![used(Ns::ZERO, us(500)), used(Ns::ZERO, Ns::ZERO)];
    let totals = reallocate(&mut queue(2), &mut table, Ns::ZERO, &settings);
    assert_eq!(totals, Totals::default());
    assert!(
        table
            .iter()
            .all(|v| v.credit == Credit(10 * MS) && !v.in_group)
    );
    reallocate(&mut queue(0), &mut [], Ns::ZERO, &settings);
    // A member that the table does not have is dropped.
    let mut gone = queue(5);
    reallocate(&mut gone, &mut table, Ns::ZERO, &settings);
    assert_eq!(gone.members, [0, 1]);
}

/// One round by hand after `a_reallocation_by_hand` (I16 to I18): each uses its
/// 10 ms, the I/O vCPU first; then the group on CVCredit, then a reallocation.
#[test]
fn a_round_by_hand() {
    let settings = Settings {
        slice_ends_with_credit: true,
        ..Settings::default()
    };
    let mut queue = queue(3);
    let mut table = vec![
        vcpu(11_200_000, 1_200_000, None),
        vcpu(10_000_000, 0, Some(600_000)),
        vcpu(10_000_000, 0, Some(360_000)),
    ];
    let mut order = Vec::new();
    for _ in 0..6 {
        let next = pick(
            &mut queue,
            &mut table,
            &[0, 1, 2],
            Ns::ZERO,
            Ns::ZERO,
            &settings,
        )
        .unwrap();
        let slice = queue.slice(&table[next.vcpu], &settings);
        order.push((next.vcpu, slice.as_ns() / 1000, next.reallocated));
        queue.on_charge(&mut table[next.vcpu], slice, &settings);
    }
    assert_eq!(
        order,
        [
            (0, 10_000, false),
            (1, 10_000, false),
            (2, 10_000, false),
            (1, 600, false),
            (2, 360, false),
            (0, 10_000, true),
        ]
    );
}

/// I19: credit 25 with an end credit of 15: after its 10 ms the I/O vCPU is still
/// richest, and phase 1 ends with the other's default untouched.
#[test]
fn a_large_ivcredit_ends_phase_1_for_all() {
    let table = || vec![vcpu(15 * MS, 15 * MS, None), vcpu(10 * MS, 0, Some(2 * MS))];
    let run = |settings: &Settings| {
        let (mut queue, mut table) = (queue(2), table());
        let next = pick(
            &mut queue,
            &mut table,
            &[0, 1],
            Ns::ZERO,
            Ns::ZERO,
            settings,
        );
        (next.unwrap().vcpu, queue.cpu_boost)
    };
    assert_eq!(run(&Settings::default()), (1, true), "on CVCredit");
    let fixed = Settings {
        end_test: EndTest::AllSpent,
        ..Settings::default()
    };
    assert_eq!(run(&fixed), (1, false), "on its default credit");
}

/// I17, A1: `<=` against `<`.
#[test]
fn the_end_tests_differ_at_equality() {
    let run = |settings: &Settings, credit, cv| {
        let mut queue = queue(2);
        let mut table = vec![vcpu(credit, 2 * MS, None), vcpu(0, 0, Some(cv))];
        let next = pick(
            &mut queue,
            &mut table,
            &[0, 1],
            Ns::ZERO,
            Ns::ZERO,
            settings,
        )
        .unwrap();
        (next.vcpu, queue.cpu_boost, next.reallocated)
    };
    let ours = Settings::default();
    let prose = Settings {
        spent_strictly_below: true,
        boost_strictly_below: true,
        ..Settings::default()
    };
    assert_eq!(run(&ours, 2 * MS, MS), (1, true, false));
    assert_eq!(run(&prose, 2 * MS, MS), (0, false, false));
    assert_eq!(run(&ours, MS, 0), (0, false, true), "reallocated");
    assert_eq!(run(&prose, MS, 0), (1, true, false));
}

/// A2: falling through charges the chosen one for the other's time.
#[test]
fn fall_through_burns_only_as_printed() {
    let run = |fall_through_burns| {
        let settings = Settings {
            fall_through_burns,
            ..Settings::default()
        };
        let mut table = vec![vcpu(MS, MS, None), vcpu(0, 0, Some(8 * MS))];
        pick(
            &mut queue(2),
            &mut table,
            &[0, 1],
            Ns::from_ms(3),
            Ns::ZERO,
            &settings,
        );
        table[1].cvcredit.0 / MS
    };
    assert_eq!((run(false), run(true)), (8, 5));
}

/// A3: as printed the old choice stands, in our reading the richest runs.
#[test]
fn after_a_reallocation_the_richest_runs() {
    let run = |keeps_old_choice| {
        let settings = Settings {
            keeps_old_choice,
            ..Settings::default()
        };
        let mut table = vec![used(us(5000), us(8000)), vcpu(0, 0, Some(-1))];
        let mut queue = queue(2);
        queue.cpu_boost = true;
        pick(
            &mut queue,
            &mut table,
            &[0, 1],
            Ns::ZERO,
            Ns::ZERO,
            &settings,
        )
        .unwrap()
    };
    assert_eq!(run(false).vcpu, 0);
    assert_eq!(run(true).vcpu, 1);
    assert!(run(true).reallocated && run(false).reallocated);
}

/// A6: a wake-up in phase 2, and a group that sleeps.
#[test]
fn waking_in_phase_2() {
    let mut queue = queue(2);
    queue.cpu_boost = true;
    let io = vcpu(30 * MS, 5 * MS, None);
    let hog = vcpu(0, 0, Some(2 * MS));
    let waits = Settings::default();
    let preempts = Settings {
        wake_in_boost: WakeInBoost::Preempts,
        ..Settings::default()
    };
    assert!(!wakes_before(&queue, &io, &hog, &waits));
    assert!(wakes_before(&queue, &io, &hog, &preempts));
    queue.cpu_boost = false;
    assert!(wakes_before(&queue, &io, &hog, &waits), "K10 in phase 1");

    queue.cpu_boost = true;
    // One that holds both credits (I14): by its CVCredit it would wait.
    let both = vcpu(30 * MS, 5 * MS, Some(MS));
    assert!(!wakes_before(&queue, &both, &hog, &waits));
    assert!(wakes_before(&queue, &both, &hog, &preempts));
    let no_io = vcpu(30 * MS, 0, Some(MS));
    assert!(!wakes_before(&queue, &no_io, &hog, &preempts));

    let mut table = vec![io, hog];
    let next = pick(&mut queue, &mut table, &[0], Ns::ZERO, Ns::ZERO, &waits).unwrap();
    assert_eq!(
        (next.vcpu, next.reallocated),
        (0, true),
        "nobody waits for sleepers"
    );
}

/// Algorithm 2 by hand. Source 0: 100 events, load 10. Queue 1: 50 events, load 2;
/// queue 2: 60, 1; queue 3: 200. IVCredits 3, 4, 5. As written (last): to 2,
/// 1 + 4 < 10 - 4 is the last that fits. Best: to 1, only 2 + 3 < 10 - 3.
#[test]
fn algorithm_2_by_hand() {
    let load = |io_events, ms| QueueLoad {
        io_load: Ns::from_ms(ms),
        io_events,
    };
    let queues = [load(100, 10), load(50, 2), load(60, 1), load(200, 0)];
    let members = [(5, 3), (6, 4), (7, 5)].map(|(v, ms)| (v, Ns::from_ms(ms)));
    let run = |choice| {
        let settings = Settings {
            choice,
            ..Settings::default()
        };
        balance(0, &queues, &members, &settings)
    };
    assert_eq!(run(Choice::Last), Some(Balance { vcpu: 6, to: 2 }));
    assert_eq!(run(Choice::Best), Some(Balance { vcpu: 5, to: 1 }));
    assert_eq!(
        balance(1, &queues, &members, &Settings::default()),
        None,
        "no queue has fewer events"
    );
    assert_eq!(balance(9, &queues, &members, &Settings::default()), None);
}

proptest! {
    /// I16: between two reallocations nobody uses more than the default in phase
    /// 1, whatever the IVCredits are, if slices end with the credit; and time is
    /// charged to exactly one of the two credits.
    #[test]
    fn concealing_gives_everyone_the_same(
        strengths in proptest::collection::vec((0u64..40_000, 1u64..10_000), 2..8),
        all_spent in any::<bool>(),
    ) {
        let settings = Settings {
            slice_ends_with_credit: true,
            end_test: if all_spent { EndTest::AllSpent } else { EndTest::Highest },
            ..Settings::default()
        };
        let mut table: Vec<Vcpu> = strengths.iter()
            .map(|&(strength, consumed)| used(us(consumed), us(strength))).collect();
        let n = table.len();
        let runnable: Vec<usize> = (0..n).collect();
        let mut queue = queue(n);
        reallocate(&mut queue, &mut table, Ns::from_ms(30), &settings);
        let budget: i64 = table.iter().map(|v| v.cvcredit.0).sum();
        let (mut phase_1, mut phase_2) = (vec![Ns::ZERO; n], 0);
        for _ in 0..10_000 {
            let next =
                pick(&mut queue, &mut table, &runnable, Ns::ZERO, Ns::ZERO, &settings).unwrap();
            if next.reallocated {
                break;
            }
            let slice = queue.slice(&table[next.vcpu], &settings);
            if queue.cpu_boost {
                phase_2 += slice.as_ns();
            } else {
                phase_1[next.vcpu] += slice;
            }
            queue.on_charge(&mut table[next.vcpu], slice, &settings);
        }
        for ran in &phase_1 {
            prop_assert!(*ran <= settings.default_credit);
            if all_spent {
                prop_assert_eq!(*ran, settings.default_credit);
            }
        }
        prop_assert_eq!(phase_2, u64::try_from(budget).unwrap());
    }

    /// The IVCredits of a queue add up to its IOload, and algorithm 2 never makes
    /// the two queues less even than they were.
    #[test]
    fn io_loads_add_up(
        members in proptest::collection::vec((0u64..20_000, 0u64..10_000), 1..10),
        others in proptest::collection::vec((0u64..30, 0u64..50_000), 0..5),
        best in any::<bool>(),
    ) {
        let settings = Settings {
            choice: if best { Choice::Best } else { Choice::Last },
            ..Settings::default()
        };
        let mut table: Vec<Vcpu> = members.iter()
            .map(|&(strength, consumed)| used(us(consumed), us(strength))).collect();
        let mut queue = queue(table.len());
        let totals = reallocate(&mut queue, &mut table, Ns::from_ms(30), &settings);
        prop_assert_eq!(totals.ivcredit, table.iter().map(|v| v.ivcredit).sum());
        prop_assert_eq!(queue.io_load, totals.ivcredit);

        let mut queues = vec![QueueLoad { io_load: queue.io_load, io_events: queue.io_events }];
        queues.extend(others.iter()
            .map(|&(io_events, load)| QueueLoad { io_load: us(load), io_events }));
        let ivs: Vec<(usize, Ns)> =
            table.iter().enumerate().map(|(v, vcpu)| (v, vcpu.ivcredit)).collect();
        if let Some(moved) = balance(0, &queues, &ivs, &settings) {
            let iv = table[moved.vcpu].ivcredit;
            let before = queues[0].io_load - queues[moved.to].io_load;
            let after = (queues[0].io_load - iv).abs_diff(queues[moved.to].io_load + iv);
            prop_assert!(after <= before);
            prop_assert!(queues[moved.to].io_events < queues[0].io_events);
        }
    }
}
