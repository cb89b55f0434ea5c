//! Builds the filter of a row group's keys from its pages, column by column.

use std::ops::Range;

use crate::format::parquet::bloom_filter::BloomFilterBuilder;
use crate::format::parquet::physical::physical_width;
use crate::schema::Schema;

/// Number of keys of several columns that are joined at a time, so that they stay in the fastest cache.
const TUPLES: usize = 1024;

/// A filter of keys that is being built.
///
/// The pages of a key's columns arrive one column after another. The values of a key of several columns are collected
/// until all columns are complete.
pub(in crate::format) struct KeyFilterBuilder<'a> {
    schema: &'a Schema,
    filter: BloomFilterBuilder,
    /// Physical values of each key column. Empty if the key has one column.
    collected: Vec<Vec<u8>>,
    rows: usize,
}

impl<'a> KeyFilterBuilder<'a> {
    /// Creates a filter for `rows` keys.
    pub(in crate::format) fn new(schema: &'a Schema, rows: usize) -> Self {
        let several = schema.key_columns().len() > 1;
        let collected = if several { vec![Vec::new(); schema.key_columns().len()] } else { Vec::new() };
        Self { schema, filter: BloomFilterBuilder::new(rows), collected, rows }
    }

    /// Adds the values of a page of a column, in Parquet's PLAIN encoding. Other columns than the key's are ignored.
    pub(in crate::format) fn add_values(&mut self, column: usize, values: &[u8]) {
        let Some(place) = self.schema.key_columns().iter().position(|key| *key == column) else { return };
        let width = physical_width(self.schema.columns()[column].data_type);
        match self.collected.get_mut(place) {
            Some(collected) => {
                collected.reserve_exact((self.rows * width).saturating_sub(collected.len()));
                collected.extend_from_slice(values);
            }
            None => self.filter.add_values(values, width),
        }
    }

    /// Appends the filter to `filters`. Returns its range.
    pub(in crate::format) fn finish(mut self, filters: &mut Vec<u8>) -> Range<usize> {
        let width = |index: &usize| physical_width(self.schema.columns()[*index].data_type);
        let widths: Vec<usize> = self.schema.key_columns().iter().map(width).collect();
        if !self.collected.is_empty() {
            self.add_tuples(&widths);
        }
        let start = filters.len();
        self.filter.encode(filters);
        start..filters.len()
    }

    /// Adds the keys of several columns, of which `widths` are the widths of the values.
    fn add_tuples(&mut self, widths: &[usize]) {
        let stride = widths.iter().sum();
        let mut keys = vec![0; TUPLES * stride];
        for first in (0..self.rows).step_by(TUPLES) {
            let keys = &mut keys[..(self.rows - first).min(TUPLES) * stride];
            let mut offset = 0;
            for (values, width) in self.collected.iter().zip(widths) {
                let values = &values[first * width..];
                let slots = keys.chunks_exact_mut(stride).map(|key| &mut key[offset..]);
                // Copies of a known length are no calls.
                match width {
                    4 => {
                        slots.zip(values.as_chunks::<4>().0).for_each(|(slot, value)| slot[..4].copy_from_slice(value))
                    }
                    8 => {
                        slots.zip(values.as_chunks::<8>().0).for_each(|(slot, value)| slot[..8].copy_from_slice(value))
                    }
                    _ => slots
                        .zip(values.chunks_exact(*width))
                        .for_each(|(slot, value)| slot[..*width].copy_from_slice(value)),
                }
                offset += width;
            }
            self.filter.add_values(keys, stride);
        }
    }
}
