//! Datasets with indexes, and what answers read of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use turbidite::query::Use;
use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::IfExists;
use turbidite::{
    Column, ColumnView, DataType, Dataset, IndexBuild, IndexOptions, LocalJob, Query, Schema, WriteOptions,
};

pub(crate) const RANKS: u32 = 4;
pub(crate) const EPOCHS: [u64; 2] = [10, 20];

/// A record: energy, id and velocity.
pub(crate) type Record = (f32, u32, f32);

pub(crate) fn schema(key: &str) -> Schema {
    let columns = vec![
        Column::new("energy", DataType::F32),
        Column::new("id", DataType::U32),
        Column::new("uy", DataType::F32),
        Column::new("number", DataType::U64),
    ];
    Schema::new(columns, key).unwrap()
}

/// Records in no order: ids are unique but for a few, and velocities include NaN, infinities, zeros and repetitions.
pub(crate) fn records(seed: u64, count: u32) -> Vec<Record> {
    let mut random = Random::new(seed);
    let mut records: Vec<Record> = (0..count)
        .map(|number| {
            let energy = random.below(1 << 20) as f32 / 1000.0;
            let uy = match random.below(20) {
                0 => f32::NAN,
                1 => 0.0,
                2 => -0.0,
                3 if number % 100 == 0 => f32::INFINITY,
                _ => random.below(1 << 16) as f32 / 256.0 - 128.0,
            };
            (energy, number * 3 + 1, uy)
        })
        .collect();
    for at in 0..count as usize {
        let other = random.below(u64::from(count)) as usize;
        let id = records[at].1;
        records[at].1 = records[other].1;
        records[other].1 = id;
    }
    for twin in records.iter_mut().step_by(4_999) {
        twin.1 = 7;
    }
    records
}

pub(crate) fn write(storage: &Arc<MemoryStorage>, key: &str, epochs: &[(u64, Vec<Record>)]) {
    write_on(storage.clone(), key, epochs);
}

/// Writes epochs like [`write`], on any storage.
pub(crate) fn write_on(storage: Arc<dyn Storage>, key: &str, epochs: &[(u64, Vec<Record>)]) {
    let mut options = WriteOptions::new(RANKS);
    options.if_exists = IfExists::Replace;
    options.memtable_bytes = 128 << 10;
    options.page_rows = 256;
    let job = LocalJob::open_with(storage, "/ds", schema(key), options).unwrap();
    for (epoch, records) in epochs {
        job.begin_epoch(*epoch).unwrap();
        for (chunk, records) in records.chunks(1_000).enumerate() {
            let energies: Vec<f32> = records.iter().map(|record| record.0).collect();
            let ids: Vec<u32> = records.iter().map(|record| record.1).collect();
            let velocities: Vec<f32> = records.iter().map(|record| record.2).collect();
            let numbers: Vec<u64> = (0..records.len() as u64).map(|at| chunk as u64 * 1_000 + at).collect();
            let columns = [
                ColumnView::from(&energies),
                ColumnView::from(&ids),
                ColumnView::from(&velocities),
                ColumnView::from(&numbers),
            ];
            job.append(chunk as u32 % RANKS, &columns).unwrap();
        }
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
}

pub(crate) fn threads(threads: usize) -> IndexOptions {
    IndexOptions { threads: Some(threads), ..IndexOptions::default() }
}

pub(crate) fn add(storage: &Arc<MemoryStorage>, definition: &str) -> Vec<u64> {
    let mut build = IndexBuild::open_with(storage.clone(), "/ds", &definition.parse().unwrap(), &threads(2)).unwrap();
    let missing = build.missing().unwrap();
    for epoch in &missing {
        build.build_epoch(*epoch, &|_| ()).unwrap();
    }
    assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
    build.close().unwrap();
    missing
}

/// Returns the numbers of the records of an epoch that match, in the order of the answer, and what was read.
pub(crate) fn read(dataset: &Dataset, epoch: u64, predicate: &str, access: Use, ordered: bool) -> (Vec<u64>, Read) {
    let query = Query::new().epochs(epoch).filter(predicate).columns(["number"]).using(access).ordered(ordered);
    let mut stream = dataset.run(&query).unwrap();
    let mut numbers = Vec::new();
    for batch in &mut stream {
        numbers.extend(batch.unwrap().column(0).as_primitive::<UInt64Type>().values());
    }
    let metrics = stream.metrics();
    let read = Read { entries: metrics.entries_read, pages: metrics.pages_read, corrupt: metrics.corrupt_indexes };
    (numbers, read)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    pub(crate) entries: u64,
    pub(crate) pages: u64,
    pub(crate) corrupt: u64,
}

/// Returns the numbers of the records that satisfy a condition.
pub(crate) fn expected(records: &[Record], matches: impl Fn(&Record) -> bool) -> BTreeSet<u64> {
    (0..).zip(records).filter(|(_, record)| matches(record)).map(|(number, _)| number).collect()
}
