//! What to read: decided from summaries alone, without any I/O.
//!
//! Two steps narrow a query down. [`choose_groups`] looks at the manifest's column summaries and keeps the row groups
//! that may match; [`refine`] looks at the page ranges of one of those and keeps the stretches of rows that may match.
//! In both, `certain` says that the summaries prove every row to match, so that nobody needs to test them; counts do
//! not even read them. [`Cutter`] then cuts the stretches into chunks of bounded size, the unit of reading.
//!
//! Summaries are trusted to *bound* their rows, never to be tight: an unknown range only costs a read.

use std::ops::Range;

use crate::error::Result;
use crate::expr::{ColumnBounds, NanPresence, Predicate, Truth};
use crate::format::{ColumnSummary, EpochManifest, PageLocation, RunEntry};
use crate::schema::{KeyOrder, Value};

/// A row group that may hold matching rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) struct GroupChoice {
    /// Position in the manifest's list.
    pub(in crate::query) entry: usize,
    /// Whether all its rows match.
    pub(in crate::query) certain: bool,
}

/// A stretch of rows of one row group that may hold matching rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::query) struct Segment {
    /// Rows, counted from the row group's first.
    pub(in crate::query) rows: Range<u32>,
    /// Whether all of them match.
    pub(in crate::query) certain: bool,
}

/// The page index of one row group.
pub(crate) trait PageIndex {
    /// The pages of a column: ascending, without gaps, over all rows of the row group ([`check_pages`]).
    fn pages(&self, column: usize) -> Result<&[PageLocation]>;
    /// Bounds of a page's values that are not NaN; `None` when nothing is known.
    fn range(&self, column: usize, page: usize) -> Option<(Value, Value)>;
}

/// The keys of an epoch's row groups as ordinals, side by side: what a range of the key leaves is found by going through
/// two lists of numbers, instead of judging each row group.
#[derive(Debug, Default)]
pub(in crate::query) struct KeyRanges {
    least: Vec<u64>,
    most: Vec<u64>,
}

impl KeyRanges {
    /// Of a manifest whose key is column `key`. Where nothing is known of a row group, its keys may be any.
    pub(in crate::query) fn of(manifest: &EpochManifest, key: usize, order: KeyOrder) -> Self {
        let (least, most) = manifest.runs.ordinals(key, order).into_iter().unzip();
        Self { least, most }
    }

    /// The row groups that may hold a key between two, both included.
    fn overlapping(&self, (low, high): (u64, u64)) -> impl Iterator<Item = usize> {
        let pairs = self.least.iter().zip(&self.most).enumerate();
        pairs.filter(move |(_, (least, most))| **least <= high && **most >= low).map(|(entry, _)| entry)
    }
}

/// The row groups of an epoch that may match, in the manifest's order; without a predicate all of them, certainly. Given
/// the `keys` of the row groups and the range of it that the predicate allows, only those within it are judged.
pub(in crate::query) fn choose_groups(
    manifest: &EpochManifest,
    predicate: Option<&Predicate>,
    keys: Option<(&KeyRanges, (u64, u64))>,
) -> Vec<GroupChoice> {
    let judge = |entry: usize| {
        let run = manifest.runs.get(entry).filter(|run| run.rows > 0)?;
        let truth = predicate.map_or(Truth::Always, |predicate| judge_run(run, manifest.epoch, predicate, |_| true));
        (truth != Truth::Never).then_some(GroupChoice { entry, certain: truth == Truth::Always })
    };
    match keys {
        Some((keys, range)) => keys.overlapping(range).filter_map(judge).collect(),
        None => (0..manifest.runs.len()).filter_map(judge).collect(),
    }
}

/// What the manifest alone says of a row group, as far as columns are `known`.
pub(in crate::query) fn judge_run(
    run: &RunEntry,
    epoch: u64,
    predicate: &Predicate,
    known: impl Fn(usize) -> bool,
) -> Truth {
    predicate.prune(epoch, &|column| {
        if known(column) { run.columns.one(column).map(|summary| run_view(&summary, run.rows)) } else { None }
    })
}

fn run_view(summary: &ColumnSummary, rows: u64) -> ColumnBounds {
    let nan = match summary.nan_count {
        0 => NanPresence::None,
        count if count >= rows => NanPresence::All,
        _ => NanPresence::Some,
    };
    ColumnBounds { range: summary.range, nan }
}

/// A page's summary: its own range where the page index has one, else that of the whole row group.
fn page_view(summary: &ColumnSummary, rows: u64, range: Option<(Value, Value)>) -> ColumnBounds {
    let nan = match summary.nan_count {
        0 => NanPresence::None,
        count if count >= rows => NanPresence::All,
        _ => NanPresence::Unknown,
    };
    ColumnBounds { range: range.or(summary.range), nan }
}

/// Whether pages cover the rows of their row group exactly and lie within its bytes; says what is wrong if not.
pub(in crate::query) fn check_pages(entry: &RunEntry, pages: &[PageLocation]) -> std::result::Result<(), String> {
    let end = entry.offset.saturating_add(entry.bytes);
    let mut row = 0u64;
    for (number, page) in pages.iter().enumerate() {
        if page.first_row != row || page.rows == 0 {
            return Err(format!("page {number} begins at row {} where {row} was expected", page.first_row));
        }
        row += u64::from(page.rows);
        if page.offset < entry.offset || page.offset.checked_add(u64::from(page.bytes)).is_none_or(|last| last > end) {
            return Err(format!("page {number} lies outside its row group"));
        }
    }
    if row != entry.rows {
        return Err(format!("its pages hold {row} rows, the manifest says {}", entry.rows));
    }
    if row > u64::from(u32::MAX) {
        return Err(format!("{row} rows are more than a row group can have"));
    }
    Ok(())
}

/// The pages that hold any of these rows.
pub(crate) fn pages_of(pages: &[PageLocation], rows: &Range<u32>) -> Range<usize> {
    if rows.is_empty() {
        return 0..0;
    }
    let first = pages.partition_point(|page| page_end(page) <= u64::from(rows.start));
    let last = pages.partition_point(|page| page.first_row < u64::from(rows.end));
    first..last.max(first)
}

/// One past the page's last row.
pub(in crate::query) fn page_end(page: &PageLocation) -> u64 {
    page.first_row + u64::from(page.rows)
}

/// The stretches of a row group that may match, by its page ranges. Neighbouring stretches differ in certainty.
///
/// # Errors
/// As [`PageIndex::pages`], which must have checked the pages it returns.
pub(in crate::query) fn refine(
    entry: &RunEntry,
    epoch: u64,
    predicate: &Predicate,
    index: &impl PageIndex,
) -> Result<Vec<Segment>> {
    refine_by(entry, epoch, predicate, index, |_| true)
}

/// As [`refine`], as if only the `known` columns had summaries.
///
/// # Errors
/// As [`refine`].
pub(in crate::query) fn refine_by<'a>(
    entry: &RunEntry,
    epoch: u64,
    predicate: &Predicate,
    index: &'a impl PageIndex,
    known: impl Fn(usize) -> bool,
) -> Result<Vec<Segment>> {
    let rows = u32::try_from(entry.rows).unwrap_or(u32::MAX);
    let mut cursors: Vec<(usize, &'a [PageLocation], usize)> = Vec::new();
    for &column in predicate.columns() {
        cursors.push((column, index.pages(column)?, 0));
    }
    let mut segments: Vec<Segment> = Vec::new();
    let mut start = 0u32;
    while start < rows {
        let mut end = rows;
        for (_, pages, page) in &mut cursors {
            while pages.get(*page).is_some_and(|location| page_end(location) <= u64::from(start)) {
                *page += 1;
            }
            let page_end = pages.get(*page).map_or(entry.rows, page_end);
            end = end.min(u32::try_from(page_end).unwrap_or(u32::MAX));
        }
        let truth = predicate.prune(epoch, &|column| {
            let summary = entry.columns.get(column).filter(|_| known(column))?;
            let (_, _, page) = cursors.iter().find(|(of, ..)| *of == column)?;
            Some(page_view(summary, entry.rows, index.range(column, *page)))
        });
        if truth != Truth::Never {
            push_segment(&mut segments, Segment { rows: start..end, certain: truth == Truth::Always });
        }
        start = end;
    }
    Ok(segments)
}

/// Appends a stretch, joined to the last where it goes on with it.
pub(in crate::query) fn push_segment(segments: &mut Vec<Segment>, next: Segment) {
    match segments.last_mut() {
        Some(last) if last.certain == next.certain && last.rows.end == next.rows.start => last.rows.end = next.rows.end,
        _ => segments.push(next),
    }
}

/// Rows of all segments.
pub(in crate::query) fn segment_rows(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.rows.end - segment.rows.start)).sum()
}

/// Cuts the segments of one row group into chunks, between pages where it can, since a page is decoded as a whole.
#[derive(Debug)]
pub(in crate::query) struct Cutter {
    segments: std::vec::IntoIter<Segment>,
    /// What is left of a segment that was cut.
    rest: Option<Segment>,
    /// First rows of the pages, ascending.
    page_starts: Vec<u32>,
}

impl Cutter {
    /// Cuts `segments` where pages begin.
    pub(in crate::query) fn new(segments: Vec<Segment>, pages: &[PageLocation]) -> Self {
        let page_starts = pages.iter().map(|page| u32::try_from(page.first_row).unwrap_or(u32::MAX)).collect();
        Self { segments: segments.into_iter(), rest: None, page_starts }
    }

    /// The next chunk: about `target_rows` rows, never more than that rounded up to whole pages; empty at the end.
    pub(in crate::query) fn next_chunk(&mut self, target_rows: u32) -> Vec<Segment> {
        let mut chunk = Vec::new();
        let mut open = target_rows.max(1);
        while open > 0 {
            let Some(segment) = self.rest.take().or_else(|| self.segments.next()) else { break };
            let length = segment.rows.end - segment.rows.start;
            let cut = match segment.rows.start.checked_add(open) {
                Some(cut) if length > open => self.page_start_from(cut).unwrap_or(segment.rows.end),
                _ => segment.rows.end,
            };
            if cut < segment.rows.end {
                self.rest = Some(Segment { rows: cut..segment.rows.end, certain: segment.certain });
            }
            let taken = Segment { rows: segment.rows.start..cut.min(segment.rows.end), certain: segment.certain };
            open = open.saturating_sub(taken.rows.end - taken.rows.start);
            chunk.push(taken);
        }
        chunk
    }

    /// The first page start at or after `row`.
    fn page_start_from(&self, row: u32) -> Option<u32> {
        self.page_starts.get(self.page_starts.partition_point(|start| *start < row)).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{PartId, RunKind};
    use crate::schema::{Column, DataType, Schema};

    /// A row group of pages whose ranges are given; `None`: unknown.
    struct Pages {
        locations: Vec<PageLocation>,
        ranges: Vec<Option<(f64, f64)>>,
    }

    impl PageIndex for Pages {
        fn pages(&self, _column: usize) -> Result<&[PageLocation]> {
            Ok(&self.locations)
        }

        fn range(&self, _column: usize, page: usize) -> Option<(Value, Value)> {
            let (low, high) = (*self.ranges.get(page)?)?;
            Some((Value::Float(low), Value::Float(high)))
        }
    }

    fn locations(lengths: &[u32]) -> Vec<PageLocation> {
        let mut first_row = 0;
        let location = |rows: &u32| {
            let page = PageLocation { offset: 4 + first_row * 8, bytes: rows * 8, first_row, rows: *rows };
            first_row += u64::from(*rows);
            page
        };
        lengths.iter().map(location).collect()
    }

    fn entry(rows: u64, range: (f64, f64), nan_count: u64) -> RunEntry {
        RunEntry {
            part: PartId { rank: 0, roll: 0 },
            run: 0,
            row_group: 0,
            offset: 4,
            bytes: rows * 8,
            rows,
            kind: RunKind::Regular,
            table_version: 1,
            bounds: None,
            checksum: 0,
            columns: vec![ColumnSummary { range: Some((Value::Float(range.0), Value::Float(range.1))), nan_count }]
                .into(),
        }
    }

    fn predicate(text: &str) -> Predicate {
        let schema = Schema::new(vec![Column::new("energy", DataType::F64)], "energy").unwrap();
        Predicate::parse(text, &schema).unwrap()
    }

    #[test]
    fn pages_are_skipped_taken_whole_or_tested() {
        let index = Pages {
            locations: locations(&[10, 10, 10, 10, 5]),
            ranges: vec![Some((0.0, 1.0)), Some((1.0, 2.0)), Some((2.0, 3.0)), None, Some((3.0, 4.0))],
        };
        let run = entry(45, (0.0, 4.0), 0);
        let segments = refine(&run, 1, &predicate("energy >= 1.5 and energy < 3.5"), &index).unwrap();
        let expected = [
            Segment { rows: 10..20, certain: false },
            Segment { rows: 20..30, certain: true },
            Segment { rows: 30..45, certain: false },
        ];
        assert_eq!(segments, expected);
        assert_eq!(segment_rows(&segments), 35);
        // NaN may hide anywhere in a row group that has some, so no page is certain.
        let run = entry(45, (0.0, 4.0), 3);
        let segments = refine(&run, 1, &predicate("energy >= 1.5 and energy < 3.5"), &index).unwrap();
        assert_eq!(segments, [Segment { rows: 10..45, certain: false }]);
    }

    /// Whatever the predicate: judging only what its range of the key leaves chooses the same.
    #[test]
    fn the_keys_side_by_side_choose_what_judging_each_does() {
        let schema = Schema::new(vec![Column::new("energy", DataType::F64)], "energy").unwrap();
        let order = schema.key_order();
        let mut runs: Vec<RunEntry> =
            (0..60).map(|at| entry(10, (f64::from(at % 20) - 9.5, f64::from(at % 20 + at % 7) - 9.5), 0)).collect();
        runs[3].columns[0] = ColumnSummary { range: None, nan_count: 10 };
        runs[9].columns[0].range = None;
        runs[12].columns[0].nan_count = 4;
        runs[14].rows = 0;
        let manifest = EpochManifest {
            epoch: 5,
            commit: uuid::Uuid::nil(),
            parts: Vec::new(),
            runs: runs.into(),
            keys: Default::default(),
            figures: Default::default(),
        };
        let keys = KeyRanges::of(&manifest, 0, order);
        let (mut narrowed, mut found) = (0, 0);
        for text in [
            "energy > 2",
            "energy >= -0.5 and energy < 3",
            "energy between 1 and 2 or energy < -7",
            "energy in (1.5, -4)",
            "not energy < 3",
            "energy != 1.5",
            "isnan(energy)",
            "energy > 1 or isnan(energy)",
            "energy + 1 > 4",
            "energy > 3 and energy < 2",
            "epoch = 5 and energy <= -9.5",
            "energy = 1e300",
        ] {
            let predicate = predicate(text);
            let plain = choose_groups(&manifest, Some(&predicate), None);
            found += plain.len();
            let Some((low, high)) = predicate.range_of(0) else { continue };
            narrowed += 1;
            let range = (order.ordinal_of(low), order.ordinal_of(high));
            assert_eq!(choose_groups(&manifest, Some(&predicate), Some((&keys, range))), plain, "{text}");
        }
        assert!(narrowed >= 6 && found > 60, "{narrowed}, {found}");
    }

    #[test]
    fn page_lists_that_do_not_fit_are_refused() {
        let run = entry(30, (0.0, 1.0), 0);
        assert!(check_pages(&run, &locations(&[10, 20])).is_ok());
        assert!(check_pages(&run, &locations(&[10, 19])).is_err(), "a row is missing");
        assert!(check_pages(&run, &locations(&[10, 0, 20])).is_err(), "an empty page");
        let mut outside = locations(&[10, 20]);
        outside[1].offset += 1;
        assert!(check_pages(&run, &outside).is_err(), "beyond the row group");
        outside[1].offset = u64::MAX;
        assert!(check_pages(&run, &outside).is_err(), "no overflow");
    }

    proptest! {
        #[test]
        fn chunks_cover_the_segments_and_end_where_pages_do(
            lengths in prop::collection::vec(1u32..20, 1..12),
            kept in prop::collection::vec(any::<(bool, bool)>(), 12),
            target in 1u32..60,
        ) {
            let pages = locations(&lengths);
            let mut segments = Vec::new();
            for (page, (keep, certain)) in pages.iter().zip(kept) {
                let rows = page.first_row as u32..page_end(page) as u32;
                if keep {
                    push_segment(&mut segments, Segment { rows, certain });
                }
            }
            let mut cutter = Cutter::new(segments.clone(), &pages);
            let mut covered = Vec::new();
            loop {
                let chunk = cutter.next_chunk(target);
                if chunk.is_empty() {
                    break;
                }
                prop_assert!(segment_rows(&chunk) < u64::from(target) + 20);
                let end = chunk.last().map_or(0, |segment| u64::from(segment.rows.end));
                prop_assert!(pages.iter().any(|page| page_end(page) == end));
                chunk.into_iter().for_each(|segment| push_segment(&mut covered, segment));
            }
            prop_assert_eq!(covered, segments);
        }

        #[test]
        fn the_pages_of_a_stretch_are_those_that_hold_its_rows(
            lengths in prop::collection::vec(1u32..20, 1..12),
            start in 0u32..100,
            rows in 0u32..100,
        ) {
            let pages = locations(&lengths);
            let total: u32 = lengths.iter().sum();
            let wanted = start.min(total)..(start + rows).min(total);
            let holds = |page: &PageLocation| {
                page.first_row < u64::from(wanted.end) && page_end(page) > u64::from(wanted.start) && !wanted.is_empty()
            };
            let expected: Vec<usize> = (0..pages.len()).filter(|number| holds(&pages[*number])).collect();
            prop_assert_eq!(pages_of(&pages, &wanted).collect::<Vec<_>>(), expected);
        }
    }
}
