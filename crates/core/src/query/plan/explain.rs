//! Query explanation: what a query would read and which statistics prune the rest, from manifests and footers alone.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::error::Result;
use crate::expr::{Predicate, TruthValue};
use crate::format::{EpochManifest, RowGroupEntry, RunKind};
use crate::index::{BitmapDefinition, SpaceDefinition};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::readable;
use crate::query::metrics::Counters;
use crate::query::plan::alternative::Alternative;
use crate::query::plan::covering::CoveringPlan;
use crate::query::plan::epoch_plan::{AccessPath, EpochPlan, GroupsPlan, Planner, Sources};
use crate::query::plan::intervals::Intervals;
use crate::query::plan::order::OrderPlan;
use crate::query::plan::sort::SortPlan;
use crate::query::request::{Order, OrderColumn, ResolvedQuery};
use crate::query::rows::pages::PageIndex;
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::statistics::{judge_run, select_by};
use crate::query::scan::entry_limit::MAX_ENTRIES;
use crate::query::scan::epoch_scan::EpochScan;
use crate::query::scan::row_group_plan::RowGroupPlan;
use crate::query::use_path::{LOOKUP, SCAN};
use crate::schema::EPOCH_COLUMN;

/// The plan of a query.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The normalized predicate, or `None` if the query has no predicate.
    pub filter: Option<String>,
    /// The columns returned.
    pub columns: Vec<String>,
    /// Whether rows are merged by key.
    pub ordered: bool,
    /// The columns that order rows, unless these are merged by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// One entry per epoch.
    pub epochs: Vec<EpochExplanation>,
}

/// The plan of one epoch. Every row group of a run is counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EpochExplanation {
    /// The epoch.
    pub epoch: u64,
    /// Rows of the epoch.
    pub rows: u64,
    /// Row groups by kind.
    pub runs: Vec<KindCount>,
    /// Row groups by level of detail, the coarsest first. Empty in datasets without levels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelCount>,
    /// Columns whose statistics in the manifest pruned row groups.
    pub runs_skipped_by: Vec<PruneReason>,
    /// The access paths that could answer the predicate, if the dataset has indexes. The last is the scan. A lookup of
    /// keys has no alternative.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// The index that has all columns of the query, if its entries alone answer it. No records are then read. Of an
    /// spatial index, the other fields count what is read of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered_by: Option<String>,
    /// How rows are sorted, unless they are merged by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Part files.
    pub parts: u64,
    /// Part files to open.
    pub parts_touched: u64,
    /// Pages of the predicate's columns in row groups that have to be tested.
    pub pages: u64,
    /// Pages among these that have to be read and tested.
    pub pages_tested: u64,
    /// Columns whose page statistics pruned rows of these row groups.
    pub rows_skipped_by: Vec<PruneReason>,
    /// Bytes of all pages of the epoch.
    pub bytes: u64,
    /// Minimum bytes read: the pages to test, and the pages of rows that certainly match.
    pub bytes_least: u64,
    /// Maximum bytes read: all rows that may match do match.
    pub bytes_most: u64,
    /// Minimum number of rows that match.
    pub rows_least: u64,
    /// Maximum number of rows that match.
    pub rows_most: u64,
}

/// The number of row groups of one kind, by the result of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KindCount {
    /// The kind.
    pub kind: RunKind,
    /// All row groups of this kind.
    pub total: u64,
    /// Row groups in which no row can match.
    pub skipped: u64,
    /// Row groups in which every row matches.
    pub whole: u64,
    /// Row groups that have to be tested.
    pub tested: u64,
}

/// The number of row groups of one level of detail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LevelCount {
    /// The level.
    pub level: u8,
    /// All row groups of this level.
    pub total: u64,
    /// Row groups in which rows may match.
    pub read: u64,
    /// Rows of these row groups.
    pub rows: u64,
}

/// Row groups or rows pruned by the statistics of one column alone, or by several columns if none alone suffices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PruneReason {
    /// The column, `epoch`, or `several columns together`.
    pub by: String,
    /// Row groups pruned entirely (0 if only rows within row groups were pruned).
    pub runs: u64,
    /// Rows pruned.
    pub rows: u64,
}

const TOGETHER: &str = "several columns together";

/// Explains a query over these epochs: the plans that its execution would use.
pub(in crate::query) fn explain(
    dataset: &Arc<IndexedCatalog>,
    resolved: ResolvedQuery,
    epochs: &[u64],
) -> Result<Explanation> {
    let (resolved, counters) = (Arc::new(resolved), Arc::new(Counters::default()));
    let mut explained = Vec::with_capacity(epochs.len());
    match &resolved.order {
        None => {
            let planner =
                Planner::new(dataset.clone(), resolved.clone(), counters.clone(), epochs.len()).in_any_order();
            for &epoch in epochs {
                explained.push(explain_epoch(dataset, &planner, epoch, &counters, Sources::ALL)?);
            }
        }
        Some(order) => {
            let together = if order.is_per_epoch { 1 } else { epochs.len().max(1) };
            for epochs in epochs.chunks(together) {
                explain_sorted(dataset, &resolved, order, (epochs, &counters), &mut explained)?;
            }
        }
    }
    Ok(Explanation {
        filter: resolved.predicate.as_ref().map(Predicate::to_string),
        columns: resolved.arrow.fields().iter().map(|field| field.name().clone()).collect(),
        ordered: resolved.is_by_key(),
        ordered_by: resolved.order_text(),
        epochs: explained,
    })
}

/// Explains the plan of an epoch that reads some sources. If one of them cannot be read, explains the plan without it.
/// `counters` are those of the planner.
pub(in crate::query) fn explain_epoch(
    dataset: &IndexedCatalog,
    planner: &Planner,
    epoch: u64,
    counters: &Arc<Counters>,
    mut sources: Sources,
) -> Result<EpochExplanation> {
    loop {
        let before = counters.metrics().bytes_read;
        let plan = planner.plan(epoch, MAX_ENTRIES, sources)?;
        let indexed_by = plan.indexed_by();
        let EpochPlan { path, alternatives, is_of_keys } = plan;
        // Planning has read the entries of indexes.
        let entry_bytes = || counters.metrics().bytes_read - before;
        let explanation = match path {
            AccessPath::Records(groups) => {
                let mut explanation = explain_groups(&groups, alternatives, indexed_by.as_deref())?;
                if is_of_keys {
                    let entries_most = explanation.rows_most;
                    explanation.alternatives =
                        vec![Alternative { path: LOOKUP.to_owned(), entries_most, is_used: true }];
                }
                Some(explanation.plus_bytes(entry_bytes()))
            }
            // The plan of all row groups that may have the rows is explained.
            AccessPath::Lookup(_) => {
                sources.spatial = false;
                None
            }
            AccessPath::Covering(covering) => {
                sources.covering = false;
                let rows = covering.read(counters)?.map(|rows| rows.rows as u64);
                rows.map(|rows| explain_covered(&covering, alternatives, rows).plus_bytes(entry_bytes()))
            }
            AccessPath::Spatial(spatial) => {
                sources.spatial = false;
                let explained = explain_groups(&spatial.groups, alternatives, None).map(Some);
                let explained = readable(dataset, counters, explained)?;
                explained.map(|explained| EpochExplanation { covered_by: Some(spatial.index), ..explained })
            }
        };
        if let Some(explanation) = explanation {
            return Ok(explanation);
        }
    }
}

/// Explains how rows of epochs are sorted together.
fn explain_sorted(
    dataset: &Arc<IndexedCatalog>,
    resolved: &Arc<ResolvedQuery>,
    order: &Order,
    (epochs, counters): (&[u64], &Arc<Counters>),
    explained: &mut Vec<EpochExplanation>,
) -> Result<()> {
    let (plan, before) = (SortPlan::new(resolved, &order.columns)?, counters.metrics().bytes_read);
    let wanted = plan.interval_rows(resolved.limit);
    let mut scan = plan.wanted;
    let mut how = "a scan of all matching rows, of which the first are kept".to_owned();
    if order.ascending().is_none() {
        let mut intervals = Intervals::new(dataset, resolved, &order.columns, epochs, counters)?;
        if let Some(condition) = intervals.next(dataset, wanted, counters)?.flatten() {
            scan.restrict(order.restricted(&condition, &resolved.schema)?);
            how = format!("a scan of the rows with {condition}; if these are too few, others are read, too");
        }
    }
    // The values of entries, which end an interval, count for the first epoch.
    let mut planning_bytes = counters.metrics().bytes_read - before;
    let planner = Planner::new(dataset.clone(), Arc::new(scan), counters.clone(), epochs.len());
    for &epoch in epochs {
        let mut explanation = explain_epoch(dataset, &planner, epoch, counters, Sources::ALL)?;
        explanation = explanation.plus_bytes(std::mem::take(&mut planning_bytes));
        match order.ascending() {
            Some(column) => explain_order(dataset, resolved, column, &mut explanation)?,
            None => explanation.order = Some(how.clone()),
        }
        explained.push(explanation);
    }
    Ok(())
}

/// Completes the explanation of an epoch's scan by how its rows are brought into the order of a column. A walk that no
/// scan takes over from replaces the scan.
fn explain_order(
    dataset: &IndexedCatalog,
    resolved: &ResolvedQuery,
    column: OrderColumn,
    explanation: &mut EpochExplanation,
) -> Result<()> {
    let manifest = dataset.scan_manifest(explanation.epoch, resolved.predicate_columns())?.manifest;
    let plan = OrderPlan::new(dataset, resolved, column, &manifest, resolved.limit, &Counters::default())?;
    let OrderPlan::Walk { index, bytes, most } = plan else {
        explanation.order = Some("a scan of all matching rows, of which the first are kept".to_owned());
        return Ok(());
    };
    let is_covered = index.has_columns(&resolved.read_columns());
    let may_scan = most.filter(|most| *most < manifest.rows());
    let note = match may_scan {
        _ if is_covered => ", which has all columns: no records are read".to_owned(),
        Some(most) => format!(", until the limit; after {most} entries by a scan"),
        None => ", until the limit".to_owned(),
    };
    if may_scan.is_none() {
        let EpochExplanation { rows_least, rows_most, .. } = *explanation;
        *explanation = EpochExplanation { rows_least, rows_most, ..unread(&manifest, Vec::new()) };
        for run in &manifest.row_groups {
            let kind = kind_of(&mut explanation.runs, run.kind);
            kind.total += 1;
            *(if is_covered { &mut kind.skipped } else { &mut kind.tested }) += 1;
        }
        explanation.parts_touched = if is_covered { 0 } else { explanation.parts };
    }
    explanation.order = Some(format!("the entries of index {}{note}", index.name()));
    let wanted = match &resolved.predicate {
        None => resolved.limit.min(manifest.rows()),
        Some(_) => manifest.rows().min(most.unwrap_or(u64::MAX)),
    };
    // Each step reads each page at most once.
    let mut left = wanted;
    let taken = OrderPlan::steps(resolved, resolved.limit).take_while(|rows| {
        let goes_on = left > 0;
        left = left.saturating_sub(*rows);
        goes_on
    });
    let of_records = if is_covered { 0 } else { manifest.page_bytes().saturating_mul(taken.count() as u64) };
    let of_scan = may_scan.map_or(0, |_| explanation.bytes_most);
    explanation.bytes_most = bytes.saturating_add(of_records).saturating_add(of_scan);
    explanation.bytes_least = 0;
    explanation.rows_most = explanation.rows_most.min(resolved.limit);
    explanation.rows_least = explanation.rows_least.min(resolved.limit);
    Ok(())
}

/// Returns the explanation of an epoch of which nothing is read.
fn unread(manifest: &EpochManifest, alternatives: Vec<Alternative>) -> EpochExplanation {
    EpochExplanation {
        epoch: manifest.epoch,
        rows: manifest.rows(),
        alternatives,
        parts: manifest.parts.len() as u64,
        bytes: manifest.page_bytes(),
        ..EpochExplanation::default()
    }
}

/// Explains an epoch of which the entries of an index have these rows.
fn explain_covered(covering: &CoveringPlan, alternatives: Vec<Alternative>, rows: u64) -> EpochExplanation {
    let (covered_by, unread) = (Some(covering.index.clone()), unread(&covering.manifest, alternatives));
    let mut explanation = EpochExplanation { covered_by, rows_least: rows, rows_most: rows, ..unread };
    for run in &covering.manifest.row_groups {
        let kind = kind_of(&mut explanation.runs, run.kind);
        kind.total += 1;
        kind.skipped += 1;
    }
    explanation
}

/// Explains an epoch whose row groups are read.
fn explain_groups(
    plan: &GroupsPlan,
    alternatives: Vec<Alternative>,
    indexed_by: Option<&str>,
) -> Result<EpochExplanation> {
    let GroupsPlan { resolved, scan, .. } = plan;
    let manifest = &scan.manifest;
    let mut explanation = unread(manifest, alternatives);
    if resolved.schema.levels().is_some() {
        explanation.levels = levels_of(scan, resolved.schema.top_level());
    }
    let mut choices = scan.choices.iter().peekable();
    let mut last_part = None;
    for (entry, run) in manifest.row_groups.iter().enumerate() {
        let choice = choices.next_if(|choice| choice.entry == entry);
        let kind = kind_of(&mut explanation.runs, run.kind);
        kind.total += 1;
        match choice {
            None => {
                kind.skipped += 1;
                let by = skipped_by(run, manifest.epoch, resolved, indexed_by);
                note(&mut explanation.runs_skipped_by, by, 1, run.rows);
                continue;
            }
            Some(choice) if choice.is_exact => kind.whole += 1,
            Some(_) => kind.tested += 1,
        }
        if let Some(choice) = choice {
            // Row groups are in the order of their parts.
            if last_part.replace(run.part) != Some(run.part) {
                explanation.parts_touched += 1;
            }
            let indexed_by = indexed_by.filter(|_| plan.is_indexed(*choice));
            explain_group(plan, *choice, indexed_by, &mut explanation)?;
        }
    }
    Ok(explanation)
}

/// Returns the row groups of each level of detail.
fn levels_of(scan: &EpochScan, top: u8) -> Vec<LevelCount> {
    let mut levels: Vec<LevelCount> =
        (0..=top).rev().map(|level| LevelCount { level, ..LevelCount::default() }).collect();
    let place = |level: u8| usize::from(top.saturating_sub(level));
    for group in &scan.manifest.row_groups {
        levels[place(group.level)].total += 1;
    }
    for choice in &scan.choices {
        let group = &scan.manifest.row_groups[choice.entry];
        let count = &mut levels[place(group.level)];
        count.read += 1;
        count.rows += group.rows;
    }
    levels
}

fn kind_of(kinds: &mut Vec<KindCount>, kind: RunKind) -> &mut KindCount {
    let index = kinds.iter().position(|count| count.kind == kind).unwrap_or_else(|| {
        kinds.push(KindCount { kind, total: 0, skipped: 0, whole: 0, tested: 0 });
        kinds.len() - 1
    });
    &mut kinds[index]
}

fn note(reasons: &mut Vec<PruneReason>, by: String, runs: u64, rows: u64) {
    match reasons.iter_mut().find(|reason| reason.by == by) {
        Some(reason) => {
            reason.runs += runs;
            reason.rows += rows;
        }
        None => reasons.push(PruneReason { by, runs, rows }),
    }
}

/// Returns the column whose statistics alone prune a row group. If statistics do not, returns the indexes that do, or
/// the key with its filters.
fn skipped_by(run: &RowGroupEntry, epoch: u64, resolved: &ResolvedQuery, indexed_by: Option<&str>) -> String {
    let Some(predicate) = &resolved.predicate else { return "no rows".to_owned() };
    if run.rows == 0 {
        return "no rows".to_owned();
    }
    if judge_run(run, epoch, predicate, |_| false) == TruthValue::Never {
        return EPOCH_COLUMN.to_owned();
    }
    if judge_run(run, epoch, predicate, |_| true) != TruthValue::Never {
        return indexed_by
            .map_or_else(|| format!("{} (partition and filters)", resolved.schema.key().name), str::to_owned);
    }
    let alone = |only: &&usize| judge_run(run, epoch, predicate, |column| column == **only) == TruthValue::Never;
    match predicate.columns().iter().find(alone) {
        Some(column) => resolved.schema.columns()[*column].name.clone(),
        None => TOGETHER.to_owned(),
    }
}

fn explain_group(
    plan: &GroupsPlan,
    choice: GroupChoice,
    indexed_by: Option<&str>,
    explanation: &mut EpochExplanation,
) -> Result<()> {
    let GroupsPlan { resolved, scan, .. } = plan;
    let run = &scan.manifest.row_groups[choice.entry];
    if choice.is_exact && resolved.stored.is_empty() {
        let rows = resolved.rows_of(choice.entry, run.rows);
        explanation.rows_least += rows.end - rows.start;
        explanation.rows_most += rows.end - rows.start;
        return Ok(());
    }
    let rows = plan.select(choice)?;
    let RowGroupPlan { group, selection } = &rows;
    if let Some(predicate) = resolved.predicate.as_ref().filter(|_| !choice.is_exact) {
        let mut ruled_out = run.rows - selection.rows();
        if let Some(index) = indexed_by {
            note(&mut explanation.rows_skipped_by, index.to_owned(), 0, ruled_out);
            ruled_out = 0;
        }
        for &column in predicate.columns() {
            explanation.pages += group.pages(column)?.len() as u64;
            if indexed_by.is_some() {
                continue;
            }
            let rest = select_by(group.entry(), group.epoch(), predicate, &**group, |of| of == column)?;
            let rows = run.rows - rest.rows();
            if rows > 0 {
                note(&mut explanation.rows_skipped_by, resolved.schema.columns()[column].name.clone(), 0, rows);
                ruled_out = ruled_out.saturating_sub(rows);
            }
        }
        if ruled_out > 0 {
            note(&mut explanation.rows_skipped_by, TOGETHER.to_owned(), 0, ruled_out);
        }
    }
    let estimate = rows.estimate(resolved)?;
    explanation.rows_least += estimate.rows_least;
    explanation.rows_most += estimate.rows_most;
    explanation.pages_tested += estimate.pages_tested;
    explanation.bytes_least += estimate.bytes_least;
    explanation.bytes_most += estimate.bytes_most;
    Ok(())
}

impl EpochExplanation {
    /// Adds bytes that planning has read.
    fn plus_bytes(self, bytes: u64) -> Self {
        Self { bytes_least: self.bytes_least + bytes, bytes_most: self.bytes_most + bytes, ..self }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.filter {
            Some(filter) => writeln!(f, "rows where {filter}")?,
            None => writeln!(f, "all rows")?,
        }
        write!(f, "columns {}", self.columns.join(", "))?;
        match &self.ordered_by {
            Some(column) => writeln!(f, ", in the order of {column}")?,
            None => writeln!(f, "{}", if self.ordered { ", merged in key order" } else { "" })?,
        }
        for epoch in &self.epochs {
            epoch.fmt(f)?;
        }
        if self.epochs.is_empty() {
            writeln!(f, "no matching epochs")?;
        }
        Ok(())
    }
}

impl fmt::Display for EpochExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.runs.iter().map(|kind| kind.total).sum();
        let looked: u64 = self.runs.iter().map(|kind| kind.whole + kind.tested).sum();
        writeln!(
            f,
            "epoch {}: {looked} of {total} row groups in {} of {} parts",
            self.epoch, self.parts_touched, self.parts
        )?;
        for kind in &self.runs {
            let name = match kind.kind {
                RunKind::Regular => "regular",
                RunKind::Stray => "stray",
                RunKind::Unordered => "unordered",
                RunKind::NanKey => "NaN keys",
            };
            writeln!(
                f,
                "  {name}: {} pruned, {} match completely, {} to be filtered",
                kind.skipped, kind.whole, kind.tested
            )?;
        }
        for LevelCount { level, total, read, rows } in &self.levels {
            writeln!(f, "  level {level}: {read} of {total} row groups, {rows} rows")?;
        }
        for reason in &self.runs_skipped_by {
            let PruneReason { by, runs, rows } = reason;
            writeln!(f, "  pruned by the manifest: {runs} row groups ({rows} rows), by {by}")?;
        }
        for PruneReason { by, rows, .. } in &self.rows_skipped_by {
            writeln!(f, "  pruned within row groups: {rows} more rows, by {by}")?;
        }
        for Alternative { path, entries_most, is_used } in &self.alternatives {
            let (used, what) = (
                if *is_used { "used" } else { "not used" },
                match path.as_str() {
                    SCAN | LOOKUP => "rows to test",
                    path if SpaceDefinition::is_meant(path) => "rows to test",
                    path if BitmapDefinition::is_meant(path) => "rows that may match",
                    _ => "entries to test",
                },
            );
            writeln!(f, "  access path {path}: at most {entries_most} {what}; {used}")?;
        }
        if let Some(index) = self.covered_by.as_ref().filter(|index| SpaceDefinition::is_meant(index)) {
            writeln!(f, "  answered by index {index}, a copy of the epoch: no records are read")?;
        } else if let Some(index) = &self.covered_by {
            writeln!(f, "  answered by the entries of index {index}, which has all columns: no records are read")?;
        }
        if let Some(order) = &self.order {
            writeln!(f, "  ordered by {order}")?;
        }
        if self.pages > 0 {
            writeln!(f, "  pages to be filtered: {} of {}", self.pages_tested, self.pages)?;
        }
        writeln!(
            f,
            "  bytes to read: {} to {} of {}; rows that match: {} to {} of {}",
            self.bytes_least, self.bytes_most, self.bytes, self.rows_least, self.rows_most, self.rows
        )
    }
}
