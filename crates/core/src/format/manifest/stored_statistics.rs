//! Column statistics in the arrays of a manifest.

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;

use crate::format::manifest::arrow_values::{Number, number_at, with_arrow_type};
use crate::format::manifest::entries::ColumnStatistics;
use crate::schema::{DataType, KeyOrder, Value};

/// Arrays of smallest and largest values of one type.
#[derive(Debug)]
pub(in crate::format) struct StoredRange {
    pub(in crate::format) data_type: DataType,
    pub(in crate::format) least: ArrayRef,
    pub(in crate::format) most: ArrayRef,
}

impl StoredRange {
    pub(in crate::format) fn one(&self, row: usize) -> Option<(Value, Value)> {
        let value = |array: &ArrayRef| -> Option<Value> {
            with_arrow_type!(self.data_type, T => number_at::<T>(array, row), otherwise None)
        };
        value(&self.least).zip(value(&self.most))
    }

    pub(in crate::format) fn ordinals(&self, order: KeyOrder) -> Vec<(u64, u64)> {
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

/// Statistics of each column of the schema.
#[derive(Debug)]
pub(in crate::format) struct StoredStatistics {
    pub(in crate::format) columns: Vec<StoredColumn>,
}

/// Statistics of one column.
#[derive(Debug)]
pub(in crate::format) enum StoredColumn {
    /// The smallest and largest values and the NaN counts of a numeric column.
    Known { range: StoredRange, nan_counts: Option<ScalarBuffer<u64>> },
    /// A column without statistics.
    Opaque,
    /// A numeric column whose statistics have not been read.
    Unread,
}

impl StoredStatistics {
    /// Returns the statistics of one column in one row group. Returns `None` if there is no such column, or its
    /// statistics have not been read.
    pub(in crate::format) fn one(&self, row: usize, column: usize) -> Option<ColumnStatistics> {
        match self.columns.get(column)? {
            StoredColumn::Known { range, nan_counts } => {
                let nan_count = nan_counts.as_ref().map_or(0, |counts| counts[row]);
                Some(ColumnStatistics { range: range.one(row), nan_count })
            }
            StoredColumn::Opaque => Some(ColumnStatistics { range: None, nan_count: 0 }),
            StoredColumn::Unread => None,
        }
    }

    /// Returns the statistics of all columns in one row group. Returns `None` unless all have been read.
    pub(in crate::format) fn all(&self, row: usize) -> Option<Vec<ColumnStatistics>> {
        (0..self.columns.len()).map(|column| self.one(row, column)).collect()
    }
}
