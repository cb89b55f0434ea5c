//! Partitioners assign records to receivers: by ranges of the key, by its hash, or by place.
//!
//! They consist of pure algorithms over ordinals (see [`Partitioner`]). They have no I/O, no clock and no messages: the
//! engine sends the output of [`Pivots::encode`] and [`PartitionTable::encode`]. Callers handle NaN keys themselves.
//!
//! - [`partitioner()`]: the seam: a method of partitioning gives every record an ordinal
//! - `range`, `hash`, `space`: the methods
//! - [`Frame`], [`PointSample`]: the box that is divided by place, and the points that it follows from
//! - [`table`]: cut points in (key, tie) space, routing, and the bounds by which receivers detect strays
//! - `knots`: tables of thousands of partitions, approximated by a few thousand knots
//! - [`sketch`]: a rank's bounded summary of the keys since the last renegotiation
//! - [`pivots`]: the summary that is sent up the tree and merged
//! - [`cumulative_mass`]: the piecewise linear distribution that pivots represent
//! - `scale`: the axis along which mass is spread between points
//! - [`planner`]: computes the next table from pivots and balances the loads so far; runs at the root
//! - `profile`: a rank's keys of one epoch, for the comparison with those of the next
//! - [`sample_order()`]: a reading order for files, by which tables are planned from samples of the whole file
//!
//! Invariants:
//!
//! - A table routes every (key, tie) to exactly one partition.
//! - A routed key lies in the closed bounds of its partition.
//! - All randomness comes from seeds and phases passed by the caller, so runs are reproducible.

pub mod cumulative_mass;
mod cut_point;
mod frame;
mod hash;
mod knots;
mod methods;
mod partitioner;
pub mod pivots;
pub mod planner;
mod point_sample;
mod profile;
mod range;
mod sample_order;
mod scale;
pub mod sketch;
mod space;
pub mod table;

pub use cumulative_mass::CumulativeMass;
pub use cut_point::CutPoint;
pub use frame::Frame;
pub use methods::partitioner;
pub use partitioner::Partitioner;
pub use pivots::{Atom, Pivots};
pub use planner::{ROUGH_SLOTS, SMOOTH_SLOTS, TablePlanner, TablePlannerOptions, even_table, history_slots};
pub use point_sample::PointSample;
pub use profile::{KeyDistance, KeyProfile};
pub use sample_order::{block_records, sample_order};
pub use sketch::Sketch;
pub use table::{DecodeError, PartitionTable, TableCache, TieSequence};

#[cfg(test)]
mod tests;
