//! Statistics derived from an epoch's manifest.

use turbidite::format::EpochFigures;

/// Returns the largest load over the mean.
pub(crate) fn largest_load(figures: &EpochFigures) -> f64 {
    let loads = &figures.rows_per_receiver;
    let total: u64 = loads.iter().sum();
    let largest = loads.iter().copied().max().unwrap_or(0);
    if total == 0 { 0.0 } else { largest as f64 * loads.len() as f64 / total as f64 }
}

/// Returns the bytes written over the bytes of stored rows.
pub(crate) fn write_amplification(figures: &EpochFigures, row_bytes: usize) -> f64 {
    let stored = figures.rows as f64 * row_bytes as f64;
    if stored == 0.0 { 0.0 } else { figures.bytes_written as f64 / stored }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_their_definitions() {
        let figures =
            EpochFigures { rows: 40, rows_per_receiver: vec![5, 15, 5, 15], bytes_written: 330, ..Default::default() };
        assert!((figures.load_imbalance() - 0.5).abs() < 1e-12);
        assert!((largest_load(&figures) - 1.5).abs() < 1e-12);
        assert!((write_amplification(&figures, 8) - 330.0 / 320.0).abs() < 1e-12);
        let none = EpochFigures { rows_per_receiver: vec![0, 0], bytes_written: 100, ..Default::default() };
        assert_eq!((none.load_imbalance(), largest_load(&none), write_amplification(&none, 8)), (0.0, 0.0, 0.0));
    }
}
