//! Writes epochs, reads them back, and measures the balance.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::{
    Column, ColumnView, DataType, Dataset, EpochMetrics, EpochRange, Error, LocalJob, Query, Schema, WriteOptions,
};

use super::inputs::Input;

/// Number of records that a rank appends at a time.
pub(crate) const APPEND: usize = 1_000;

/// Largest size of a partition, as a multiple of the mean.
pub(crate) const MAX_OVER_MEAN: f64 = 1.25;

/// Opens the dataset for writing.
pub(crate) fn open(storage: Arc<dyn Storage>, key: DataType, options: WriteOptions) -> Result<LocalJob, Error> {
    let schema = Schema::new(vec![Column::new("key", key), Column::new("id", DataType::U64)], "key")?;
    LocalJob::open_with(storage, "/ds", schema, options)
}

/// Writes one epoch. All ranks append in turn, `append` records at a time, as in a simulation.
pub(crate) fn write_epoch(job: &LocalJob, epoch: u64, input: &Input, append: usize) -> Result<EpochMetrics, Error> {
    job.begin_epoch(epoch)?;
    append_rows(job, input, append)?;
    job.end_epoch()
}

/// Appends the records of all ranks in turn, `append` at a time.
pub(crate) fn append_rows(job: &LocalJob, input: &Input, append: usize) -> Result<(), Error> {
    let longest = input.ranks.iter().map(|keys| keys.len() / input.data_type.width()).max().unwrap_or(0);
    for start in (0..longest).step_by(append) {
        for rank in 0..input.ranks.len() {
            append_rows_of(job, input, rank, start..start + append)?;
        }
    }
    Ok(())
}

/// Appends those of some records that a rank has.
pub(crate) fn append_rows_of(job: &LocalJob, input: &Input, rank: usize, rows: Range<usize>) -> Result<(), Error> {
    let (width, keys) = (input.data_type.width(), &input.ranks[rank]);
    let rows = rows.start.min(keys.len() / width)..rows.end.min(keys.len() / width);
    let ids: Vec<u8> = rows.clone().flat_map(|row| (((rank as u64) << 32) | row as u64).to_le_bytes()).collect();
    let columns = [
        ColumnView::new(&keys[rows.start * width..], width, rows.len(), input.data_type)?,
        ColumnView::new(&ids, 8, rows.len(), DataType::U64)?,
    ];
    job.append(rank as u32, &columns)
}

/// Writes one epoch for each input to all ranks, and reads every record back.
pub(crate) fn ingest(ranks: u32, epochs: &[Input]) -> Vec<EpochMetrics> {
    ingest_in_parts(ranks, 0, epochs)
}

/// Writes one epoch for each input to the ranks that its volume needs, or to all ranks if `part_bytes` is 0.
pub(crate) fn ingest_in_parts(ranks: u32, part_bytes: u64, epochs: &[Input]) -> Vec<EpochMetrics> {
    let mut options = WriteOptions::new(ranks);
    options.part_bytes = Some(part_bytes);
    ingest_as(options, epochs)
}

pub(crate) fn ingest_as(options: WriteOptions, epochs: &[Input]) -> Vec<EpochMetrics> {
    ingest_expecting(options, epochs, |_| None)
}

/// Writes one epoch for each input, with the number of records that the application states, if it does.
pub(crate) fn ingest_expecting(
    options: WriteOptions,
    epochs: &[Input],
    stated: impl Fn(&Input) -> Option<u64>,
) -> Vec<EpochMetrics> {
    let storage: Arc<MemoryStorage> = Arc::new(MemoryStorage::new());
    let job = open(storage.clone(), epochs[0].data_type, options).unwrap();
    let mut all = Vec::new();
    for (epoch, input) in epochs.iter().enumerate() {
        if let Some(rows) = stated(input) {
            job.expect_rows(rows);
        }
        all.push(write_epoch(&job, epoch as u64, input, APPEND).unwrap());
    }
    job.close().unwrap();
    for (epoch, input) in epochs.iter().enumerate() {
        read_back(storage.clone(), epoch as u64, input);
    }
    all
}

/// Checks that an epoch has every record exactly once, with its key.
pub(crate) fn read_back(storage: Arc<dyn Storage>, epoch: u64, input: &Input) {
    let width = input.data_type.width();
    let mut missing: Vec<Vec<bool>> = input.ranks.iter().map(|keys| vec![true; keys.len() / width]).collect();
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let query = Query::new().epochs(EpochRange::one(epoch)).columns(["key", "id"]);
    for batch in dataset.run(&query).unwrap() {
        let batch = batch.unwrap();
        let keys = batch.column(0).to_data().buffers()[0].clone();
        let key_offset = batch.column(0).to_data().offset() * width;
        let ids = batch.column(1).as_primitive::<UInt64Type>();
        for (row, id) in ids.values().iter().enumerate() {
            let (rank, number) = ((id >> 32) as usize, (id & 0xFFFF_FFFF) as usize);
            assert!(std::mem::replace(&mut missing[rank][number], false), "record {id} came twice");
            let start = key_offset + row * width;
            assert_eq!(keys.as_slice()[start..start + width], input.ranks[rank][number * width..][..width]);
        }
    }
    let lost = missing.iter().flatten().filter(|missing| **missing).count();
    assert_eq!(lost, 0, "records were lost");
}

/// Returns the size of the largest partition divided by the mean. Records with NaN keys and spills count for the rank
/// that stores them.
pub(crate) fn largest_share(metrics: &EpochMetrics) -> f64 {
    let loads = &metrics.rows_per_receiver;
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    loads.iter().copied().max().unwrap_or(0) as f64 / mean.max(1e-9)
}

pub(crate) fn imbalance(metrics: &EpochMetrics) -> f64 {
    let loads = &metrics.rows_per_receiver;
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    let variance = loads.iter().map(|&load| (load as f64 - mean).powi(2)).sum::<f64>() / loads.len() as f64;
    variance.sqrt() / mean.max(1e-9)
}

pub(crate) fn report(name: &str, ranks: u32, metrics: &EpochMetrics) {
    println!(
        "{name:28} {ranks:3} ranks: imbalance {:5.1} %, largest {:.3} x mean, {} tables, {} strays, {} spills",
        imbalance(metrics) * 100.0,
        largest_share(metrics),
        metrics.renegotiations,
        metrics.strays,
        metrics.spills
    );
}

/// Prints the metrics of an epoch, and checks its largest partition.
pub(crate) fn check_balance(name: &str, ranks: u32, metrics: &EpochMetrics) {
    report(name, ranks, metrics);
    let largest = largest_share(metrics);
    assert!(largest <= MAX_OVER_MEAN, "{name} at {ranks} ranks: {largest}");
}
