//! Distributions of column values: row counts by value range. A manifest stores the distribution of the key.
//!
//! A *range count* describes a contiguous sequence of sorted rows, or a row group: its smallest and largest value, and
//! its number of rows. The range counts of an epoch count every row with a non-NaN value once, so they bound the rank
//! of every value. At least as many rows are smaller than a value as there are in the range counts that end below it.
//! At most as many are smaller as there are in the range counts that begin below it. Merging range counts keeps the
//! bounds valid and widens them. [`condense`] limits the widening.

use std::sync::OnceLock;

use crate::format::manifest::entries::ColumnStatistics;
use crate::schema::KeyOrder;

/// Maximum number of range counts in a manifest.
///
/// If row groups overlap little, the bounds of a quantile are about two such fractions of all rows apart. A range count
/// takes about 20 bytes.
pub const MAX_RANGE_COUNTS: usize = 8192;

/// Maximum number of range counts that a rank keeps while it writes an epoch, except for range counts not yet merged.
pub(crate) const MAX_RANK_RANGE_COUNTS: usize = MAX_RANGE_COUNTS / 2;

/// Minimum number of range counts that a rank of a large job may report.
const MIN_RANGE_COUNTS: usize = 16;

/// Factor by which a rank's report may exceed an equal share of [`MAX_RANGE_COUNTS`], so that merging the reports loses
/// little precision.
const REPORT_FACTOR: usize = 8;

/// The number of rows with values between two ordinals, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeCount {
    /// Lower bound of the values, as an ordinal. The smallest value may be larger.
    pub least: u64,
    /// Upper bound of the values, as an ordinal. The largest value may be smaller.
    pub most: u64,
    /// Number of rows.
    pub rows: u64,
}

impl RangeCount {
    /// Returns the range count of the non-NaN values among `rows`, from their statistics. Without a known range, the
    /// bounds are the extremes of the type.
    pub(crate) fn of(summary: Option<&ColumnStatistics>, rows: u64, order: KeyOrder) -> Self {
        let rows = rows.saturating_sub(summary.map_or(0, |summary| summary.nan_count));
        let known = summary.and_then(|summary| summary.range);
        let ordinals = known.map(|(low, high)| (order.ordinal_of(low), order.ordinal_of(high)));
        let (least, greatest) = order.extremes();
        let (least, most) = ordinals
            .filter(|(from, to)| from <= to && !order.is_nan(*to))
            .unwrap_or_else(|| (order.ordinal_of(least), order.ordinal_of(greatest)));
        Self { least, most, rows }
    }
}

/// Merges range counts until at most `most` are left, and sorts them. `most` is at least 16.
///
/// The *reach* of a range count is the number of rows in all range counts that begin inside its range. Only range
/// counts of similar reach are merged, so a wide range (a page of strays) does not widen narrow ones. Range counts of
/// similar reach are first paired anew (see [`paired`]): of two neighbours, the second then has the higher begin and
/// the higher end. Neighbours are then merged up to a group size. For each class of reach, this widens a quantile's
/// bounds by at most that many rows. The group size is the smallest of the tried sizes that meets the limit.
pub(crate) fn condense(range_counts: &mut Vec<RangeCount>, most: usize) {
    // The stable sort is fast here, since the input consists of a few ascending sequences.
    range_counts.sort();
    range_counts.dedup_by(|next, kept| {
        let same = (next.least, next.most) == (kept.least, kept.most);
        kept.rows = if same { kept.rows.saturating_add(next.rows) } else { kept.rows };
        same
    });
    if range_counts.len() <= most {
        return;
    }
    let rows = range_counts.iter().fold(0u64, |rows, range_count| rows.saturating_add(range_count.rows));
    let mut group_rows = (rows / (4 * most.max(1)) as u64).max(1);
    let kinds: Vec<Vec<RangeCount>> = kinds(range_counts, group_rows).into_iter().map(paired).collect();
    // If a group may hold all rows, only one range count is left per class of reach, and there are few classes.
    while group_rows < rows && kinds.iter().map(|kind| joined(kind, group_rows).count()).sum::<usize>() > most {
        group_rows = group_rows.saturating_add(group_rows.div_ceil(4));
    }
    range_counts.clear();
    range_counts.extend(kinds.iter().flat_map(|kind| joined(kind, group_rows)));
    range_counts.sort();
}

/// Groups ascending range counts into classes by reach: up to `base_rows`, up to twice as many, and so on.
fn kinds(range_counts: &[RangeCount], base_rows: u64) -> Vec<Vec<RangeCount>> {
    let begins = Steps::new(range_counts.iter().map(|range_count| (range_count.least, range_count.rows)));
    let mut kinds: Vec<Vec<RangeCount>> = Vec::new();
    for range_count in range_counts {
        let reach = begins.up_to(range_count.most).saturating_sub(begins.below(range_count.least));
        let kind = (u64::BITS - (reach.div_ceil(base_rows).max(1) - 1).leading_zeros()) as usize;
        if kinds.len() <= kind {
            kinds.resize(kind + 1, Vec::new());
        }
        kinds[kind].push(*range_count);
    }
    kinds
}

/// Returns range counts with the same begins and ends as `range_counts`, paired in ascending order.
///
/// The result bounds the same values: the k-th smallest value lies between the k-th begin and the k-th end, if each
/// begin and end is counted once per row.
fn paired(range_counts: Vec<RangeCount>) -> Vec<RangeCount> {
    let mut ends: Vec<(u64, u64)> =
        range_counts.iter().map(|range_count| (range_count.most, range_count.rows)).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter();
    let (mut most, mut left) = (0, 0);
    let mut paired = Vec::with_capacity(2 * range_counts.len());
    for RangeCount { least, mut rows, .. } in range_counts {
        while rows > 0 {
            if left == 0 {
                // Begins and ends have the same total number of rows.
                let Some(next) = ends.next() else { break };
                (most, left) = next;
                continue;
            }
            let taken = rows.min(left);
            paired.push(RangeCount { least, most: most.max(least), rows: taken });
            (rows, left) = (rows - taken, left - taken);
        }
    }
    paired
}

/// Merges neighbours while a group has at most `group_rows` rows.
fn joined(range_counts: &[RangeCount], group_rows: u64) -> impl Iterator<Item = RangeCount> {
    let mut rest = range_counts;
    std::iter::from_fn(move || {
        let (first, mut after) = rest.split_first()?;
        let mut group = *first;
        while let Some((next, more)) = after.split_first()
            && group.rows.saturating_add(next.rows) <= group_rows
        {
            group.most = group.most.max(next.most);
            group.rows += next.rows;
            after = more;
        }
        rest = after;
        Some(group)
    })
}

/// A cumulative distribution: row counts by ordinal.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    ordinals: Vec<u64>,
    rows: Vec<u64>,
}

impl Steps {
    /// Creates the distribution from ordinals with row counts, in any order.
    pub(crate) fn new(rows: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut steps: Vec<(u64, u64)> = rows.collect();
        if !steps.is_sorted() {
            steps.sort_unstable();
        }
        let mut total = 0u64;
        let added = |(_, rows): &(u64, u64)| {
            total = total.saturating_add(*rows);
            total
        };
        let rows = steps.iter().map(added).collect();
        Self { ordinals: steps.into_iter().map(|step| step.0).collect(), rows }
    }

    fn first(&self, steps: usize) -> u64 {
        steps.checked_sub(1).map_or(0, |last| self.rows[last])
    }

    /// Returns the total number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.first(self.rows.len())
    }

    /// Returns the number of rows below an ordinal.
    pub(crate) fn below(&self, ordinal: u64) -> u64 {
        self.first(self.ordinals.partition_point(|at| *at < ordinal))
    }

    /// Returns the number of rows at or below an ordinal.
    pub(crate) fn up_to(&self, ordinal: u64) -> u64 {
        self.first(self.ordinals.partition_point(|at| *at <= ordinal))
    }

    /// Returns the ordinal of the row at a position, counted from 1. Returns `None` if there are fewer rows.
    pub(crate) fn at(&self, position: u64) -> Option<u64> {
        self.ordinals.get(self.rows.partition_point(|rows| *rows < position)).copied()
    }
}

/// The range counts of an epoch's keys: a list, or the text of a manifest, which is parsed on first access.
#[derive(Clone, Default)]
pub struct KeyRangeCounts {
    made: OnceLock<Vec<RangeCount>>,
    text: Option<String>,
}

impl KeyRangeCounts {
    /// Creates the range counts from a manifest's `text`. Malformed text yields no range counts.
    pub(in crate::format) fn stored(text: String) -> Self {
        Self { made: OnceLock::new(), text: Some(text) }
    }

    /// Returns all range counts.
    pub fn get(&self) -> &[RangeCount] {
        self.made.get_or_init(|| self.text.as_deref().and_then(take_spreads).unwrap_or_default())
    }

    /// Returns the size of the manifest's text in memory, in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text.as_ref().map_or(0, String::len)
    }

    /// Appends range counts. Merges them to `most` whenever their number reaches 1.5 times `most`.
    pub(crate) fn extend(&mut self, more: impl IntoIterator<Item = RangeCount>, most: usize) {
        let mut range_counts = self.take();
        for range_count in more {
            if range_count.rows > 0 {
                range_counts.push(range_count);
            }
            if range_counts.len() >= most + most / 2 {
                condense(&mut range_counts, most);
            }
        }
        *self = Self::from(range_counts);
    }

    /// Removes and returns all range counts.
    pub(crate) fn take(&mut self) -> Vec<RangeCount> {
        let _ = self.get();
        std::mem::take(self).made.into_inner().unwrap_or_default()
    }

    /// Merges the range counts to the maximum number that a rank of a job with `ranks` ranks may report.
    pub(crate) fn condense_for(&mut self, ranks: u32) {
        let most = (REPORT_FACTOR * MAX_RANGE_COUNTS / ranks.max(1) as usize).clamp(MIN_RANGE_COUNTS, MAX_RANGE_COUNTS);
        let mut range_counts = self.take();
        condense(&mut range_counts, most);
        *self = Self::from(range_counts);
    }

    /// Returns the text for a manifest with `row_groups` row groups. Returns `None` if the row groups' own statistics
    /// are as fine.
    pub(in crate::format) fn text(&self, row_groups: usize) -> Option<String> {
        let range_counts = self.get();
        if range_counts.len() <= row_groups && row_groups <= MAX_RANGE_COUNTS / 2 {
            return None;
        }
        let mut ascending = range_counts.to_vec();
        condense(&mut ascending, MAX_RANGE_COUNTS);
        let mut before = 0;
        let mut text = String::new();
        for range_count in &ascending {
            let separator = if text.is_empty() { '[' } else { ',' };
            let (step, width) = (range_count.least - before, range_count.most - range_count.least);
            before = range_count.least;
            text += &format!("{separator}{step},{width},{}", range_count.rows);
        }
        (!text.is_empty()).then(|| text + "]")
    }
}

impl From<Vec<RangeCount>> for KeyRangeCounts {
    fn from(range_counts: Vec<RangeCount>) -> Self {
        Self { made: range_counts.into(), text: None }
    }
}

impl std::fmt::Debug for KeyRangeCounts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.get()).finish()
    }
}

impl PartialEq for KeyRangeCounts {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

/// Parses the output of [`KeyRangeCounts::text`].
fn take_spreads(text: &str) -> Option<Vec<RangeCount>> {
    let numbers: Vec<u64> = serde_json::from_str(text).ok()?;
    let (triples, rest) = numbers.as_chunks::<3>();
    let mut least = 0u64;
    let range_count = |[step, width, rows]: &[u64; 3]| {
        least = least.checked_add(*step)?;
        Some(RangeCount { least, most: least.checked_add(*width)?, rows: *rows })
    };
    let range_counts = triples.iter().map(range_count).collect::<Option<Vec<RangeCount>>>()?;
    rest.is_empty().then_some(range_counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{DataType, Value};

    /// Generates sorted runs of values. Returns the range counts of their pages, and all values sorted.
    fn pages() -> impl Strategy<Value = (Vec<RangeCount>, Vec<u64>)> {
        let value = prop_oneof![4 => 0u64..1000, 1 => Just(500), 1 => any::<u64>()];
        let run = (prop::collection::vec(value, 1..400), 1usize..30);
        prop::collection::vec(run, 1..12).prop_map(|runs| {
            let (mut range_counts, mut all) = (Vec::new(), Vec::new());
            for (mut values, page_rows) in runs {
                values.sort_unstable();
                let page =
                    |page: &[u64]| RangeCount { least: page[0], most: page[page.len() - 1], rows: page.len() as u64 };
                range_counts.extend(values.chunks(page_rows).map(page));
                all.extend(values);
            }
            all.sort_unstable();
            (range_counts, all)
        })
    }

    /// Returns whether the range counts bound the value at every position.
    fn bounds_hold(range_counts: &[RangeCount], sorted: &[u64]) -> bool {
        let begins = Steps::new(range_counts.iter().map(|range_count| (range_count.least, range_count.rows)));
        let ends = Steps::new(range_counts.iter().map(|range_count| (range_count.most, range_count.rows)));
        (1..).zip(sorted).all(|(position, value)| {
            begins.at(position).is_some_and(|least| least <= *value)
                && ends.at(position).is_some_and(|most| *value <= most)
        })
    }

    proptest! {
        #[test]
        fn condensed_spreads_are_few_and_still_bound((range_counts, sorted) in pages(), most in 16usize..200) {
            let mut few = range_counts;
            condense(&mut few, most);
            prop_assert!(few.len() <= most, "{} of {most}", few.len());
            prop_assert!(few.is_sorted());
            prop_assert!(bounds_hold(&few, &sorted));
            prop_assert_eq!(few.iter().map(|range_count| range_count.rows).sum::<u64>(), sorted.len() as u64);
        }

        #[test]
        fn what_a_manifest_says_comes_back((range_counts, _) in pages()) {
            let mut ascending = range_counts.clone();
            condense(&mut ascending, MAX_RANGE_COUNTS);
            let text = KeyRangeCounts::from(range_counts).text(0).unwrap();
            let stored = KeyRangeCounts::stored(text);
            prop_assert_eq!(stored.get(), ascending.as_slice());
        }
    }

    /// Merges the range counts of a million rows: sixteen overlapping runs, each with a page of strays over the whole
    /// range.
    #[test]
    fn condensing_loses_little() {
        let mut range_counts = Vec::new();
        for run in 0..16u64 {
            range_counts.extend((0..1000).map(|page| RangeCount {
                least: page * 64 + run,
                most: page * 64 + run + 63,
                rows: 62,
            }));
            range_counts.push(RangeCount { least: run, most: 64_000 + run, rows: 500 });
        }
        let uncertain = |range_counts: &[RangeCount], at: u64| -> u64 {
            range_counts
                .iter()
                .filter(|range_count| range_count.least <= at && at <= range_count.most)
                .map(|range_count| range_count.rows)
                .sum()
        };
        let before = range_counts.clone();
        condense(&mut range_counts, 1024);
        for at in (2_000..62_000).step_by(101) {
            // Merging adds at most 0.1 % of the rows per class of reach to the previous uncertainty.
            assert!(uncertain(&range_counts, at) <= uncertain(&before, at) + 4_000, "{at}");
        }
        let strays: Vec<&RangeCount> =
            range_counts.iter().filter(|range_count| range_count.most - range_count.least > 60_000).collect();
        assert_eq!(strays.iter().map(|range_count| range_count.rows).sum::<u64>(), 8_000, "strays joined nobody else");
    }

    /// Checks the text format in FORMAT.md, which other releases read.
    #[test]
    fn text_and_ordinals_are_those_of_the_format() {
        let range_counts = vec![RangeCount { least: 6, most: 6, rows: 1 }, RangeCount { least: 5, most: 7, rows: 9 }];
        assert_eq!(KeyRangeCounts::from(range_counts).text(1).as_deref(), Some("[5,2,9,1,0,1]"));
        let ordinal = |data_type, value| KeyOrder::new(data_type).unwrap().ordinal_of(value);
        for (data_type, value, expected) in [
            (DataType::U16, Value::Int(7), 7),
            (DataType::I32, Value::Int(-1), (1 << 63) - 1),
            (DataType::F32, Value::Float(1.0), 0xBF80_0000),
            (DataType::F32, Value::Float(-1.0), 0x407F_FFFF),
            (DataType::F64, Value::Float(-0.0), 1 << 63),
        ] {
            assert_eq!(ordinal(data_type, value), expected, "{data_type} {value}");
        }
    }

    #[test]
    fn text_that_is_not_understood_states_nothing() {
        for text in ["", "[", "[1,2]", "[1,2,-3]", "{}", "[18446744073709551615,1,1]", "[1,2,3.5]"] {
            assert!(KeyRangeCounts::stored(text.to_owned()).get().is_empty(), "{text}");
        }
        assert_eq!(KeyRangeCounts::stored("[5,2,9,0,0,1]".to_owned()).get().len(), 2);
        assert_eq!(KeyRangeCounts::default().text(0), None);
    }
}
