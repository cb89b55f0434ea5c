//! Intervals of the first column of an order: where its first values lie.
//!
//! Statistics of row groups, and of the pages of those that matter, tell up to which value there are as many rows as
//! are wanted. The rows of this interval are read and sorted, and then those of the next, until there are enough. If
//! the column has an index, its entries have the statistics, and their values end the interval: each record of it lies
//! in another page. All this only chooses the intervals: the rows are right whatever they are.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::expr::{Predicate, col, lit};
use crate::format::{ColumnStatistics, EpochManifest};
use crate::query::catalog::Catalog;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::readable;
use crate::query::metrics::Counters;
use crate::query::plan::sort::SortPlan;
use crate::query::request::{OrderColumn, Query, ResolvedQuery, SortColumn};
use crate::query::rows::pages::PageIndex;
use crate::query::rows::pruning::GroupChoice;
use crate::query::scan::epoch_scan::{choose, plan_epoch_by};
use crate::schema::{KeyOrder, Value};

/// Maximum number of entries whose values are read to end an interval.
const MAX_VALUES: u64 = 1 << 20;

/// Rows whose values lie between two places of the order.
#[derive(Debug, Clone, Copy)]
struct Block {
    first: u64,
    last: u64,
    /// Number of rows that are known to lie between the places.
    rows_least: u64,
    rows_most: u64,
    /// Position of the source.
    source: usize,
    /// Position of the row group in the manifest, until it has been divided into its pages.
    group: Option<usize>,
}

/// What has the statistics of an epoch: the records, or an index of the column.
struct BlockSource {
    catalog: Arc<Catalog>,
    /// A query for the column.
    resolved: Arc<ResolvedQuery>,
    column: usize,
    /// The manifest of the records.
    records: Arc<EpochManifest>,
    /// Name of the index, if it is one.
    index: Option<String>,
}

/// The intervals of a query of some epochs, from the first values of its order on.
pub(in crate::query) struct Intervals {
    /// The column of the records, and its quoted name.
    column: usize,
    name: String,
    order: KeyOrder,
    is_descending: bool,
    sources: Vec<BlockSource>,
    /// In the order of their last places.
    blocks: Vec<Block>,
    /// The places to which the query restricts its rows, both included.
    within: (u64, u64),
    /// The place up to which intervals have been taken.
    taken: Option<u64>,
    is_done: bool,
}

impl Intervals {
    /// Reads the manifests of some epochs. The first of the columns is that of the intervals.
    ///
    /// # Errors
    /// A missing epoch; corrupt manifests; I/O errors; cancellation.
    pub(in crate::query) fn new(
        dataset: &Arc<IndexedCatalog>,
        resolved: &ResolvedQuery,
        columns: &[SortColumn],
        epochs: &[u64],
        counters: &Counters,
    ) -> Result<Self> {
        let SortPlan { wanted, .. } = SortPlan::new(resolved, columns)?;
        let Some(&SortColumn { column, is_descending }) = columns.first() else {
            return Err(Error::internal("rows are sorted by no column"));
        };
        let (name, order) = (col(resolved.name_and_type(column).0).to_string(), resolved.values_order(column)?);
        let (sources, blocks, within) = (Vec::new(), Vec::new(), (0, u64::MAX));
        let mut intervals =
            Self { column: 0, name, order, is_descending, sources, blocks, within, taken: None, is_done: false };
        // Nothing has statistics of expressions.
        let OrderColumn::Stored(column) = column else { return Ok(intervals) };
        intervals.column = column;
        if let Some((low, high)) = wanted.predicate.as_ref().and_then(|predicate| predicate.range_of(column)) {
            let (one, other) = (intervals.place(low), intervals.place(high));
            intervals.within = (one.min(other), one.max(other));
        }
        let resolved = Arc::new(wanted.by_place(vec![column]));
        for &epoch in epochs {
            counters.check()?;
            let known = [wanted.predicate_columns(), &[column]].concat();
            let manifest = dataset.scan_manifest(epoch, &known)?.manifest;
            let choices = choose(dataset, &wanted, &manifest);
            if choices.is_empty() || intervals.add_index(dataset, &wanted, column, &manifest, counters)? {
                continue;
            }
            let (catalog, resolved) = (dataset.catalog().clone(), resolved.clone());
            let groups = choices.iter().map(|choice| choice.entry);
            let source = BlockSource { catalog, resolved, column, records: manifest.clone(), index: None };
            intervals.add(source, &manifest, groups);
        }
        intervals.sort();
        Ok(intervals)
    }

    /// Adds the entries of an epoch in an index of the column that the query may use. Returns whether there is one.
    fn add_index(
        &mut self,
        dataset: &IndexedCatalog,
        wanted: &ResolvedQuery,
        column: usize,
        records: &Arc<EpochManifest>,
        counters: &Counters,
    ) -> Result<bool> {
        if column == wanted.schema.key_index() && wanted.schema.has_sorted_runs() {
            return Ok(false);
        }
        for index in dataset.value_indexes().filter(|index| wanted.access.allows(index.name())) {
            let Some((catalog, value)) = readable(dataset, counters, index.entries_of(column))? else { continue };
            let manifest = readable(dataset, counters, catalog.manifest_of(records, &[value]))?;
            let Some(manifest) = manifest else { continue };
            let query = Query::new().columns([catalog.schema.columns()[value].name.as_str()]).threads(1);
            let resolved = Arc::new(ResolvedQuery::resolve(&query, &catalog.schema)?);
            let (records, index) = (records.clone(), Some(index.name().to_owned()));
            let source = BlockSource { catalog, resolved, column: value, records, index };
            self.add(source, &manifest, 0..manifest.row_groups.len());
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds row groups of an epoch.
    fn add(&mut self, source: BlockSource, manifest: &EpochManifest, groups: impl Iterator<Item = usize>) {
        for entry in groups {
            let group = &manifest.row_groups[entry];
            let statistics = group.columns.one(source.column);
            let block = self.block(self.sources.len(), statistics.as_ref(), group.rows);
            self.blocks.extend(block.map(|block| Block { group: Some(entry), ..block }));
        }
        self.sources.push(source);
    }

    /// Returns the rows of a row group or page. `None` if they are NaN, of unknown values, or outside of the query's range.
    fn block(&self, source: usize, statistics: Option<&ColumnStatistics>, rows: u64) -> Option<Block> {
        let Some(statistics) = statistics else {
            return Some(Block { first: 0, last: u64::MAX, rows_least: 0, rows_most: rows, source, group: None });
        };
        let (least, greatest) = statistics.range?;
        let (first, last) = match self.is_descending {
            false => (self.place(least), self.place(greatest)),
            true => (self.place(greatest), self.place(least)),
        };
        let (low, high) = self.within;
        let is_within = low <= first && last <= high;
        let rows_least = if is_within { rows.saturating_sub(statistics.nan_count) } else { 0 };
        (first <= high && low <= last).then_some(Block {
            first,
            last,
            rows_least,
            rows_most: rows,
            source,
            group: None,
        })
    }

    /// Returns the place of a value in the order.
    fn place(&self, value: Value) -> u64 {
        self.turned(self.order.ordinal_of(value))
    }

    /// Returns the place of an ordinal, or the ordinal of a place.
    fn turned(&self, ordinal: u64) -> u64 {
        if self.is_descending { !ordinal } else { ordinal }
    }

    fn sort(&mut self) {
        self.blocks.sort_unstable_by_key(|block| block.last);
    }

    /// Takes the next interval: about `wanted` rows, or more. Returns its condition, which is `None` if no rows have
    /// been excluded; or `None` at the end. The last interval has all other rows, among them those with NaN. If
    /// `fits`, it begins as soon as another interval would have most of them.
    ///
    /// # Errors
    /// Corruption; I/O errors.
    pub(in crate::query) fn next(
        &mut self,
        dataset: &IndexedCatalog,
        (wanted, fits): (u64, bool),
        counters: &Counters,
    ) -> Result<Option<Option<String>>> {
        if self.is_done {
            return Ok(None);
        }
        let mut last = self.last_place(wanted);
        while let Some(place) = last
            && self.divide(dataset, place, counters)?
        {
            last = self.last_place(wanted);
        }
        let left: u64 = self.blocks.iter().map(|block| block.rows_most).sum();
        let taken = last.filter(|last| {
            let within = self.blocks.iter().filter(|block| block.first <= *last);
            !fits || within.map(|block| block.rows_most).sum::<u64>() <= left / 2
        });
        let taken = taken.map(|last| self.last_value(dataset, (wanted, last), counters)).transpose()?;
        let condition = self.condition(taken);
        match taken {
            Some(taken) => self.blocks.retain(|block| block.last > taken),
            None => self.is_done = true,
        }
        self.taken = taken;
        Ok(Some(condition))
    }

    /// Returns the first place up to which there are at least so many rows.
    fn last_place(&self, wanted: u64) -> Option<u64> {
        let mut rows = 0u64;
        self.blocks.iter().find_map(|block| {
            rows = rows.saturating_add(block.rows_least);
            (rows >= wanted).then_some(block.last)
        })
    }

    /// Divides the row groups that begin up to a place into their pages. Returns whether there are any.
    fn divide(&mut self, dataset: &IndexedCatalog, last: u64, counters: &Counters) -> Result<bool> {
        let is_divided = |block: &Block| block.first <= last && block.group.is_some();
        let (mut divided, others): (Vec<Block>, Vec<Block>) = self.blocks.iter().partition(|block| is_divided(block));
        divided.sort_unstable_by_key(|block| (block.source, block.group));
        self.blocks = others;
        for blocks in divided.chunk_by(|one, next| one.source == next.source) {
            let entries: Vec<usize> = blocks.iter().filter_map(|block| block.group).collect();
            match readable(dataset, counters, self.pages(blocks[0].source, &entries, counters).map(Some))? {
                Some(mut pages) => self.blocks.append(&mut pages),
                // The statistics of the manifest remain.
                None => self.blocks.extend(blocks.iter().map(|block| Block { group: None, ..*block })),
            }
        }
        self.sort();
        Ok(!divided.is_empty())
    }

    /// Returns the pages of row groups of an epoch.
    fn pages(&self, source: usize, entries: &[usize], counters: &Counters) -> Result<Vec<Block>> {
        let BlockSource { catalog, resolved, column, records, .. } = &self.sources[source];
        let chosen = |manifest: &Arc<EpochManifest>| {
            let existing = entries.iter().filter(|entry| **entry < manifest.row_groups.len());
            existing.map(|entry| GroupChoice { entry: *entry, is_exact: false }).collect()
        };
        // The row groups are read, and counted, later.
        let own = Counters::new(counters.recycler.clone(), None);
        let scan = plan_epoch_by(catalog, resolved, records.epoch, &own, &[*column], chosen)?;
        let mut blocks = Vec::new();
        for choice in &scan.choices {
            let group = scan.group(catalog, resolved, *choice)?;
            let of_group = group.entry().columns.one(*column);
            for (number, page) in group.pages(*column)?.iter().enumerate() {
                let range = group.range(*column, number).or(of_group.as_ref().and_then(|known| known.range));
                let nan_count = of_group.as_ref().map_or(u64::MAX, |known| known.nan_count);
                let statistics = ColumnStatistics { range, nan_count };
                blocks.extend(self.block(source, Some(&statistics), u64::from(page.rows)));
            }
        }
        Ok(blocks)
    }

    /// Returns the first place up to which there are at least so many entries, if all blocks up to `last` are those of
    /// indexes; otherwise `last`.
    fn last_value(&self, dataset: &IndexedCatalog, (wanted, last): (u64, u64), counters: &Counters) -> Result<u64> {
        let mut sources: Vec<usize> =
            self.blocks.iter().filter(|block| block.first <= last).map(|block| block.source).collect();
        sources.sort_unstable();
        sources.dedup();
        let Some(condition) = self.condition(Some(last)) else { return Ok(last) };
        let predicate = Predicate::parse(&condition, &dataset.schema)?;
        let mut places = Vec::new();
        for source in sources.into_iter().map(|source| &self.sources[source]) {
            let index = dataset.value_indexes().find(|index| Some(index.name()) == source.index.as_deref());
            let Some(index) = index else { return Ok(last) };
            let most = MAX_VALUES.saturating_sub(places.len() as u64);
            let entries = index.records(&predicate, &[self.column], &source.records, most, counters);
            let Some(entries) = readable(dataset, counters, entries)? else { return Ok(last) };
            let values = entries.values[0].chunks_exact(self.order.data_type().width());
            places.extend(values.map(|value| self.turned(self.order.ordinal(value))));
        }
        places.retain(|place| (self.within.0..=self.within.1).contains(place));
        let nth = usize::try_from(wanted.saturating_sub(1)).unwrap_or(usize::MAX);
        if nth >= places.len() {
            return Ok(last);
        }
        Ok(*places.select_nth_unstable(nth).1)
    }

    /// Returns the condition on the values from the last interval up to a place.
    fn condition(&self, last: Option<u64>) -> Option<String> {
        let (before, up_to) = if self.is_descending { ("<", ">=") } else { (">", "<=") };
        let compared = |operator: &str, place: u64| {
            let value = match self.order.value(self.turned(place)) {
                Value::Int(value) => value.to_string(),
                Value::Float(value) => lit(value).to_string(),
            };
            format!("{} {operator} {value}", self.name)
        };
        let first = self.taken.map(|taken| match last {
            Some(_) => compared(before, taken),
            None => format!("NOT ({})", compared(up_to, taken)),
        });
        let last = last.map(|last| compared(up_to, last));
        let sides: Vec<String> = first.into_iter().chain(last).collect();
        (!sides.is_empty()).then(|| format!("({})", sides.join(" AND ")))
    }
}
