//! Tests of bitmap indexes that are made while records are written, by all ranks in one process.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use turbidite::random::Random;
use turbidite::storage::{Fault, FaultStorage, FileKind, MemoryStorage, Storage, WritableFile};
use turbidite::store::{DatasetPaths, IfExists, WriterLock, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, Error, IndexBuild, IndexOptions, LocalJob, Query, Schema, VerifyOptions,
    WriteOptions, drop_index_with,
};

use crate::support::files::{files, overwrite};
use crate::support::wrapped::WrappedStorage;

/// Energy, two velocities, a cell and an id.
type Record = (f32, f32, f64, i16, u32);

fn schema(key: &str) -> Schema {
    let columns = vec![
        Column::new("energy", DataType::F32),
        Column::new("ux", DataType::F32),
        Column::new("uy", DataType::F64),
        Column::new("cell", DataType::I16),
        Column::new("id", DataType::U32),
        Column::new("tag", DataType::FixedBytes(3)),
    ];
    Schema::clustered(columns, &key.parse().unwrap()).unwrap()
}

fn records(seed: u64, count: u32) -> Vec<Record> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|number| {
            let velocity = (random.below(1 << 16) as f64 / f64::from(1 << 15) - 1.0).powi(3);
            let energy = if random.below(50) == 0 { f32::NAN } else { random.below(1 << 20) as f32 / 1000.0 };
            let uy = [f64::NAN, 0.0, -0.0, f64::INFINITY][random.below(4) as usize];
            let uy = if random.below(20) == 0 { uy } else { velocity * 3.0 };
            (energy, velocity as f32, uy, (number / 40 % 200) as i16 - 100, number * 3)
        })
        .collect()
}

fn options(ranks: u32, indexes: &[&str]) -> WriteOptions {
    let mut options = WriteOptions::new(ranks);
    options.memtable_bytes = 64 << 10;
    options.page_rows = 256;
    options.part_bytes = Some(0);
    options.if_exists = IfExists::Replace;
    // The removal of a lock may fail, too.
    options.break_lock = true;
    options.indexes = indexes.iter().map(|text| text.parse().unwrap()).collect();
    options
}

fn append(job: &LocalJob, ranks: u32, records: &[Record]) {
    for (chunk, records) in records.chunks(1_000).enumerate() {
        macro_rules! column {
            ($field:tt) => {
                records.iter().map(|record| record.$field).collect::<Vec<_>>()
            };
        }
        let (energies, ux, uy, cells, ids) = (column!(0), column!(1), column!(2), column!(3), column!(4));
        let tags = vec![7; 3 * records.len()];
        let columns = [
            ColumnView::from(&energies),
            ColumnView::from(&ux),
            ColumnView::from(&uy),
            ColumnView::from(&cells),
            ColumnView::from(&ids),
            ColumnView::new(&tags, 3, records.len(), DataType::FixedBytes(3)).unwrap(),
        ];
        job.append(chunk as u32 % ranks, &columns).unwrap();
    }
}

/// Writes one epoch.
fn write(
    storage: &Arc<dyn Storage>,
    (epoch, seed, count): (u64, u64, u32),
    key: &str,
    options: WriteOptions,
) -> Result<u64, Error> {
    let ranks = options.ranks;
    let job = LocalJob::open_with(Arc::clone(storage), "/ds", schema(key), options)?;
    job.begin_epoch(epoch)?;
    append(&job, ranks, &records(seed, count));
    let ended = job.end_epoch();
    job.discard_failed()?;
    job.close()?;
    Ok(ended?.rows)
}

fn index(name: &str) -> PathBuf {
    DatasetPaths::new(Path::new("/ds")).index(name).root().to_owned()
}

/// Returns the sidecars of an index with their contents.
fn sidecars(storage: &MemoryStorage, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = files(storage, &index(name));
    found.retain(|(path, _)| path.extension().is_some_and(|extension| extension == "bitmap"));
    found
}

/// Returns the epochs that an index lacks, and removes what may be left of it.
fn missing(storage: &Arc<dyn Storage>, definition: &str) -> Vec<u64> {
    let options = IndexOptions { break_lock: true, ..IndexOptions::default() };
    let build = IndexBuild::open_with(Arc::clone(storage), "/ds", &definition.parse().unwrap(), &options).unwrap();
    let missing = build.missing().unwrap();
    build.close().unwrap();
    missing
}

/// Makes an index anew from the records.
fn add(storage: &Arc<dyn Storage>, definition: &str) {
    let definition: turbidite::SecondaryIndex = definition.parse().unwrap();
    drop_index_with(storage, "/ds", &definition.name(), &IndexOptions::default()).unwrap();
    let mut build = IndexBuild::open_with(Arc::clone(storage), "/ds", &definition, &IndexOptions::default()).unwrap();
    for epoch in build.missing().unwrap() {
        build.build_epoch(epoch, &|_| ()).unwrap();
    }
    build.close().unwrap();
}

fn verify(storage: &Arc<dyn Storage>) -> Vec<String> {
    let report = verify_on(storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    report.findings.iter().map(|finding| format!("{finding:?}")).collect()
}

#[test]
fn sidecars_made_in_situ_are_those_that_are_added_later() {
    const BOTH: [&str; 2] = ["bitmap:ux,uy,cell", "bitmap:energy,ux,precision=3"];
    for (ranks, key) in [(1, "energy"), (4, "energy"), (8, "hash:id"), (3, "space:ux,uy")] {
        let memory = MemoryStorage::new();
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        let mut options = options(ranks, &[BOTH[0], "id,with=cell", BOTH[1]]);
        options.row_groups_per_part = 9;
        let job = LocalJob::open_with(Arc::clone(&storage), "/ds", schema(key), options).unwrap();
        for (epoch, count) in [(3, 60_000), (5, 0), (7, 23_456)] {
            job.begin_epoch(epoch).unwrap();
            append(&job, ranks, &records(epoch, count));
            assert_eq!(job.end_epoch().unwrap().rows, u64::from(count));
        }
        job.close().unwrap();
        assert_eq!(verify(&storage), Vec::<String>::new(), "{key}");
        let dataset = Dataset::open_with(Arc::clone(&storage), "/ds").unwrap();
        let parts: usize = [3, 5, 7].iter().map(|epoch| dataset.manifest(*epoch).unwrap().parts.len()).sum();
        assert!(parts > 3 * ranks as usize, "{key}: parts have rolled over");
        for definition in BOTH {
            assert_eq!(missing(&storage, definition), Vec::<u64>::new(), "{key}, {definition}");
            let name = definition.trim_end_matches(",precision=3");
            let in_situ = sidecars(&memory, name);
            assert_eq!(in_situ.len(), parts, "{key}, {definition}: one for each part");
            let lists =
                |path: &Path| memory.list(path).unwrap().into_iter().map(|entry| entry.name).collect::<Vec<_>>();
            let names = lists(&index(name));
            add(&storage, definition);
            assert!(sidecars(&memory, name) == in_situ, "{key}, {definition}: bytes");
            assert_eq!(lists(&index(name)), names, "{key}, {definition}");
        }
    }
}

/// Sidecars of which those of one rank are durable after those of the others.
#[derive(Debug)]
struct Order {
    /// Number of sidecars of other ranks that are durable.
    durable: Mutex<usize>,
    changed: Condvar,
    awaited: usize,
    /// Whether the slow rank waited in vain.
    gave_up: AtomicBool,
}

#[derive(Debug)]
struct OrderedFile {
    inner: Box<dyn WritableFile>,
    order: Arc<Order>,
    is_slow: bool,
}

impl WritableFile for OrderedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn truncate(&mut self, bytes: u64) -> std::io::Result<()> {
        self.inner.truncate(bytes)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        let Order { durable, changed, awaited, gave_up } = &*self.order;
        let mut durable = durable.lock().unwrap();
        if !self.is_slow {
            *durable += 1;
            changed.notify_all();
            return self.inner.sync();
        }
        // Ranks that wait for the slow one would wait forever.
        let waiting = |durable: &mut usize| *durable < *awaited;
        let (durable, result) = changed.wait_timeout_while(durable, Duration::from_secs(120), waiting).unwrap();
        drop(durable);
        gave_up.store(result.timed_out(), Ordering::Relaxed);
        self.inner.sync()
    }
}

#[test]
fn one_slow_part_delays_no_other_sidecar() {
    let memory = Arc::new(MemoryStorage::new());
    let order = Arc::new(Order {
        durable: Mutex::default(),
        changed: Condvar::new(),
        awaited: 3,
        gave_up: AtomicBool::default(),
    });
    let ordered = order.clone();
    let storage = WrappedStorage::of_created(memory.clone(), move |path, inner| {
        let name = path.file_name().unwrap().to_string_lossy();
        if !name.ends_with(".bitmap") {
            return inner;
        }
        Box::new(OrderedFile { inner, order: ordered.clone(), is_slow: name.starts_with("part-00001") })
    });
    let mut options = options(4, &["bitmap:ux,cell"]);
    // The slow rank keeps one of them.
    options.threads = 2;
    let job = LocalJob::open_with(Arc::new(storage), "/ds", schema("hash:id"), options).unwrap();
    job.begin_epoch(3).unwrap();
    append(&job, 4, &records(3, 40_000));
    job.end_epoch().unwrap();
    job.close().unwrap();
    assert!(!order.gave_up.load(Ordering::Relaxed), "sidecars waited for that of a slow rank");
    let all: Arc<dyn Storage> = memory.clone();
    assert_eq!((verify(&all), missing(&all, "bitmap:ux,cell")), (Vec::new(), Vec::new()));
    assert_eq!(sidecars(&memory, "bitmap:ux,cell").len(), 4);
}

#[test]
fn a_failed_operation_leaves_the_sidecars_of_one_commit() {
    failed_operations(MemoryStorage::new());
    failed_operations(MemoryStorage::without_exchange());
}

/// Replaces an epoch, again and again, with one failing operation. Whichever records are left have their sidecars.
fn failed_operations(memory: MemoryStorage) {
    const INDEXES: [&str; 2] = ["bitmap:ux,cell", "bitmap:uy"];
    let memory = Arc::new(memory);
    let storage: Arc<dyn Storage> = memory.clone();
    let once = |storage: &Arc<dyn Storage>, seed| write(storage, (0, seed, 12_000), "energy", options(3, &INDEXES));
    once(&storage, 1).unwrap();
    let counting = FaultStorage::new(memory.clone());
    once(&(Arc::new(counting.clone()) as Arc<dyn Storage>), 1).unwrap();
    let operations = counting.counters().operations;
    let mut failed = 0;
    for at in (0..operations).step_by(3) {
        let fault = Fault::Fail { first: at, count: 1, kind: ErrorKind::StorageFull };
        let faulty: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(memory.clone(), fault));
        let written = once(&faulty, 2 + at);
        failed += u32::from(written.is_err());
        let unclean: Vec<_> = verify(&storage).into_iter().filter(|found| found.contains("Corruption")).collect();
        assert!(unclean.is_empty(), "operation {at}: {unclean:?}");
        for definition in INDEXES {
            assert_eq!(missing(&storage, definition), Vec::<u64>::new(), "operation {at}: {written:?}");
        }
    }
    assert!(failed > 10, "{failed} of {operations}");
}

#[test]
fn refused_and_removed_epochs_leave_no_sidecars() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let folders = || {
        let listed = memory.list(&index("bitmap:ux")).unwrap().into_iter();
        let mut folders = listed.filter(|entry| entry.kind == FileKind::Directory && !entry.name.starts_with('_'));
        let names: Vec<String> = folders.by_ref().map(|entry| entry.name).collect();
        names.iter().map(|name| name.split_once('.').unwrap().0.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let job =
        LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options(2, &["bitmap:ux", "id"])).unwrap();
    job.begin_epoch(0).unwrap();
    append(&job, 2, &records(1, 10_000));
    job.end_epoch().unwrap();
    job.begin_epoch(1).unwrap();
    append(&job, 2, &records(2, 30_000));
    job.abort_epoch("the program says so".to_owned()).unwrap();
    assert_eq!(folders(), [0]);
    let unfinished = DatasetPaths::new("/ds").index("bitmap:ux").unfinished();
    assert_eq!(memory.list(&unfinished).unwrap(), []);
    // The epoch is replaced, and another is removed.
    for epoch in [0, 2] {
        job.begin_epoch(epoch).unwrap();
        append(&job, 2, &records(3, 10_000));
        job.end_epoch().unwrap();
    }
    assert_eq!(folders(), [0, 2]);
    assert_eq!(job.truncate_after(0).unwrap(), [2]);
    assert_eq!(folders(), [0]);
    job.close().unwrap();
    assert_eq!(verify(&storage), Vec::<String>::new());
    assert_eq!(missing(&storage, "bitmap:ux"), Vec::<u64>::new());
}

#[test]
fn a_dataset_with_an_index_is_continued() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    write(&storage, (0, 1, 10_000), "energy", options(2, &[])).unwrap();
    write(&storage, (1, 2, 10_000), "energy", options(2, &["bitmap:ux"])).unwrap();
    assert_eq!(missing(&storage, "bitmap:ux"), [0], "an epoch from before the index");
    add(&storage, "bitmap:ux");
    write(&storage, (2, 3, 10_000), "energy", options(2, &["bitmap:ux"])).unwrap();
    assert_eq!(missing(&storage, "bitmap:ux"), Vec::<u64>::new());
    write(&storage, (3, 4, 10_000), "energy", options(2, &[])).unwrap();
    // A writer that is killed may leave these.
    let paths = DatasetPaths::new("/ds").index("bitmap:ux");
    let left = [
        paths.root().join("1.00000000-0000-4000-8000-000000000001"),
        paths.unfinished().join("4.00000000-0000-4000-8000-000000000002"),
    ];
    for folder in &left {
        storage.create_dir_all(folder).unwrap();
        storage.create(&folder.join("part-00000.bitmap")).unwrap();
    }
    write(&storage, (1, 5, 10_000), "energy", options(2, &["bitmap:ux"])).unwrap();
    assert!(left.iter().all(|folder| storage.kind(folder).unwrap().is_none()));
    assert_eq!(missing(&storage, "bitmap:ux"), [3]);
    assert_eq!(verify(&storage), Vec::<String>::new());
    // Rows are counted by bins where there are some.
    let expected = |seed| records(seed, 10_000).iter().filter(|record| record.1 > 0.5).count() as u64;
    let count = || {
        let dataset = Dataset::open_with(Arc::clone(&storage), "/ds").unwrap();
        dataset.count(&Query::new().filter("ux > 0.5")).unwrap().0
    };
    let expected = [1, 5, 3, 4].map(expected).iter().sum::<u64>();
    assert_eq!(count(), expected);
    let (path, mut content) = sidecars(&memory, "bitmap:ux").remove(0);
    content[20] ^= 1;
    overwrite(&memory, &path, &content);
    let findings = verify(&storage);
    assert!(findings.len() == 1 && findings[0].contains("part-00000"), "{findings:?}");
    assert_eq!(count(), expected, "from the records");
}

#[test]
fn indexes_that_cannot_be_made_are_refused_before_records_are_written() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let refusal = |indexes: &[&str]| {
        let opened = LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options(2, indexes));
        opened.unwrap_err().to_string()
    };
    for (indexes, expected) in [
        (&["bitmap:nothing"][..], "'nothing'"),
        (&["bitmap:ux,tag"], "'tag' has no numbers"),
        (&["bitmap:ux", "bitmap:ux,precision=3"], "'bitmap:ux' is named twice"),
    ] {
        let error = refusal(indexes);
        assert!(error.contains(expected), "{indexes:?}: {error}");
    }
    assert!(storage.kind(Path::new("/ds")).unwrap().is_none(), "nothing was created");
    write(&storage, (0, 1, 1_000), "energy", options(2, &["bitmap:ux"])).unwrap();
    let error = refusal(&["bitmap:ux,precision=3"]);
    assert!(error.contains("the precision of index 'bitmap:ux' is 2; drop it first"), "{error}");
    let paths = DatasetPaths::new("/ds").index("bitmap:ux");
    let (lock, _) = WriterLock::acquire(&storage, &paths, false).unwrap();
    let error = refusal(&["bitmap:ux"]);
    assert!(error.contains("_turbidite/index/bitmap:ux"), "{error}");
    lock.release().unwrap();
    // The lock of the records was released each time.
    write(&storage, (1, 1, 1_000), "energy", options(2, &["bitmap:ux"])).unwrap();
    assert_eq!(missing(&storage, "bitmap:ux"), Vec::<u64>::new());
}
