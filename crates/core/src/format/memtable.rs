//! The buffer in which records gather until they become a run.

use std::sync::Arc;

use crate::schema::Schema;

/// A bounded buffer of stored rows, in the order they came.
///
/// Memory is taken as rows arrive, in steps that double, and never beyond the capacity; [`Memtable::clear`] keeps it
/// for the next run.
#[derive(Debug)]
pub struct Memtable {
    schema: Arc<Schema>,
    data: Vec<u8>,
    /// Capacity in bytes, a whole number of rows.
    limit_bytes: usize,
}

impl Memtable {
    /// An empty memtable for at most `capacity_bytes` of rows, and at least one row.
    pub fn new(schema: Arc<Schema>, capacity_bytes: usize) -> Self {
        // Sorting numbers rows with u32.
        let rows = (capacity_bytes / schema.row_bytes()).clamp(1, u32::MAX as usize);
        let limit_bytes = rows * schema.row_bytes();
        Self { schema, data: Vec::new(), limit_bytes }
    }

    /// The schema of the rows.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Number of rows held.
    pub fn rows(&self) -> usize {
        self.data.len() / self.schema.row_bytes()
    }

    /// Bytes of rows held.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes of memory taken.
    pub fn resident_bytes(&self) -> usize {
        self.data.capacity()
    }

    /// Whether no rows are held.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Rows that still fit.
    pub fn remaining_rows(&self) -> usize {
        (self.limit_bytes - self.data.len()) / self.schema.row_bytes()
    }

    /// Takes whole stored rows.
    ///
    /// # Panics
    /// When `rows` is not a whole number of rows or does not fit: ask [`Memtable::remaining_rows`] first.
    pub fn push(&mut self, rows: &[u8]) {
        assert!(rows.len().is_multiple_of(self.schema.row_bytes()), "part of a row was pushed");
        assert!(rows.len() <= self.limit_bytes - self.data.len(), "more rows were pushed than fit");
        let needed = self.data.len() + rows.len();
        if needed > self.data.capacity() {
            // `reserve` alone would round up past the limit.
            let target = needed.max(self.data.capacity().saturating_mul(2)).min(self.limit_bytes);
            self.data.reserve_exact(target - self.data.len());
        }
        self.data.extend_from_slice(rows);
    }

    /// Drops the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.data.clear();
    }

    /// All rows, one after the other.
    pub fn row_data(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, DataType};

    #[test]
    fn memory_grows_with_the_rows_and_stops_at_the_capacity() {
        let columns = vec![Column::new("a", DataType::U32), Column::new("b", DataType::FixedBytes(3))];
        let schema = Arc::new(Schema::new(columns, "a").unwrap());
        let mut table = Memtable::new(schema, 100);
        assert_eq!(table.data.capacity(), 0, "nothing is taken before the first row");
        assert_eq!(table.remaining_rows(), 14);
        for row in 0..14u8 {
            table.push(&[row; 7]);
            assert!(table.data.capacity() <= 98, "{}", table.data.capacity());
        }
        assert_eq!((table.rows(), table.bytes(), table.remaining_rows()), (14, 98, 0));
        assert_eq!(&table.row_data()[91..], &[13; 7]);
        table.clear();
        assert!(table.is_empty());
        assert_eq!(table.data.capacity(), 98);
    }

    #[test]
    #[should_panic(expected = "part of a row")]
    fn half_rows_are_refused() {
        let schema = Arc::new(Schema::new(vec![Column::new("a", DataType::U32)], "a").unwrap());
        Memtable::new(schema, 100).push(&[0; 6]);
    }
}
