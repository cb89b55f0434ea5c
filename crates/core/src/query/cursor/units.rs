//! Units of reading: the rows of a row group between places at which no page of a column extends to the other side.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::query::cursor::overview::LevelSource;
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::{Counters, add};
use crate::query::request::ResolvedQuery;
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, page_end, pages_of};
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::epoch_scan::EpochScan;
use crate::query::scan::read::{PackedRows, load_ranges};
use crate::query::scan::row_group_plan::RowGroupPlan;

/// Selected rows of a row group that are read together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unit {
    /// Position of the row group among those of the level.
    pub(super) group: u32,
    /// First row.
    pub(super) start: u32,
    /// End of the rows, exclusive.
    pub(super) end: u32,
    /// Number of rows that may match.
    pub(super) selected: u32,
    /// When the unit is visited, as a fraction of 2^32.
    pub(super) turn: u32,
}

impl Unit {
    fn rows(&self) -> Range<u64> {
        self.start.into()..self.end.into()
    }
}

/// Lower and upper bounds of each coordinate.
pub(super) type Bounds = Vec<(f64, f64)>;

/// The matching rows of a unit.
#[derive(Debug)]
pub(super) struct UnitRows {
    pub(super) rows: PackedRows,
    /// `None` if rows have a NaN coordinate.
    pub(super) bounds: Option<Bounds>,
    pub(super) selected: u32,
}

/// Returns the units of a row group that have selected rows, in the order of rows.
pub(super) fn units_of(plan: &RowGroupPlan, group: u32, resolved: &ResolvedQuery) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    let mut start = 0;
    for end in ends_of(&plan.group, resolved)? {
        let mut unit = Unit { group, start, end, selected: 0, turn: 0 };
        // A unit has fewer rows than 2^32.
        unit.selected = plan.selection.within(&unit.rows()).rows() as u32;
        if unit.selected > 0 {
            units.push(unit);
        }
        start = end;
    }
    Ok(units)
}

/// Returns the rows, exclusive, at which pages of all columns end that the query reads, and pages of the coordinates.
fn ends_of(group: &Group, resolved: &ResolvedQuery) -> Result<Vec<u32>> {
    let coordinate = resolved.schema.key_index();
    // `check_pages` has ensured that row numbers fit.
    let ends = |column: usize| -> Result<Vec<u32>> {
        Ok(group.pages(column)?.iter().map(|page| u32::try_from(page_end(page)).unwrap_or(u32::MAX)).collect())
    };
    let mut common = ends(coordinate)?;
    let mut last = group.pages(coordinate)?;
    for &column in resolved.predicate_columns().iter().chain(&resolved.stored) {
        let pages = group.pages(column)?;
        // Most columns have equally many rows in a page.
        let is_same =
            pages.len() == last.len() && pages.iter().zip(last).all(|(page, other)| page.first_row == other.first_row);
        if !is_same {
            let others = ends(column)?;
            common.retain(|end| others.binary_search(end).is_ok());
            last = pages;
        }
    }
    Ok(common)
}

/// Returns the bounds of the coordinates of some rows, whose pages they are. `None` if a bound is unknown, as that of
/// pages with NaN is.
pub(super) fn bounds_of(group: &Group, resolved: &ResolvedQuery, rows: &Range<u32>) -> Result<Option<Bounds>> {
    let mut bounds = Vec::with_capacity(resolved.schema.key_columns().len());
    for &column in resolved.schema.key_columns() {
        let mut range: Option<(f64, f64)> = None;
        for page in pages_of(group.pages(column)?, rows) {
            let Some((low, high)) = group.range(column, page) else { return Ok(None) };
            let (low, high) = (low.as_f64(), high.as_f64());
            range = Some(range.map_or((low, high), |(least, most)| (least.min(low), most.max(high))));
        }
        let Some(range) = range else { return Ok(None) };
        bounds.push(range);
    }
    Ok(Some(bounds))
}

/// Units of one row group to read, in the order of rows.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) source: LevelSource,
    /// The level of the rows.
    pub(super) level: u8,
    pub(super) scan: Arc<EpochScan>,
    pub(super) choice: GroupChoice,
    pub(super) units: Vec<Unit>,
    /// Whether no unit of the row group was read before.
    pub(super) is_first: bool,
}

impl Work {
    /// Returns the number of rows that may match.
    pub(super) fn selected(&self) -> u64 {
        self.units.iter().map(|unit| u64::from(unit.selected)).sum()
    }

    /// Reads the units. Returns the matching rows of each.
    pub(super) fn load(&self, counters: &Arc<Counters>, scratch: &mut Scratch) -> Result<Vec<UnitRows>> {
        let LevelSource { catalog: dataset, resolved, .. } = &self.source;
        let plan = RowGroupPlan::new(dataset, resolved, &self.scan, self.choice)?;
        if self.is_first {
            add(&counters.runs_touched, 1);
        }
        let mut chunk = RowSelection::default();
        for unit in &self.units {
            for range in plan.selection.within(&unit.rows()).ranges() {
                chunk.push(range.rows.clone(), range.truth());
            }
        }
        let (rows, matching) = load_ranges(&plan.group, resolved, &chunk, counters, scratch)?;
        let mut loaded = Vec::with_capacity(self.units.len());
        let (mut matching, mut done) = (matching.as_slice(), 0);
        for unit in &self.units {
            let count = take_rows(&mut matching, unit);
            loaded.push(UnitRows {
                rows: rows.slice(done..done + count, resolved),
                bounds: bounds_of(&plan.group, resolved, &(unit.start..unit.end))?,
                selected: unit.selected,
            });
            done += count;
        }
        Ok(loaded)
    }
}

/// Returns the number of rows of ascending, disjoint ranges that a unit has. Skips the ranges that end in it.
fn take_rows(ranges: &mut &[Range<u32>], unit: &Unit) -> usize {
    let mut count = 0;
    while let Some((range, rest)) = ranges.split_first() {
        if range.start >= unit.end {
            break;
        }
        count += (range.end.min(unit.end) - range.start.max(unit.start)) as usize;
        if range.end > unit.end {
            break;
        }
        *ranges = rest;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_divided_among_units() {
        let unit = |start, end| Unit { group: 0, start, end, selected: 0, turn: 0 };
        let ranges = [2..3, 8..25, 40..41, 50..60];
        let mut rest = &ranges[..];
        let units = [unit(0, 10), unit(10, 20), unit(20, 30), unit(40, 50), unit(50, 60)];
        assert_eq!(units.map(|unit| take_rows(&mut rest, &unit)), [3, 10, 5, 1, 10]);
        assert!(rest.is_empty());
    }
}
