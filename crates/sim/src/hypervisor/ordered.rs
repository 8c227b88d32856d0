// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run queue in order.

/// A small ordered set in one array, the least at its end. The queue of a pCPU has a
/// handful of entries: moving them costs less than the nodes of a tree, and looking
/// at the first touches one cache line.
#[derive(Clone, Debug)]
pub(super) struct Ordered<K>(Vec<K>);

impl<K> Default for Ordered<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord> Ordered<K> {
    /// Where `key` is or belongs.
    fn place(&self, key: &K) -> usize {
        self.0.partition_point(|other| other > key)
    }

    /// Adds `key`, which is not there yet.
    pub(super) fn insert(&mut self, key: K) {
        let at = self.place(&key);
        debug_assert!(self.0.get(at) != Some(&key), "queued twice");
        self.0.insert(at, key);
    }

    /// Takes `key` out; false if it was not there.
    pub(super) fn remove(&mut self, key: &K) -> bool {
        let at = self.place(key);
        let found = self.0.get(at) == Some(key);
        if found {
            self.0.remove(at);
        }
        found
    }

    /// The least.
    pub(super) fn first(&self) -> Option<&K> {
        self.0.last()
    }

    /// The least first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It is a set in order, whatever is done to it.
        #[test]
        fn behaves_as_a_tree(steps in proptest::collection::vec((any::<bool>(), 0u8..20), 0..80)) {
            let (mut own, mut tree) = (Ordered::default(), BTreeSet::new());
            for (adds, key) in steps {
                if !adds {
                    prop_assert_eq!(own.remove(&key), tree.remove(&key));
                } else if tree.insert(key) {
                    own.insert(key);
                }
                prop_assert_eq!(own.first(), tree.first());
                prop_assert!(own.iter().eq(tree.iter()));
            }
        }
    }
}
