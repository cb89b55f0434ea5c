//! Partitioning by ranges of the key.

use super::partitioner::Partitioner;
use super::table::PartitionTable;
use crate::schema::{KeyOrder, Schema, Value};

/// A partitioner by ranges of the key: the ordinal of a record is that of its key. Tables are negotiated.
#[derive(Debug)]
pub(super) struct RangePartitioner {
    order: KeyOrder,
    offset: usize,
}

impl RangePartitioner {
    pub(super) fn new(schema: &Schema) -> Self {
        Self { order: schema.key_order(), offset: schema.offset(schema.key_index()) }
    }
}

impl Partitioner for RangePartitioner {
    fn ordinals(&self, rows: &[u8], stride: usize, out: &mut Vec<u64>) {
        let keys = rows.get(self.offset..).unwrap_or_default();
        self.order.ordinals(keys, stride, rows.len().div_ceil(stride), out);
    }

    fn is_nan(&self, ordinal: u64) -> bool {
        self.order.is_nan(ordinal)
    }

    fn fixed_table(&self, _version: u32, _partitions: u32) -> Option<PartitionTable> {
        None
    }

    fn order(&self) -> KeyOrder {
        self.order
    }

    fn bounds(&self, (low, high): (u64, u64)) -> Option<(Value, Value)> {
        // The first and last partitions extend to the extremes of the type.
        let (least, greatest) = self.order.extremes();
        let (first, last) = (self.order.ordinal_of(least), self.order.ordinal_of(greatest));
        let within = |ordinal: u64| self.order.value(ordinal.clamp(first, last));
        Some((within(low), within(high)))
    }
}
