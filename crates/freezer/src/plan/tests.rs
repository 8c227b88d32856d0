// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;
use units::Permille;

use super::*;

fn two() -> CpuSet {
    CpuSet::first(2)
}

fn ms(n: u64) -> Ns {
    Ns::from_ms(n)
}

#[test]
fn sharing_with_n_vms_means_n_minus_one_slices_off() {
    let plan = Plan::shared(4, ms(11), &two()).unwrap();
    let first = &plan.lanes()[0];
    assert_eq!(
        first.pairs(),
        [Pair {
            on: ms(11),
            off: ms(33)
        }]
    );
    assert_eq!(plan.cpus(), two());
}

#[test]
fn sixteen_vms_of_eleven_ms_are_allowed() {
    let plan = Plan::shared(16, ms(11), &two()).unwrap();
    assert_eq!(plan.lanes()[0].pairs()[0].off, ms(165));
    // Two such CPUs may be off at once for a whole gap: the limit lets them.
    assert!(plan.all_off_limit() > ms(165));
    assert!(plan.all_off_limit() <= MAX_GAP);
}

#[test]
fn the_limit_for_all_cpus_follows_the_cpu_with_the_shortest_gaps() {
    let lane = |cpu, off| Lane {
        cpu: VcpuId(cpu),
        first_on: ms(5),
        pattern: Pattern::Fixed(Pair {
            on: ms(5),
            off: ms(off),
        }),
    };
    let limit = |a, b| {
        Plan::new(vec![lane(0, a), lane(1, b)])
            .unwrap()
            .all_off_limit()
    };
    assert_eq!(limit(20, 300), USUAL_ALL_OFF_LIMIT);
    assert_eq!(limit(200, 300), ms(220));
    assert_eq!(limit(400, 400), ms(440));
}

#[test]
fn sweeping_changes_the_periods_and_not_the_shares() {
    let plan = Plan::shared(4, ms(11), &CpuSet::first(3)).unwrap();
    let pairs: Vec<Pair> = plan.lanes().iter().map(|lane| lane.pairs()[0]).collect();
    assert!(pairs[0].period() < pairs[1].period() && pairs[1].period() < pairs[2].period());
    assert_eq!(pairs[2].period(), pairs[0].period().scaled(105, 100));
    for pair in pairs {
        assert_eq!(Permille::of(pair.on, pair.period()).get(), 250);
    }
}

#[test]
fn without_a_sweep_all_cpus_are_asked_the_same() {
    let plan = Plan::fixed(ms(5), ms(25), 0, &CpuSet::first(4)).unwrap();
    assert!(plan.lanes().iter().all(|lane| lane.pairs()
        == [Pair {
            on: ms(5),
            off: ms(25)
        }]));
    // Phases: evenly spread, the first one right after its slice.
    let firsts: Vec<Ns> = plan.lanes().iter().map(|lane| lane.first_on).collect();
    assert_eq!(
        firsts,
        [5_000_000, 12_500_000, 20_000_000, 27_500_000].map(Ns)
    );
}

/// As a guest that has its host to itself has: the longest slice on every CPU.
#[test]
fn slices_of_any_length_that_is_allowed_can_be_spread() {
    for on in [MIN_ON, ms(5_000), ms(8_000), MAX_ON] {
        let plan = Plan::fixed(on, MIN_OFF, 0, &CpuSet::first(4)).unwrap();
        assert_eq!(plan.lanes().len(), 4);
    }
}

#[test]
fn errors_name_the_field_its_value_and_the_range() {
    let refused = |plan: Result<Plan, PlanError>| plan.unwrap_err().to_string();
    let cases = [
        (
            refused(Plan::shared(1, ms(11), &two())),
            "vms is 1; allowed: 2..=16",
        ),
        (
            refused(Plan::shared(17, ms(11), &two())),
            "vms is 17; allowed: 2..=16",
        ),
        (
            refused(Plan::shared(4, ms(11), &CpuSet::EMPTY)),
            "cpus is empty; allowed: at least one CPU",
        ),
        (
            refused(Plan::shared(16, ms(30), &two())),
            "off of CPU 0 is 450 ms; allowed: 100 us to 400 ms",
        ),
        (
            refused(Plan::fixed(Ns(1), ms(1), 0, &two())),
            "on of CPU 0 is 1 ns; allowed: 200 us to 10 s",
        ),
        (
            refused(Plan::fixed(ms(1), ms(1), 501, &two())),
            "sweep is 501 permille; allowed: 0..=500 permille",
        ),
        (
            refused(Plan::recorded(vec![(VcpuId(3), vec![])])),
            "pairs of CPU 3 is empty; allowed: at least one slice and gap",
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(message, expected);
    }
}

#[test]
fn one_cpu_cannot_have_two_plans() {
    let pairs = vec![Pair {
        on: ms(1),
        off: ms(1),
    }];
    let error = Plan::recorded(vec![(VcpuId(1), pairs.clone()), (VcpuId(1), pairs)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cpus is CPU 1 twice; allowed: each CPU once"
    );
}

#[test]
fn csv_and_json_say_the_same() {
    let csv = "cpu,on_ns,off_ns\n1,3000000,5000000\n0,11000000,33000000\n\n1, 7000000, 2000000\n";
    let json = r#"[{"cpu":1,"on_ns":3000000,"off_ns":5000000},
                   {"cpu":0,"on_ns":11000000,"off_ns":33000000},
                   {"cpu":1,"on_ns":7000000,"off_ns":2000000}]"#;
    let plan = Plan::from_csv(csv).unwrap();
    assert_eq!(plan, Plan::from_json(json).unwrap());
    assert_eq!(
        plan.lanes()[1].pairs(),
        [
            Pair {
                on: ms(3),
                off: ms(5)
            },
            Pair {
                on: ms(7),
                off: ms(2)
            }
        ]
    );
    assert_eq!(plan.lanes()[1].first_on, ms(3));
}

#[test]
fn bad_records_are_refused_with_the_line() {
    let refused = |text: &str| Plan::from_csv(text).unwrap_err().to_string();
    assert!(refused("0,1,1\n").contains("line 1 is `0,1,1`"));
    for line in ["0,1", "0,1,1,1", "x,1,1", "0,-1,1", "0,1.5,1"] {
        let message = refused(&format!("cpu,on_ns,off_ns\n0,1000000,1000000\n{line}\n"));
        assert!(message.contains(&format!("line 3: `{line}`")), "{message}");
    }
    assert!(refused("").contains("line 1"));
    assert!(refused("cpu,on_ns,off_ns\n").contains("cpus is empty"));
    assert!(Plan::from_json(r#"[{"cpu":0,"on_ns":1,"off_ns":1,"x":1}]"#).is_err());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Plan::read(std::path::Path::new("/nonexistent/slices.csv")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/slices.csv"));
}

proptest! {
    /// Whatever a constructor lets through is within the ranges that BPF relies on.
    #[test]
    fn every_accepted_plan_is_within_range(
        on in 0u64..20_000_000_000, off in 0u64..600_000_000, sweep in 0u32..600, cpus in 0u32..20,
    ) {
        let Ok(plan) = Plan::fixed(Ns(on), Ns(off), sweep, &CpuSet::first(cpus)) else { return Ok(()) };
        prop_assert_eq!(plan.lanes().len(), cpus as usize);
        for lane in plan.lanes() {
            prop_assert!(lane.first_on >= MIN_ON);
            for pair in lane.pairs() {
                prop_assert!((MIN_ON..=MAX_ON).contains(&pair.on));
                prop_assert!((MIN_OFF..=MAX_OFF).contains(&pair.off));
                prop_assert!(pair.off < MAX_GAP);
            }
        }
    }
}
