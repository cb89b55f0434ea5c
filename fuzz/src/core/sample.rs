//! A small dataset with all features: several epochs and parts, runs of every kind, row groups of several pages, NaN in
//! keys and in other columns, a part and an epoch without rows, and an unfinished attempt. Its bytes are deterministic.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turbidite::format::{
    EpochManifest, EpochMetrics, Memtable, PartEntry, PartId, PartIdentity, PartOptions, PartWriter, RowGroupEntry,
    RunContext, RunKind,
};
use turbidite::storage::{FileKind, MemoryStorage, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths};
use turbidite::{Column, DataType, Schema, Value};
use uuid::Uuid;

/// The folder of the dataset in its storage.
pub const ROOT: &str = "/ds";

/// The epoch of the unfinished attempt.
pub const UNFINISHED: u64 = 9;

/// One stored record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// The record's epoch.
    pub epoch: u64,
    /// The key.
    pub energy: f32,
    /// A number. Some are NaN.
    pub a: f32,
    /// A small integer.
    pub b: i16,
    /// The unique ID.
    pub id: u64,
}

impl Record {
    fn pack(&self, row: &mut Vec<u8>) {
        row.extend_from_slice(&self.b.to_le_bytes());
        row.extend_from_slice(&self.energy.to_le_bytes());
        row.extend_from_slice(&self.a.to_le_bytes());
        row.extend_from_slice(&self.id.to_le_bytes());
        let id = self.id.to_le_bytes();
        row.extend_from_slice(&[id[0], 0xa5, id[1]]);
    }
}

/// The dataset and its records.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The dataset's files by path. Folders are implied.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The manifests of the dataset's epochs.
    pub manifests: Vec<EpochManifest>,
    /// The content of dataset.json.
    pub descriptor: DatasetDescriptor,
    /// All records of committed epochs.
    pub records: Vec<Record>,
}

/// Returns the dataset's schema.
pub fn schema() -> Arc<Schema> {
    let columns = vec![
        Column::new("b", DataType::I16),
        Column::new("energy", DataType::F32),
        Column::new("a", DataType::F32),
        Column::new("id", DataType::U64),
        Column::new("tag", DataType::FixedBytes(3)),
    ];
    Arc::new(Schema::new(columns, "energy").expect("it is a schema"))
}

/// Returns the identity of a commit.
pub fn identity(epoch: u64) -> PartIdentity {
    let (dataset, commit) = (Uuid::from_u128(0xda7a), Uuid::from_u128(0xc0_0000 + u128::from(epoch)));
    PartIdentity { dataset, commit, epoch }
}

/// Returns a pseudo-random number for a seed.
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The runs of a part: the kind and the number of records of each.
type ExpressionPlan = &'static [(RunKind, u64)];

/// Epochs, each with the runs of its parts.
const EPOCHS: &[(u64, &[ExpressionPlan])] = &[
    (
        1,
        &[
            &[(RunKind::Regular, 48), (RunKind::Stray, 7), (RunKind::NanKey, 5)],
            &[(RunKind::Regular, 30), (RunKind::Unordered, 9)],
        ],
    ),
    (2, &[&[(RunKind::Regular, 20)], &[]]),
    (30, &[&[]]),
];

fn records_of(epoch: u64, rank: u32, run: u32, kind: RunKind, count: u64) -> Vec<Record> {
    let first = epoch << 32 | u64::from(rank) << 16 | u64::from(run) << 8;
    let record = |id: u64| {
        let random = mix(id);
        let within = (random % 256) as f32 / 256.0;
        let energy = match kind {
            RunKind::NanKey => f32::NAN,
            RunKind::Regular => rank as f32 + within,
            RunKind::Stray | RunKind::Unordered => within * 4.0 - 1.0,
        };
        let a = if random.is_multiple_of(11) { f32::NAN } else { (random >> 20) as f32 % 100.0 };
        Record { epoch, energy, a, b: (random >> 50) as i16 - 8192, id }
    };
    (first..first + count).map(record).collect()
}

fn write_part(
    storage: &Arc<dyn Storage>,
    directory: &Path,
    identity: PartIdentity,
    rank: u32,
    plan: ExpressionPlan,
    records: &mut Vec<Record>,
) -> (PartEntry, Vec<RowGroupEntry>) {
    let options = PartOptions { page_rows: 8, row_groups_per_run: 2, ..PartOptions::default() };
    let part = PartId { rank, roll: 0 };
    let mut writer = PartWriter::create(storage.clone(), directory, part, schema(), options, identity).expect("memory");
    let mut runs = Vec::new();
    for (number, (kind, count)) in (0..).zip(plan) {
        let rows = records_of(identity.epoch, rank, number, *kind, *count);
        let mut packed = Vec::new();
        rows.iter().for_each(|row| row.pack(&mut packed));
        let mut table = Memtable::new(schema(), packed.len());
        table.push(&packed);
        let bounds =
            (*kind == RunKind::Regular).then(|| (Value::Float(f64::from(rank)), Value::Float(f64::from(rank + 1))));
        let context = RunContext { run: number, kind: *kind, table_version: 1, bounds };
        runs.extend(writer.append_run(&table, context).expect("memory"));
        records.extend(rows);
    }
    (writer.finish().expect("memory"), runs)
}

fn epoch_metrics(runs: &[RowGroupEntry], parts: u32) -> EpochMetrics {
    let count = |kind| runs.iter().filter(|run| run.kind == kind).map(|run| run.rows).sum();
    EpochMetrics {
        ranks: parts,
        receivers: parts,
        rows: runs.iter().map(|run| run.rows).sum(),
        strays: count(RunKind::Stray),
        spills: count(RunKind::Unordered),
        nan_keys: count(RunKind::NanKey),
        ..EpochMetrics::default()
    }
}

fn put(storage: &dyn Storage, path: &Path, content: &[u8]) {
    storage.create(path).expect("it is new").write_at(0, content).expect("memory");
}

/// Returns all files below a folder.
pub fn files_below(storage: &dyn Storage, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in storage.list(folder).expect("it is there") {
        let path = folder.join(&entry.name);
        if entry.kind == FileKind::Directory {
            files.extend(files_below(storage, &path));
            continue;
        }
        let file = storage.open(&path).expect("it is there");
        let mut content = vec![0; file.bytes() as usize];
        file.read_at(0, &mut content).expect("memory");
        files.push((path, content));
    }
    files
}

impl Sample {
    /// Builds the dataset.
    pub fn new() -> Self {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let layout = DatasetPaths::new(ROOT);
        let descriptor = DatasetDescriptor {
            uuid: identity(0).dataset,
            derivations: vec!["energy = sqrt(1 + a * a) - 1".to_owned()],
            source: Some("a test".to_owned()),
            ..DatasetDescriptor::new(schema())
        };
        let (mut manifests, mut records) = (Vec::new(), Vec::new());
        storage.create_dir_all(&layout.manifests()).expect("memory");
        for (epoch, parts) in EPOCHS {
            let directory = layout.epoch(*epoch);
            storage.create_dir_all(&directory).expect("memory");
            let written: Vec<_> = (0..)
                .zip(*parts)
                .map(|(rank, plan)| write_part(&storage, &directory, identity(*epoch), rank, plan, &mut records))
                .collect();
            let (parts, runs): (Vec<_>, Vec<_>) = written.into_iter().unzip();
            let runs: Vec<RowGroupEntry> = runs.into_iter().flatten().collect();
            let metrics = epoch_metrics(&runs, parts.len() as u32);
            let manifest = EpochManifest {
                indexed_commit: None,
                attributes: Default::default(),
                partitions: None,
                epoch: *epoch,
                commit: identity(*epoch).commit,
                parts,
                row_groups: runs.into(),
                keys: Default::default(),
                metrics,
            };
            let bytes = manifest.encode(&schema()).expect("the columns fit");
            put(&*storage, &layout.manifest(*epoch, manifest.commit), &bytes);
            manifests.push(manifest);
        }
        put(&*storage, &layout.descriptor(), &descriptor.encode().expect("it is JSON"));
        let attempt = layout.attempt(UNFINISHED, identity(UNFINISHED).commit);
        storage.create_dir_all(&attempt).expect("memory");
        let plan: ExpressionPlan = &[(RunKind::Regular, 12), (RunKind::Regular, 9)];
        write_part(&storage, &attempt, identity(UNFINISHED), 0, plan, &mut Vec::new());
        let files = files_below(&*storage, Path::new(ROOT));
        Self { files, manifests, descriptor, records }
    }

    /// Returns a storage backend with these files. The folders of all epochs exist, even if they have no files.
    pub fn storage(files: &[(PathBuf, Vec<u8>)]) -> MemoryStorage {
        let storage = MemoryStorage::new();
        let layout = DatasetPaths::new(ROOT);
        let epochs = EPOCHS.iter().map(|(epoch, _)| layout.epoch(*epoch));
        for folder in epochs.chain([layout.manifests(), layout.unfinished()]) {
            storage.create_dir_all(&folder).expect("memory");
        }
        for (path, content) in files {
            storage.create_dir_all(path.parent().expect("it is below a folder")).expect("memory");
            put(&storage, path, content);
        }
        storage
    }
}

impl Default for Sample {
    fn default() -> Self {
        Self::new()
    }
}
