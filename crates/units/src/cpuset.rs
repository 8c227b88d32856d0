// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of CPUs in the kernel's list syntax.

use std::fmt;
use std::str::FromStr;

use crate::VcpuId;

/// Words in a set: 1024 CPUs, the size of glibc's `cpu_set_t`.
const WORDS: usize = 16;

/// A set of CPUs, at most [`CpuSet::CAPACITY`] of them.
///
/// A plain bit mask: copying one costs 128 bytes and no allocation, which is
/// what the placement code, called at every slice end, needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// The number of CPUs a set can name: 0..1024.
    pub const CAPACITY: u32 = WORDS as u32 * 64;

    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The CPUs `0..n`.
    #[must_use]
    pub fn first(n: u32) -> Self {
        (0..n.min(Self::CAPACITY)).map(VcpuId).collect()
    }

    /// Just this CPU.
    #[must_use]
    pub fn only(cpu: VcpuId) -> Self {
        let mut set = Self::EMPTY;
        set.insert(cpu);
        set
    }

    /// From the kernel's own form: 64-bit words, lowest CPUs first. Words past
    /// the capacity are ignored.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Self {
        let mut set = Self::EMPTY;
        for (to, from) in set.0.iter_mut().zip(words) {
            *to = *from;
        }
        set
    }

    /// In the kernel's own form: 64-bit words, lowest CPUs first.
    #[must_use]
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Adds a CPU. One past the capacity is ignored.
    pub fn insert(&mut self, cpu: VcpuId) {
        if let Some(word) = self.0.get_mut(cpu.index() / 64) {
            *word |= 1 << (cpu.0 % 64);
        }
    }

    /// Takes a CPU out.
    pub fn remove(&mut self, cpu: VcpuId) {
        if let Some(word) = self.0.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.0 % 64));
        }
    }

    /// Is the CPU in the set?
    #[must_use]
    pub fn contains(&self, cpu: VcpuId) -> bool {
        self.0
            .get(cpu.index() / 64)
            .is_some_and(|word| word & (1 << (cpu.0 % 64)) != 0)
    }

    /// How many CPUs are in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Is the set empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The CPUs in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut set = *self;
        for (to, from) in set.0.iter_mut().zip(&other.0) {
            *to &= from;
        }
        set
    }

    /// The vCPUs of `self` that are not in `other`.
    #[must_use]
    pub fn and_not(&self, other: &Self) -> Self {
        let mut set = *self;
        for (to, from) in set.0.iter_mut().zip(&other.0) {
            *to &= !from;
        }
        set
    }

    /// The CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VcpuId> + '_ {
        (0..Self::CAPACITY)
            .map(VcpuId)
            .filter(|cpu| self.contains(*cpu))
    }
}

impl FromIterator<VcpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = VcpuId>>(cpus: I) -> Self {
        let mut set = Self::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    /// In the kernel's list syntax, for instance `0-3,7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().map(|cpu| cpu.0).peekable();
        let mut separator = "";
        while let Some(start) = cpus.next() {
            let mut end = start;
            while cpus.next_if_eq(&(end + 1)).is_some() {
                end += 1;
            }
            match end - start {
                0 => write!(f, "{separator}{start}")?,
                _ => write!(f, "{separator}{start}-{end}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

/// Why a text is not a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a CPU list; it looks like 0-3,7 with numbers below {}",
    CpuSet::CAPACITY
)]
pub struct ParseCpuSetError {
    text: String,
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseCpuSetError {
            text: text.to_owned(),
        };
        let number = |t: &str| {
            t.parse::<u32>()
                .ok()
                .filter(|n| *n < Self::CAPACITY)
                .ok_or_else(error)
        };
        let mut set = Self::EMPTY;
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (start, end) = match part.split_once('-') {
                Some((start, end)) => (number(start)?, number(end)?),
                None => (number(part)?, number(part)?),
            };
            if start > end {
                return Err(error());
            }
            for cpu in start..=end {
                set.insert(VcpuId(cpu));
            }
        }
        Ok(set)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        <String as serde::Deserialize>::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn list_syntax_matches_the_kernels() {
        let set: CpuSet = "0-3,7,1023".parse().unwrap();
        assert_eq!(set.to_string(), "0-3,7,1023");
        assert_eq!(set.len(), 6);
        assert_eq!("".parse::<CpuSet>().unwrap(), CpuSet::EMPTY);
    }

    #[test]
    fn bad_lists_are_refused_with_the_text() {
        for text in ["3-1", "a", "1024", "1-", "-"] {
            let error = text.parse::<CpuSet>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_agree(cpus in proptest::collection::btree_set(0u32..1024, 0..40)) {
            let set: CpuSet = cpus.iter().copied().map(VcpuId).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            prop_assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
        }
    }
}
