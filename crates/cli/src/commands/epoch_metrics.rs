//! Derives metrics from an epoch's manifest.

use turbidite::format::EpochMetrics;

/// Returns the ratio of the largest load to the mean load.
pub(crate) fn largest_load(metrics: &EpochMetrics) -> f64 {
    let loads = &metrics.rows_per_receiver;
    let total: u64 = loads.iter().sum();
    let largest = loads.iter().copied().max().unwrap_or(0);
    if total == 0 { 0.0 } else { largest as f64 * loads.len() as f64 / total as f64 }
}

/// Returns the ratio of the bytes written to the bytes of the stored rows.
pub(crate) fn write_amplification(metrics: &EpochMetrics, row_bytes: usize) -> f64 {
    let stored = metrics.rows as f64 * row_bytes as f64;
    if stored == 0.0 { 0.0 } else { metrics.bytes_written as f64 / stored }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_follow_their_definitions() {
        let metrics =
            EpochMetrics { rows: 40, rows_per_receiver: vec![5, 15, 5, 15], bytes_written: 330, ..Default::default() };
        assert!((metrics.load_imbalance() - 0.5).abs() < 1e-12);
        assert!((largest_load(&metrics) - 1.5).abs() < 1e-12);
        assert!((write_amplification(&metrics, 8) - 330.0 / 320.0).abs() < 1e-12);
        let none = EpochMetrics { rows_per_receiver: vec![0, 0], bytes_written: 100, ..Default::default() };
        assert_eq!((none.load_imbalance(), largest_load(&none), write_amplification(&none, 8)), (0.0, 0.0, 0.0));
    }
}
