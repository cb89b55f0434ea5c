//! Finds exact cuts through the merge order of many sorted sequences, with a given number of rows before each cut.
//!
//! The keys are known as a list of *blocks*: rows of one sequence with a smallest and a largest key. Initially the
//! blocks are the pages. They bound the key at a given position. The few blocks that overlap these bounds are refined:
//! their pages are read, and each block is split into smaller ones, until every block has only one key. The cut is then
//! exact. Rows with the key of the cut are distributed in the order of the sequences.
//!
//! Memory: a few blocks of each sequence that contains the key of the cut, never all rows.

use crate::error::Result;

/// Number of blocks into which a block is split. A page of 2,048 rows is refined twice.
const REFINED_BLOCKS: u32 = 64;

/// The rows and key bounds of a page in the key column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyPage {
    /// First row of the page in its sequence.
    pub(super) first_row: u32,
    /// Number of rows in the page.
    pub(super) rows: u32,
    /// Lower bound of the keys, as an ordinal.
    pub(super) low: u64,
    /// Upper bound of the keys, as an ordinal.
    pub(super) high: u64,
}

/// Consecutive rows of one page, and the bounds of their keys.
#[derive(Debug, Clone, Copy)]
struct Block {
    sequence: u32,
    page: u32,
    /// First row, counted from the start of the page.
    start: u32,
    rows: u32,
    low: u64,
    high: u64,
}

/// A position in the merge order of all rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// Ordinal of the cut. No row before the cut has a larger key, and no row after the cut has a smaller key.
    pub(super) ordinal: u64,
    /// Number of rows before the cut in each sequence.
    pub(super) rows: Vec<u32>,
}

/// The pages of an epoch's sorted sequences, with key bounds from the page indexes.
#[derive(Debug, Default)]
pub(super) struct KeyMap {
    pages: Vec<KeyPage>,
    /// Index in `pages` after the last page of each sequence.
    ends: Vec<usize>,
    /// Smallest key of each page in ascending order, with the cumulative number of rows.
    lows: Vec<(u64, u64)>,
    /// Largest key of each page in ascending order, with the cumulative number of rows.
    highs: Vec<(u64, u64)>,
}

/// Sorts keys with row counts. Returns the keys with cumulative row counts.
fn cumulate(keys: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut sums: Vec<(u64, u64)> = keys.collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    let mut rows = 0u64;
    for sum in &mut sums {
        rows += sum.1;
        sum.1 = rows;
    }
    sums
}

/// Returns the first key at which the cumulative row count reaches `rows`.
fn reach(sums: &[(u64, u64)], rows: u64) -> u64 {
    let place = sums.partition_point(|(_, sum)| *sum < rows);
    sums.get(place).or(sums.last()).map_or(0, |(key, _)| *key)
}

impl KeyMap {
    /// Adds a sequence. Its pages are consecutive, and neither of their bounds descends.
    pub(super) fn push(&mut self, pages: impl IntoIterator<Item = KeyPage>) {
        self.pages.extend(pages);
        self.ends.push(self.pages.len());
    }

    /// Completes the map. The caller must have added all sequences.
    pub(super) fn finish(&mut self) {
        self.lows = cumulate(self.pages.iter().map(|page| (page.low, u64::from(page.rows))));
        self.highs = cumulate(self.pages.iter().map(|page| (page.high, u64::from(page.rows))));
    }

    /// Returns the total number of rows in all sequences.
    pub(super) fn rows(&self) -> u64 {
        self.lows.last().map_or(0, |(_, rows)| *rows)
    }

    fn sequences(&self) -> impl Iterator<Item = &[KeyPage]> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.pages[begin..*end])
    }

    /// Returns the cut with `place` rows before it. `read` appends the ordinals of a page's keys, which must ascend and
    /// lie within the bounds of the page.
    ///
    /// # Errors
    /// The errors of `read`.
    pub(super) fn cut(
        &self,
        place: u64,
        mut read: impl FnMut(u32, &KeyPage, &mut Vec<u64>) -> Result<()>,
    ) -> Result<Cut> {
        if place == 0 {
            return Ok(Cut { ordinal: 0, rows: vec![0; self.ends.len()] });
        }
        if place >= self.rows() {
            let rows = |pages: &[KeyPage]| pages.iter().map(|page| page.rows).sum();
            return Ok(Cut { ordinal: u64::MAX, rows: self.sequences().map(rows).collect() });
        }
        let bounds = (reach(&self.lows, place), reach(&self.highs, place));
        let (mut cut, mut blocks) = self.start(bounds);
        let before = cut.iter().map(|rows| u64::from(*rows)).sum();
        let mut open = place.saturating_sub(before);
        while blocks.iter().any(|block| block.low < block.high) {
            blocks = self.refine(&blocks, &mut read)?;
            let (low, high) = bracket(&blocks, open);
            blocks.retain(|block| {
                if block.high < low {
                    cut[block.sequence as usize] += block.rows;
                    open = open.saturating_sub(u64::from(block.rows));
                }
                block.high >= low && block.low <= high
            });
        }
        let ordinal = blocks.first().map_or(bounds.1, |block| block.low);
        for block in &blocks {
            // The number is at most the rows of the block.
            let taken = u64::from(block.rows).min(open);
            cut[block.sequence as usize] += taken as u32;
            open -= taken;
        }
        Ok(Cut { ordinal, rows: cut })
    }

    /// Returns the number of rows in each sequence that certainly precede the bounds, and the pages that overlap the
    /// bounds.
    fn start(&self, (low, high): (u64, u64)) -> (Vec<u32>, Vec<Block>) {
        let mut blocks = Vec::new();
        let mut before = Vec::with_capacity(self.ends.len());
        for (sequence, pages) in (0u32..).zip(self.sequences()) {
            let from = pages.partition_point(|page| page.high < low);
            let to = pages.partition_point(|page| page.low <= high).max(from);
            before.push(from.checked_sub(1).map_or(0, |last| pages[last].first_row + pages[last].rows));
            for (number, page) in (0u32..).zip(pages).take(to).skip(from) {
                let KeyPage { rows, low, high, .. } = *page;
                blocks.push(Block { sequence, page: number, start: 0, rows, low, high });
            }
        }
        (before, blocks)
    }

    /// Splits each block with several keys. Input and output are ordered by sequence and row.
    fn refine(
        &self,
        blocks: &[Block],
        mut read: impl FnMut(u32, &KeyPage, &mut Vec<u64>) -> Result<()>,
    ) -> Result<Vec<Block>> {
        let mut refined = Vec::with_capacity(blocks.len());
        let mut keys: Vec<u64> = Vec::new();
        let mut held = None;
        for block in blocks {
            if block.low == block.high {
                refined.push(*block);
                continue;
            }
            if held != Some((block.sequence, block.page)) {
                keys.clear();
                let begin = (block.sequence as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
                read(block.sequence, &self.pages[begin + block.page as usize], &mut keys)?;
                held = Some((block.sequence, block.page));
            }
            let rows = &keys[block.start as usize..(block.start + block.rows) as usize];
            let step = block.rows.div_ceil(REFINED_BLOCKS);
            for (start, part) in (block.start..).step_by(step as usize).zip(rows.chunks(step as usize)) {
                if let (Some(low), Some(high)) = (part.first(), part.last()) {
                    refined.push(Block { start, rows: part.len() as u32, low: *low, high: *high, ..*block });
                }
            }
        }
        Ok(refined)
    }
}

/// Returns the bounds of the key at position `place`, derived from the blocks.
fn bracket(blocks: &[Block], place: u64) -> (u64, u64) {
    let sums = |key: fn(&Block) -> u64| cumulate(blocks.iter().map(move |block| (key(block), u64::from(block.rows))));
    (reach(&sums(|block| block.low), place), reach(&sums(|block| block.high), place))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the map of `sequences` in pages of `page_rows` rows. Key bounds are wider than the keys by up to
    /// `slack`.
    fn map(sequences: &[Vec<u64>], page_rows: usize, slack: u64) -> KeyMap {
        let mut map = KeyMap::default();
        for keys in sequences {
            let mut first_row = 0;
            map.push(keys.chunks(page_rows).map(|page| {
                let found = KeyPage {
                    first_row,
                    rows: page.len() as u32,
                    low: page[0].saturating_sub(slack),
                    high: page[page.len() - 1] + slack,
                };
                first_row += found.rows;
                found
            }));
        }
        map.finish();
        map
    }

    fn check_cut(sequences: &[Vec<u64>], page_rows: usize, slack: u64, place: u64) {
        let map = map(sequences, page_rows, slack);
        let cut = map
            .cut(place, |sequence, page, out| {
                out.extend(&sequences[sequence as usize][page.first_row as usize..][..page.rows as usize]);
                Ok(())
            })
            .unwrap();
        assert_eq!(cut.rows.iter().map(|rows| u64::from(*rows)).sum::<u64>(), place);
        for (keys, rows) in sequences.iter().zip(&cut.rows) {
            let (before, after) = keys.split_at(*rows as usize);
            assert!(before.last().is_none_or(|key| *key <= cut.ordinal), "{cut:?}");
            assert!(after.first().is_none_or(|key| *key >= cut.ordinal), "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn cuts_leave_as_many_rows_before_as_asked_for_and_separate_the_keys(
            mut sequences in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(0u64..1000, 0..200),
                    prop::collection::vec(0u64..4, 0..200),
                    prop::collection::vec(Just(7u64), 0..100),
                ], 0..8),
            page_rows in 1usize..150,
            slack in 0u64..3,
            at in any::<prop::sample::Index>(),
        ) {
            sequences.iter_mut().for_each(|keys| keys.sort_unstable());
            let total: usize = sequences.iter().map(Vec::len).sum();
            check_cut(&sequences, page_rows, slack, at.index(total + 1) as u64);
        }
    }

    #[test]
    fn little_is_read_and_nothing_where_pages_hold_one_key() {
        let sequences: Vec<Vec<u64>> = (0..8).map(|by| (0..40_000).map(|row| row * 8 + by).collect()).collect();
        let wide = map(&sequences, 4096, 0);
        let mut reads = 0;
        wide.cut(123_456, |sequence, page, out| {
            reads += 1;
            out.extend(&sequences[sequence as usize][page.first_row as usize..][..page.rows as usize]);
            Ok(())
        })
        .unwrap();
        assert!((8..=32).contains(&reads), "{reads} pages for eight sequences");
        let equal = map(&vec![vec![5; 40_000]; 8], 4096, 0);
        let cut = equal.cut(123_456, |_, _, _| panic!("a page was read")).unwrap();
        assert_eq!(cut.rows, [40_000, 40_000, 40_000, 3_456, 0, 0, 0, 0]);
    }
}
