//! The columns of a batch, made of the pieces of rows that it has.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};

use crate::error::Result;
use crate::query::catalog::Catalog;
use crate::query::memory::recycle::Recycler;
use crate::query::request::{Output, ResolvedQuery, epoch_value};
use crate::query::scan::column::array;
use crate::query::scan::read::PackedRows;

/// Makes the columns of a query's batches.
#[derive(Debug)]
pub(in crate::query) struct BatchColumns {
    /// The catalog of the records, whose manifests state the times of epochs.
    catalog: Arc<Catalog>,
    epochs: Repeated<i64>,
    times: Repeated<f64>,
}

/// A value that all rows of an epoch have, as often as a batch has needed it. All batches of an epoch that have one
/// piece share this memory.
#[derive(Debug, Default)]
struct Repeated<T: ArrowNativeType> {
    epoch: u64,
    values: ScalarBuffer<T>,
}

impl<T: ArrowNativeType> Repeated<T> {
    /// Returns the `value` of an epoch, `rows` times.
    fn of(&mut self, epoch: u64, rows: usize, value: impl FnOnce() -> Result<T>) -> Result<ScalarBuffer<T>> {
        if self.epoch != epoch || self.values.len() < rows {
            (self.epoch, self.values) = (epoch, vec![value()?; rows].into());
        }
        Ok(self.values.slice(0, rows))
    }
}

impl BatchColumns {
    pub(in crate::query) fn new(catalog: &Arc<Catalog>) -> Self {
        Self { catalog: catalog.clone(), epochs: Repeated::default(), times: Repeated::default() }
    }

    /// Returns the columns of a batch of `rows` rows. The memory of a single piece is shared. Several pieces are copied
    /// into recycled memory.
    ///
    /// # Errors
    /// An expression without a result in some row; a label that does not fit `i64`; a corrupt manifest.
    pub(in crate::query) fn of(
        &mut self,
        pieces: &mut [PackedRows],
        rows: usize,
        resolved: &ResolvedQuery,
        recycler: &Recycler,
    ) -> Result<Vec<ArrayRef>> {
        pieces.iter_mut().try_for_each(|piece| piece.complete(resolved))?;
        let data_type = |output: &Output| resolved.type_of(*output);
        if let [only] = &*pieces {
            let column = |output: &Output| match output {
                Output::Epoch => {
                    let epochs = self.epochs.of(only.epoch, rows, || epoch_value(only.epoch))?;
                    Ok(Arc::new(Int64Array::new(epochs, None)) as ArrayRef)
                }
                Output::Time => {
                    let times = self.times.of(only.epoch, rows, || self.catalog.time(only.epoch))?;
                    Ok(Arc::new(Float64Array::new(times, None)) as ArrayRef)
                }
                Output::Stored(slot) => Ok(array(data_type(output), only.columns[*slot].clone())),
                Output::Computed(slot) => Ok(array(data_type(output), only.computed[*slot].clone())),
            };
            return resolved.output.iter().map(column).collect();
        }
        let lengths = resolved.output.iter().map(|output| rows * data_type(output).width());
        let mut block = recycler.columns(lengths);
        for (output, column) in resolved.output.iter().zip(block.columns_mut()) {
            let width = data_type(output).width();
            let mut rest = column;
            for piece in &*pieces {
                let (now, later) = rest.split_at_mut(piece.rows * width);
                match output {
                    Output::Epoch => now.as_chunks_mut().0.fill(epoch_value(piece.epoch)?.to_le_bytes()),
                    Output::Time => now.as_chunks_mut().0.fill(self.catalog.time(piece.epoch)?.to_le_bytes()),
                    Output::Stored(slot) => now.copy_from_slice(&piece.columns[*slot]),
                    Output::Computed(slot) => now.copy_from_slice(&piece.computed[*slot]),
                }
                rest = later;
            }
        }
        let (memory, columns) = block.freeze();
        recycler.give(memory);
        Ok(resolved.output.iter().zip(columns).map(|(output, column)| array(data_type(output), column)).collect())
    }
}
