//! Tests the whole dataset folder: kills, crashes, failures, locks, salvage and verification.

mod commits;
mod crashes;
mod discarded;
mod locks;
mod periods;
mod recovered;
mod settled;
mod verified;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{DatasetDescriptor, DatasetPaths, EpochCommit, IfExists, WriterLock, load_manifest, recover};
use crate::error::Result;
use crate::format::{
    EpochManifest, Memtable, PartId, PartOptions, PartReader, PartWriter, RowGroupEntry, RunContext, RunKind,
};
use crate::schema::{Column, DataType, Schema, Value};
use crate::storage::{MemoryStorage, Storage};

/// Number of records per run.
const RUN_ROWS: u64 = 40;
/// Number of parts per epoch. Each part has two runs.
const PARTS: u32 = 2;

fn paths() -> DatasetPaths {
    DatasetPaths::new("/datasets/ds")
}

fn schema() -> Arc<Schema> {
    let columns = vec![
        Column::new("energy", DataType::F32).with_unit("J"),
        Column::new("id", DataType::U64),
        Column::new("tag", DataType::FixedBytes(3)),
    ];
    Arc::new(Schema::new(columns, "energy").unwrap())
}

fn options() -> PartOptions {
    PartOptions { page_rows: 16, row_groups_per_run: 2, ..PartOptions::default() }
}

/// Returns the ids of the records of `seed`. Different seeds have different ids.
fn ids(seed: u64) -> Vec<u64> {
    let count = u64::from(PARTS) * 2 * RUN_ROWS;
    (seed * 1000..seed * 1000 + count).collect()
}

fn memtable(ids: &[u64]) -> Memtable {
    let mut memtable = Memtable::new(schema(), 1 << 16);
    for id in ids {
        let energy = (id * 7919 % 101) as f32;
        memtable.push(&[&energy.to_le_bytes()[..], &id.to_le_bytes(), &[1, 2, *id as u8]].concat());
    }
    memtable
}

fn context(run: u32) -> RunContext {
    let bounds = Some((Value::Float(0.0), Value::Float(100.0)));
    RunContext { run, kind: RunKind::Regular, table_version: 1, bounds }
}

/// Opens the dataset as a writer. Breaks locks, since this process is the holder in simulated crashes.
fn open(storage: &Arc<dyn Storage>) -> Result<(WriterLock, DatasetDescriptor)> {
    let (lock, _) = WriterLock::acquire(storage, &paths(), true)?;
    let descriptor = DatasetDescriptor::open_or_create(&**storage, &paths(), &DatasetDescriptor::new(schema()))?;
    recover(storage, &paths(), &descriptor)?;
    Ok((lock, descriptor))
}

/// Writes the parts of an attempt and returns its manifest.
fn write_parts(storage: &Arc<dyn Storage>, commit: &EpochCommit, seed: u64) -> Result<EpochManifest> {
    let ids = ids(seed);
    let mut manifest = EpochManifest::new(commit.identity().epoch, commit.identity().commit);
    manifest.metrics.rows = ids.len() as u64;
    for (rank, ids) in ids.chunks(2 * RUN_ROWS as usize).enumerate() {
        let part = PartId { rank: rank as u32, roll: 0 };
        let (directory, identity) = (commit.directory(), commit.identity());
        let mut writer = PartWriter::create(storage.clone(), &directory, part, schema(), options(), identity)?;
        for (run, ids) in ids.chunks(RUN_ROWS as usize).enumerate() {
            manifest.row_groups.extend(writer.append_run(&memtable(ids), context(run as u32))?);
        }
        manifest.parts.push(writer.finish()?);
    }
    Ok(manifest)
}

/// Writes an epoch with a writer that is already open.
fn write_epoch(
    storage: &Arc<dyn Storage>,
    descriptor: &DatasetDescriptor,
    epoch: u64,
    if_exists: IfExists,
    seed: u64,
) -> Result<()> {
    let Some(commit) = EpochCommit::begin(storage, &paths(), descriptor, epoch, if_exists)? else { return Ok(()) };
    let manifest = write_parts(storage, &commit, seed)?;
    commit.commit(manifest)
}

/// Runs a job: acquires the lock, writes one epoch, and releases the lock.
fn job(storage: &Arc<dyn Storage>, epoch: u64, if_exists: IfExists, seed: u64) -> Result<()> {
    let (lock, descriptor) = open(storage)?;
    write_epoch(storage, &descriptor, epoch, if_exists, seed)?;
    lock.release()
}

/// Returns the ids of all records by epoch, as a reader finds them.
fn contents(storage: &dyn Storage) -> BTreeMap<u64, Vec<u64>> {
    let descriptor = DatasetDescriptor::read(storage, &paths()).unwrap();
    let epochs = super::list_epochs(storage, &paths()).unwrap();
    epochs.into_iter().map(|epoch| (epoch, epoch_ids(storage, &descriptor, epoch).unwrap())).collect()
}

fn epoch_ids(storage: &dyn Storage, descriptor: &DatasetDescriptor, epoch: u64) -> Result<Vec<u64>> {
    let manifest = load_manifest(storage, &paths(), descriptor, epoch)?;
    let mut bytes = Vec::new();
    for entry in &manifest.parts {
        let path = paths().part(epoch, entry, &schema());
        let reader = PartReader::open(storage, &path, entry, manifest.commit, descriptor.schema.clone())?;
        let of_part = |run: &&RowGroupEntry| run.part == entry.part;
        for run in manifest.row_groups.iter().filter(of_part) {
            for page in 0..reader.pages(run.row_group, 1)?.len() {
                reader.read_page(run.row_group, 1, page, true, &mut bytes)?;
            }
        }
    }
    let mut ids: Vec<u64> = bytes.as_chunks().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Creates a durable dataset. `epochs` are labels and the seeds of their records.
fn dataset(exchange: bool, epochs: &[(u64, u64)]) -> MemoryStorage {
    let memory = if exchange { MemoryStorage::new() } else { MemoryStorage::without_exchange() };
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    for (epoch, seed) in epochs {
        job(&storage, *epoch, IfExists::Error, *seed).unwrap();
    }
    memory.crash()
}
