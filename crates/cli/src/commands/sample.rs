//! Samples of one epoch: `query --quality` and `query --rows`.
//!
//! A sample ends at a whole level of detail, so that its density varies nowhere. A partial one has all rows of the
//! higher levels and some pages of the next one, and says so.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use clap::Args;
use serde::Serialize;
use turbidite::query::{Cursor, CursorBatch, CursorRequest, Query, Step};

use crate::failure::{Failure, complain};
use crate::text;

/// The column of the rows' weights.
const WEIGHTS: &str = "stands_for";

/// How much smaller than a whole level a share may be to include it: shares are typed with three digits.
const SLACK: f64 = 1.01;

/// The options of a sample.
#[derive(Debug, Args)]
pub(super) struct SampleOptions {
    /// Sample: the whole levels of detail within this share of the matching rows, from 0 to 1
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["order", "limit", "rows"])]
    quality: Option<f64>,
    /// Sample: the whole levels of detail within N matching rows
    #[arg(long, value_name = "N", conflicts_with_all = ["order", "limit"])]
    rows: Option<u64>,
    /// Add pages of the next level to a sample; 'stands_for' weights the rows
    #[arg(long)]
    partial: bool,
    /// Begin a sample with the pages nearest to this point; implies --partial
    #[arg(long, value_name = "X,Y,…", value_delimiter = ',', allow_hyphen_values = true)]
    near: Option<Vec<f64>>,
}

/// A sample that has been written.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Sampled {
    /// The level of which all rows were returned, with those of higher levels. `None` if the sample is partial.
    level: Option<u8>,
    /// Ratio of the highest to the lowest density. `None` (null in JSON) if regions have no rows.
    density_ratio: Option<f64>,
    /// The number of rows that each row stands for, or their mean.
    stands_for: Option<f64>,
}

impl SampleOptions {
    /// Returns whether a sample is requested.
    ///
    /// # Errors
    /// Options that need a sample.
    pub(super) fn is_stated(&self) -> Result<bool, Failure> {
        let is_stated = self.quality.is_some() || self.rows.is_some();
        match (is_stated, &self.near, self.partial) {
            (false, Some(_), _) => {
                Err(Failure::Usage("--near needs --quality or --rows, which say how much to return".to_owned()))
            }
            (false, None, true) => {
                Err(Failure::Usage("--partial needs --quality or --rows, which say how much to return".to_owned()))
            }
            _ => Ok(is_stated),
        }
    }

    fn may_be_partial(&self) -> bool {
        self.partial || self.near.is_some()
    }

    /// Returns the request for a cursor.
    pub(super) fn request(&self, query: Query) -> CursorRequest {
        let request = CursorRequest::new(query);
        match &self.near {
            Some(point) => request.near(point.clone()),
            // The weights of whole levels do not depend on positions.
            None if self.quality.is_some() && !self.partial => request.without_positions(),
            None => request,
        }
    }

    /// Takes the sample. Passes its rows and their weights to `write`. `is_filtered` states that the query has a
    /// predicate or a box.
    pub(super) fn take(
        &self,
        cursor: &mut Cursor,
        is_filtered: bool,
        mut write: impl FnMut(&RecordBatch, Vec<f64>) -> Result<(), Failure>,
    ) -> Result<Sampled, Failure> {
        let step = self.quality.map_or(Step::Rows(self.rows.unwrap_or(0)), Step::Quality);
        cursor.advance(step)?;
        let level = match step {
            _ if self.may_be_partial() => None,
            Step::Quality(quality) if quality > 0.0 => Some(level_within(quality, cursor.levels())),
            Step::Rows(rows) if !is_filtered => cursor.level_within(rows),
            Step::Rows(rows) if rows > 0 => return self.take_rows(cursor, rows, write),
            _ => None,
        };
        if let Some(level) = level {
            cursor.advance(Step::Quality(8f64.powi(-i32::from(level))))?;
            while let Some(batch) = cursor.next().transpose()? {
                write(&batch.rows, cursor.weights(std::slice::from_ref(&batch)))?;
            }
            return Ok(Sampled { level: Some(level), ..Sampled::of(cursor) });
        }
        let batches = cursor.by_ref().collect::<Result<Vec<_>, _>>()?;
        write_all(&batches, cursor.weights(&batches), write)?;
        self.warn_of_few(&batches, cursor);
        Ok(Sampled::of(cursor))
    }

    /// Takes the last whole level that has at most `rows` matching rows, whose numbers are not known before they are
    /// read: rows are read until there are more.
    fn take_rows(
        &self,
        cursor: &mut Cursor,
        rows: u64,
        write: impl FnMut(&RecordBatch, Vec<f64>) -> Result<(), Failure>,
    ) -> Result<Sampled, Failure> {
        cursor.advance(Step::Rows(rows.saturating_add(1)))?;
        let mut batches = cursor.by_ref().collect::<Result<Vec<CursorBatch>, _>>()?;
        let found: u64 = batches.iter().map(|batch| batch.rows.num_rows() as u64).sum();
        // The last batch is of the level that has too many.
        let excess = batches.last().map(|batch| batch.level).filter(|_| found > rows);
        let Some(level) = excess else {
            write_all(&batches, cursor.weights(&batches), write)?;
            return Ok(Sampled { level: Some(0), ..Sampled::of(cursor) });
        };
        if batches.iter().all(|batch| batch.level == level) {
            write_all(&batches, cursor.weights(&batches), write)?;
            self.warn_of_few(&batches, cursor);
            return Ok(Sampled::of(cursor));
        }
        batches.retain(|batch| batch.level > level);
        let level = level + 1;
        let weights = batches.iter().flat_map(|batch| batch.stand_for(level).unwrap_or_default()).collect();
        write_all(&batches, weights, write)?;
        let stands_for = cursor.stands_for().map(|_| 8f64.powi(level.into()));
        Ok(Sampled { level: Some(level), density_ratio: Some(1.0), stands_for })
    }

    /// Warns if a sample that was to end at a whole level has a part of the first one.
    fn warn_of_few(&self, batches: &[CursorBatch], cursor: &Cursor) {
        let (Some(rows), false) = (self.rows, self.may_be_partial()) else { return };
        let level = batches.first().map_or(cursor.levels(), |batch| batch.level);
        if rows > 0 && cursor.density_ratio() != Some(1.0) {
            complain(&format!(
                "turbidite: level {level}, the first one with rows, has more than {}: only some of its pages were read, \
                 and regions between them have no rows; a larger --rows returns an even sample",
                text::counted(rows, "row", "rows"),
            ));
        }
    }
}

impl Sampled {
    fn of(cursor: &Cursor) -> Self {
        let density_ratio = cursor.density_ratio().filter(|ratio| ratio.is_finite());
        let level = cursor.complete_level().filter(|_| density_ratio == Some(1.0));
        Self { level, density_ratio, stands_for: cursor.stands_for() }
    }

    /// Returns the sample in words: its density, and what each of `rows` rows stands for. `weight` is the column to
    /// which levels are in proportion.
    pub(super) fn in_words(&self, rows: u64, weight: Option<&str>) -> String {
        if self.level == Some(0) {
            return "all matching rows, each of which stands for itself".to_owned();
        }
        let density = match (self.level, self.density_ratio) {
            (Some(level), _) => format!("all rows of level {level} and above"),
            (None, Some(ratio)) => {
                format!("a part of a level: density varies by a factor of {}", text::number(ratio, 3))
            }
            (None, None) => "a part of the highest level: regions between its pages have no rows".to_owned(),
        };
        let number = self.stands_for.map(|number| text::number(number, digits(rows)));
        match (number, weight) {
            (Some(number), _) if self.level.is_some() => format!("{density}; each row stands for {number} rows"),
            (Some(number), _) => format!("{density}; each row stands for {number} rows on average, see '{WEIGHTS}'"),
            (None, Some(weight)) => {
                format!(
                    "{density}; rows were chosen in proportion to '{weight}', see '{WEIGHTS}' for what each stands for"
                )
            }
            (None, None) => density,
        }
    }
}

/// Returns the digits of a number of rows that a sample justifies: its last one is about the standard error of a count
/// of all rows.
fn digits(rows: u64) -> usize {
    1 + (rows.max(1) as f64).sqrt().log10() as usize
}

/// Returns the last whole level within a share of the rows, at most the highest one.
fn level_within(quality: f64, top: u8) -> u8 {
    (0..top).find(|level| 8f64.powi(-i32::from(*level)) <= quality * SLACK).unwrap_or(top)
}

/// Passes the rows of batches with their weights, which are in the order of the rows.
fn write_all(
    batches: &[CursorBatch],
    weights: Vec<f64>,
    mut write: impl FnMut(&RecordBatch, Vec<f64>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut weights = weights.into_iter();
    batches.iter().try_for_each(|batch| write(&batch.rows, weights.by_ref().take(batch.rows.num_rows()).collect()))
}

/// The place of the weights among the columns of a result.
#[derive(Debug)]
pub(super) struct WeightColumn {
    name: String,
    /// `None` if the columns were listed without the weights.
    place: Option<usize>,
}

impl WeightColumn {
    /// Finds the place of the weights. Removes them from the columns of the query, if these are listed. Without a list,
    /// the weights come last. `stored` returns whether the dataset has a column.
    pub(super) fn find(columns: &mut Option<Vec<String>>, stored: impl Fn(&str) -> bool) -> Self {
        let mut name = WEIGHTS.to_owned();
        while stored(&name) {
            name.push('_');
        }
        let place = match columns {
            None => Some(usize::MAX),
            Some(names) => {
                let place = names.iter().position(|column| column.trim() == name);
                if let Some(place) = place {
                    names.remove(place);
                }
                place
            }
        };
        Self { name, place }
    }

    /// Returns the columns of the result.
    pub(super) fn add_to(&self, schema: &SchemaRef) -> SchemaRef {
        let Some(place) = self.place else { return schema.clone() };
        let mut fields = schema.fields().to_vec();
        fields.insert(place.min(fields.len()), Arc::new(Field::new(&self.name, DataType::Float64, false)));
        Arc::new(Schema::new(fields))
    }

    /// Returns rows with their weights. `schema` is that of the result.
    pub(super) fn join(
        &self,
        rows: &RecordBatch,
        weights: Vec<f64>,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, Failure> {
        let Some(place) = self.place else { return Ok(rows.clone()) };
        let mut columns = rows.columns().to_vec();
        columns.insert(place.min(columns.len()), Arc::new(Float64Array::from(weights)) as ArrayRef);
        RecordBatch::try_new(schema.clone(), columns)
            .map_err(|error| Failure::Internal(format!("weights do not fit their rows: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_end_at_the_last_whole_level_within_a_share() {
        let levels = [1.0, 0.9, 0.125, 0.124, 0.12, 0.0156, 0.01, 1e-9].map(|quality| level_within(quality, 3));
        assert_eq!(levels, [0, 1, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn numbers_have_the_digits_that_rows_justify() {
        let printed = |number, rows| text::number(number, digits(rows));
        assert_eq!(printed(63.8712, 3), "64");
        assert_eq!(printed(63.8712, 400), "64");
        assert_eq!(printed(63.8712, 50_000), "63.9");
        assert_eq!(printed(63.8712, 4_000_000), "63.87");
        assert_eq!(printed(8.0, 4_000_000), "8");
    }

    #[test]
    fn weights_are_a_column_by_default_or_where_they_are_listed() {
        let found = |columns: Option<&[&str]>, stored: &[&str]| {
            let mut columns = columns.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            let WeightColumn { name, place } = WeightColumn::find(&mut columns, |name| stored.contains(&name));
            (name, place, columns.map(|names| names.join(",")))
        };
        assert_eq!(found(None, &[]), ("stands_for".to_owned(), Some(usize::MAX), None));
        let listed = found(Some(&["x", "stands_for", "y"]), &[]);
        assert_eq!(listed, ("stands_for".to_owned(), Some(1), Some("x,y".to_owned())));
        assert_eq!(found(Some(&["x"]), &[]), ("stands_for".to_owned(), None, Some("x".to_owned())));
        let stored = found(Some(&["stands_for", "stands_for_"]), &["stands_for"]);
        assert_eq!(stored, ("stands_for_".to_owned(), Some(1), Some("stands_for".to_owned())));
    }
}
