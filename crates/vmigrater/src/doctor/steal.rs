// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steal time as the kernel accounts it in `/proc/stat`.

use std::collections::BTreeMap;

use serde::Serialize;
use units::Ns;

use super::root::Root;

/// Busy, idle and stolen time of one vCPU since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Times {
    /// Time taken away by the host while the vCPU wanted to run.
    pub(crate) stolen_ns: Ns,
    /// Everything, stolen and idle time included.
    pub(crate) total_ns: Ns,
}

impl Times {
    /// The time between two readings; counters that went backwards give zero.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            stolen_ns: self.stolen_ns - earlier.stolen_ns,
            total_ns: self.total_ns - earlier.total_ns,
        }
    }

    /// Stolen over total, in percent; for people.
    pub(crate) fn percent(self) -> f64 {
        if self.total_ns == Ns::ZERO {
            return 0.0;
        }
        100.0 * self.stolen_ns.as_ns() as f64 / self.total_ns.as_ns() as f64
    }
}

/// One entry per vCPU; `None` if the file is missing or strange.
pub(crate) fn read(root: &Root) -> Option<BTreeMap<u32, Times>> {
    parse(
        &root.read("/proc/stat")?,
        rustix::param::clock_ticks_per_second(),
    )
}

/// All vCPUs together.
pub(crate) fn sum(times: &BTreeMap<u32, Times>) -> Times {
    times.values().fold(Times::default(), |sum, one| Times {
        stolen_ns: sum.stolen_ns + one.stolen_ns,
        total_ns: sum.total_ns + one.total_ns,
    })
}

fn parse(text: &str, ticks_per_second: u64) -> Option<BTreeMap<u32, Times>> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        // "cpu" alone is the sum and rounds differently: add up ourselves.
        let Some(Ok(cpu)) = fields
            .next()
            .and_then(|name| name.strip_prefix("cpu"))
            .map(str::parse)
        else {
            continue;
        };
        // user nice system idle iowait irq softirq steal; guest time is in user.
        let ticks: Vec<u64> = fields
            .take(8)
            .map_while(|field| field.parse().ok())
            .collect();
        let steal = ticks.get(7)?;
        let ns = |ticks: u64| Ns::from_secs(1).scaled(ticks, ticks_per_second);
        all.insert(
            cpu,
            Times {
                stolen_ns: ns(*steal),
                total_ns: ns(ticks.iter().sum()),
            },
        );
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_column() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 0 20 60 0 0 0 10 5 0\ncpu12 1 0 0 0 0 0 0 3 0 0\nintr 5\n";
        let all = parse(text, 100).unwrap();
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 12]);
        assert_eq!(
            all[&0],
            Times {
                stolen_ns: Ns::from_ms(100),
                total_ns: Ns::from_secs(1)
            }
        );
        assert_eq!(all[&12].percent(), 75.0);
        assert_eq!(sum(&all).stolen_ns, Ns::from_ms(130));
    }

    #[test]
    fn odd_files_give_nothing_rather_than_zero() {
        for text in ["", "cpu 1 2 3", "cpu0 1 2 3", "cpu0 a b c d e f g h"] {
            assert_eq!(parse(text, 100), None, "{text:?}");
        }
    }

    #[test]
    fn a_counter_that_goes_backwards_is_no_steal() {
        let later = Times {
            stolen_ns: Ns(1),
            total_ns: Ns(10),
        };
        let earlier = Times {
            stolen_ns: Ns(5),
            total_ns: Ns(4),
        };
        assert_eq!(
            later.since(earlier),
            Times {
                stolen_ns: Ns(0),
                total_ns: Ns(6)
            }
        );
        assert_eq!(Times::default().percent(), 0.0);
    }
}
