// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One pCPU with a [`Pool`], vCPUs that compute or sleep, and timers that are late.

use proptest::prelude::*;
use units::Ns;
use units::Time;

use crate::host::credit::Weight;
use crate::host::credit::credit1::*;

struct Model {
    settings: Settings,
    table: Vec<Vcpu>,
    parts: Vec<Part>,
    pool: Pool,
    queue: RunQ,
    ran: Vec<Ns>,
    now: Time,
    /// Cut credit at each hand-out, as [`refill`] does.
    cuts: bool,
}

impl Model {
    fn new(weights: &[u32]) -> Self {
        let vcpu = |weight: &u32| Vcpu {
            weight: Weight::new(*weight),
            ..Vcpu::default()
        };
        let mut model = Self {
            settings: Settings::default(),
            table: weights.iter().map(vcpu).collect(),
            parts: vec![Part::default(); weights.len()],
            pool: Pool::default(),
            queue: RunQ::default(),
            ran: vec![Ns::ZERO; weights.len()],
            now: Time::ZERO,
            cuts: false,
        };
        for v in 0..weights.len() {
            model.wake(v);
        }
        model
    }

    fn wake(&mut self, v: usize) {
        self.pool.join(&self.table[v], &mut self.parts[v]);
        self.queue.insert(v, &self.table, &self.settings);
    }

    /// One turn that ends so late; who had it sleeps then if `sleeps`.
    fn turn(&mut self, late: Ns, sleeps: bool) -> Option<usize> {
        let v = self.queue.head(&self.table, &self.settings)?;
        self.queue.remove(v);
        let ran = self.table[v].slice(&self.settings) + late;
        self.now = self.now + ran;
        self.ran[v] += ran;
        let (vcpu, part) = (&mut self.table[v], &mut self.parts[v]);
        self.pool.on_charge(vcpu, part, ran, &self.settings);
        if self.pool.hand_out(self.now, &self.settings) {
            for (vcpu, part) in self.table.iter_mut().zip(&mut self.parts) {
                self.pool.take(vcpu, part);
                if self.cuts {
                    let most = Ns::from_ms(30).as_ns().cast_signed();
                    vcpu.credit.0 = vcpu.credit.0.min(most);
                }
            }
            self.queue.resort(&self.table, &self.settings);
        }
        if sleeps {
            let (vcpu, part) = (&mut self.table[v], &mut self.parts[v]);
            self.pool.sleep(vcpu, part, &self.settings);
        } else {
            self.queue.insert(v, &self.table, &self.settings);
        }
        Some(v)
    }

    fn compute(&mut self, length: Ns, late: &mut dyn FnMut() -> Ns) -> Vec<Ns> {
        let (end, before) = (self.now + length, self.ran.clone());
        while self.now < end {
            self.turn(late(), false);
        }
        let ran = self.ran.iter().zip(before);
        ran.map(|(now, before)| *now - before).collect()
    }
}

/// Turns that end 1.5 ms late, and one in ten by 30 ms more.
fn late_timers() -> impl FnMut() -> Ns {
    let mut state = 1u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let much = (state >> 16).is_multiple_of(10);
        Ns::from_us(if much { 31_500 } else { 1500 })
    }
}

/// Thousandths that the first of two has in 30 s.
fn share(weights: [u32; 2], cuts: bool) -> u64 {
    let mut model = Model::new(&weights);
    model.cuts = cuts;
    let ran = model.compute(Ns::from_secs(30), &mut late_timers());
    ran[0].as_ns() * 1000 / (ran[0] + ran[1]).as_ns()
}

/// A limit on credit at each hand-out takes from the heavy one what a late timer gave
/// the light one, and never gives it back.
#[test]
fn late_timers_cost_no_share_unless_credit_is_cut() {
    for (weight, asked) in [(256, 500), (512, 666), (1024, 800)] {
        let got = share([weight, 256], false);
        assert!(got.abs_diff(asked) <= 1, "{weight}: {got}");
    }
    let cut = share([1024, 256], true);
    assert!((780..795).contains(&cut), "{cut}");
    let cut = share([512, 256], true);
    assert!((650..664).contains(&cut), "{cut}");
}

/// A new weight counts at once: nobody has a debt from before that has to be paid first.
#[test]
fn weights_can_be_turned_round() {
    let mut model = Model::new(&[1024, 256]);
    let mut late = late_timers();
    model.compute(Ns::from_secs(30), &mut late);
    model.table[0].weight = Weight::new(256);
    model.table[1].weight = Weight::new(1024);
    let ran = model.compute(Ns::from_secs(3), &mut late);
    let share = ran[1].as_ns() * 1000 / (ran[0] + ran[1]).as_ns();
    assert!((780..=820).contains(&share), "{share}");
}

/// What a sleeper may not keep goes to the others.
#[test]
fn a_sleeper_keeps_the_limit_and_the_pool_has_the_rest() {
    let mut model = Model::new(&[256, 256, 256]);
    model.table[0].credit.0 = Ns::from_ms(90).as_ns().cast_signed();
    assert_eq!(model.turn(Ns::ZERO, true), Some(0));
    assert_eq!(model.table[0].credit.left(), Ns::from_ms(30));
    // 90 - 30 burned + 10 of the hand-out leaves 70: 40 are over.
    model.turn(Ns::ZERO, false);
    for vcpu in 1..3 {
        let part = &mut model.parts[vcpu];
        model.pool.take(&mut model.table[vcpu], part);
    }
    let sum: i64 = model.table.iter().map(|vcpu| vcpu.credit.0).sum();
    let lost = Ns::from_ms(90).as_ns().cast_signed() - sum;
    assert!((0..100).contains(&lost), "{lost}");
}

proptest! {
    /// However they sleep and wake and however late timers are: credits add up to
    /// nothing, but for the rounding and what is not handed out yet.
    #[test]
    fn credit_is_conserved(
        weights in prop::collection::vec(1u32..=65_536, 1..6),
        steps in prop::collection::vec((0u64..60_000_000, any::<bool>(), 0usize..6), 1..200),
    ) {
        let mut model = Model::new(&weights);
        for (late, sleeps, wakes) in &steps {
            model.turn(Ns(*late), *sleeps);
            if model.parts.get(*wakes).is_some_and(|part| !part.counts()) {
                model.wake(*wakes);
            }
        }
        // All come back, so that what is left in the pool can be handed out.
        for v in 0..weights.len() {
            if !model.parts[v].counts() {
                model.wake(v);
            }
        }
        model.pool.hand_out(model.now + Ns::from_secs(1), &model.settings);
        for (vcpu, part) in model.table.iter_mut().zip(&mut model.parts) {
            model.pool.take(vcpu, part);
        }
        let sum: i64 = model.table.iter().map(|vcpu| vcpu.credit.0).sum();
        // A unit of each weight and one of each vCPU per hand-out.
        let most = (steps.len() as i64 + 1) * (6 * 65_536 / 65_536 + 7);
        prop_assert!(sum <= 0 && sum >= -most, "{}", sum);
    }
}
