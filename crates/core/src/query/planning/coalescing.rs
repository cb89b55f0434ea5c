//! Byte ranges: joins a set of pages into reads.

use std::ops::Range;

use crate::format::PageLocation;

/// Maximum gap in bytes between two wanted ranges that one read covers.
///
/// A read from the page cache pays for gaps of up to about 8 KiB, a read from an NVMe device for gaps of up to about
/// 180 KiB. This value lies between them: it wastes a few microseconds in the cache, and saves most of a device read's
/// latency otherwise.
pub(crate) const READ_THROUGH_BYTES: u64 = 32 << 10;

/// Returned bytes that allow one gap byte. With a quarter, and partly needed pages, a range query reads at most 1.3
/// times the bytes it returns plus two pages of each column chunk it touches.
const BYTES_PER_GAP_BYTE: u64 = 4;

/// Returns the maximum gap bytes that may be read for this many returned bytes.
pub(in crate::query) fn gap_budget(returned_bytes: u64) -> u64 {
    returned_bytes / BYTES_PER_GAP_BYTE
}

/// A byte range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    /// First byte.
    pub(crate) offset: u64,
    /// Length.
    pub(crate) bytes: u64,
}

impl Extent {
    /// Returns the extent of a page.
    pub(crate) fn of(page: &PageLocation) -> Self {
        Self { offset: page.offset, bytes: u64::from(page.bytes) }
    }

    /// Returns the end of the range, exclusive. Extents come from checked page locations and do not overflow.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Joins ascending, disjoint extents into reads, and returns these as ranges of positions. Small gaps are read through
/// while `gap_bytes`, the budget of all of them together, lasts.
pub(in crate::query) fn joined(extents: &[Extent], gap_bytes: u64) -> Vec<Range<usize>> {
    let mut reads: Vec<Range<usize>> = Vec::new();
    let mut open = gap_bytes;
    for (position, extent) in extents.iter().enumerate() {
        let before = position.checked_sub(1).and_then(|before| extents.get(before));
        let gap = before.and_then(|before| extent.offset.checked_sub(before.end()));
        match (gap, reads.last_mut()) {
            (Some(gap), Some(last)) if gap <= READ_THROUGH_BYTES.min(open) => {
                open -= gap;
                last.end = position + 1;
            }
            _ => reads.push(position..position + 1),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(offset: u64, bytes: u64) -> Extent {
        Extent { offset, bytes }
    }

    #[test]
    fn small_gaps_are_read_through_and_large_ones_are_not() {
        let near = [extent(0, 100), extent(READ_THROUGH_BYTES + 100, 50)];
        assert_eq!(joined(&near, READ_THROUGH_BYTES).len(), 1);
        assert_eq!(joined(&near, READ_THROUGH_BYTES - 1), [0..1, 1..2], "the budget does not suffice");
        let far = [extent(0, 100), extent(READ_THROUGH_BYTES + 101, 50)];
        assert_eq!(joined(&far, u64::MAX), [0..1, 1..2]);
        assert_eq!(joined(&[extent(5, 10), extent(15, 2), extent(18, 2)], 0), [0..2, 2..3]);
        assert_eq!(joined(&[extent(5, 10), extent(7, 2)], 100), [0..1, 1..2], "what overlaps is read apart");
        assert_eq!(joined(&[], 100), []);
    }

    proptest! {
        #[test]
        fn every_extent_is_read_once_and_gaps_stay_within_the_budget(
            steps in prop::collection::vec((0u64..50_000, 1u64..5_000), 0..30),
            gap_bytes in 0u64..200_000,
        ) {
            let mut offset = 0;
            let mut extents = Vec::new();
            for (gap, bytes) in steps {
                extents.push(extent(offset + gap, bytes));
                offset += gap + bytes;
            }
            let reads = joined(&extents, gap_bytes);
            let all: Vec<usize> = reads.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..extents.len()).collect::<Vec<_>>());
            let length = |read: &Range<usize>| extents[read.end - 1].end() - extents[read.start].offset;
            let read_bytes: u64 = reads.iter().map(length).sum();
            let wanted_bytes: u64 = extents.iter().map(|extent| extent.bytes).sum();
            prop_assert!(read_bytes - wanted_bytes <= gap_bytes);
        }
    }
}
