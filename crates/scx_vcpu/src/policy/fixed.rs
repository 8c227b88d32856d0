// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policy `fixed`: the slice of each pCPU.

use thiserror::Error;
use units::Ns;

/// Shortest slice. The kernel looks at slices in its tick (1..10 ms), so a
/// shorter one would be delivered as one tick.
pub const MIN_SLICE: Ns = Ns::from_ms(1);

/// Longest slice: a tenth of what the kernel's watchdog allows a vCPU to wait
/// for its turn, so that ten VMs per pCPU are safe.
pub const MAX_SLICE: Ns = Ns::from_secs(3);

/// Largest sweep, in thousandths of a slice; the freezer has the same.
pub const MAX_SWEEP_PERMILLE: u32 = 500;

/// A parameter that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FixedError {
    /// The slice is out of range.
    #[error("--slice {0} is out of range; use {MIN_SLICE} to {MAX_SLICE}")]
    Slice(Ns),
    /// The sweep is out of range.
    #[error("--sweep {0} is out of range; use 0 to {MAX_SWEEP_PERMILLE} thousandths")]
    Sweep(u32),
}

/// Slices of pCPUs 0..`cpus`: the last one's is longer than the first one's by
/// `sweep_permille` thousandths, the others lie between.
///
/// With equal slices the pCPUs' phases lock, and whether at least one vCPU of a
/// VM is on would be an accident of the start.
///
/// # Errors
/// A parameter is out of range.
pub fn slices(slice: Ns, sweep_permille: u32, cpus: u32) -> Result<Vec<Ns>, FixedError> {
    if !(MIN_SLICE..=MAX_SLICE).contains(&slice) {
        return Err(FixedError::Slice(slice));
    }
    if sweep_permille > MAX_SWEEP_PERMILLE {
        return Err(FixedError::Sweep(sweep_permille));
    }
    let steps = u64::from(cpus.saturating_sub(1).max(1));
    let of = |cpu: u32| {
        let more = slice.0 * u64::from(sweep_permille) * u64::from(cpu) / (1000 * steps);
        Ns(slice.0 + more)
    };
    Ok((0..cpus).map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pcpu_sweeps_by_as_much_as_was_asked() {
        let of = |cpus| slices(Ns::from_ms(100), 50, cpus).unwrap();
        assert_eq!(of(1), [Ns::from_ms(100)]);
        assert_eq!(of(2), [Ns::from_ms(100), Ns::from_ms(105)]);
        assert_eq!(of(3)[1], Ns(102_500_000));
        assert_eq!(slices(Ns::from_ms(9), 0, 2).unwrap(), [Ns::from_ms(9); 2]);
    }

    #[test]
    fn what_cannot_be_delivered_is_refused() {
        for slice in [Ns::ZERO, Ns(999_999), Ns::from_secs(4), Ns(u64::MAX)] {
            assert_eq!(slices(slice, 0, 2), Err(FixedError::Slice(slice)));
        }
        let text = slices(Ns::from_ms(11), 501, 2).unwrap_err().to_string();
        assert!(
            text.contains("--sweep 501") && text.contains("500"),
            "{text}"
        );
    }
}
