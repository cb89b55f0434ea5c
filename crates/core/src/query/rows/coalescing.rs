//! Coalescing of pages: joins their byte ranges into reads.

use std::ops::Range;

use crate::format::PageLocation;

/// Maximum gap between two requested ranges that one read covers, in bytes.
///
/// One read through a gap is faster than two reads for gaps of up to about 8 KiB in the page cache, and of up to about
/// 180 KiB on an NVMe device. This value lies between them: it costs a few microseconds in the page cache, and saves
/// most of the latency of a read from a device.
pub(crate) const READ_THROUGH_BYTES: u64 = 32 << 10;

/// Number of returned bytes that allow one gap byte. With a quarter for gaps, and with partly needed pages, a range
/// query reads at most 1.3 times the bytes that it returns, plus two pages of each column chunk that it touches.
const BYTES_PER_GAP_BYTE: u64 = 4;

/// Returns the maximum number of gap bytes that may be read for this many returned bytes.
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

/// Joins ascending, disjoint extents into reads. Each read is a range of positions among the extents. Reads continue
/// through small gaps, up to `gap_bytes` in total.
pub(in crate::query) fn joined(extents: impl Iterator<Item = Extent>, gap_bytes: u64) -> Vec<Range<usize>> {
    let mut reads: Vec<Range<usize>> = Vec::new();
    let mut open = gap_bytes;
    let mut end: Option<u64> = None;
    for (position, extent) in extents.enumerate() {
        let gap = end.and_then(|end| extent.offset.checked_sub(end));
        match (gap, reads.last_mut()) {
            (Some(gap), Some(last)) if gap <= READ_THROUGH_BYTES.min(open) => {
                open -= gap;
                last.end = position + 1;
            }
            _ => reads.push(position..position + 1),
        }
        end = Some(extent.end());
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
        assert_eq!(joined(near.into_iter(), READ_THROUGH_BYTES).len(), 1);
        assert_eq!(joined(near.into_iter(), READ_THROUGH_BYTES - 1), [0..1, 1..2], "the budget does not suffice");
        let far = [extent(0, 100), extent(READ_THROUGH_BYTES + 101, 50)];
        assert_eq!(joined(far.into_iter(), u64::MAX), [0..1, 1..2]);
        assert_eq!(joined([extent(5, 10), extent(15, 2), extent(18, 2)].into_iter(), 0), [0..2, 2..3]);
        assert_eq!(joined([extent(5, 10), extent(7, 2)].into_iter(), 100), [0..1, 1..2], "what overlaps is read apart");
        assert_eq!(joined([].into_iter(), 100), []);
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
            let reads = joined(extents.iter().copied(), gap_bytes);
            let all: Vec<usize> = reads.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..extents.len()).collect::<Vec<_>>());
            let length = |read: &Range<usize>| extents[read.end - 1].end() - extents[read.start].offset;
            let read_bytes: u64 = reads.iter().map(length).sum();
            let wanted_bytes: u64 = extents.iter().map(|extent| extent.bytes).sum();
            prop_assert!(read_bytes - wanted_bytes <= gap_bytes);
        }
    }
}
