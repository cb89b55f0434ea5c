//! Value indexes: entries with the values of a column, and the places of their records.

use std::sync::Arc;

use crate::error::Result;
use crate::expr::{Predicate, col};
use crate::format::EpochManifest;
use crate::index::{EntryLayout, IndexDefinition, RecordPlace};
use crate::query::catalog::Catalog;
use crate::query::index::cost::FindingCost;
use crate::query::index::handle::IndexHandle;
use crate::query::metrics::{Counters, add};
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::epoch_reader::EpochReader;
use crate::query::scan::epoch_scan::{choose, plan_epoch};
use crate::query::scan::ordered_scan::Merge;
use crate::query::scan::pieces::Pieces;
use crate::query::scan::prefetch::plan_announced;
use crate::query::scan::read::PackedRows;
use crate::query::scan::row_group_plan::RowGroupPlan;
use crate::schema::{Clustering, Schema, Value};
use crate::storage::Storage;
use crate::store::DatasetPaths;

/// Maximum number of byte strings that are looked up.
const MAX_BYTE_STRINGS: usize = 4096;

/// Maximum number of row groups of entries whose pages are judged by an estimate.
const JUDGED_GROUPS: usize = 64;

/// Records that may match a predicate, as an index has them.
#[derive(Debug, Default)]
pub(in crate::query) struct IndexedRecords {
    /// Their places, in any order.
    pub(in crate::query) places: Vec<RecordPlace>,
    /// Packed stored values of each requested column, in the order of the places.
    pub(in crate::query) values: Vec<Vec<u8>>,
}

/// An index of a dataset whose entries are records of a dataset of their own.
///
/// The places that it returns are a superset of the matching records' places. The records are tested, so an index never
/// adds a row to an answer.
#[derive(Debug)]
pub(in crate::query) struct ValueIndex {
    name: String,
    /// The columns of the records.
    records: Arc<Schema>,
    /// Position of the indexed column among them.
    column: usize,
    entries: IndexHandle,
}

impl ValueIndex {
    /// Creates the index with a name, of the column at a position. It is opened when it is first used.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        dataset: &Catalog,
        (name, column): (String, usize),
    ) -> Self {
        let entries = IndexHandle::new(storage, paths.index(&name), dataset.descriptor(), dataset.parts());
        Self { name, records: dataset.schema.clone(), column, entries }
    }

    /// Returns whether a schema is that of entries of this index.
    fn fits(&self, entries: &Schema) -> bool {
        let definition = IndexDefinition::of_entries(&self.name, entries);
        let layout = definition.and_then(|definition| EntryLayout::new(&definition, &self.records));
        let types = |schema: &Schema| schema.columns().iter().map(|column| column.data_type).collect::<Vec<_>>();
        layout.is_ok_and(|layout| types(entries) == types(&layout.schema))
    }

    /// Asks the entries, as [`IndexHandle::ask`] does.
    fn ask<T>(&self, ask: impl Fn(&Arc<Catalog>) -> Result<Option<T>>) -> Result<Option<T>> {
        self.entries.ask(&|entries| self.fits(entries), ask)
    }

    /// Returns the query for the entries that may match: their places, then these columns of entries. `None` if the
    /// predicate does not limit the indexed column.
    fn query(
        &self,
        catalog: &Catalog,
        predicate: &Predicate,
        records: &EpochManifest,
        columns: &[usize],
    ) -> Result<Option<ResolvedQuery>> {
        let schema = &catalog.schema;
        let Some(wanted) = self.condition(schema, predicate)? else { return Ok(None) };
        let read = [EntryLayout::PART, EntryLayout::ROW].iter().chain(columns);
        let names = read.map(|column| schema.columns()[*column].name.clone());
        // Planning already runs on one of the query's threads.
        let mut resolved = ResolvedQuery::resolve(&Query::new().columns(names).threads(1), schema)?;
        resolved.restrict(wanted);
        resolved.indexed_commit = Some(records.commit);
        Ok(Some(resolved))
    }

    /// Returns the condition on entries that a predicate implies.
    fn condition(&self, entries: &Schema, predicate: &Predicate) -> Result<Option<Predicate>> {
        if !self.is_numeric() {
            let values = predicate.tuples_of(&self.records, &[self.column], MAX_BYTE_STRINGS);
            return Ok(values.map(|values| Predicate::any_tuple_of(entries, &[EntryLayout::VALUE], &values.concat())));
        }
        match predicate.members_of(self.column) {
            Some(members) => Ok(Some(Predicate::of_members(entries, EntryLayout::VALUE, members)?)),
            None => predicate.range_of(self.column).map(|range| in_range(entries, range)).transpose(),
        }
    }

    /// Returns the number of values that a predicate lists, if it does.
    fn listed_values(&self, predicate: &Predicate) -> Option<u64> {
        let values = if self.is_numeric() {
            predicate.members_of(self.column)?.values().len()
        } else {
            predicate.tuples_of(&self.records, &[self.column], MAX_BYTE_STRINGS)?.len()
        };
        Some(values as u64)
    }

    fn is_numeric(&self) -> bool {
        self.records.columns()[self.column].data_type.is_numeric()
    }

    /// Adds the cost of reading entries to that of the query.
    fn count(own: &Counters, entries: usize, counters: &Counters) {
        let read = own.metrics();
        add(&counters.bytes_read, read.bytes_read);
        add(&counters.pages_read, read.pages_read);
        add(&counters.entries_read, entries as u64);
    }

    fn estimate_by(
        &self,
        catalog: &Arc<Catalog>,
        predicate: &Predicate,
        records: &EpochManifest,
    ) -> Result<Option<FindingCost>> {
        let Some(resolved) = self.query(catalog, predicate, records, &[])? else { return Ok(None) };
        let Some(manifest) = catalog.manifest_of(records, &[])? else { return Ok(None) };
        if let Some(cost) = self.cost_of_list(catalog, predicate, &manifest) {
            return Ok(Some(cost));
        }
        let chosen = choose(catalog, &resolved, &manifest);
        if chosen.len() > JUDGED_GROUPS {
            let groups = chosen.iter().map(|choice| (&manifest.row_groups[choice.entry], choice.is_exact));
            let groups = groups.map(|(group, is_exact)| FindingCost::of_row_group(group, is_exact));
            return Ok(Some(groups.fold(FindingCost::default(), FindingCost::and)));
        }
        let scan = plan_epoch(catalog, &resolved, records.epoch, &Counters::default())?;
        let mut cost = FindingCost::default();
        for choice in &scan.choices {
            let plan = RowGroupPlan::new(catalog, &resolved, &scan, *choice)?;
            let (least, most) = (plan.selection.exact().rows(), plan.selection.rows());
            let pages = plan.pages_of_column(EntryLayout::VALUE)?;
            cost = cost.and(FindingCost { entries: most, pages, matches_least: least, matches_most: most });
        }
        Ok(Some(cost))
    }

    /// Returns the cost of finding the values that a predicate lists, if it does.
    fn cost_of_list(&self, catalog: &Catalog, predicate: &Predicate, entries: &EpochManifest) -> Option<FindingCost> {
        if !self.is_numeric() || catalog.schema.clustering() != Clustering::Range {
            return Some(FindingCost::of_hashes(entries, self.listed_values(predicate)?));
        }
        let members = predicate.members_of(self.column)?;
        let ranges = catalog.key_ranges(entries);
        Some(FindingCost::of_values(entries, (&ranges, catalog.schema.key_order()), members.values()))
    }

    /// Returns the columns of the entries that have the values of these columns of the records. `None` if entries lack
    /// one of them.
    fn positions(&self, entries: &Schema, columns: &[usize]) -> Option<Vec<usize>> {
        let position = |column: &usize| {
            if *column == self.column {
                return Some(EntryLayout::VALUE);
            }
            let name = self.records.columns()[*column].name.as_str();
            EntryLayout::carried(entries).position(|carried| carried == name).map(|place| place + EntryLayout::CARRIED)
        };
        columns.iter().map(position).collect()
    }

    /// Reads the places of the entries that may match, and some of their columns. `take` receives all columns of each
    /// piece. Returns the places; `None` if the index cannot answer, or there are more than `most`.
    fn read(
        &self,
        (catalog, columns): (&Arc<Catalog>, &[usize]),
        predicate: &Predicate,
        records: &EpochManifest,
        most: u64,
        counters: &Counters,
        mut take: impl FnMut(&PackedRows),
    ) -> Result<Option<Vec<RecordPlace>>> {
        let Some(mut resolved) = self.query(catalog, predicate, records, columns)? else { return Ok(None) };
        resolved.limit = most.saturating_add(1);
        if catalog.manifest_of(records, &[])?.is_none() {
            return Ok(None);
        }
        let own = Arc::new(Counters::new(catalog.recycler.clone(), None));
        let mut reader = EpochReader::open(catalog.clone(), resolved, own.clone(), records.epoch)?;
        let mut places: Vec<RecordPlace> = Vec::new();
        while let Some(packed) = reader.next_rows()? {
            counters.check()?;
            if (places.len() + packed.rows) as u64 > most {
                Self::count(&own, places.len() + packed.rows, counters);
                return Ok(None);
            }
            let (parts, rows) = (packed.columns[0].typed_data::<u32>(), packed.columns[1].typed_data::<u32>());
            places.extend(parts.iter().zip(rows).map(|(&part, &row)| RecordPlace { part, row }));
            take(&packed);
        }
        Self::count(&own, places.len(), counters);
        Ok(Some(places))
    }

    fn in_order_by(
        &self,
        catalog: &Arc<Catalog>,
        predicate: Option<&Predicate>,
        columns: &[usize],
        records: &EpochManifest,
        most: u64,
    ) -> Result<Option<OrderedEntries>> {
        let Some(positions) = self.positions(&catalog.schema, columns) else { return Ok(None) };
        let schema = &catalog.schema;
        if catalog.manifest_of(records, &[])?.is_none() || !schema.has_numeric_key() {
            return Ok(None);
        }
        let read = [EntryLayout::PART, EntryLayout::ROW].iter().chain(&positions);
        let names = read.map(|column| schema.columns()[*column].name.clone());
        let query = Query::new().columns(names).ordered(true).threads(1).limit(most);
        let mut resolved = ResolvedQuery::resolve(&query, schema)?;
        let wanted = predicate.map(|predicate| self.condition(schema, predicate)).transpose()?.flatten();
        if let Some(wanted) = wanted {
            resolved.restrict(wanted);
        }
        resolved.indexed_commit = Some(records.commit);
        let own = Arc::new(Counters::new(catalog.recycler.clone(), None));
        let resolved = Arc::new(resolved);
        let plan = {
            let (catalog, resolved, own) = (catalog.clone(), resolved.clone(), own.clone());
            move |epoch: u64, _| plan_announced(&catalog, &resolved, epoch, &own)
        };
        let merge = Merge::new(catalog.clone(), resolved, own.clone(), vec![records.epoch], Arc::new(plan));
        Ok(Some(OrderedEntries { merge, own, columns: positions.len() }))
    }

    fn records_by(
        &self,
        catalog: &Arc<Catalog>,
        predicate: &Predicate,
        columns: &[usize],
        records: &EpochManifest,
        most: u64,
        counters: &Counters,
    ) -> Result<Option<IndexedRecords>> {
        let Some(positions) = self.positions(&catalog.schema, columns) else { return Ok(None) };
        let mut values = vec![Vec::new(); columns.len()];
        let take = |packed: &PackedRows| {
            for (values, read) in values.iter_mut().zip(&packed.columns[2..]) {
                values.extend_from_slice(read);
            }
        };
        let places = self.read((catalog, &positions), predicate, records, most, counters, take)?;
        Ok(places.map(|places| IndexedRecords { places, values }))
    }
}

/// Entries of an epoch in the order of their values.
pub(in crate::query) struct OrderedEntries {
    merge: Merge,
    own: Arc<Counters>,
    /// Number of columns that are read besides the places.
    columns: usize,
}

impl OrderedEntries {
    /// Returns the next records in order, or `None` at the end.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn next_records(&mut self, counters: &Counters) -> Result<Option<IndexedRecords>> {
        let next = self.merge.next_piece();
        self.own.move_reads_to(counters);
        let Some(packed) = next? else { return Ok(None) };
        add(&counters.entries_read, packed.rows as u64);
        let (parts, rows) = (packed.columns[0].typed_data::<u32>(), packed.columns[1].typed_data::<u32>());
        let places = parts.iter().zip(rows).map(|(&part, &row)| RecordPlace { part, row }).collect();
        let values = packed.columns[2..2 + self.columns].iter().map(|column| column.to_vec()).collect();
        Ok(Some(IndexedRecords { places, values }))
    }
}

impl ValueIndex {
    /// Returns the name of the index.
    pub(in crate::query) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of values that a predicate lists of what is indexed. `None` if it lists none.
    pub(in crate::query) fn listed(&self, predicate: &Predicate) -> Option<u64> {
        self.listed_values(predicate)
    }

    /// Returns whether the manifest of the entries of an epoch is in memory, so that an estimate reads nothing.
    pub(in crate::query) fn is_known(&self, records: &EpochManifest) -> bool {
        self.entries.get(&|entries| self.fits(entries)).is_ok_and(|entries| entries.knows(records.epoch))
    }

    /// Returns the cost of finding the records of a predicate. `None` if the index cannot answer the predicate, or has
    /// no entries of this commit of the epoch.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn estimate(
        &self,
        predicate: &Predicate,
        records: &EpochManifest,
    ) -> Result<Option<FindingCost>> {
        self.ask(|catalog| self.estimate_by(catalog, predicate, records))
    }

    /// Returns the places of all records that may match, in any order. `None` as for [`ValueIndex::estimate`], and if
    /// there are more than `most` of them.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn places(
        &self,
        predicate: &Predicate,
        records: &EpochManifest,
        most: u64,
        counters: &Counters,
    ) -> Result<Option<Vec<RecordPlace>>> {
        self.ask(|catalog| self.read((catalog, &[]), predicate, records, most, counters, |_| ()))
    }

    /// Returns whether the entries have the values of these columns of the records.
    pub(in crate::query) fn has_columns(&self, columns: &[usize]) -> bool {
        self.entries
            .get(&|entries| self.fits(entries))
            .is_ok_and(|entries| self.positions(&entries.schema, columns).is_some())
    }

    /// Returns the places of all records that may match, and their values of `columns`. `None` as for
    /// [`ValueIndex::places`], and if the entries do not have these columns.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn records(
        &self,
        predicate: &Predicate,
        columns: &[usize],
        records: &EpochManifest,
        most: u64,
        counters: &Counters,
    ) -> Result<Option<IndexedRecords>> {
        self.ask(|catalog| self.records_by(catalog, predicate, columns, records, most, counters))
    }

    /// Returns the size of the index's pages of an epoch, if the index has all of its records in the order of a column.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn order_bytes(&self, column: usize, records: &EpochManifest) -> Result<Option<u64>> {
        if column != self.column {
            return Ok(None);
        }
        self.ask(|catalog| {
            let manifest = catalog.manifest_of(records, &[])?;
            Ok(manifest.filter(|_| catalog.schema.has_numeric_key()).map(|manifest| manifest.page_bytes()))
        })
    }

    /// Returns the dataset of the entries, and the position of their values, if these are those of a numeric column.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn entries_of(&self, column: usize) -> Result<Option<(Arc<Catalog>, usize)>> {
        if column != self.column || !self.is_numeric() {
            return Ok(None);
        }
        self.ask(|catalog| Ok(Some((catalog.clone(), EntryLayout::VALUE))))
    }

    /// Returns the records that may match, with their values of `columns`, in the order of the indexed column. At most
    /// `most` are wanted. `None` if the index does not have this commit of the epoch, or these columns.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn in_order(
        &self,
        predicate: Option<&Predicate>,
        columns: &[usize],
        records: &EpochManifest,
        most: u64,
    ) -> Result<Option<OrderedEntries>> {
        self.ask(|catalog| self.in_order_by(catalog, predicate, columns, records, most))
    }
}

/// Returns the predicate that an entry has a value in a closed range.
fn in_range(schema: &Schema, (low, high): (Value, Value)) -> Result<Predicate> {
    let column = col(&schema.columns()[EntryLayout::VALUE].name);
    let text = format!("{column} >= {} AND {column} <= {}", literal(low), literal(high));
    Ok(Predicate::parse(&text, schema)?)
}

/// Returns a value in the expression language.
fn literal(value: Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Float(value) => crate::expr::lit(value).to_string(),
    }
}
