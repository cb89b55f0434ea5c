//! A small dataset that is clustered by space, with all features of such datasets: levels of detail in proportion to a
//! column, periods, several row groups of each level, NaN and infinities in coordinates and in the weight. Its bytes
//! are the same in each process but for the identity of the commit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turbidite::format::EpochManifest;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths};
use turbidite::{Column, ColumnView, DataType, Dataset, Levels, LocalJob, Schema, WriteOptions};
use uuid::Uuid;

use super::sample::{ROOT, files_below, mix};

/// The only epoch.
pub const EPOCH: u64 = 1;

/// Number of records.
const ROWS: u64 = 900;

/// The dataset.
#[derive(Debug, Clone)]
pub struct SpaceSample {
    /// The dataset's files by path. Folders are implied.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The manifest of the epoch.
    pub manifest: EpochManifest,
    /// The content of dataset.json.
    pub descriptor: DatasetDescriptor,
    /// The columns, the key, levels and periods.
    pub schema: Arc<Schema>,
}

/// Returns the dataset's schema.
fn schema() -> Arc<Schema> {
    let columns = vec![
        Column::new("id", DataType::U32),
        Column::new("x", DataType::F32),
        Column::new("y", DataType::F64),
        Column::new("w", DataType::F32),
    ];
    let schema = Schema::new(columns, "space:x,y").expect("it is a schema");
    let schema = schema.with_levels(Levels { count: 2, seed: 7 }).expect("the key is by space");
    let schema = schema.with_level_weight("w").expect("it is a column of numbers");
    let periods = "8,".parse().expect("they are periods");
    Arc::new(schema.with_periods(periods).expect("the key has two coordinates"))
}

/// Returns a record's coordinates and weight.
fn record(id: u64) -> (f32, f64, f32) {
    let random = mix(id);
    let share = |shift: u32| (random >> shift & 0xffff) as f64 / 65_536.0;
    let x = if id % 90 == 7 { f32::NAN } else { (8.0 * share(0)) as f32 };
    let y = if id % 90 == 8 { f64::INFINITY } else { 4.0 * share(16) };
    let w = match id % 50 {
        9 => f32::NAN,
        10 => f32::INFINITY,
        11 => -1.0,
        _ => 1.0 / (1.01 - share(32) as f32),
    };
    (x, y, w)
}

fn write(storage: &Arc<MemoryStorage>) {
    let mut options = WriteOptions::new(1);
    (options.memtable_bytes, options.page_rows, options.threads) = (8 << 10, 16, 1);
    let job = LocalJob::open_with(storage.clone(), ROOT, Schema::clone(&schema()), options).expect("memory");
    job.begin_epoch(EPOCH).expect("memory");
    let ids: Vec<u32> = (0..ROWS as u32).collect();
    let rows: Vec<(f32, f64, f32)> = (0..ROWS).map(record).collect();
    let x: Vec<f32> = rows.iter().map(|row| row.0).collect();
    let y: Vec<f64> = rows.iter().map(|row| row.1).collect();
    let w: Vec<f32> = rows.iter().map(|row| row.2).collect();
    let views = [
        ColumnView::from(ids.as_slice()),
        ColumnView::from(x.as_slice()),
        ColumnView::from(y.as_slice()),
        ColumnView::from(w.as_slice()),
    ];
    job.append(0, &views).expect("memory");
    job.end_epoch().expect("memory");
    job.close().expect("memory");
}

impl SpaceSample {
    /// Writes the dataset.
    pub fn new() -> Self {
        let (storage, layout) = (Arc::new(MemoryStorage::new()), DatasetPaths::new(ROOT));
        storage.create_dir_all(&layout.control()).expect("memory");
        let stated = DatasetDescriptor { uuid: Uuid::from_u128(0x5face), ..DatasetDescriptor::new(schema()) };
        let content = stated.encode().expect("it is JSON");
        storage.create(&layout.descriptor()).expect("it is new").write_at(0, &content).expect("memory");
        write(&storage);
        let opened = Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).expect("it is a dataset");
        let manifest = EpochManifest::clone(&opened.manifest(EPOCH).expect("it is there"));
        let files = files_below(&*storage, Path::new(ROOT));
        Self { files, manifest, descriptor: opened.descriptor().clone(), schema: opened.schema().clone() }
    }

    /// Returns a storage backend with these files. The folder of the epoch exists, even if it has no files.
    pub fn storage(files: &[(PathBuf, Vec<u8>)]) -> MemoryStorage {
        let (storage, layout) = (MemoryStorage::new(), DatasetPaths::new(ROOT));
        for folder in [layout.epoch(EPOCH), layout.manifests(), layout.unfinished()] {
            storage.create_dir_all(&folder).expect("memory");
        }
        for (path, content) in files {
            storage.create_dir_all(path.parent().expect("it is below a folder")).expect("memory");
            storage.create(path).expect("it is new").write_at(0, content).expect("memory");
        }
        storage
    }
}

impl Default for SpaceSample {
    fn default() -> Self {
        Self::new()
    }
}
