//! A bounded cache.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
struct Cached<V> {
    value: V,
    weight: u64,
    used: u64,
}

/// An LRU cache with limits on the number and the total weight of its entries.
#[derive(Debug)]
pub(in crate::query) struct Cache<K, V> {
    entries: HashMap<K, Cached<V>>,
    /// The keys in the order of their last use.
    order: BTreeMap<u64, K>,
    most_entries: usize,
    most_weight: u64,
    weight: u64,
    clock: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    pub(in crate::query) fn new(most_entries: usize, most_weight: u64) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), most_entries, most_weight, weight: 0, clock: 0 }
    }

    pub(in crate::query) fn get(&mut self, key: &K) -> Option<V> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        let place = self.order.remove(&entry.used).unwrap_or_else(|| key.clone());
        self.order.insert(self.clock, place);
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    /// Inserts a value. The newest value is kept even if it alone exceeds the budget.
    pub(in crate::query) fn insert(&mut self, key: K, value: V, weight: u64) {
        self.remove(&key);
        while (self.entries.len() >= self.most_entries || self.weight.saturating_add(weight) > self.most_weight)
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
        self.clock += 1;
        self.weight = self.weight.saturating_add(weight);
        self.order.insert(self.clock, key.clone());
        self.entries.insert(key, Cached { value, weight, used: self.clock });
    }

    pub(in crate::query) fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.weight = self.weight.saturating_sub(entry.weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_leaves_the_cache_first() {
        let mut cache = Cache::new(3, 100);
        for key in 0..3 {
            cache.insert(key, key, 10);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.insert(3, 3, 10);
        assert_eq!((cache.get(&1), cache.get(&0), cache.weight), (None, Some(0), 30));
        cache.insert(4, 4, 95);
        assert_eq!((cache.entries.len(), cache.weight), (1, 95));
        cache.insert(4, 5, 500);
        assert_eq!((cache.get(&4), cache.weight), (Some(5), 500));
        assert_eq!(cache.order.len(), cache.entries.len());
    }
}
