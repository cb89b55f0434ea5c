//! The seam between the engine and the methods of partitioning.

use std::fmt::Debug;

use super::frame::Frame;
use super::planner::SMOOTH_SLOTS;
use super::point_sample::PointSample;
use super::table::PartitionTable;
use crate::random::Random;
use crate::schema::{KeyOrder, Value};

/// A method of dividing records among receivers.
///
/// A partitioner assigns an *ordinal* to every record: a number by which a [`PartitionTable`] divides the records. The
/// engine routes by ordinals, and does not know what they stand for. A batch of records costs one dynamic call.
///
/// Implementations return the same ordinal for the same key on every rank.
pub trait Partitioner: Debug + Send + Sync {
    /// Appends the ordinal of every record in `rows` to `out`. `rows` are stored rows at a distance of `stride` bytes,
    /// the first at the start. Bytes that follow the last row may be absent.
    fn ordinals(&self, rows: &[u8], stride: usize, out: &mut Vec<u64>);

    /// Returns whether a record with this ordinal belongs to no partition, since its key is NaN. Such ordinals are the
    /// largest.
    fn is_nan(&self, ordinal: u64) -> bool;

    /// Returns the table that divides the records of every epoch among `partitions`, with version `version`. `None` if
    /// the table depends on the records and has to be negotiated.
    fn fixed_table(&self, version: u32, partitions: u32) -> Option<PartitionTable>;

    /// Returns the order of the numbers that the ordinals stand for. Mass between two sampled ordinals is spread evenly
    /// along these numbers.
    fn order(&self) -> KeyOrder;

    /// Returns the smallest and largest key that a partition with these bounds may contain. `None` if a partition is no
    /// interval of keys.
    fn bounds(&self, ordinals: (u64, u64)) -> Option<(Value, Value)>;

    /// Returns the maximum size of a summary of many ranks' ordinals, in numbers. Between two of them, mass is assumed
    /// to be spread evenly.
    fn most_slots(&self) -> usize {
        SMOOTH_SLOTS
    }

    /// Returns whether ordinals depend on a frame of the epoch's records. All records have one ordinal until it is set.
    fn divides_a_frame(&self) -> bool {
        false
    }

    /// Sets the frame, on which all ordinals depend that are computed from now on.
    fn set_frame(&mut self, _frame: Option<&Frame>) {}

    /// Adds places of records to the sample from which a frame is made. `rows` and `stride` are as in
    /// [`Partitioner::ordinals`].
    fn sample(&self, _rows: &[u8], _stride: usize, _random: &mut Random, _sample: &mut PointSample) {}
}
