//! Collects the data of a report from manifests, one epoch at a time.

use std::path::Path;

use turbidite::format::{EpochMetrics, FORMAT_VERSION};
use turbidite::query::{
    BinScale, Bins, Dataset, HistogramRequest, ProfilePoint, QuantilesRequest, Query, Source, Unbinned,
};
use turbidite::{Clustering, Column, IndexSummary, Value, indexes_of_epochs};

use super::axis::Axis;
use super::boxes::Boxes;
use super::largest::Largest;
use crate::commands::epoch_metrics::write_amplification;
use crate::commands::inspect::periods_in_words;
use crate::failure::Failure;

/// Maximum number of epochs whose manifests are read: 20 for each column of a plot. If there are more, an even sample
/// is read.
const READ_EPOCHS: usize = 960;

/// Maximum number of epochs drawn individually. If there are more, an even sample is drawn.
const DRAWN_EPOCHS: usize = 24;

/// Maximum number of columns in a plot by epoch. If there are more epochs, neighbours are merged.
const MAX_BUCKETS: usize = 48;

/// Maximum number of receivers drawn individually.
const DRAWN_RECEIVERS: usize = 64;

/// Number of bins of a key distribution: about one per five pixels.
const SHAPE_BINS: usize = 96;

/// Minimum ratio of a key's 99th to its 1st percentile for a logarithmic axis.
const LOG_RATIO: f64 = 30.0;

/// The data of a dataset.
#[derive(Debug)]
pub(crate) struct ReportData {
    pub(super) path: String,
    pub(super) uuid: String,
    pub(super) format_version: u32,
    pub(super) source: Option<String>,
    pub(super) derivations: Vec<String>,
    pub(super) columns: Vec<Column>,
    pub(super) key: Column,
    /// The columns of the key, separated by commas.
    pub(super) key_names: String,
    pub(super) clustering: Clustering,
    /// The coordinates that are periodic with their periods, if there are any.
    pub(super) periods: Option<String>,
    pub(super) row_bytes: usize,
    /// The epochs that were read.
    pub(super) epochs: Vec<Epoch>,
    /// Number of all epochs.
    pub(super) all_epochs: usize,
    /// Indexes into `epochs` of the epochs that are drawn individually.
    pub(super) drawn: Vec<usize>,
    /// The axis of the key distributions, or `None` without finite keys.
    pub(super) key_axis: Option<Axis>,
    /// The key distribution of each epoch in `drawn`, if there is an axis.
    pub(super) shapes: Vec<KeyDistribution>,
    /// The selection of about the largest 1 % of keys, in the last epoch that has keys.
    pub(super) largest: Option<Largest>,
    /// The boxes of the last epoch's row groups, if records are clustered by space.
    pub(super) boxes: Option<Boxes>,
    /// The indexes of the dataset, for the epochs that were read.
    pub(super) indexes: Vec<IndexSummary>,
}

/// The data of one epoch.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) epoch: u64,
    pub(super) rows: u64,
    pub(super) parts: usize,
    pub(super) runs: usize,
    pub(super) row_groups: usize,
    /// Number of partitions, if records are clustered by hash and the number is known.
    pub(super) partitions: Option<u32>,
    /// Size of the Bloom filters in bytes.
    pub(super) filter_bytes: u64,
    pub(super) imbalance: f64,
    pub(super) write_amplification: f64,
    pub(super) amplification_p50: f64,
    pub(super) amplification_p99: f64,
    pub(super) loads: Loads,
    /// The profile at every percentile if the epoch is drawn individually, otherwise empty.
    pub(super) points: Vec<ProfilePoint>,
    /// The manifest's metrics without the rows of each receiver.
    pub(super) metrics: EpochMetrics,
}

/// The receivers' loads, relative to their mean.
#[derive(Debug, Default)]
pub(super) struct Loads {
    pub(super) least: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) most: f64,
    /// The load of each receiver, if there are few receivers.
    pub(super) each: Vec<f64>,
}

/// The distribution of one epoch's keys.
#[derive(Debug)]
pub(super) struct KeyDistribution {
    /// Begin and end of each bin on the axis (0 to 1), and the bin's share of the epoch's rows.
    pub(super) bins: Vec<(f64, f64, f64)>,
    /// Shares of the rows outside the axis: below, above and NaN.
    pub(super) beyond: [f64; 3],
    /// Lower bound, estimate and upper bound of the median.
    pub(super) median: Option<(f64, f64, f64)>,
}

impl Loads {
    fn of(rows: &[u64]) -> Self {
        let mean = rows.iter().map(|&rows| rows as f64).sum::<f64>() / rows.len().max(1) as f64;
        if mean == 0.0 {
            return Self::default();
        }
        let each: Vec<f64> = rows.iter().map(|&rows| rows as f64 / mean).collect();
        let mut sorted = each.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| sorted.get((share * (sorted.len() - 1) as f64).round() as usize).copied().unwrap_or(1.0);
        let (least, low, high, most) = (at(0.0), at(0.1), at(0.9), at(1.0));
        Self { least, low, high, most, each: if each.len() <= DRAWN_RECEIVERS { each } else { Vec::new() } }
    }
}

impl Epoch {
    fn of(dataset: &Dataset, epoch: u64, is_drawn: bool) -> Result<Self, Failure> {
        let manifest = dataset.manifest(epoch)?;
        let schema = dataset.schema();
        let mut runs: Vec<_> = manifest.row_groups.iter().map(|run| (run.part.rank, run.run)).collect();
        runs.sort_unstable();
        runs.dedup();
        let profile = match is_drawn {
            true => {
                let mut percentiles: Vec<f64> = (1..100).map(f64::from).collect();
                percentiles.push(99.9);
                dataset.key_profile_at(epoch, &percentiles)?
            }
            false => dataset.key_profile(epoch)?,
        };
        Ok(Self {
            epoch,
            rows: manifest.rows(),
            parts: manifest.parts.len(),
            runs: runs.len(),
            row_groups: manifest.row_groups.len(),
            partitions: manifest.partitions,
            filter_bytes: manifest
                .parts
                .iter()
                .map(|part| part.filter_offset.map_or(0, |offset| part.footer_offset.saturating_sub(offset)))
                .fold(0, u64::saturating_add),
            imbalance: manifest.metrics.load_imbalance(),
            write_amplification: write_amplification(&manifest.metrics, schema.row_bytes()),
            amplification_p50: profile.read_amplification_p50,
            amplification_p99: profile.read_amplification_p99,
            loads: Loads::of(&manifest.metrics.rows_per_receiver),
            points: if is_drawn { profile.points } else { Vec::new() },
            metrics: EpochMetrics { rows_per_receiver: Vec::new(), ..manifest.metrics.clone() },
        })
    }

    /// Returns the time of each stage of the write path, in seconds.
    pub(super) fn stages(&self) -> [f64; 5] {
        let metrics = &self.metrics;
        [metrics.route_s, metrics.sort_s, metrics.encode_s, metrics.write_s, metrics.sync_s]
    }
}

/// Returns at most `most` of `count` indexes, evenly spaced, including the first and the last.
fn evenly(count: usize, most: usize) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    (0..most).map(|number| number * (count - 1) / (most - 1).max(1)).collect()
}

impl ReportData {
    /// Collects the data of some epochs of a dataset.
    pub(crate) fn gather(dataset: &Dataset, path: &Path, all: &[u64]) -> Result<Self, Failure> {
        let wanted: Vec<u64> = evenly(all.len(), READ_EPOCHS).into_iter().map(|place| all[place]).collect();
        let (schema, descriptor) = (dataset.schema(), dataset.descriptor());
        let drawn = evenly(wanted.len(), DRAWN_EPOCHS);
        let mut epochs = Vec::with_capacity(wanted.len());
        for (place, &epoch) in wanted.iter().enumerate() {
            epochs.push(Epoch::of(dataset, epoch, drawn.binary_search(&place).is_ok())?);
        }
        let mut model = Self {
            path: path.display().to_string(),
            uuid: descriptor.uuid.to_string(),
            format_version: FORMAT_VERSION,
            source: descriptor.source.clone(),
            derivations: descriptor.derivations.clone(),
            columns: schema.columns().to_vec(),
            key: schema.key().clone(),
            key_names: schema.cluster_key().columns.join(", "),
            clustering: schema.clustering(),
            periods: periods_in_words(schema),
            row_bytes: schema.row_bytes(),
            epochs,
            all_epochs: all.len(),
            drawn,
            key_axis: None,
            shapes: Vec::new(),
            largest: None,
            boxes: None,
            indexes: indexes_of_epochs(path, &wanted)?,
        };
        if let Some(last) = model.epochs.iter().rev().find(|epoch| epoch.rows > epoch.metrics.nan_keys) {
            let last = last.epoch;
            model.largest = Largest::of(dataset, last)?;
            model.boxes = Boxes::of(dataset, last)?;
        }
        let drawn: Vec<u64> = model.drawn.iter().map(|&place| model.epochs[place].epoch).collect();
        model.key_axis = key_axis(dataset, &drawn)?;
        if let Some(axis) = model.key_axis {
            for &epoch in &drawn {
                model.shapes.push(KeyDistribution::of(dataset, epoch, axis)?);
            }
        }
        Ok(model)
    }

    /// Returns whether the records are clustered by hash, so that filters decide what a lookup reads.
    pub(super) fn is_by_hash(&self) -> bool {
        self.clustering == Clustering::Hash
    }

    /// Returns whether the records are clustered by ranges of the key, so that ranges decide what a query reads.
    pub(super) fn is_by_range(&self) -> bool {
        self.clustering == Clustering::Range
    }

    pub(super) fn rows(&self) -> u64 {
        sum(&self.epochs, |epoch| epoch.rows)
    }

    pub(super) fn bytes_written(&self) -> u64 {
        sum(&self.epochs, |epoch| epoch.metrics.bytes_written)
    }

    /// Returns the key with its unit.
    pub(super) fn key_title(&self) -> String {
        match &self.key.unit {
            Some(unit) => format!("{} ({unit})", self.key.name),
            None => self.key.name.clone(),
        }
    }

    /// Returns a note on the epochs that were read, or an empty string if these are all epochs.
    pub(super) fn sample(&self) -> String {
        match self.epochs.len() < self.all_epochs {
            true => format!(" of {} epochs, evenly spaced", crate::text::count(self.epochs.len() as u64)),
            false => String::new(),
        }
    }

    /// Returns a note on the epochs that are drawn individually, or an empty string if these are all epochs.
    pub(super) fn selection(&self) -> String {
        match self.drawn.len() < self.epochs.len() {
            true => format!(
                " {} of {} epochs, evenly spaced.",
                self.drawn.len(),
                crate::text::count(self.all_epochs as u64)
            ),
            false => String::new(),
        }
    }
}

/// Returns an axis that shows most of the keys. The axis is logarithmic if keys are positive and span decades, and
/// otherwise linear without thin tails.
fn key_axis(dataset: &Dataset, epochs: &[u64]) -> Result<Option<Axis>, Failure> {
    let key = dataset.schema().key().name.as_str();
    let query = Query::new().epochs(epochs);
    let ask = |scale| {
        let bins = Bins { scale, ..Bins::new(1) };
        let request = HistogramRequest::new(query.clone(), key, bins).source(Source::Bounds);
        dataset.histogram(&request).map(|found| {
            let ends = (found.axes[0].edges.first(), found.axes[0].edges.last());
            ends.0.zip(ends.1).map(|(from, to)| (from.as_f64(), to.as_f64()))
        })
    };
    let Some((least, greatest)) = ask(BinScale::Linear)? else { return Ok(None) };
    let shares = [0.0005, 0.01, 0.99, 0.9995];
    let found = dataset.quantiles(&QuantilesRequest::new(query.clone(), key, &shares).source(Source::Bounds))?;
    let quantiles: Vec<f64> = found.quantiles.iter().map(|quantile| quantile.value.estimate.as_f64()).collect();
    let &[outer_low, low, high, outer_high] = quantiles.as_slice() else { return Ok(None) };
    let positive = if least >= 0.0 { ask(BinScale::Log)? } else { None };
    if let Some((from, to)) = positive {
        // If the 1st percentile is zero, the smallest positive value replaces it.
        let is_wide = if low > 0.0 { high > LOG_RATIO * low } else { to > LOG_RATIO * from };
        if is_wide {
            let from = if outer_low > 10.0 * from { outer_low } else { from };
            return Ok(Some(Axis::log(from, to)));
        }
    }
    let is_thin = greatest / 8.0 - least / 8.0 > outer_high / 2.0 - outer_low / 2.0;
    let is_useful = outer_low.is_finite() && outer_high.is_finite() && outer_low < outer_high;
    let (from, to) = if is_thin && is_useful { (outer_low, outer_high) } else { (least, greatest) };
    let room = if dataset.schema().key().data_type.is_float() { 0.0 } else { 0.5 };
    Ok(Some(Axis::linear(from - room, to + room)))
}

impl KeyDistribution {
    fn of(dataset: &Dataset, epoch: u64, axis: Axis) -> Result<Self, Failure> {
        let key = dataset.schema().key().name.as_str();
        let bins = Bins {
            range: Some((Value::Float(axis.from), Value::Float(axis.to))),
            scale: if axis.is_log { BinScale::Log } else { BinScale::Linear },
            ..Bins::new(SHAPE_BINS)
        };
        let query = Query::new().epochs(epoch);
        let quantiles = dataset.quantiles(&QuantilesRequest::new(query.clone(), key, &[0.5]).source(Source::Bounds))?;
        let found = dataset.histogram(&HistogramRequest::new(query, key, bins).source(Source::Bounds))?;
        let rows = &found.rows;
        let of_all = |count: u64| count as f64 / rows.all.estimate.max(1) as f64;
        let last = rows.bins.len().saturating_sub(1);
        // An integer represents all values that are rounded to it, so that its bin has a width.
        let end = |value: Value, more: f64| match value {
            Value::Int(integer) if axis.is_log => axis.share(integer as f64 + more),
            Value::Int(integer) => axis.share(integer as f64 - 0.5 + more),
            Value::Float(float) => axis.share(float),
        };
        let bin = |(number, (edges, count)): (usize, (&[Value], &u64))| {
            let more = if number == last { 1.0 } else { 0.0 };
            (end(edges[0], 0.0), end(edges[1], more), of_all(*count))
        };
        let below = rows.at(Unbinned::Below).plus(rows.at(Unbinned::NegativeInfinity));
        let above = rows.at(Unbinned::Above).plus(rows.at(Unbinned::PositiveInfinity));
        let median = quantiles.quantiles.first().map(|quantile| quantile.value);
        Ok(Self {
            bins: found.axes[0].edges.windows(2).zip(rows.bins.estimates()).enumerate().map(bin).collect(),
            beyond: [below, above, rows.at(Unbinned::Nan)].map(|beyond| of_all(beyond.estimate)),
            median: median.map(|value| (value.least.as_f64(), value.estimate.as_f64(), value.most.as_f64())),
        })
    }
}

/// Returns the saturating sum of a metric over all epochs.
pub(super) fn sum(epochs: &[Epoch], metric: fn(&Epoch) -> u64) -> u64 {
    epochs.iter().fold(0, |sum, epoch| sum.saturating_add(metric(epoch)))
}

/// Epochs grouped into at most [`MAX_BUCKETS`] columns of a plot.
#[derive(Debug)]
pub(super) struct Buckets<'a> {
    epochs: &'a [Epoch],
    each: usize,
}

impl<'a> Buckets<'a> {
    pub(super) fn of(epochs: &'a [Epoch]) -> Self {
        Self { epochs, each: epochs.len().div_ceil(MAX_BUCKETS).max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.epochs.len().div_ceil(self.each)
    }

    /// Returns the epochs of each column.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [Epoch]> {
        self.epochs.chunks(self.each)
    }

    /// Returns a note on the merging of epochs, or an empty string if each column is one epoch.
    pub(super) fn remark(&self, what: &str) -> String {
        if self.each == 1 { String::new() } else { format!(" Each column: {what} of {} epochs.", self.each) }
    }
}

/// Returns the label of one column.
pub(super) fn epochs_label(epochs: &[Epoch]) -> String {
    match epochs {
        [only] => only.epoch.to_string(),
        [first, .., last] => format!("{}..{}", first.epoch, last.epoch),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_have_both_ends() {
        assert_eq!(evenly(3, 24), [0, 1, 2]);
        assert_eq!(evenly(1000, 4), [0, 333, 666, 999]);
        assert_eq!(evenly(0, 4), [0usize; 0]);
    }

    #[test]
    fn loads_are_put_together_when_they_are_many() {
        let few = Loads::of(&[50, 100, 150]);
        assert_eq!((few.least, few.most, few.each), (0.5, 1.5, vec![0.5, 1.0, 1.5]));
        let many = Loads::of(&vec![7; 10_000]);
        assert_eq!((many.least, many.high, many.each.len()), (1.0, 1.0, 0));
        assert_eq!(Loads::of(&[0, 0]).most, 0.0);
        assert_eq!(Loads::of(&[]).most, 0.0);
    }
}
