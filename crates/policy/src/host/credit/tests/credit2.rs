// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;
use units::Ns;

use crate::host::credit::Credit;
use crate::host::credit::Weight;
use crate::host::credit::credit2::*;

fn vcpu(credit_us: i64) -> Vcpu {
    Vcpu {
        credit: Credit(credit_us * 1000),
        weight: Weight::DEFAULT,
    }
}

/// K9, K11: 10 ms at weight 256 cost 10, at 512 5, at 128 20.
#[test]
fn weight_sets_the_burn_rate() {
    let settings = Settings::default();
    let left = |weight| {
        let mut v = Vcpu::new(Weight::new(weight), &settings);
        v.on_charge(Ns::from_ms(10), &settings);
        v.credit.0 / 1_000_000
    };
    assert_eq!([256, 512, 128].map(left), [0, 5, -10]);
}

#[test]
fn crumbs_are_not_free() {
    assert_eq!(cost(Ns(1), Weight::new(65_536), Weight::DEFAULT), Ns(1));
    assert_eq!(lasts(Credit(1), Weight::new(512), Weight::DEFAULT), Ns(2));
    assert_eq!(
        lasts(Credit(-5), Weight::DEFAULT, Weight::DEFAULT),
        Ns::ZERO
    );
}

/// K9, K10, K12 on three vCPUs by hand.
#[test]
fn most_credit_runs_and_below_zero_all_are_reset() {
    let settings = Settings::default();
    let mut table = vec![vcpu(3000), vcpu(7000), vcpu(-2000), vcpu(100)];
    let members = [0, 1, 2, 3];
    let runs = pick(&mut table, &members, &[0, 1, 2], &settings);
    assert_eq!(
        runs,
        Some(Pick {
            vcpu: 1,
            reset: false
        })
    );
    assert!(table[1].preempts(&table[0]) && !table[0].preempts(&table[1]));

    // Only 2 can run: below 0, so all members get the default, also 3, asleep.
    let runs = pick(&mut table, &members, &[2], &settings);
    assert_eq!(
        runs,
        Some(Pick {
            vcpu: 2,
            reset: true
        })
    );
    assert!(table.iter().all(|v| v.credit == Credit(10_000_000)));
    assert_eq!(pick(&mut table, &members, &[], &settings), None);
}

#[test]
fn at_exactly_zero_it_still_runs() {
    let mut table = vec![vcpu(0)];
    let runs = |table: &mut [Vcpu], reset_at_zero| {
        let settings = Settings {
            reset_at_zero,
            ..Settings::default()
        };
        pick(table, &[0], &[0], &settings).unwrap().reset
    };
    assert!(!runs(&mut table, false));
    assert!(runs(&mut table, true));
}

#[test]
fn a_reset_replaces_or_keeps_debts() {
    let mut table = vec![vcpu(-12_000), vcpu(-4000), vcpu(2000)];
    let keeps = Settings {
        reset: Reset::AddToDebt,
        ..Settings::default()
    };
    reset(&mut table, &[0, 1, 2], &keeps);
    let credits: Vec<i64> = table.iter().map(|v| v.credit.0 / 1000).collect();
    assert_eq!(credits, [-2000, 6000, 10_000]);
    // Deep in debt alone: resets until there is something to spend.
    let mut table = vec![vcpu(-35_000)];
    assert_eq!(
        pick(&mut table, &[0], &[0], &keeps),
        Some(Pick {
            vcpu: 0,
            reset: true
        })
    );
    assert_eq!(table[0].credit.0 / 1000, 5000);
}

#[test]
fn a_slice_can_end_with_the_credit() {
    let published = Settings::default();
    let fixed = Settings {
        slice_ends_with_credit: true,
        ..published.clone()
    };
    assert_eq!(vcpu(100).slice(&published), Ns::from_ms(10));
    assert_eq!(vcpu(100).slice(&fixed), Ns::from_us(100));
    assert_eq!(vcpu(50_000).slice(&fixed), Ns::from_ms(10));
    assert!(vcpu(0).slice(&fixed) > Ns::ZERO, "time always passes");
}

/// K14: loads 30 + 20 and 10: moving 20 gives 30 and 30.
#[test]
fn balancing_evens_out_execution_time() {
    let queue = |vcpus: &[(usize, u64)]| Load {
        vcpus: vcpus.iter().map(|&(v, ms)| (v, Ns::from_ms(ms))).collect(),
    };
    let queues = [queue(&[(2, 10)]), queue(&[(0, 30), (1, 20)])];
    assert_eq!(
        balance(&queues),
        Some(Move {
            vcpu: 1,
            from: 1,
            to: 0
        })
    );
    // A gap of 10 that only a 30 could move: worse than before.
    assert_eq!(balance(&[queue(&[(0, 30)]), queue(&[(1, 20)])]), None);
    assert_eq!(balance(&[]), None);
    assert_eq!(balance(&[queue(&[(0, 30)])]), None);
}

/// A queue that is served: turns of whoever is next, each by the time that it lasted. What
/// others had from when a vCPU began to wait until it ran, the longest of each.
struct Queue {
    settings: Settings,
    table: Vec<Vcpu>,
    /// In order of arrival, and what had been served by then.
    waits: Vec<(usize, Ns)>,
    served: Ns,
    longest: Vec<Ns>,
}

impl Queue {
    fn new(weights: &[u32], settings: &Settings) -> Self {
        let weights = weights.iter().map(|weight| Weight::new(*weight));
        let table: Vec<Vcpu> = weights.map(|weight| Vcpu::new(weight, settings)).collect();
        Self {
            settings: settings.clone(),
            waits: (0..table.len()).map(|vcpu| (vcpu, Ns::ZERO)).collect(),
            served: Ns::ZERO,
            longest: vec![Ns::ZERO; table.len()],
            table,
        }
    }

    /// The next one runs for so long; who it was.
    fn turn(&mut self, ran: Ns) -> usize {
        self.turn_of(|_| ran)
    }

    /// The same if it depends on who it is.
    fn turn_of(&mut self, ran: impl Fn(usize) -> Ns) -> usize {
        let members: Vec<usize> = (0..self.table.len()).collect();
        let runnable: Vec<usize> = self.waits.iter().map(|(vcpu, _)| *vcpu).collect();
        let vcpu = pick(&mut self.table, &members, &runnable, &self.settings).unwrap();
        let vcpu = vcpu.vcpu;
        let at = runnable.iter().position(|one| *one == vcpu).unwrap();
        let waited = self.served - self.waits.remove(at).1;
        self.longest[vcpu] = self.longest[vcpu].max(waited);
        let ran = ran(vcpu);
        self.table[vcpu].on_charge(ran, &self.settings);
        self.served += ran;
        self.waits.push((vcpu, self.served));
        vcpu
    }

    /// What the others may have before it if no turn is longer than `longest`: their credit
    /// until they have none, and the turn in which they find that.
    fn bound(&self, vcpu: usize, longest: Ns) -> Ns {
        let others = self.table.iter().enumerate().filter(|(at, _)| *at != vcpu);
        let most = |other: &Vcpu| {
            let default = Credit::of(self.settings.default_credit);
            lasts(default, other.weight, self.settings.reference) + longest
        };
        others.fold(Ns::ZERO, |sum, (_, other)| sum + most(other))
    }
}

/// Two vCPUs whose turns are all as long as what a busy host leaves them of a second: each
/// has one of two, however much longer one's turns are than the other's.
#[test]
fn turns_that_are_too_long_are_still_taken_in_turn() {
    let mut queue = Queue::new(&[256, 256], &Settings::default());
    let turns = [50, 49, 51, 45, 300, 50, 50, 10];
    let order = turns.map(|ran| queue.turn(Ns::from_ms(ran)));
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(queue.longest, [50, 300].map(Ns::from_ms));
}

/// A turn that ends a tenth of a millisecond early leaves a little credit, which is worth
/// another whole turn, and the reset after that forgives it: whose turns end so has two for
/// each one of the other, whose turns end as much too late. Debts that are kept make it even.
#[test]
fn turns_that_end_early_are_had_twice() {
    let keeps_debt = Settings {
        reset: Reset::AddToDebt,
        ..Settings::default()
    };
    let turns = |settings: &Settings| {
        let mut queue = Queue::new(&[256, 256], settings);
        let length = |vcpu| Ns::from_us([9_900, 10_100][vcpu]);
        let early = (0..3000).filter(|_| queue.turn_of(length) == 0).count();
        [early, 3000 - early]
    };
    assert_eq!(turns(&Settings::default()), [2000, 1000]);
    let [early, late] = turns(&keeps_debt);
    // By time: 9.9 to 10.1.
    assert!((early * 99).abs_diff(late * 101) < 1000, "{early} {late}");
}

/// One turn of 10 ms leaves exactly nothing, and that is enough for another one (K12): the
/// other waits for two, which is the bound.
#[test]
fn the_bound_on_waiting_is_reached() {
    let mut queue = Queue::new(&[256, 256], &Settings::default());
    let order = [30, 10, 10, 10].map(|ran| queue.turn(Ns::from_ms(ran)));
    assert_eq!(order, [0, 1, 1, 0]);
    assert_eq!(queue.longest[0], Ns::from_ms(20));
    assert_eq!(queue.bound(0, Ns::from_ms(10)), Ns::from_ms(20));
}

proptest! {
    /// However long turns are and however often they are cut: one that can run runs when the
    /// others have used up what a reset gives and a turn each.
    #[test]
    fn nobody_waits_longer_than_credit_lasts(
        weights in proptest::collection::vec(1u32..2000, 2..6),
        turns in proptest::collection::vec(0u64..40_000, 1..400),
        default_ms in 1u64..40, reset_at_zero in any::<bool>(),
    ) {
        let settings = Settings {
            default_credit: Ns::from_ms(default_ms),
            reset_at_zero,
            ..Settings::default()
        };
        let mut queue = Queue::new(&weights, &settings);
        for ran in turns {
            queue.turn(Ns::from_us(ran));
        }
        for vcpu in 0..weights.len() {
            let bound = queue.bound(vcpu, Ns::from_us(40_000));
            prop_assert!(queue.longest[vcpu] <= bound, "{} {}", queue.longest[vcpu], bound);
        }
    }

    /// The one that is picked has the most credit, and never less than nothing.
    #[test]
    fn the_richest_runs(
        credits in proptest::collection::vec(-30_000i64..30_000, 1..20), adds in any::<bool>(),
    ) {
        let settings = Settings {
            reset: if adds { Reset::AddToDebt } else { Reset::Replace },
            ..Settings::default()
        };
        let mut table: Vec<Vcpu> = credits.iter().map(|&c| vcpu(c)).collect();
        let all: Vec<usize> = (0..table.len()).collect();
        let runs = pick(&mut table, &all, &all, &settings).unwrap();
        let most = table.iter().map(|v| v.credit).max().unwrap();
        prop_assert_eq!(table[runs.vcpu].credit, most);
        prop_assert!(most >= Credit::ZERO);
        prop_assert_eq!(runs.reset, credits.iter().all(|&c| c < 0));
    }

    /// A balancing step never makes the gap larger.
    #[test]
    fn a_step_narrows_the_gap(
        loads in proptest::collection::vec(
            proptest::collection::vec(0u64..50, 0..6), 0..6),
    ) {
        let queues: Vec<Load> = loads.iter().enumerate().map(|(q, vcpus)| Load {
            vcpus: vcpus.iter().enumerate()
                .map(|(i, &ms)| (q * 10 + i, Ns::from_ms(ms))).collect(),
        }).collect();
        if let Some(step) = balance(&queues) {
            let ran = queues[step.from].vcpus.iter().find(|v| v.0 == step.vcpu).unwrap().1;
            let before = queues[step.from].total() - queues[step.to].total();
            let after = (queues[step.from].total() - ran)
                .abs_diff(queues[step.to].total() + ran);
            prop_assert!(after < before);
        }
    }
}
