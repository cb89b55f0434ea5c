//! A small dataset with every kind of run, whose records follow from their numbers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::Arc;

use turbidite::format::{
    EpochManifest, EpochMetrics, KeyRangeCounts, Memtable, PartId, PartOptions, PartWriter, RunContext, RunKind,
};
use turbidite::storage::{FileSystem, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths, EpochCommit, IfExists};
use turbidite::{Column, DataType, Schema, Value};

/// One stored record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) epoch: u64,
    pub(crate) id: u64,
    pub(crate) energy: f32,
    pub(crate) a: f64,
    pub(crate) b: i16,
}

impl Record {
    pub(crate) fn pack(&self, row: &mut Vec<u8>) {
        row.extend_from_slice(&self.id.to_le_bytes());
        row.extend_from_slice(&self.energy.to_le_bytes());
        row.extend_from_slice(&self.a.to_le_bytes());
        row.extend_from_slice(&self.b.to_le_bytes());
        row.extend_from_slice(&self.tag());
    }

    pub(crate) fn tag(&self) -> [u8; 3] {
        let id = self.id.to_le_bytes();
        [id[0], 0xA5, id[1]]
    }
}

/// Returns the columns and the key.
pub(crate) fn schema() -> Schema {
    let columns = vec![
        Column::new("id", DataType::U64),
        Column::new("energy", DataType::F32).with_unit("m_e c^2"),
        Column::new("a", DataType::F64),
        Column::new("b", DataType::I16),
        Column::new("tag", DataType::FixedBytes(3)),
    ];
    Schema::new(columns, "energy").unwrap()
}

/// The runs of a part: its rank, its roll, and the kind and the number of records of each run.
type PartPlan = (u32, u32, &'static [(RunKind, u64)]);

/// Epochs, each with its parts.
const EPOCHS: &[(u64, &[PartPlan])] = &[
    (
        1,
        &[
            (0, 0, &[(RunKind::Regular, 90), (RunKind::Stray, 17), (RunKind::NanKey, 5)]),
            (0, 1, &[(RunKind::Regular, 31)]),
            (2, 0, &[(RunKind::Regular, 64), (RunKind::Unordered, 19), (RunKind::Unordered, 1)]),
        ],
    ),
    (2, &[(1, 0, &[(RunKind::Regular, 40), (RunKind::Regular, 8)])]),
    (30, &[(0, 0, &[])]),
];

fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn record(epoch: u64, rank: u32, kind: RunKind, id: u64) -> Record {
    let random = mix(id);
    let within = (random % 128) as f32 / 128.0;
    let energy = match kind {
        RunKind::NanKey => f32::NAN,
        RunKind::Regular => rank as f32 + within,
        RunKind::Stray | RunKind::Unordered => within * 4.0 - 1.0,
    };
    let a = if random.is_multiple_of(13) { f64::NAN } else { (random >> 20) as f64 % 100.0 - 20.0 };
    Record { epoch, id, energy, a, b: (random >> 50) as i16 - 8192 }
}

fn run_records(epoch: u64, (rank, roll): (u32, u32), run: u32, kind: RunKind, count: u64) -> Vec<Record> {
    let first = epoch << 32 | u64::from(rank) << 24 | u64::from(roll) << 16 | u64::from(run) << 8;
    (first..first + count).map(|id| record(epoch, rank, kind, id)).collect()
}

/// Returns all records of the sample.
pub(crate) fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for &(epoch, parts) in EPOCHS {
        for &(rank, roll, runs) in parts {
            for (run, &(kind, count)) in (0..).zip(runs) {
                records.extend(run_records(epoch, (rank, roll), run, kind, count));
            }
        }
    }
    records
}

/// Writes the sample at `root`, with a last epoch 40 that was never committed.
pub(crate) fn write(root: &Path) -> turbidite::Result<()> {
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let paths = DatasetPaths::new(root);
    let wanted = DatasetDescriptor {
        derivations: vec!["energy = sqrt(1 + a * a) - 1".to_owned()],
        source: Some("a test".to_owned()),
        ..DatasetDescriptor::new(Arc::new(schema()))
    };
    let descriptor = DatasetDescriptor::open_or_create(&*storage, &paths, &wanted)?;
    for &(epoch, parts) in EPOCHS {
        let commit = begin(&storage, &paths, &descriptor, epoch)?;
        let manifest = write_parts(&storage, &descriptor, &commit, parts)?;
        commit.commit(manifest)?;
    }
    let unfinished = begin(&storage, &paths, &descriptor, 40)?;
    write_parts(&storage, &descriptor, &unfinished, EPOCHS[1].1)?;
    unfinished.abandon();
    Ok(())
}

fn begin(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    epoch: u64,
) -> turbidite::Result<EpochCommit> {
    Ok(EpochCommit::begin(storage, paths, descriptor, epoch, IfExists::Error)?.expect("it is not skipped"))
}

fn write_parts(
    storage: &Arc<dyn Storage>,
    descriptor: &DatasetDescriptor,
    commit: &EpochCommit,
    plans: &[PartPlan],
) -> turbidite::Result<EpochManifest> {
    let options = PartOptions { page_rows: 16, row_groups_per_run: 2, ..PartOptions::default() };
    let (schema, identity) = (&descriptor.schema, commit.identity());
    let (mut parts, mut row_groups, mut range_counts) = (Vec::new(), Vec::new(), Vec::new());
    for &(rank, roll, runs) in plans {
        let part = PartId { rank, roll };
        let mut writer =
            PartWriter::create(storage.clone(), &commit.directory(), part, schema.clone(), options, identity)?;
        for (run, &(kind, count)) in (0..).zip(runs) {
            let mut packed = Vec::new();
            let records = run_records(identity.epoch, (rank, roll), run, kind, count);
            records.iter().for_each(|record| record.pack(&mut packed));
            let mut memtable = Memtable::new(schema.clone(), packed.len());
            memtable.push(&packed);
            let bounds =
                (kind == RunKind::Regular).then(|| (Value::Float(f64::from(rank)), Value::Float(f64::from(rank + 1))));
            let context = RunContext { run, kind, table_version: 1, bounds };
            row_groups.extend(writer.append_run(&memtable, context)?);
        }
        range_counts.extend_from_slice(writer.take_keys().get());
        parts.push(writer.finish()?);
    }
    let count = |kind| row_groups.iter().filter(|entry| entry.kind == kind).map(|entry| entry.rows).sum();
    let metrics = EpochMetrics {
        ranks: 3,
        receivers: 2,
        rows: row_groups.iter().map(|entry| entry.rows).sum(),
        strays: count(RunKind::Stray),
        spills: count(RunKind::Unordered),
        nan_keys: count(RunKind::NanKey),
        ..EpochMetrics::default()
    };
    let (epoch, commit) = (identity.epoch, identity.commit);
    let keys = KeyRangeCounts::from(range_counts);
    Ok(EpochManifest {
        epoch,
        commit,
        parts,
        partitions: None,
        indexed_commit: None,
        attributes: Default::default(),
        row_groups: row_groups.into(),
        keys,
        metrics,
    })
}
