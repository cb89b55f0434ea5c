//! Figures of an epoch that follow from its manifest's.

use turbidite::format::EpochFigures;

/// Load imbalance: standard deviation of the receivers' rows over their mean. 0 for an epoch without rows.
pub(crate) fn imbalance(figures: &EpochFigures) -> f64 {
    let loads = &figures.rows_per_receiver;
    let mean = loads.iter().map(|&rows| rows as f64).sum::<f64>() / loads.len().max(1) as f64;
    if mean == 0.0 {
        return 0.0;
    }
    let variance = loads.iter().map(|&rows| (rows as f64 - mean).powi(2)).sum::<f64>() / loads.len() as f64;
    variance.sqrt() / mean
}

/// Largest load over the mean.
pub(crate) fn largest_load(figures: &EpochFigures) -> f64 {
    let loads = &figures.rows_per_receiver;
    let total: u64 = loads.iter().sum();
    let largest = loads.iter().copied().max().unwrap_or(0);
    if total == 0 { 0.0 } else { largest as f64 * loads.len() as f64 / total as f64 }
}

/// Bytes written over bytes of stored rows.
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
        assert!((imbalance(&figures) - 0.5).abs() < 1e-12);
        assert!((largest_load(&figures) - 1.5).abs() < 1e-12);
        assert!((write_amplification(&figures, 8) - 330.0 / 320.0).abs() < 1e-12);
        let none = EpochFigures { rows_per_receiver: vec![0, 0], bytes_written: 100, ..Default::default() };
        assert_eq!((imbalance(&none), largest_load(&none), write_amplification(&none, 8)), (0.0, 0.0, 0.0));
    }
}
