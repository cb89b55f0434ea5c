//! The batches of a cursor.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};

use crate::format::LevelIntervals;

/// Rows of one page, or of a few pages that follow each other.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CursorBatch {
    /// The matching rows.
    pub rows: RecordBatch,
    /// Level of detail of the rows. The rows of this level and above are a sample of one row in 8^level.
    pub level: u8,
    /// Lower and upper bound of each coordinate of the page's rows, both included. `None` for rows with a NaN
    /// coordinate.
    pub bounds: Option<Vec<(f64, f64)>>,
    /// The receiver that has stored the rows, and the number of its run. All levels of a run share it. `None` if the
    /// rows are read from the overview: they are of several runs.
    pub run: Option<(u32, u32)>,
    /// Inputs of the weights of the rows.
    pub(super) sampled: SampledRows,
}

impl CursorBatch {
    /// Returns the number of rows that each of these rows stands for among the rows of its level and above: 8^level.
    /// For what it stands for among all rows of a cursor, see [`Cursor::weights`](crate::query::Cursor::weights).
    ///
    /// `None` if levels are in proportion to a column: see [`CursorBatch::stand_for`].
    pub fn stands_for(&self) -> Option<u64> {
        self.sampled.by_column.is_none().then(|| 8u64.pow(self.level.into()))
    }

    /// Returns the number of rows that each of these rows stands for among the rows of a level and above: 8^level, or
    /// numbers that follow from the column to which levels are in proportion. With the level of
    /// [`Cursor::complete_level`](crate::query::Cursor::complete_level), sums over the batches of this level and above
    /// are unbiased, for any place and predicate.
    ///
    /// `None` if the rows are of a lower level.
    pub fn stand_for(&self, level: u8) -> Option<Vec<f64>> {
        (level <= self.level).then(|| self.sampled.among(level, self.rows.num_rows()))
    }

    /// Returns the batch with as many rows, and without their columns:
    /// [`Cursor::weights`](crate::query::Cursor::weights) needs no more.
    #[must_use]
    pub fn without_columns(&self) -> Self {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.num_rows()));
        let none = RecordBatch::try_new_with_options(SchemaRef::new(Schema::empty()), Vec::new(), &options);
        Self { rows: none.unwrap_or_else(|_| self.rows.clone()), ..self.clone() }
    }

    /// Returns whether the rows have coordinates, none of which is NaN.
    pub(super) fn has_places(&self) -> bool {
        self.level > 0 || self.bounds.is_some()
    }
}

/// Inputs of the weights of a batch's rows.
#[derive(Debug, Clone, Default)]
pub(super) struct SampledRows {
    /// If levels are in proportion to a column: how this level was sampled, and the values of the rows in the column.
    pub(super) by_column: Option<(Option<LevelIntervals>, Arc<[f64]>)>,
    /// The coordinates of the rows, one row after another. `None` if they were not read, as those of level 0.
    pub(super) positions: Option<Arc<[f64]>>,
}

impl SampledRows {
    /// Returns the weights of the rows among those of a level and above, of which they are some.
    pub(super) fn among(&self, level: u8, rows: usize) -> Vec<f64> {
        match &self.by_column {
            None => vec![8f64.powi(level.into()); rows],
            // All rows of level 0 are returned, so none stands for others.
            Some((None, _)) => vec![1.0; rows],
            Some((Some(intervals), values)) => values.iter().map(|value| intervals.stands_for(level, *value)).collect(),
        }
    }
}
