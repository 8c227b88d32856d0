// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simple leaky bucket (O6): unused slice may be kept, up to a limit, instead
//! of "use it or lose it".

use units::Ns;

/// One VM's (or vCPU's) bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    capacity: Ns,
    saved: Ns,
}

impl Bucket {
    /// An empty bucket. The size is not stated (O6); one period of the VM's share
    /// is a reasonable start.
    #[must_use]
    pub fn new(capacity: Ns) -> Self {
        Self {
            capacity,
            saved: Ns::ZERO,
        }
    }

    /// What it holds.
    #[must_use]
    pub fn saved(&self) -> Ns {
        self.saved
    }

    /// What may be used in a period with this slice.
    #[must_use]
    pub fn budget(&self, slice: Ns) -> Ns {
        slice + self.saved
    }

    /// A period with this slice has ended, `used` of the budget was used. What is
    /// left is saved; what does not fit runs over and is lost.
    pub fn on_period(&mut self, slice: Ns, used: Ns) {
        self.saved = (self.budget(slice) - used).min(self.capacity);
    }

    /// Takes up to `wanted` out, for a loan (J16).
    pub fn draw(&mut self, wanted: Ns) -> Ns {
        let drawn = wanted.min(self.saved);
        self.saved = self.saved - drawn;
        drawn
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 100 ms a period, 30 used, then 150 wanted: 100 + 70 are there.
    #[test]
    fn what_is_not_used_can_be_used_later() {
        let mut bucket = Bucket::new(Ns::from_ms(100));
        let slice = Ns::from_ms(100);
        bucket.on_period(slice, Ns::from_ms(30));
        assert_eq!(bucket.budget(slice), Ns::from_ms(170));
        bucket.on_period(slice, Ns::from_ms(150));
        assert_eq!(bucket.saved(), Ns::from_ms(20));
    }

    #[test]
    fn a_full_bucket_runs_over() {
        let mut bucket = Bucket::new(Ns::from_ms(50));
        for _ in 0..10 {
            bucket.on_period(Ns::from_ms(100), Ns::ZERO);
        }
        assert_eq!(bucket.saved(), Ns::from_ms(50));
        assert_eq!(bucket.draw(Ns::from_ms(80)), Ns::from_ms(50));
        assert_eq!(bucket.saved(), Ns::ZERO);
    }

    proptest! {
        /// Over any time nobody uses more than was given plus one bucket.
        #[test]
        fn use_is_bounded(wants in proptest::collection::vec(0u64..300, 1..100)) {
            let slice = Ns::from_ms(100);
            let mut bucket = Bucket::new(Ns::from_ms(150));
            let mut used = Ns::ZERO;
            for (n, want) in wants.iter().enumerate() {
                let uses = Ns::from_ms(*want).min(bucket.budget(slice));
                bucket.on_period(slice, uses);
                used += uses;
                prop_assert!(used <= slice * (n as u64 + 1));
            }
        }
    }
}
