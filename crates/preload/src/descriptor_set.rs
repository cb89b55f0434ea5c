//! Sets of descriptors, which calls of the program query without a lock.

use std::sync::atomic::{AtomicBool, Ordering};

/// Number of descriptors that a set can hold, from 0 on.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// A set of descriptors.
pub(crate) struct DescriptorSet {
    flags: [AtomicBool; DESCRIPTORS],
}

impl DescriptorSet {
    pub(crate) const fn new() -> Self {
        Self { flags: [const { AtomicBool::new(false) }; DESCRIPTORS] }
    }

    fn flag(&self, descriptor: i32) -> Option<&AtomicBool> {
        usize::try_from(descriptor).ok().and_then(|number| self.flags.get(number))
    }

    #[inline]
    pub(crate) fn contains(&self, descriptor: i32) -> bool {
        self.flag(descriptor).is_some_and(|flag| flag.load(Ordering::Acquire))
    }

    /// Adds a descriptor. Returns whether the set can hold it.
    pub(crate) fn insert(&self, descriptor: i32) -> bool {
        let flag = self.flag(descriptor);
        flag.inspect(|flag| flag.store(true, Ordering::Release)).is_some()
    }

    /// Removes a descriptor. Returns whether the set contained it.
    pub(crate) fn remove(&self, descriptor: i32) -> bool {
        self.contains(descriptor) && self.flag(descriptor).is_some_and(|flag| flag.swap(false, Ordering::AcqRel))
    }

    /// Returns the descriptors from `first` to `last`, in ascending order.
    pub(crate) fn within(&self, first: u32, last: u32) -> Vec<i32> {
        let last = last.min(DESCRIPTORS as u32 - 1);
        (first..=last).filter_map(|number| i32::try_from(number).ok()).filter(|&number| self.contains(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_inserted_last() {
        static SET: DescriptorSet = DescriptorSet::new();
        assert!(SET.insert(3) && SET.insert(700) && !SET.insert(-1) && !SET.insert(1 << 16));
        assert_eq!(SET.within(0, u32::MAX), [3, 700]);
        assert_eq!((SET.within(4, 700), SET.within(4, 699)), (vec![700], vec![]));
        assert!(SET.remove(3) && !SET.remove(3) && !SET.remove(-1));
        assert!(!SET.contains(3) && SET.contains(700) && !SET.contains(1 << 16));
    }
}
