//! The range partitioner: assigns keys to receivers.
//!
//! Pure algorithms over key ordinals (see [`crate::KeyOrder`]); NaN keys never come here. No I/O, no clock, no
//! messages: the engine carries the output of [`Pivots::encode`] and [`PartitionTable::encode`].
//!
//! - [`table`]: cut points in (key, tie) space, routing, the bounds by which receivers judge strays.
//! - `curve`: the same for thousands of partitions, in a few thousand knots.
//! - [`sketch`]: one rank's bounded summary of the keys since the last renegotiation.
//! - [`pivots`]: the summary sent up the tree; merging.
//! - [`cumulative_mass`]: the piecewise linear distribution represented by pivots.
//! - `scale`: the axis along which mass is spread between points.
//! - [`planner`]: the root's part: from pivots to the next table, which balances the loads reached so far.
//! - [`sample_order()`]: the order in which to read a file, so that tables are planned from samples of all of it.
//! - [`carp`]: CARP's published method, for comparison only.
//!
//! Invariants: a table routes every (key, tie) to exactly one partition; a routed key lies in that partition's closed
//! bounds; all randomness comes from seeds and phases that the caller passes in, so a run can be repeated.

pub mod carp;
pub mod cumulative_mass;
mod curve;
mod cut_point;
pub mod pivots;
pub mod planner;
mod sample_order;
mod scale;
pub mod sketch;
pub mod table;

pub use cumulative_mass::CumulativeMass;
pub use cut_point::CutPoint;
pub use pivots::{Atom, Pivots};
pub use planner::{TablePlanner, TablePlannerOptions};
pub use sample_order::{block_records, sample_order};
pub use sketch::Sketch;
pub use table::{DecodeError, PartitionTable, TableCache, TieSequence};

#[cfg(test)]
mod tests;
