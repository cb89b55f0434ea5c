//! Clustering of an epoch, from its manifest alone: the row groups that a query for one key has to touch.
//!
//! *Read amplification*, as defined by CARP, is the number of rows in all row groups whose observed range contains the
//! key, divided by the rows per receiver of a perfectly balanced epoch. A perfect partitioning has 1. Successive row
//! groups of one receiver count separately, so smaller row groups can reduce the value below 1.
//!
//! The sampled keys are evenly spaced in rank: they are percentiles of the rows, not of the key range. `estimate`
//! locates each percentile as for `quantiles`, by an estimate within bounds. Rows with a NaN key are excluded.

use serde::Serialize;

use crate::format::{EpochManifest, PartId, RangeCount, RowGroupEntry};
use crate::query::analytics::estimate::{Estimator, Located, outward, position};
use crate::schema::Schema;

/// Percentiles of a profile, unless others are requested.
pub(in crate::query) const LISTED: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9];

/// Number of sampled keys for the quantiles of read amplification.
const SAMPLES: u32 = 1000;

/// The row groups that a query for the key at one percentile touches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProfilePoint {
    /// Share of rows with an equal or smaller key, in percent.
    pub percentile: f64,
    /// Estimate of the key.
    pub key: f64,
    /// Lower bound of the key.
    pub key_least: f64,
    /// Upper bound of the key.
    pub key_most: f64,
    /// Row groups that may hold [`ProfilePoint::key`].
    pub runs: u64,
    /// Rows in these row groups.
    pub rows: u64,
    /// Share of the epoch's rows in these row groups.
    pub share: f64,
    /// Rows in these row groups, divided by the rows of a perfectly balanced receiver.
    pub read_amplification: f64,
}

/// The distribution of an epoch's row groups over the key space.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KeyProfile {
    /// The epoch.
    pub epoch: u64,
    /// Number of rows whose key is not NaN.
    pub rows: u64,
    /// Number of receivers over which the rows were balanced.
    pub receivers: u32,
    /// Median read amplification over the key space.
    pub read_amplification_p50: f64,
    /// 99th percentile of read amplification over the key space.
    pub read_amplification_p99: f64,
    /// The profile at some percentiles.
    pub points: Vec<ProfilePoint>,
}

/// Computes an epoch's profile at some percentiles. If no row has a key, the profile has no points and no
/// amplification.
pub(in crate::query) fn key_profile(manifest: &EpochManifest, schema: &Schema, percentiles: &[f64]) -> KeyProfile {
    let order = schema.key_order();
    let of_run = |run: &RowGroupEntry| RangeCount::of(run.columns.one(schema.key_index()).as_ref(), run.rows, order);
    let range_counts: Vec<RangeCount> =
        manifest.row_groups.iter().map(of_run).filter(|range_count| range_count.rows > 0).collect();
    let rows: u64 = range_counts.iter().map(|range_count| range_count.rows).sum();
    let receivers = match manifest.metrics.receivers {
        0 => count_receivers(manifest.parts.iter().map(|entry| entry.part)),
        stated => stated,
    };
    let estimator = Estimator::new(manifest.range_counts(schema.key_index(), schema), schema.key_order());
    let holders = OverlapCounts::new(&range_counts);
    let balanced = (rows as f64 / f64::from(receivers.max(1))).max(f64::MIN_POSITIVE);
    let keys_at = |shares: &mut dyn Iterator<Item = f64>| estimator.locate(shares.map(|share| position(share, rows)));
    let samples = if rows == 0 { 0 } else { SAMPLES };
    let sampled = keys_at(&mut (0..samples).map(|sample| (f64::from(sample) + 0.5) / f64::from(SAMPLES)));
    let mut sampled: Vec<f64> =
        sampled.iter().map(|located| holders.at(located.estimate).1 as f64 / balanced).collect();
    sampled.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| sampled.get((share * sampled.len() as f64) as usize).copied().unwrap_or(0.0);
    let point = |(&percentile, located): (&f64, Located)| {
        let (runs, touched) = holders.at(located.estimate);
        let value = |ordinal| schema.key_order().value(ordinal);
        ProfilePoint {
            percentile,
            key: value(located.estimate).as_f64(),
            key_least: outward(value(located.least), true),
            key_most: outward(value(located.most), false),
            runs,
            rows: touched,
            share: touched as f64 / rows as f64,
            read_amplification: touched as f64 / balanced,
        }
    };
    let listed = if rows == 0 { &[][..] } else { percentiles };
    let points =
        listed.iter().zip(keys_at(&mut listed.iter().map(|percentile| percentile / 100.0))).map(point).collect();
    KeyProfile {
        epoch: manifest.epoch,
        rows,
        receivers,
        read_amplification_p50: at(0.5),
        read_amplification_p99: at(0.99),
        points,
    }
}

fn count_receivers(parts: impl Iterator<Item = PartId>) -> u32 {
    let mut ranks: Vec<u32> = parts.map(|part| part.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.len() as u32
}

/// Cumulative row counts by the ends of row groups. The row groups that contain a key are those that begin at or below
/// it, without those that end before it.
struct OverlapCounts {
    /// Smallest ordinals of row groups in ascending order, each with the cumulative row count.
    begins: Vec<(u64, u64)>,
    /// Largest ordinals of row groups in ascending order, each with the cumulative row count.
    ends: Vec<(u64, u64)>,
}

impl OverlapCounts {
    fn new(range_counts: &[RangeCount]) -> Self {
        let cumulate = |place: fn(&RangeCount) -> u64| {
            let mut ordered: Vec<(u64, u64)> =
                range_counts.iter().map(|range_count| (place(range_count), range_count.rows)).collect();
            ordered.sort_unstable();
            let mut rows = 0u64;
            for entry in &mut ordered {
                rows += entry.1;
                entry.1 = rows;
            }
            ordered
        };
        Self { begins: cumulate(|range_count| range_count.least), ends: cumulate(|range_count| range_count.most) }
    }

    /// Returns the number of row groups that contain the key, and the number of their rows.
    fn at(&self, key: u64) -> (u64, u64) {
        let begun = self.begins.partition_point(|(from, _)| *from <= key);
        let ended = self.ends.partition_point(|(to, _)| *to < key);
        let rows = |list: &[(u64, u64)], count: usize| count.checked_sub(1).map_or(0, |last| list[last].1);
        ((begun - ended) as u64, rows(&self.begins, begun) - rows(&self.ends, ended))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::format::{ColumnStatistics, EpochMetrics, PageDirectory, RunKind};
    use crate::schema::{Column, DataType, Value};

    fn manifest(runs: &[(f64, f64, u64)], receivers: u32) -> (EpochManifest, Schema) {
        let schema = Schema::new(vec![Column::new("energy", DataType::F64)], "energy").unwrap();
        let entry = |(number, (from, to, rows)): (u32, &(f64, f64, u64))| RowGroupEntry {
            part: PartId { rank: number, roll: 0 },
            level: 0,
            intervals: None,
            run: 0,
            row_group: 0,
            offset: 4,
            bytes: 8 * rows,
            rows: *rows,
            kind: RunKind::Regular,
            table_version: 1,
            bounds: None,
            checksum: 0,
            columns: vec![ColumnStatistics {
                range: (!from.is_nan()).then_some((Value::Float(*from), Value::Float(*to))),
                nan_count: if from.is_nan() { *rows } else { 0 },
            }]
            .into(),
            pages: PageDirectory::default(),
        };
        let manifest = EpochManifest {
            partitions: None,
            indexed_commit: None,
            attributes: Default::default(),
            epoch: 7,
            commit: Uuid::nil(),
            parts: Vec::new(),
            row_groups: (0..).zip(runs).map(entry).collect(),
            keys: Default::default(),
            metrics: EpochMetrics { receivers, ..EpochMetrics::default() },
        };
        (manifest, schema)
    }

    #[test]
    fn perfect_partitions_have_an_amplification_of_one() {
        let runs: Vec<(f64, f64, u64)> = (0..100).map(|part| (f64::from(part), f64::from(part) + 0.99, 1000)).collect();
        let (manifest, schema) = manifest(&runs, 100);
        let profile = key_profile(&manifest, &schema, &LISTED);
        assert_eq!((profile.read_amplification_p50, profile.read_amplification_p99), (1.0, 1.0));
        for point in &profile.points {
            assert!((point.key - point.percentile).abs() <= 1.0, "{point:?}");
            assert_eq!((point.runs, point.rows), (1, 1000));
        }
    }

    #[test]
    fn a_run_over_everything_is_touched_by_every_query() {
        let mut runs: Vec<(f64, f64, u64)> = (0..10).map(|part| (f64::from(part), f64::from(part) + 0.9, 90)).collect();
        runs.push((0.0, 10.0, 100));
        runs.push((f64::NAN, f64::NAN, 5000));
        let (manifest, schema) = manifest(&runs, 10);
        let profile = key_profile(&manifest, &schema, &LISTED);
        assert_eq!(profile.rows, 1000);
        let median = profile.points.iter().find(|point| point.percentile == 50.0).unwrap();
        assert_eq!((median.runs, median.rows), (2, 190));
        assert!((median.read_amplification - 1.9).abs() < 1e-9);
        assert!((profile.read_amplification_p50 - 1.9).abs() < 1e-9);
    }

    #[test]
    fn point_masses_are_found_at_their_key() {
        let (manifest, schema) = manifest(&[(0.0, 0.0, 900), (1.0, 2.0, 100)], 2);
        let profile = key_profile(&manifest, &schema, &LISTED);
        let key = |percentile: f64| profile.points.iter().find(|point| point.percentile == percentile).unwrap().key;
        assert_eq!((key(1.0), key(75.0)), (0.0, 0.0));
        assert!(key(99.0) >= 1.0 && key(99.0) <= 2.0, "{}", key(99.0));
    }

    #[test]
    fn an_empty_epoch_has_an_empty_profile() {
        let (manifest, schema) = manifest(&[], 4);
        let profile = key_profile(&manifest, &schema, &LISTED);
        assert_eq!((profile.rows, profile.points.len(), profile.read_amplification_p99), (0, 0, 0.0));
    }
}
