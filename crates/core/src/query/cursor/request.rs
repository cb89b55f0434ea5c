//! A request for a cursor, and its steps.

use crate::error::{Result, UsageError};
use crate::query::request::Query;
use crate::schema::Schema;

/// A request for a cursor: a query of one epoch, and optionally a point that rows are to be near to.
///
/// ```no_run
/// use turbidite::query::{CursorRequest, Dataset, Query, Step};
/// let dataset = Dataset::open("particles.tbd")?;
/// let query = Query::new().epochs(4000).within("0:10,-5:5,:").columns(["x", "y", "z"]);
/// let mut cursor = dataset.cursor(&CursorRequest::new(query))?;
/// for quality in [0.01, 0.1, 1.0] {
///     cursor.advance(Step::Quality(quality))?;
///     for batch in cursor.by_ref() {
///         let batch = batch?;
///         println!("{} rows of level {}", batch.rows.num_rows(), batch.level);
///     }
/// }
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CursorRequest {
    pub(super) query: Query,
    pub(super) near: Option<Vec<f64>>,
    /// Whether the coordinates of rows above level 0 are read, even if the query does not return them.
    pub(super) reads_positions: bool,
}

impl CursorRequest {
    /// Creates a request for the rows of a query, which selects one epoch.
    pub fn new(query: Query) -> Self {
        Self { query, near: None, reads_positions: true }
    }

    /// Orders the pages of each level by the distance of their boxes from a point, the nearest first. The point has one
    /// number for each coordinate. Distances are those modulo the periods of the dataset, not of a box.
    #[must_use]
    pub fn near(mut self, point: impl Into<Vec<f64>>) -> Self {
        self.near = Some(point.into());
        self
    }

    /// Reads no coordinates, unless the query returns them. The weights of rows are then unknown in the middle of a
    /// level (see [`Cursor::weights`](crate::query::Cursor::weights)).
    #[must_use]
    pub fn without_positions(mut self) -> Self {
        self.reads_positions = false;
        self
    }

    /// Refuses requests that no cursor can answer.
    pub(super) fn check(&self, schema: &Schema) -> Result<()> {
        let query = &self.query;
        if query.ordered || query.order_by.is_some() {
            return Err(unfit("returns rows from coarse to fine, and in no other order"));
        }
        if query.limit.is_some() {
            return Err(unfit("has no limit; take as many steps as you need"));
        }
        if query.piece.is_some() {
            return Err(unfit("reads whole epochs, not a piece of a query"));
        }
        let Some(near) = &self.near else { return Ok(()) };
        let coordinates = schema.key_columns().len();
        if near.len() != coordinates || near.iter().any(|number| !number.is_finite()) {
            let what = format!("the dataset has {coordinates} coordinates; give as many finite numbers");
            return Err(UsageError::Option { option: "near", what }.into());
        }
        Ok(())
    }
}

/// Returns the error for a request that no cursor can answer.
pub(super) fn unfit(what: impl Into<String>) -> crate::Error {
    UsageError::Option { option: "cursor", what: what.into() }.into()
}

/// A step of a cursor.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// Returns rows until at least this many have been returned in this step, or none is left. A cursor returns all
    /// matching rows of a page, so the step may return the rows of one page more, or of several if pages of a column of
    /// wide values seldom end with those of the coordinates. With a predicate, the number of matching rows in pages is
    /// estimated, and the step may return more by a few pages.
    Rows(u64),
    /// Returns rows until this share of the matching rows, from 0 to 1, has been returned by all steps together, to
    /// about one page for each part. Everything is returned at 1.
    Quality(f64),
}

impl Step {
    /// Refuses a share outside 0 to 1.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Quality(quality) if !(0.0..=1.0).contains(&quality) => {
                let what = format!("is a share of the rows from 0 to 1, not {quality}");
                Err(UsageError::Option { option: "quality", what }.into())
            }
            _ => Ok(()),
        }
    }
}
