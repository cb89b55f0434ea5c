//! Row groups as a manifest's arrays have them, from which entries are made when they are asked for.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_buffer::ScalarBuffer;

use super::arrow_values::{Number, number_at, with_arrow_type};
use super::model::{ColumnSummary, PartId, RunEntry, RunKind};
use super::summaries::Summaries;
use crate::schema::{Column, DataType, KeyOrder, Schema, Value};

/// How a manifest writes why records lie together.
pub(super) fn kind_number(kind: RunKind) -> u8 {
    match kind {
        RunKind::Regular => 0,
        RunKind::Stray => 1,
        RunKind::Unordered => 2,
        RunKind::NanKey => 3,
    }
}

/// What number [`kind_number`] gives, among those there are.
fn kind_of(number: u8) -> RunKind {
    match number {
        0 => RunKind::Regular,
        1 => RunKind::Stray,
        2 => RunKind::Unordered,
        _ => RunKind::NanKey,
    }
}

/// Where a row group lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) part: PartId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) rows: u64,
}

/// The row groups of one batch.
#[derive(Debug)]
pub(super) struct StoredRuns {
    ranks: ScalarBuffer<u32>,
    rolls: ScalarBuffer<u32>,
    runs: ScalarBuffer<u32>,
    row_groups: ScalarBuffer<u32>,
    offsets: ScalarBuffer<u64>,
    bytes: ScalarBuffer<u64>,
    rows: ScalarBuffer<u64>,
    /// Only numbers that are in use.
    kinds: ScalarBuffer<u8>,
    table_versions: ScalarBuffer<u32>,
    checksums: ScalarBuffer<u64>,
    bounds: StoredRange,
    summaries: Arc<StoredSummaries>,
}

impl StoredRuns {
    /// Of a batch whose columns are a manifest's; `None` where one cannot be understood. Nothing is copied.
    pub(super) fn of(batch: &RecordBatch, schema: &Schema) -> Option<Self> {
        // Rows are numbered with u32.
        u32::try_from(batch.num_rows()).ok()?;
        let mut columns = batch.columns().iter();
        let mut u32s = || numbers_of::<UInt32Type>(columns.next()?);
        let (ranks, rolls, runs, row_groups) = (u32s()?, u32s()?, u32s()?, u32s()?);
        let mut u64s = || numbers_of::<UInt64Type>(columns.next()?);
        let (offsets, bytes, rows) = (u64s()?, u64s()?, u64s()?);
        let kinds = numbers_of::<UInt8Type>(columns.next()?)?;
        if kinds.iter().any(|kind| *kind > kind_number(RunKind::NanKey)) {
            return None;
        }
        let table_versions = numbers_of::<UInt32Type>(columns.next()?)?;
        let checksums = numbers_of::<UInt64Type>(columns.next()?)?;
        let mut range =
            |data_type| Some(StoredRange { data_type, least: columns.next()?.clone(), most: columns.next()?.clone() });
        let bounds = range(schema.key().data_type)?;
        let mut summaries = Vec::with_capacity(schema.columns().len());
        for &Column { data_type, .. } in schema.columns() {
            summaries.push(if data_type.is_numeric() {
                let range = StoredRange { data_type, least: columns.next()?.clone(), most: columns.next()?.clone() };
                let nan_counts =
                    if data_type.is_float() { Some(numbers_of::<UInt64Type>(columns.next()?)?) } else { None };
                Some(StoredColumn { range, nan_counts })
            } else {
                None
            });
        }
        let summaries = Arc::new(StoredSummaries { columns: summaries });
        Some(Self {
            ranks,
            rolls,
            runs,
            row_groups,
            offsets,
            bytes,
            rows,
            kinds,
            table_versions,
            checksums,
            bounds,
            summaries,
        })
    }

    /// Whether a row group has more NaN than rows.
    pub(super) fn has_excess_nans(&self) -> bool {
        let counts = self.summaries.columns.iter().flatten().filter_map(|column| column.nan_counts.as_ref());
        counts.into_iter().any(|counts| counts.iter().zip(&self.rows).any(|(nans, rows)| nans > rows))
    }

    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// One of the row groups there are. Summaries stay in the arrays until they are asked for.
    pub(super) fn entry(&self, row: usize) -> RunEntry {
        let Place { part, offset, bytes, rows } = self.place(row);
        RunEntry {
            part,
            run: self.runs[row],
            row_group: self.row_groups[row],
            offset,
            bytes,
            rows,
            kind: kind_of(self.kinds[row]),
            table_version: self.table_versions[row],
            bounds: self.bounds.one(row),
            checksum: self.checksums[row],
            columns: Summaries::stored(Arc::clone(&self.summaries), row as u32),
        }
    }

    pub(super) fn place(&self, row: usize) -> Place {
        Place {
            part: PartId { rank: self.ranks[row], roll: self.rolls[row] },
            offset: self.offsets[row],
            bytes: self.bytes[row],
            rows: self.rows[row],
        }
    }

    /// The ordinals between which each row group's values of a column lie; any where nothing is known.
    pub(super) fn ordinals(&self, column: usize, order: KeyOrder) -> Vec<(u64, u64)> {
        match self.summaries.columns.get(column) {
            Some(Some(stored)) => stored.range.ordinals(order),
            _ => vec![(0, u64::MAX); self.len()],
        }
    }
}

/// Smallest and largest values of one type.
#[derive(Debug)]
struct StoredRange {
    data_type: DataType,
    least: ArrayRef,
    most: ArrayRef,
}

impl StoredRange {
    fn one(&self, row: usize) -> Option<(Value, Value)> {
        let value = |array: &ArrayRef| -> Option<Value> {
            with_arrow_type!(self.data_type, T => number_at::<T>(array, row), otherwise None)
        };
        value(&self.least).zip(value(&self.most))
    }

    fn ordinals(&self, order: KeyOrder) -> Vec<(u64, u64)> {
        fn of<T: ArrowPrimitiveType<Native: Number>>(range: &StoredRange, order: KeyOrder) -> Option<Vec<(u64, u64)>> {
            let (least, most) = (range.least.as_primitive_opt::<T>()?, range.most.as_primitive_opt::<T>()?);
            let ordinal = |value: T::Native| order.ordinal_of(value.into_value());
            let pairs = least.iter().zip(most);
            let known = |(least, most): (Option<T::Native>, Option<T::Native>)| least.zip(most);
            Some(
                pairs
                    .map(|pair| known(pair).map_or((0, u64::MAX), |(least, most)| (ordinal(least), ordinal(most))))
                    .collect(),
            )
        }
        let found = with_arrow_type!(self.data_type, T => of::<T>(self, order), otherwise None);
        found.unwrap_or_else(|| vec![(0, u64::MAX); self.least.len()])
    }
}

/// Columns' summaries: for each numeric column the smallest and largest values and the counts of NaN.
#[derive(Debug)]
pub(super) struct StoredSummaries {
    columns: Vec<Option<StoredColumn>>,
}

#[derive(Debug)]
struct StoredColumn {
    range: StoredRange,
    nan_counts: Option<ScalarBuffer<u64>>,
}

impl StoredSummaries {
    pub(super) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The summary of one column over one row group; `None` for a column that there is not.
    pub(super) fn one(&self, row: usize, column: usize) -> Option<ColumnSummary> {
        let Some(stored) = self.columns.get(column)? else { return Some(ColumnSummary { range: None, nan_count: 0 }) };
        let nan_count = stored.nan_counts.as_ref().map_or(0, |counts| counts[row]);
        Some(ColumnSummary { range: stored.range.one(row), nan_count })
    }
}

/// The numbers of a column that has one in every row.
fn numbers_of<T: ArrowPrimitiveType>(array: &ArrayRef) -> Option<ScalarBuffer<T::Native>> {
    let numbers: &PrimitiveArray<T> = array.as_primitive_opt()?;
    (numbers.null_count() == 0).then(|| numbers.values().clone())
}
