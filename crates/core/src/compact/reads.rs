//! Coalesces the page reads of a slab into long reads. These include short gaps between the pages.

use crate::query::{Extent, READ_THROUGH_BYTES};

/// Maximum length of a coalesced read in bytes. Longer reads require larger buffers, but do not increase throughput
/// (see [`READ_THROUGH_BYTES`]).
pub(super) const MAX_READ_BYTES: u64 = 4 << 20;

/// Returns reads that cover all extents in `wanted`, which ascend and do not overlap. A read includes gaps of up to
/// [`READ_THROUGH_BYTES`].
pub(super) fn coalesce(wanted: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut reads: Vec<Extent> = Vec::new();
    for extent in wanted {
        match reads.last_mut() {
            Some(last)
                if extent.offset.saturating_sub(last.end()) <= READ_THROUGH_BYTES
                    && extent.end() - last.offset <= MAX_READ_BYTES =>
            {
                last.bytes = extent.end() - last.offset;
            }
            _ => reads.push(extent),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, bytes: u64) -> Extent {
        Extent { offset, bytes }
    }

    #[test]
    fn small_gaps_are_read_through_and_large_ones_are_not() {
        let joined = coalesce([extent(0, 100), extent(READ_THROUGH_BYTES + 100, 50)]);
        assert_eq!(joined, [extent(0, READ_THROUGH_BYTES + 150)]);
        let apart = [extent(0, 100), extent(READ_THROUGH_BYTES + 101, 50)];
        assert_eq!(coalesce(apart), apart);
        assert_eq!(coalesce([]), []);
    }

    #[test]
    fn joined_reads_stay_bounded() {
        let reads = coalesce((0..100).map(|page| extent(page * (1 << 20), 1 << 20)));
        assert!(reads.iter().all(|read| read.bytes <= MAX_READ_BYTES));
        assert_eq!(reads.len(), 25);
        assert_eq!(coalesce([extent(0, 3 * MAX_READ_BYTES)]).len(), 1, "a page longer than that is one read");
    }
}
