//! Cursors: the rows of a query step by step, from the coarsest level of detail to the finest.
//!
//! A level of a dataset has its own row groups. A cursor plans one level at a time with the planner of all queries, and
//! cuts the selected rows into *units*: the rows of one page of the coordinates, or of a few if pages of other columns
//! end elsewhere. It visits the units of a level in an order in which the first ones are spread evenly over the domain.
//!
//! # Invariants
//! * Each row is returned once, and each page is read once, for any sequence of steps: no page extends beyond a unit,
//!   and a cursor does not read through gaps.
//! * After a share of the turns of a level, a row of the level has been returned with the probability of this share,
//!   over the seeds of a dataset. [`Cursor::stands_for`] depends on it, and so do [`Cursor::weights`] in the middle of
//!   the highest level.
//! * A cursor reads one commit of its epoch. It does not keep all parts open: once a newer commit has replaced the
//!   epoch, the next step that opens a part is an error.
//! * Memory is bounded by 20 bytes for each unit of the level and 16 bytes for each of its coordinates, and by the
//!   loads in flight.

mod batch;
mod level;
mod order;
mod overview;
mod places;
mod request;
mod source;
mod steps;
mod units;
mod weights;

pub use batch::CursorBatch;
pub use request::{CursorRequest, Step};
pub use steps::Cursor;

pub(in crate::query) use source::coordinates;
pub(in crate::query) use steps::open;
