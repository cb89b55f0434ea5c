//! Cuts the selected rows of a row group into chunks of bounded size, the unit of reading.

use crate::format::PageLocation;
use crate::query::rows::selection::RowSelection;

/// The cutting of a row selection into chunks. Chunks end at page boundaries where possible, since a page is decoded as
/// a whole.
#[derive(Debug)]
pub(in crate::query) struct Cutter {
    selection: RowSelection,
    /// Index of the range that is cut next.
    next: usize,
    /// First row of that range that no chunk contains yet.
    start: u32,
    /// First rows of the pages, in ascending order.
    page_starts: Vec<u32>,
}

impl Cutter {
    /// Creates a cutter of `selection` at the boundaries of `pages`.
    pub(in crate::query) fn new(selection: RowSelection, pages: &[PageLocation]) -> Self {
        let page_starts = pages.iter().map(|page| u32::try_from(page.first_row).unwrap_or(u32::MAX)).collect();
        Self { selection, next: 0, start: 0, page_starts }
    }

    /// Returns the next chunk, or an empty selection at the end. A chunk has about `target_rows` rows, and at most
    /// `target_rows` rounded up to whole pages.
    pub(in crate::query) fn next_chunk(&mut self, target_rows: u32) -> RowSelection {
        let mut chunk = RowSelection::default();
        let mut open = target_rows.max(1);
        while open > 0 {
            let Some(range) = self.selection.ranges().get(self.next) else { break };
            let start = range.rows.start.max(self.start);
            let cut = match start.checked_add(open) {
                Some(cut) if cut < range.rows.end => self.page_start_from(cut).unwrap_or(range.rows.end),
                _ => range.rows.end,
            };
            let end = cut.min(range.rows.end);
            chunk.push(start..end, range.truth());
            open = open.saturating_sub(end - start);
            if end == range.rows.end {
                self.next += 1;
            }
            self.start = end;
        }
        chunk
    }

    /// Returns the first page start at or after `row`.
    fn page_start_from(&self, row: u32) -> Option<u32> {
        self.page_starts.get(self.page_starts.partition_point(|start| *start < row)).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::expr::TruthValue;
    use crate::query::rows::pages::page_end;
    use crate::query::rows::pages::tests::locations;

    proptest! {
        #[test]
        fn chunks_cover_the_selection_and_end_where_pages_do(
            lengths in prop::collection::vec(1u32..20, 1..12),
            kept in prop::collection::vec(any::<(bool, bool)>(), 12),
            target in 1u32..60,
        ) {
            let pages = locations(&lengths);
            let mut selection = RowSelection::default();
            for (page, (keep, exact)) in pages.iter().zip(kept) {
                let truth = if exact { TruthValue::Always } else { TruthValue::Maybe };
                selection.push(page.first_row as u32..page_end(page) as u32, if keep { truth } else { TruthValue::Never });
            }
            let mut cutter = Cutter::new(selection.clone(), &pages);
            let mut covered = RowSelection::default();
            loop {
                let chunk = cutter.next_chunk(target);
                if chunk.is_empty() {
                    break;
                }
                prop_assert!(chunk.rows() < u64::from(target) + 20);
                let end = chunk.ranges().last().map_or(0, |range| u64::from(range.rows.end));
                prop_assert!(pages.iter().any(|page| page_end(page) == end));
                chunk.ranges().iter().for_each(|range| covered.push(range.rows.clone(), range.truth()));
            }
            prop_assert_eq!(covered, selection);
        }
    }
}
