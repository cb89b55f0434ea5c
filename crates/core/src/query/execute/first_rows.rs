//! The first rows of many in an order, in bounded memory.

use std::sync::Arc;

use crate::error::Result;
use crate::expr::Predicate;
use crate::query::execute::unordered_scan::Scan;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::plan::sort::{SortKey, SortPlan};
use crate::query::request::{ResolvedQuery, SortColumn};
use crate::query::scan::read::PackedRows;

/// Number of rows beyond the wanted ones that are kept before the last of them are discarded.
const SPARE_ROWS: usize = 1 << 13;

/// Collects the first rows in the order of sort keys. Rows with equal keys stay in their order.
pub(in crate::query) struct FirstRows {
    keys: Vec<SortKey>,
    /// Widths of the columns of a piece.
    widths: Vec<usize>,
    most: usize,
    kept: KeptRows,
}

#[derive(Default)]
struct KeptRows {
    /// The places of each row: one for each sort key.
    places: Vec<u64>,
    epochs: Vec<u64>,
    /// The rows, each packed.
    rows: Vec<u8>,
    /// The places that a row must be before to be among the first, once there are enough rows.
    bound: Option<Vec<u64>>,
}

/// A scan of all matching rows. Their computed columns follow the stored ones.
type SortedScan = Scan<Result<PackedRows>>;

/// Returns the scan of some epochs for the first rows in an order, and the collection of at most `most` of them. A
/// predicate replaces that of the query.
///
/// # Errors
/// The errors of [`SortPlan::new`].
pub(in crate::query) fn first_rows(
    dataset: &Arc<IndexedCatalog>,
    resolved: &ResolvedQuery,
    (columns, predicate, most): (&[SortColumn], Option<Predicate>, u64),
    epochs: Vec<u64>,
    counters: &Arc<Counters>,
) -> Result<(SortedScan, FirstRows)> {
    let SortPlan { mut wanted, keys, .. } = SortPlan::new(resolved, columns)?;
    if let Some(predicate) = predicate {
        wanted.restrict(predicate);
    }
    let widths = wanted.stored_widths().chain(wanted.computed_widths()).collect();
    let first = FirstRows::new(keys, widths, usize::try_from(most).unwrap_or(usize::MAX));
    let wanted = Arc::new(wanted);
    let of_threads = wanted.clone();
    let compute = move |rows: PackedRows| rows.with_computed(&of_threads);
    Ok((Scan::finishing(dataset.clone(), wanted, counters.clone(), epochs, compute), first))
}

impl FirstRows {
    /// Creates a collection of at most `most` rows.
    fn new(keys: Vec<SortKey>, widths: Vec<usize>, most: usize) -> Self {
        Self { keys, widths, most, kept: KeptRows::default() }
    }

    /// Returns the first rows of a scan in order, with the first `columns` columns.
    ///
    /// # Errors
    /// The errors of the scan; an expression without a result in some row.
    pub(in crate::query) fn collect(mut self, mut scan: SortedScan, columns: usize) -> Result<SortedRows> {
        while let Some(piece) = scan.next_piece()? {
            self.add(&piece?);
        }
        Ok(self.finish(columns))
    }

    /// Adds the rows of a piece that may be among the first.
    fn add(&mut self, piece: &PackedRows) {
        let Self { keys, widths, most, kept } = self;
        let place = |key: &SortKey, row: usize| {
            let width = widths[key.slot];
            key.place(&piece.columns[key.slot][row * width..][..width])
        };
        let Some((first_key, other_keys)) = keys.split_first().filter(|_| *most > 0) else { return };
        for row in 0..piece.rows {
            let (first, start) = (place(first_key, row), kept.places.len());
            if kept.bound.as_ref().is_some_and(|bound| first > bound[0]) {
                continue;
            }
            kept.places.push(first);
            kept.places.extend(other_keys.iter().map(|key| place(key, row)));
            if kept.bound.as_ref().is_some_and(|bound| kept.places[start..] >= bound[..]) {
                kept.places.truncate(start);
                continue;
            }
            kept.epochs.push(piece.epoch);
            for (column, width) in piece.columns.iter().zip(&*widths) {
                kept.rows.extend_from_slice(&column[row * width..][..*width]);
            }
            if kept.epochs.len() >= most.saturating_mul(2).saturating_add(SPARE_ROWS) {
                kept.discard(*most, keys.len());
            }
        }
    }

    fn finish(self, columns: usize) -> SortedRows {
        let Self { keys, widths, most, kept } = self;
        SortedRows { order: kept.first(most, keys.len()), taken: 0, kept, widths, columns }
    }
}

/// Rows in their order. Pieces are made as they are taken, since those of several epochs may have one row each.
pub(in crate::query) struct SortedRows {
    /// Positions of the rows.
    order: Vec<usize>,
    /// Number of rows that have been taken.
    taken: usize,
    kept: KeptRows,
    widths: Vec<usize>,
    /// Number of columns of the pieces.
    columns: usize,
}

impl SortedRows {
    /// Returns the number of all rows.
    pub(in crate::query) fn rows(&self) -> u64 {
        self.order.len() as u64
    }

    /// Returns the next rows that are of one epoch.
    pub(in crate::query) fn next_piece(&mut self, counters: &Arc<Counters>) -> Option<PackedRows> {
        let Self { kept, widths, columns, .. } = self;
        let rows = self.order[self.taken..].chunk_by(|one, next| kept.epochs[*one] == kept.epochs[*next]).next()?;
        self.taken += rows.len();
        let epoch = kept.epochs[rows[0]];
        if *columns == 0 {
            return Some(PackedRows::counted(epoch, rows.len(), counters));
        }
        let row_bytes: usize = widths.iter().sum();
        let widths = &widths[..*columns];
        let mut block = counters.recycler.columns(widths.iter().map(|width| rows.len() * width));
        let mut offset = 0;
        for (width, out) in widths.iter().zip(block.columns_mut()) {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(*width)) {
                out.copy_from_slice(&kept.rows[row * row_bytes + offset..][..*width]);
            }
            offset += width;
        }
        Some(PackedRows::new(epoch, rows.len(), block, counters))
    }
}

impl KeptRows {
    /// Returns the positions of the first rows, in order.
    fn first(&self, most: usize, keys: usize) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..self.epochs.len()).collect();
        let order = |one: &usize, other: &usize| (self.of(*one, keys), one).cmp(&(self.of(*other, keys), other));
        if most < positions.len() {
            positions.select_nth_unstable_by(most, order);
            positions.truncate(most);
        }
        positions.sort_unstable_by(order);
        positions
    }

    /// Returns the places of a row.
    fn of(&self, row: usize, keys: usize) -> &[u64] {
        &self.places[row * keys..][..keys]
    }

    /// Discards all but the first `most` rows.
    fn discard(&mut self, most: usize, keys: usize) {
        let mut first = self.first(most, keys);
        self.bound = first.last().map(|last| self.of(*last, keys).to_vec());
        // Rows with equal keys stay in their order.
        first.sort_unstable();
        let row_bytes = self.rows.len() / self.epochs.len();
        for (to, &from) in first.iter().enumerate() {
            self.places.copy_within(from * keys..(from + 1) * keys, to * keys);
            self.epochs[to] = self.epochs[from];
            self.rows.copy_within(from * row_bytes..(from + 1) * row_bytes, to * row_bytes);
        }
        self.places.truncate(first.len() * keys);
        self.epochs.truncate(first.len());
        self.rows.truncate(first.len() * row_bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{DataType, KeyOrder};

    /// The row's epoch, its numbers, and its position among all rows.
    type Row = (u64, f32, i16, u64);

    fn piece(rows: &[Row], counters: &Arc<Counters>) -> PackedRows {
        let mut block = counters.recycler.columns([8, 4, 2].map(|width| width * rows.len()).into_iter());
        let [number, first, second] = block.columns_mut().try_into().unwrap();
        for (row, (_, x, y, place)) in rows.iter().enumerate() {
            number[8 * row..][..8].copy_from_slice(&place.to_le_bytes());
            first[4 * row..][..4].copy_from_slice(&x.to_le_bytes());
            second[2 * row..][..2].copy_from_slice(&y.to_le_bytes());
        }
        PackedRows::new(rows[0].0, rows.len(), block, counters)
    }

    proptest! {
        #[test]
        fn the_first_rows_are_those_of_a_stable_sort(
            pieces in prop::collection::vec((0u64..3, prop::collection::vec((0u8..20, -2i16..3), 1..200)), 0..200),
            directions in any::<(bool, bool)>(),
            key_count in 1usize..3,
            most in prop::sample::select(vec![0usize, 1, 7, 100, 3_000, 100_000]),
        ) {
            let counters = Arc::new(Counters::default());
            let key = |data_type, slot, is_descending| {
                SortKey { order: KeyOrder::new(data_type).unwrap(), slot, is_descending }
            };
            let mut keys = vec![key(DataType::F32, 1, directions.0), key(DataType::I16, 2, directions.1)];
            keys.truncate(key_count);
            let mut first = FirstRows::new(keys, vec![8, 4, 2], most);
            let mut all: Vec<Row> = Vec::new();
            for (epoch, values) in pieces {
                let places = all.len() as u64..;
                let x = |x: u8| if x == 0 { f32::NAN } else { f32::from(x) - 10.0 };
                let rows: Vec<Row> = values.iter().zip(places).map(|((one, y), place)| (epoch, x(*one), *y, place)).collect();
                first.add(&piece(&rows, &counters));
                all.extend(rows);
            }
            let turned = |order: std::cmp::Ordering, is_descending| if is_descending { order.reverse() } else { order };
            all.sort_by(|one, other| {
                let numbers = one.1.partial_cmp(&other.1).map(|order| turned(order, directions.0));
                let by_first = numbers.unwrap_or_else(|| one.1.is_nan().cmp(&other.1.is_nan()));
                match key_count {
                    1 => by_first,
                    _ => by_first.then(turned(one.2.cmp(&other.2), directions.1)),
                }
            });
            all.truncate(most);
            let expected: Vec<(u64, u64)> = all.iter().map(|(epoch, .., place)| (*epoch, *place)).collect();
            let mut sorted = first.finish(1);
            let found = std::iter::from_fn(|| sorted.next_piece(&counters)).flat_map(|piece| {
                piece.columns[0].typed_data::<u64>().iter().map(|place| (piece.epoch, *place)).collect::<Vec<_>>()
            });
            prop_assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}
