//! Column statistics in the arrays of a manifest.

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;

use crate::format::manifest::arrow_values::{number_at, with_arrow_type};
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

    /// Returns the ordinals of the smallest and of the largest values. They are the first and the last ordinal where a
    /// value is unknown.
    pub(in crate::format) fn ordinals(&self, order: KeyOrder) -> (Vec<u64>, Vec<u64>) {
        fn of<T: ArrowPrimitiveType>(values: &ArrayRef, order: KeyOrder) -> Option<Vec<u64>> {
            let values = values.as_primitive_opt::<T>()?.values();
            let mut ordinals = Vec::with_capacity(values.len());
            order.ordinals(values.inner().as_slice(), size_of::<T::Native>(), values.len(), &mut ordinals);
            Some(ordinals)
        }
        let of_type = |values| with_arrow_type!(self.data_type, T => of::<T>(values, order), otherwise None);
        let (least, most) = (of_type(&self.least), of_type(&self.most));
        let rows = self.least.len();
        let (mut least, mut most) = least.zip(most).unwrap_or_else(|| (vec![0; rows], vec![u64::MAX; rows]));
        if self.least.null_count() + self.most.null_count() > 0 {
            for row in (0..rows).filter(|row| self.least.is_null(*row) || self.most.is_null(*row)) {
                (least[row], most[row]) = (0, u64::MAX);
            }
        }
        (least, most)
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
