//! The access path by an index of entries: finds the entries with certain values, and returns the places that they
//! name.

use std::sync::Arc;

use crate::error::Result;
use crate::expr::{Predicate, col};
use crate::format::EpochManifest;
use crate::index::{EntryLayout, IndexDefinition, RecordPlace};
use crate::query::access::cost::FindingCost;
use crate::query::access::index_handle::IndexHandle;
use crate::query::access::path::{AccessPath, IndexedRecords, OrderedRecords};
use crate::query::catalog::Catalog;
use crate::query::execution::ordered_scan::Merge;
use crate::query::execution::pieces::Pieces;
use crate::query::execution::read::PackedRows;
use crate::query::execution::unordered_scan::Scan;
use crate::query::metrics::{Counters, add};
use crate::query::planning::plan::RowGroupPlan;
use crate::query::planning::scan::{choose, plan_epoch};
use crate::query::request::{Query, ResolvedQuery};
use crate::schema::{Clustering, Schema, Value};
use crate::storage::Storage;
use crate::store::{DatasetPaths, list_indexes};

/// Maximum number of byte strings that are looked up.
const MOST_BYTE_STRINGS: usize = 4096;

/// Maximum number of row groups of entries whose pages are judged by an estimate.
const JUDGED_GROUPS: usize = 64;

/// An index of entries, which are records of a dataset of their own.
#[derive(Debug)]
struct EntryIndex {
    name: String,
    /// The columns of the records.
    records: Arc<Schema>,
    /// Position of the indexed column among them.
    column: usize,
    entries: IndexHandle<Catalog>,
}

/// Finds the indexes of a dataset. An index is opened when it is first used, so one that cannot be read does not keep
/// the dataset from being opened.
///
/// # Errors
/// An I/O error while the folder of the indexes is listed.
pub(in crate::query) fn find_indexes(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    dataset: &Catalog,
) -> Result<Vec<Box<dyn AccessPath>>> {
    let mut found: Vec<Box<dyn AccessPath>> = Vec::new();
    for name in list_indexes(&**storage, paths)? {
        let Some(column) = dataset.schema.columns().iter().position(|column| column.name == name) else { continue };
        found.push(Box::new(EntryIndex {
            entries: IndexHandle::new(storage, paths.index(&name), dataset.descriptor(), dataset.parts()),
            name,
            records: dataset.schema.clone(),
            column,
        }));
    }
    Ok(found)
}

impl EntryIndex {
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
            let values = predicate.tuples_of(&self.records, &[self.column], MOST_BYTE_STRINGS);
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
            predicate.tuples_of(&self.records, &[self.column], MOST_BYTE_STRINGS)?.len()
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
        let mut scan = Scan::new(catalog.clone(), Arc::new(resolved), own.clone(), vec![records.epoch]);
        let mut places: Vec<RecordPlace> = Vec::new();
        while let Some(packed) = scan.next_piece()? {
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
    ) -> Result<Option<Box<dyn OrderedRecords>>> {
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
        let merge = Merge::new(catalog.clone(), Arc::new(resolved), own.clone(), vec![records.epoch]);
        Ok(Some(Box::new(OrderedEntries { merge, own, columns: positions.len() })))
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

/// Entries in the order of their values.
struct OrderedEntries {
    merge: Merge,
    own: Arc<Counters>,
    /// Number of columns that are read besides the places.
    columns: usize,
}

impl OrderedRecords for OrderedEntries {
    fn next(&mut self, counters: &Counters) -> Result<Option<IndexedRecords>> {
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

impl AccessPath for EntryIndex {
    fn name(&self) -> &str {
        &self.name
    }

    fn listed(&self, predicate: &Predicate) -> Option<u64> {
        self.listed_values(predicate)
    }

    fn is_known(&self, records: &EpochManifest) -> bool {
        self.entries.get(&|entries| self.fits(entries)).is_ok_and(|entries| entries.knows(records.epoch))
    }

    fn estimate(&self, predicate: &Predicate, records: &EpochManifest) -> Result<Option<FindingCost>> {
        self.ask(|catalog| self.estimate_by(catalog, predicate, records))
    }

    fn places(
        &self,
        predicate: &Predicate,
        records: &EpochManifest,
        most: u64,
        counters: &Counters,
    ) -> Result<Option<Vec<RecordPlace>>> {
        self.ask(|catalog| self.read((catalog, &[]), predicate, records, most, counters, |_| ()))
    }

    fn has_columns(&self, columns: &[usize]) -> bool {
        self.entries
            .get(&|entries| self.fits(entries))
            .is_ok_and(|entries| self.positions(&entries.schema, columns).is_some())
    }

    fn records(
        &self,
        predicate: &Predicate,
        columns: &[usize],
        records: &EpochManifest,
        most: u64,
        counters: &Counters,
    ) -> Result<Option<IndexedRecords>> {
        self.ask(|catalog| self.records_by(catalog, predicate, columns, records, most, counters))
    }

    fn order_bytes(&self, column: usize, records: &EpochManifest) -> Result<Option<u64>> {
        if column != self.column {
            return Ok(None);
        }
        self.ask(|catalog| {
            let manifest = catalog.manifest_of(records, &[])?;
            Ok(manifest.filter(|_| catalog.schema.has_numeric_key()).map(|manifest| manifest.page_bytes()))
        })
    }

    fn in_order(
        &self,
        predicate: Option<&Predicate>,
        columns: &[usize],
        records: &EpochManifest,
        most: u64,
    ) -> Result<Option<Box<dyn OrderedRecords>>> {
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
