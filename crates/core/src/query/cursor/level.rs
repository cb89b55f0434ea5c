//! The plan of one level: its units in the order of visits.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::EpochManifest;
use crate::query::catalog::Catalog;
use crate::query::cursor::order::{GROUP, beginning, delay, distance, tie, turns};
use crate::query::cursor::overview::{LevelSource, selecting_columns};
use crate::query::cursor::places::{ReadRows, UnitPlaces};
use crate::query::cursor::units::{Unit, Work, bounds_of, units_of};
use crate::query::metrics::Counters;
use crate::query::request::ResolvedQuery;
use crate::query::rows::pruning::GroupChoice;
use crate::query::scan::epoch_scan::{EpochScan, choose, plan_epoch_by, replaced};
use crate::query::scan::row_group_plan::RowGroupPlan;

/// Maximum size of the rows that one task reads, in bytes, unless a unit is larger.
const WORK_BYTES: usize = 4 << 20;

/// The units of a level.
#[derive(Debug)]
pub(super) struct LevelPlan {
    pub(super) level: u8,
    /// The coarsest level.
    top: u8,
    source: LevelSource,
    scan: Arc<EpochScan>,
    /// Whether a unit of each row group of the plan was read.
    touched: Vec<bool>,
    /// The units, in the order of their turns.
    units: Vec<Unit>,
    /// The places of the units, in the order of row groups. Those of the coarsest level are not needed.
    places: UnitPlaces,
    /// Number of visited units.
    visited: usize,
    /// Number of rows that may match.
    rows: u64,
    /// Number of rows that may match in the units that have not been visited.
    rows_left: u64,
    work_rows: u64,
}

impl LevelPlan {
    /// Plans a level of an epoch. `top` is the coarsest level. Units near to a point are visited first, if one is
    /// given.
    ///
    /// # Errors
    /// An epoch that was replaced; the errors of plans.
    pub(super) fn new(
        source: LevelSource,
        epoch: u64,
        ([level, top], seed): ([u8; 2], u64),
        near: Option<&[f64]>,
    ) -> Result<Self> {
        let LevelSource { catalog: dataset, resolved, .. } = &source;
        let scan = plan_level(&source, epoch, level).map_err(|error| match error {
            Error::EpochReplaced { .. } if !source.is_overview => replaced(dataset, epoch),
            other => other,
        })?;
        let mut places = UnitPlaces::new(resolved.schema.key_columns().len());
        let of_places = (level < top).then_some(&mut places);
        let units = units_by_turns(dataset, resolved, &scan, beginning(seed, epoch, level), (near, of_places))?;
        let rows = units.iter().map(|unit| u64::from(unit.selected)).sum();
        let touched = vec![false; scan.choices.len()];
        let work_rows = (WORK_BYTES / resolved.row_bytes().max(1)).max(1) as u64;
        let (scan, visited, rows_left) = (Arc::new(scan), 0, rows);
        Ok(Self { level, top, source, scan, touched, units, places, visited, rows, rows_left, work_rows })
    }

    /// Returns the number of rows that may match in the units to visit.
    pub(super) fn rows_left(&self) -> u64 {
        self.rows_left
    }

    /// Returns the share of the rows that may match whose units have been visited: the probability of a row to be one
    /// of them, over the seeds.
    pub(super) fn share(&self) -> f64 {
        if self.is_done() { 1.0 } else { 1.0 - self.rows_left as f64 / self.rows as f64 }
    }

    /// Returns the ratio of the shares of rows that have been read in visited and in other units, if all rows of higher
    /// levels have been. If levels are in proportion to a column, it is that of rows of little weight, the largest one.
    pub(super) fn density_ratio(&self) -> f64 {
        let groups = &self.scan.manifest.row_groups;
        let of_group = |choice: &GroupChoice| {
            let intervals = groups[choice.entry].intervals.as_deref()?;
            Some(intervals.interval(self.level + 1) / intervals.interval(self.level))
        };
        self.scan.choices.iter().filter_map(of_group).reduce(f64::max).unwrap_or(GROUP)
    }

    /// Returns the places of the units, in the order of row groups.
    pub(super) fn places(&self) -> &UnitPlaces {
        &self.places
    }

    /// Returns the number of rows that may match in each unit, and that of those which have been visited, in the order
    /// of row groups.
    pub(super) fn read_rows(&self) -> Vec<ReadRows> {
        let of_unit = |(place, unit): (usize, &Unit)| {
            let rows = u64::from(unit.selected);
            ((unit.group, unit.start), (rows, if place < self.visited { rows } else { 0 }))
        };
        let mut found: Vec<_> = self.units.iter().enumerate().map(of_unit).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, rows)| rows).collect()
    }

    /// Returns whether no unit has been visited.
    pub(super) fn is_new(&self) -> bool {
        self.visited == 0
    }

    /// Returns whether all units have been visited.
    pub(super) fn is_done(&self) -> bool {
        self.visited == self.units.len()
    }

    /// Returns the number of units to visit next that have this many rows that may match, and one or more.
    pub(super) fn units_with(&self, rows: f64) -> usize {
        let mut found = 0.0;
        let enough = self.units[self.visited..].iter().position(|unit| {
            found += f64::from(unit.selected);
            found >= rows
        });
        enough.map_or(self.units.len() - self.visited, |last| last + 1)
    }

    /// Visits the units of a share of the cycle, unless they have been visited. Returns them as [`LevelPlan::visit`]
    /// does.
    pub(super) fn visit_share(&mut self, share: f64) -> Vec<Work> {
        let is_within = |unit: &Unit| share >= 1.0 || f64::from(unit.turn) < share * 2f64.powi(u32::BITS as i32);
        let mut end = self.units.partition_point(is_within);
        if end == 0 && share > 0.0 && self.level == self.top {
            // A sample without rows would tell nothing.
            end = self.units.iter().take_while(|unit| unit.turn == self.units[0].turn).count();
        }
        self.visit(end.saturating_sub(self.visited))
    }

    /// Visits the next units. Returns them by row group, in the order of the file.
    pub(super) fn visit(&mut self, count: usize) -> Vec<Work> {
        let end = self.units.len().min(self.visited.saturating_add(count));
        let mut units = self.units[self.visited..end].to_vec();
        units.sort_unstable();
        self.visited = end;
        let mut works: Vec<Work> = Vec::new();
        let mut rows = 0;
        for unit in units {
            let group = unit.group;
            self.rows_left -= u64::from(unit.selected);
            rows += u64::from(unit.selected);
            match works.last_mut().filter(|work| work.units[0].group == group && rows <= self.work_rows) {
                Some(work) => work.units.push(unit),
                None => {
                    rows = u64::from(unit.selected);
                    let is_first = !std::mem::replace(&mut self.touched[group as usize], true);
                    let choice = self.scan.choices[group as usize];
                    let (source, scan) = (self.source.clone(), self.scan.clone());
                    works.push(Work { source, scan, choice, level: self.level, units: vec![unit], is_first });
                }
            }
        }
        works
    }
}

/// Returns the units of a level in the order of their turns, or by the distance of their boxes from a point, modulo the
/// periods of the dataset. Adds their boxes to `places` in the order of row groups.
fn units_by_turns(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    scan: &EpochScan,
    beginning: u64,
    (near, mut places): (Option<&[f64]>, Option<&mut UnitPlaces>),
) -> Result<Vec<Unit>> {
    let mut visits: Vec<(f64, u64, Unit)> = Vec::new();
    let mut receivers: Vec<u32> = Vec::new();
    let groups = &scan.manifest.row_groups;
    let run_of = |choice: &GroupChoice| (groups[choice.entry].part.rank, groups[choice.entry].run);
    let mut group = 0u32;
    let periods: Vec<Option<f64>> = resolved.schema.rounded_periods().collect();
    // The row groups of a run follow each other.
    for choices in scan.choices.chunk_by(|one, other| run_of(one) == run_of(other)) {
        let (receiver, run) = run_of(&choices[0]);
        let begun = visits.len();
        for choice in choices {
            let plan = RowGroupPlan::new(dataset, resolved, scan, *choice)?;
            for unit in units_of(&plan, group, resolved)? {
                let bounds = match (near, &places) {
                    (None, None) => None,
                    _ => bounds_of(&plan.group, resolved, &(unit.start..unit.end))?,
                };
                if let Some(places) = &mut places {
                    places.push((receiver, run), bounds.as_deref());
                }
                let distance =
                    near.map_or(0.0, |point| bounds.map_or(f64::INFINITY, |bounds| distance(point, &bounds, &periods)));
                visits.push((distance, tie(run, beginning), unit));
            }
            group += 1;
        }
        let number = receivers.iter().rposition(|other| *other == receiver).unwrap_or_else(|| {
            receivers.push(receiver);
            receivers.len() - 1
        });
        let turns = turns((visits.len() - begun) as u32, delay(number as u32), beginning);
        for ((.., unit), turn) in visits[begun..].iter_mut().zip(turns) {
            unit.turn = (turn >> u32::BITS) as u32;
        }
    }
    visits.sort_unstable_by(|(distance, tie, unit), (other_distance, other_tie, other)| {
        let by_turn = distance.total_cmp(other_distance).then(unit.turn.cmp(&other.turn));
        by_turn.then(tie.cmp(other_tie)).then(unit.cmp(other))
    });
    let mut units: Vec<Unit> = visits.into_iter().map(|(.., unit)| unit).collect();
    if near.is_some() {
        let count = units.len() as u64;
        (0..).zip(&mut units).for_each(|(place, unit): (u64, _)| unit.turn = ((place << u32::BITS) / count) as u32);
    }
    Ok(units)
}

/// Plans the row groups of a level.
fn plan_level(source: &LevelSource, epoch: u64, level: u8) -> Result<EpochScan> {
    let LevelSource { catalog: dataset, resolved, is_overview } = source;
    let of_level = |manifest: &Arc<EpochManifest>| {
        let mut choices = choose(dataset, resolved, manifest);
        choices.retain(|choice| *is_overview || level_of(manifest, *choice) == level);
        choices
    };
    // The cursor counts the row groups of the epoch once, and its progress by itself.
    plan_epoch_by(dataset, resolved, epoch, &Counters::default(), &selecting_columns(resolved), of_level)
}

/// Returns the level of a row group of the records.
pub(super) fn level_of(manifest: &EpochManifest, choice: GroupChoice) -> u8 {
    manifest.row_groups[choice.entry].level
}
