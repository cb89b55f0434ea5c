//! Tracks the parts of memory that the program shares with its files. A mapping may be filled after its descriptor is
//! closed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::state::Session;

/// A range of addresses that is shared with an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    begin: usize,
    end: usize,
    /// Our number of the file.
    pub(super) file: u64,
}

/// The mappings of this process. A lock of its own, which is held only briefly.
static MAPPINGS: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// Whether there are mappings, so that most calls that unmap memory take no lock.
static HAS_MAPPINGS: AtomicBool = AtomicBool::new(false);

/// Changes the mappings.
fn change(how: impl FnOnce(&mut Vec<Mapping>)) {
    let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    how(&mut mappings);
    HAS_MAPPINGS.store(!mappings.is_empty(), Ordering::Release);
}

/// Returns whether files are mapped.
pub(crate) fn has_mappings() -> bool {
    HAS_MAPPINGS.load(Ordering::Acquire)
}

/// Records that the program has unmapped addresses.
pub(crate) fn unmapped(begin: usize, bytes: usize) {
    change(|mappings| remove(mappings, begin, end_of(begin, bytes)));
}

/// Records that the program has moved or resized a mapping.
pub(crate) fn remapped((from, from_bytes): (usize, usize), (to, to_bytes): (usize, usize)) {
    change(|mappings| {
        let held = mappings.iter().find(|mapping| mapping.begin <= from && from < mapping.end).copied();
        if let Some(held) = held {
            remove(mappings, from, end_of(from, from_bytes));
            mappings.push(Mapping { begin: to, end: end_of(to, to_bytes), ..held });
        }
    });
}

/// The smallest page size of any machine.
const PAGE_BYTES: usize = 4096;

/// Returns the address after a range, which ends with a page.
fn end_of(begin: usize, bytes: usize) -> usize {
    begin.saturating_add(bytes).checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX)
}

/// Removes a range of addresses from mappings.
fn remove(mappings: &mut Vec<Mapping>, begin: usize, end: usize) {
    let pieces = |mapping: Mapping| {
        let before = Mapping { end: mapping.end.min(begin), ..mapping };
        let after = Mapping { begin: mapping.begin.max(end), ..mapping };
        [before, after].into_iter().filter(|piece| piece.begin < piece.end)
    };
    *mappings = std::mem::take(mappings).into_iter().flat_map(pieces).collect();
}

impl Session {
    /// Records that the program has mapped the file of a descriptor.
    pub(crate) fn mapped(&mut self, descriptor: i32, begin: usize, bytes: usize) {
        if let Some(&file) = self.descriptors.get(&descriptor) {
            self.mapped.insert(file);
            change(|mappings| mappings.push(Mapping { begin, end: end_of(begin, bytes), file }));
        }
    }

    /// Records that files are complete which are neither open nor mapped any more.
    pub(super) fn complete_unmapped(&mut self) {
        if !self.mapped.is_empty() {
            let mut held = HashSet::new();
            change(|mappings| held.extend(mappings.iter().map(|mapping| mapping.file)));
            let unmapped: Vec<u64> = self.mapped.difference(&held).copied().collect();
            self.mapped = held;
            unmapped.into_iter().for_each(|file| self.complete_unless_used(file));
        }
    }

    /// Forgets all mappings, when all files count as complete.
    pub(super) fn forget_mappings(&mut self) {
        self.mapped.clear();
        change(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_shrinks_by_what_is_unmapped() {
        let mapping = |begin, end| Mapping { begin, end, file: 1 };
        for (unmapped, left) in [
            ((0, 8), vec![mapping(8, 20), mapping(30, 40)]),
            ((10, 12), vec![mapping(8, 10), mapping(12, 20), mapping(30, 40)]),
            ((15, 35), vec![mapping(8, 15), mapping(35, 40)]),
            ((0, 100), vec![]),
        ] {
            let mut mappings = vec![mapping(8, 20), mapping(30, 40)];
            remove(&mut mappings, unmapped.0, unmapped.1);
            assert_eq!(mappings, left);
        }
    }
}
