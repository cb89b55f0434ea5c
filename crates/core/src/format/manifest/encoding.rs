//! Encodes manifests: row groups and parts as Arrow IPC streams among the sections of a container.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, ListArray, PrimitiveArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType as ArrowType, Field};

use crate::error::Result;
use crate::format::manifest::arrow_columns::{self, NamedColumn};
use crate::format::manifest::arrow_values::{numbers, with_arrow_type};
use crate::format::manifest::container::{ContainerBuilder, StatedEpoch};
use crate::format::manifest::entries::PartEntry;
use crate::format::manifest::epoch_manifest::EpochManifest;
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::schema::{Clustering, DataType, Schema, SchemaError, Value};

/// Names of the sections.
pub(super) const ROW_GROUPS: &str = "row_groups";
pub(super) const PARTS: &str = "parts";
pub(super) const KEY_COUNTS: &str = "key_counts";
pub(super) const STATISTICS: &str = "statistics";

/// Names of columns of datasets that are clustered by hash.
pub(super) const FILTER_OFFSET: &str = "filter_offset";
pub(super) const PARTITION: &str = "partition";
pub(super) const FILTER_BYTES: &str = "filter_bytes";
pub(super) const FILTER_CHECKSUM: &str = "filter_checksum";

/// Name of a column of datasets with levels of detail.
pub(super) const LEVEL: &str = "level";

/// Name of a column of datasets whose levels of detail are in proportion to a column.
pub(super) const LEVEL_INTERVALS: &str = "level_intervals";

/// First keys of pages are stored if they take at most this share of the pages' bytes.
const FIRST_KEYS_SHARE: u64 = 500;

/// Returns the names of the columns of the key's bounds.
pub(super) fn bounds(schema: &Schema) -> [String; 2] {
    let key = &schema.key().name;
    [format!("lower:{key}"), format!("upper:{key}")]
}

/// Returns the type of the column of first keys: lists of keys.
pub(super) fn first_keys_type(schema: &Schema) -> ArrowType {
    ArrowType::List(Arc::new(Field::new_list_field(schema.key_value_type().arrow(), false)))
}

impl EpochManifest {
    /// Encodes the manifest.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] if a row group lacks statistics of a schema column.
    pub fn encode(&self, schema: &Schema) -> Result<Vec<u8>> {
        for run in &self.row_groups {
            if run.columns.len() != schema.columns().len() {
                let (expected, found) = (schema.columns().len(), run.columns.len());
                return Err(SchemaError::InputColumns { expected, found }.into());
            }
        }
        encode(self, schema)
    }
}

/// Encodes a manifest, whose row groups have statistics of all columns.
fn encode(manifest: &EpochManifest, schema: &Schema) -> Result<Vec<u8>> {
    let has_levels = schema.levels().is_some() || manifest.parts.iter().any(|part| part.level > 0);
    let mut row_groups = row_group_columns(manifest, schema);
    row_groups.extend(page_columns(manifest, schema));
    if has_levels {
        let levels = manifest.row_groups.places().map(|group| group.level);
        row_groups.push((LEVEL.to_owned(), false, plain::<UInt8Type>(levels)));
    }
    let is_weighted = |entry: &RowGroupEntry| entry.intervals.is_some();
    if schema.level_weight().is_some() || has_levels && manifest.row_groups.iter().any(is_weighted) {
        row_groups.push((LEVEL_INTERVALS.to_owned(), false, interval_lists(manifest)));
    }
    let parts = part_columns(&manifest.parts, schema.clustering() == Clustering::Hash, has_levels);
    let mut builder = ContainerBuilder::default();
    builder.append(ROW_GROUPS, &arrow_columns::encode(row_groups)?);
    builder.append(PARTS, &arrow_columns::encode(parts)?);
    builder.append(STATISTICS, manifest.metrics.text().as_bytes());
    if let Some(text) = manifest.keys.text(manifest.row_groups.len()) {
        builder.append(KEY_COUNTS, text.as_bytes());
    }
    let &EpochManifest { epoch, commit, partitions, indexed_commit, ref attributes, .. } = manifest;
    let attributes = attributes.clone();
    Ok(builder.finish(&StatedEpoch { epoch, commit, partitions, indexed_commit, attributes }))
}

/// Returns an array without nulls.
fn plain<T: ArrowPrimitiveType>(values: impl Iterator<Item = T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter_values(values))
}

/// Returns the columns of the row groups: place, kind, origin and bounds, then the range and NaN count of each column
/// of numbers.
fn row_group_columns(manifest: &EpochManifest, schema: &Schema) -> Vec<NamedColumn> {
    let groups = &manifest.row_groups;
    let u32s = |pick: fn(&RowGroupEntry) -> u32| plain::<UInt32Type>(groups.iter().map(pick));
    let u64s = |pick: fn(&RowGroupEntry) -> u64| plain::<UInt64Type>(groups.iter().map(pick));
    let typed = |data_type: DataType, pick: &dyn Fn(&RowGroupEntry) -> Option<Value>| -> Option<ArrayRef> {
        with_arrow_type!(data_type, T => Some(numbers::<T>(groups.iter().map(pick))), otherwise None)
    };
    let fixed = [
        ("rank", u32s(|entry| entry.part.rank)),
        ("roll", u32s(|entry| entry.part.roll)),
        ("run", u32s(|entry| entry.run)),
        ("row_group", u32s(|entry| entry.row_group)),
        ("offset", u64s(|entry| entry.offset)),
        ("bytes", u64s(|entry| entry.bytes)),
        ("rows", u64s(|entry| entry.rows)),
        ("kind", plain::<UInt8Type>(groups.iter().map(|entry| entry.kind.code()))),
        ("table_version", u32s(|entry| entry.table_version)),
        ("checksum", u64s(|entry| entry.checksum)),
    ];
    let mut columns: Vec<NamedColumn> =
        fixed.into_iter().map(|(name, values)| (name.to_owned(), false, values)).collect();
    let range = |names: [String; 2], data_type, pick: &dyn Fn(&RowGroupEntry) -> Option<(Value, Value)>| {
        let ends = [typed(data_type, &|entry| Some(pick(entry)?.0)), typed(data_type, &|entry| Some(pick(entry)?.1))];
        names.into_iter().zip(ends).filter_map(|(name, values)| Some((name, true, values?)))
    };
    columns.extend(range(bounds(schema), schema.key_value_type(), &|entry| entry.bounds));
    for (index, column) in schema.columns().iter().enumerate() {
        let Some(data_type) = schema.statistics_type(index) else { continue };
        let names = ["min", "max"].map(|what| format!("{what}:{}", column.name));
        columns.extend(range(names, data_type, &|entry| entry.columns[index].range));
        if data_type.is_float() {
            let counts = plain::<UInt64Type>(groups.iter().map(|entry| entry.columns[index].nan_count));
            columns.push((format!("nan:{}", column.name), false, counts));
        }
    }
    columns
}

/// Returns the columns of pages: their places, filters and first keys.
fn page_columns(manifest: &EpochManifest, schema: &Schema) -> Vec<NamedColumn> {
    let pages = || manifest.row_groups.iter().map(|entry| &entry.pages);
    let mut columns = vec![
        ("page_rows", false, plain::<UInt32Type>(pages().map(|pages| pages.page_rows))),
        ("index_offset", false, plain::<UInt64Type>(pages().map(|pages| pages.index_offset))),
        ("index_bytes", false, plain::<UInt32Type>(pages().map(|pages| pages.index_bytes))),
        ("index_checksum", false, plain::<UInt64Type>(pages().map(|pages| pages.index_checksum))),
        ("first_keys", true, first_keys(manifest, schema)),
    ];
    if schema.clustering() == Clustering::Hash {
        columns.push((FILTER_BYTES, false, plain::<UInt32Type>(pages().map(|pages| pages.filter_bytes))));
        columns.push((FILTER_CHECKSUM, false, plain::<UInt64Type>(pages().map(|pages| pages.filter_checksum))));
    }
    columns.into_iter().map(|(name, nullable, values)| (name.to_owned(), nullable, values)).collect()
}

/// Returns the columns of the parts, with filters and partitions if records are clustered by hash, and with levels of
/// detail if there are any.
fn part_columns(parts: &[PartEntry], by_hash: bool, has_levels: bool) -> Vec<NamedColumn> {
    let u32s = |pick: fn(&PartEntry) -> u32| plain::<UInt32Type>(parts.iter().map(pick));
    let u64s = |pick: fn(&PartEntry) -> u64| plain::<UInt64Type>(parts.iter().map(pick));
    let mut columns = vec![
        ("rank", false, u32s(|part| part.part.rank)),
        ("roll", false, u32s(|part| part.part.roll)),
        ("bytes", false, u64s(|part| part.bytes)),
        ("footer_offset", false, u64s(|part| part.footer_offset)),
        ("footer_checksum", false, u64s(|part| part.footer_checksum)),
    ];
    if by_hash {
        let filter_offsets: PrimitiveArray<UInt64Type> = parts.iter().map(|part| part.filter_offset).collect();
        let partitions: PrimitiveArray<UInt32Type> = parts.iter().map(|part| part.partition).collect();
        columns.push((FILTER_OFFSET, true, Arc::new(filter_offsets)));
        columns.push((PARTITION, true, Arc::new(partitions)));
    }
    if has_levels {
        columns.push((LEVEL, false, plain::<UInt8Type>(parts.iter().map(|part| part.level))));
    }
    columns.into_iter().map(|(name, nullable, values)| (name.to_owned(), nullable, values)).collect()
}

/// Returns the field of the numbers in the lists of intervals.
fn interval_field() -> Arc<Field> {
    Arc::new(Field::new_list_field(ArrowType::Float64, false))
}

/// Returns the type of the column of intervals: lists of the numbers of a row group.
pub(super) fn intervals_type() -> ArrowType {
    ArrowType::List(interval_field())
}

/// Returns the numbers that tell how each row group was sampled. Lists of level 0 are empty.
fn interval_lists(manifest: &EpochManifest) -> ArrayRef {
    let numbers = |entry: &RowGroupEntry| entry.intervals.iter().flat_map(|found| found.numbers()).collect();
    let lists: Vec<Vec<f64>> = manifest.row_groups.iter().map(numbers).collect();
    let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
    let values = PrimitiveArray::<Float64Type>::from_iter_values(lists.into_iter().flatten());
    Arc::new(ListArray::new(interval_field(), offsets, Arc::new(values), None))
}

/// Returns the lists of the pages' first keys. All of them are null if they would take too much space.
fn first_keys(manifest: &EpochManifest, schema: &Schema) -> ArrayRef {
    let mut lists: Vec<Option<Vec<u64>>> =
        manifest.row_groups.iter().map(|entry| entry.pages.first_keys.clone()).collect();
    let keys: usize = lists.iter().flatten().map(Vec::len).sum();
    let bytes = (keys * schema.key_value_type().width()) as u64;
    if bytes.saturating_mul(FIRST_KEYS_SHARE) > manifest.page_bytes() {
        // A single page needs no first key, since the row group's own range is that of the page.
        lists.iter_mut().for_each(|list| *list = list.take().filter(Vec::is_empty));
    }
    let order = schema.key_order();
    let ordinals = lists.iter().flatten().flatten();
    let values: Option<ArrayRef> = with_arrow_type!(
        schema.key_value_type(),
        T => Some(numbers::<T>(ordinals.map(|ordinal| Some(order.value(*ordinal))))),
        otherwise None
    );
    let values = values.unwrap_or_else(|| arrow_array::new_empty_array(&schema.key_value_type().arrow()));
    let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.as_ref().map_or(0, Vec::len)));
    let nulls = NullBuffer::from_iter(lists.iter().map(Option::is_some));
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), false));
    Arc::new(ListArray::new(field, offsets, values, Some(nulls)))
}
