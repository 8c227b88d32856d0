// SPDX-License-Identifier: Apache-2.0 OR MIT
use units::Ns;
use units::Time;

use super::*;
use crate::host::credit::Wake;
use crate::host::vslicer::Round;
use crate::host::vslicer::Settings;
use crate::host::vslicer::Vcpu;

struct Vslicer {
    settings: Settings,
    table: Vec<Vcpu>,
    round: Round,
    asleep: Vec<bool>,
}

impl Vslicer {
    fn new(latency_sensitive: &[bool]) -> Self {
        let vcpu = |&latency_sensitive| Vcpu {
            latency_sensitive,
            left: Ns::ZERO,
            owed: Ns::ZERO,
        };
        Self {
            settings: Settings::default(),
            table: latency_sensitive.iter().map(vcpu).collect(),
            round: Round::default(),
            asleep: vec![false; latency_sensitive.len()],
        }
    }
}

impl Scheduler for Vslicer {
    fn wake(&mut self, v: usize, _wake: Wake, running: Option<usize>) -> bool {
        self.asleep[v] = false;
        running.is_some_and(|r| {
            let n = self.table.len();
            self.round
                .preempts(&self.table[v], &self.table[r], n, &self.settings)
        })
    }

    fn charge(&mut self, v: usize, ran: Ns) {
        self.round
            .on_charge(&mut self.table[v], ran, &self.settings);
    }

    fn stop(&mut self, v: usize, sleeps: bool) {
        self.asleep[v] = sleeps;
    }

    fn pick(&mut self, _now: Time) -> Option<(usize, Ns)> {
        let asleep = &self.asleep;
        let turn = self
            .round
            .pick(&mut self.table, |v| !asleep[v], &self.settings)?;
        Some((turn.vcpu, turn.slice))
    }
}

/// The latency-sensitive VM cannot sleep its way above its share, with or without
/// the class.
#[test]
fn no_sleep_pattern_gains() {
    for class in [[true, false, false], [false; 3], [true; 3]] {
        let (gain, attack) = worst(|| Vslicer::new(&class), sleeps());
        assert!(gain <= 1010, "{gain} by {attack:?}");
    }
}

/// SL2, SL3: the class changes how often, not how much.
#[test]
fn micro_slices_do_not_change_shares() {
    let idle = Attack::FakesEvents {
        every: DURATION * 3,
        burst: 1,
    };
    let ran = run(Vslicer::new(&[true, false, false]), 3, idle, DURATION);
    for share in ran {
        assert!(share.abs_diff(DURATION / 3) <= Ns::from_ms(30), "{share}");
    }
}
