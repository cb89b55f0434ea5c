//! CARP's method, for comparison.

use turbidite::KeyOrder;
use turbidite::partition::carp::{BoundedTable, Histogram, HistogramPivots};

use super::inputs::Input;
use super::job::APPEND;

/// Returns the load imbalance of CARP's method: ranks in lockstep, appends of 1,000, 512 pivots, six renegotiations
/// distributed over the epoch, and an additional one whenever a rank's out-of-bounds buffer is full.
pub(crate) fn imbalance(input: &Input) -> f64 {
    let order = KeyOrder::new(input.data_type).unwrap();
    let ranks = input.ranks.len();
    let keys: Vec<Vec<u64>> = input
        .ranks
        .iter()
        .map(|bytes| bytes.chunks_exact(input.data_type.width()).map(|key| order.ordinal(key)).collect())
        .collect();
    let mut loads = vec![0u64; ranks];
    let mut states = vec![Histogram::default(); ranks];
    let mut table: Option<BoundedTable> = None;
    let mut version = 0;
    let rounds = keys.iter().map(Vec::len).max().unwrap_or(0).div_ceil(APPEND);
    for round in 0..rounds {
        for (state, keys) in states.iter_mut().zip(&keys) {
            for &key in keys.chunks(APPEND).nth(round).unwrap_or_default() {
                if let Some(partition) = state.observe(key, table.as_ref()) {
                    loads[partition as usize] += 1;
                }
            }
        }
        let due = (1..=6).any(|number| round + 1 == number * rounds / 7);
        if due || states.iter().any(Histogram::is_full) {
            let pivots: Vec<_> = states.iter().map(|state| state.pivots(512, table.as_ref(), order)).collect();
            version += 1;
            table = HistogramPivots::table(&pivots, version, ranks as u32, order);
            for key in states.iter_mut().flat_map(Histogram::reset) {
                if let Some(partition) = table.as_ref().and_then(|table| table.destination(key)) {
                    loads[partition as usize] += 1;
                }
            }
        }
    }
    if let Some(table) = &table {
        for key in states.iter_mut().flat_map(Histogram::reset) {
            loads[table.unbounded().destination(key, 0) as usize] += 1;
        }
    }
    let mean = loads.iter().sum::<u64>() as f64 / ranks as f64;
    let variance = loads.iter().map(|&load| (load as f64 - mean).powi(2)).sum::<f64>() / ranks as f64;
    variance.sqrt() / mean
}
