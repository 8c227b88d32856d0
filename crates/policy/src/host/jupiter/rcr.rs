// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RCR: resolve resource conflicts by swapping vCPUs between cores (J12..J15).
//!
//! Type 1, after DATS: the slices on a core add up to more than it has. If the
//! largest sum exceeds the smallest by 10 %, vCPUs of the two cores are swapped.
//! Type 2, after DASL: vCPUs with a low latency meet. Per core, count how often
//! such a vCPU was preempted or waited beyond its latency; if the core with most
//! has more than twice as many as the one with fewest, half of its low-latency
//! vCPUs change places with half of the other's high-latency ones.

use units::Ns;

/// What the text fixes (both thresholds) and what it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Type 1: the largest sum may exceed the smallest by this: 100 permille.
    pub overload_permille: u64,
    /// Type 2: the most conflicts may be this multiple of the fewest: 2000.
    pub conflict_permille: u64,
    /// Fewer conflicts than this per period are no reason to move anybody. Open:
    /// with 0 on the other core any number is more than twice as many. 2.
    pub min_conflicts: u64,
    /// A latency below this is low. Open (the cut is not stated). 5 ms, half of
    /// DASL's initial value.
    pub low_latency: Ns,
    /// Half of an odd number. Open.
    pub half: Half,
    /// Swaps must not bring two vCPUs of one VM onto a core (J15 is silent). True.
    pub keep_apart: bool,
    /// Swaps of type 1 per call: "some". Open. 4.
    pub max_swaps: usize,
}

/// J13: rounding of half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// 1 of 3, 0 of 1.
    Down,
    /// 2 of 3, 1 of 1.
    Up,
}

impl Half {
    fn of(self, n: usize) -> usize {
        match self {
            Self::Down => n / 2,
            Self::Up => n.div_ceil(2),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            overload_permille: 100,
            conflict_permille: 2000,
            min_conflicts: 2,
            low_latency: Ns::from_ms(5),
            half: Half::Up,
            keep_apart: true,
            max_swaps: 4,
        }
    }
}

/// One vCPU on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// Position in the caller's table of all vCPUs.
    pub vcpu: usize,
    /// Its VM.
    pub vm: usize,
    /// Its slice in the coming period (DATS).
    pub slice: Ns,
    /// Its rescheduling latency (DASL).
    pub latency: Ns,
}

/// One core and what happened on it in the period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// The vCPUs placed there.
    pub vcpus: Vec<Vcpu>,
    /// Preemptions of low-latency vCPUs (a), and times such a vCPU waited, ready,
    /// beyond its latency (b): conflicts = a + b (J13).
    pub conflicts: u64,
}

impl Core {
    /// The sum of the slices.
    #[must_use]
    pub fn load(&self) -> Ns {
        self.vcpus.iter().map(|v| v.slice).sum()
    }

    fn has_sibling_of(&self, vcpu: &Vcpu) -> bool {
        self.vcpus
            .iter()
            .any(|v| v.vm == vcpu.vm && v.vcpu != vcpu.vcpu)
    }
}

/// Two vCPUs that change cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Position of the first, and the core that it leaves.
    pub a: (usize, usize),
    /// Position of the second, and the core that it leaves.
    pub b: (usize, usize),
}

/// Type 1 (J12): swaps between the fullest and the emptiest core, each the one
/// that brings the two closest, until they are within the threshold, no swap
/// helps, or there were enough. `cores` is changed as the swaps say.
pub fn resolve_overload(cores: &mut [Core], settings: &Settings) -> Vec<Swap> {
    let mut swaps = Vec::new();
    let by_load = |cores: &[Core]| {
        let full = (0..cores.len()).max_by_key(|&c| (cores[c].load(), std::cmp::Reverse(c)))?;
        let empty = (0..cores.len()).min_by_key(|&c| (cores[c].load(), c))?;
        Some((full, empty))
    };
    let Some((full, empty)) = by_load(cores) else {
        return swaps;
    };
    while swaps.len() < settings.max_swaps {
        let (high, low) = (cores[full].load(), cores[empty].load());
        if high <= low.scaled(1000 + settings.overload_permille, 1000) {
            break;
        }
        let gap = high - low;
        let best = pairs(cores, full, empty, settings)
            .filter(|(a, b)| a.slice > b.slice && a.slice - b.slice < gap)
            .min_by_key(|(a, b)| ((a.slice - b.slice) * 2).abs_diff(gap));
        let Some((a, b)) = best else {
            break;
        };
        swaps.push(exchange(cores, (full, a), (empty, b)));
    }
    swaps
}

/// Type 2 (J13): swaps between the cores with most and fewest conflicts. Lowest
/// latencies go first, and to them the highest come. `cores` is changed as the
/// swaps say.
pub fn resolve_conflicts(cores: &mut [Core], settings: &Settings) -> Vec<Swap> {
    let mut swaps = Vec::new();
    let worst = (0..cores.len()).max_by_key(|&c| (cores[c].conflicts, std::cmp::Reverse(c)));
    let best = (0..cores.len()).min_by_key(|&c| (cores[c].conflicts, c));
    let (Some(worst), Some(best)) = (worst, best) else {
        return swaps;
    };
    let (most, fewest) = (cores[worst].conflicts, cores[best].conflicts);
    let limit = u128::from(fewest) * u128::from(settings.conflict_permille);
    if most < settings.min_conflicts || u128::from(most) * 1000 <= limit {
        return swaps;
    }
    let is_low = |v: &Vcpu| v.latency < settings.low_latency;
    let low = cores[worst].vcpus.iter().filter(|v| is_low(v)).count();
    let high = cores[best].vcpus.iter().filter(|v| !is_low(v)).count();
    // Unequal numbers: as many as both sides can give.
    let wanted = settings.half.of(low).min(settings.half.of(high));
    while swaps.len() < wanted {
        let next = pairs(cores, worst, best, settings)
            .filter(|(a, b)| is_low(a) && !is_low(b))
            .min_by_key(|(a, b)| (a.latency, std::cmp::Reverse(b.latency)));
        let Some((a, b)) = next else {
            break;
        };
        swaps.push(exchange(cores, (worst, a), (best, b)));
    }
    swaps
}

/// All pairs of two cores that may change places (J15).
fn pairs<'a>(
    cores: &'a [Core],
    one: usize,
    other: usize,
    settings: &'a Settings,
) -> impl Iterator<Item = (Vcpu, Vcpu)> + 'a {
    let stacked = move |vcpu: &Vcpu, core: usize, leaving: &Vcpu| {
        settings.keep_apart && leaving.vm != vcpu.vm && cores[core].has_sibling_of(vcpu)
    };
    cores[one]
        .vcpus
        .iter()
        .flat_map(move |a| cores[other].vcpus.iter().map(move |b| (*a, *b)))
        .filter(move |(a, b)| one != other && !stacked(a, other, b) && !stacked(b, one, a))
}

fn exchange(cores: &mut [Core], a: (usize, Vcpu), b: (usize, Vcpu)) -> Swap {
    for vcpu in &mut cores[a.0].vcpus {
        if vcpu.vcpu == a.1.vcpu {
            *vcpu = b.1;
        }
    }
    for vcpu in &mut cores[b.0].vcpus {
        if vcpu.vcpu == b.1.vcpu {
            *vcpu = a.1;
        }
    }
    Swap {
        a: (a.1.vcpu, a.0),
        b: (b.1.vcpu, b.0),
    }
}

#[cfg(test)]
mod tests;
