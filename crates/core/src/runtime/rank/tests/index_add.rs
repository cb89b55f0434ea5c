//! Tests of indexes of entries that several processes make of committed epochs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

use super::indexes::check_files;
use super::*;
use crate::format::{EpochManifest, RunKind};
use crate::index::{EntryLayout, IndexDefinition, SecondaryIndex};
use crate::index_build::{IndexBuild, IndexOptions};
use crate::shuffle::Topology;
use crate::storage::{DirEntry, FileKind, ReadableFile, WritableFile};

/// Epochs of the datasets of these tests, with their numbers of records.
const EPOCHS: [(u64, u32); 3] = [(0, 160_000), (3, 0), (7, 90_000)];

/// Writes a dataset with values of all kinds: some are NaN, and many are equal.
fn records() -> MemoryStorage {
    let storage = MemoryStorage::new();
    let columns = vec![
        Column::new("key", DataType::U32),
        Column::new("value", DataType::F32),
        Column::new("id", DataType::U64),
        Column::new("nothing", DataType::F64),
    ];
    let schema = Schema::new(columns, "key").unwrap();
    let job = LocalJob::open_with(Arc::new(storage.clone()), "ds", schema, options(4)).unwrap();
    for (epoch, rows) in EPOCHS {
        job.begin_epoch(epoch).unwrap();
        for chunk in 0..rows / 10_000 {
            let numbers: Vec<u32> = (chunk * 10_000..(chunk + 1) * 10_000).collect();
            let keys: Vec<u32> = numbers.iter().map(|number| number.wrapping_mul(0x9E37_79B9) >> 8).collect();
            let value = |key: &u32| match key % 10 {
                0 => f32::NAN,
                1..6 => 1.5,
                _ => (*key as f32).sqrt(),
            };
            let values: Vec<f32> = keys.iter().map(value).collect();
            let ids: Vec<u64> = keys.iter().map(|key| u64::from(key.wrapping_mul(0x85EB_CA6B))).collect();
            let nothing = vec![f64::NAN; keys.len()];
            let views = [
                ColumnView::from(&keys),
                ColumnView::from(&values),
                ColumnView::from(&ids),
                ColumnView::from(&nothing),
            ];
            job.append(chunk % 4, &views).unwrap();
        }
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    storage
}

/// Returns the files of a folder by their paths, except for locks.
fn files(storage: &dyn Storage, folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in storage.list(folder).unwrap() {
        let path = folder.join(&entry.name);
        match entry.kind {
            FileKind::Directory => found.extend(files(storage, &path)),
            _ => drop(found.insert(path.clone(), crate::storage::read_all(storage, &path, 1 << 30).unwrap())),
        }
    }
    found
}

/// Makes an index of a copy of `records` by so many processes of so many threads: by one without a connection, if there
/// are 0. All memtables together are as large as `most` of them, unless each part has one. Returns the files of the
/// index.
fn add(
    records: &MemoryStorage,
    definition: &SecondaryIndex,
    ranks: u32,
    threads: usize,
    (memtable_bytes, most): (usize, u64),
) -> BTreeMap<PathBuf, Vec<u8>> {
    let storage: Arc<dyn Storage> = Arc::new(records.crash());
    let options = IndexOptions { threads: Some(threads), break_lock: true };
    let make = |build: Result<IndexBuild>| {
        let mut build = build.unwrap();
        build.dataset_build().set_memtable_bytes(memtable_bytes);
        build.dataset_build().set_most_memtables(most);
        let missing = build.missing().unwrap();
        assert_eq!(missing, EPOCHS.map(|(epoch, _)| epoch));
        for (epoch, rows) in EPOCHS {
            build.dataset_build().commit_next_as(Uuid::from_u128(u128::from(epoch) + 1));
            assert_eq!(build.build_epoch(epoch, &|_| ()).unwrap().rows, u64::from(rows));
        }
        build.close().unwrap();
    };
    match ranks {
        0 => make(IndexBuild::open_with(Arc::clone(&storage), "ds", definition, &options)),
        _ => drop(run(ranks, |rank, transport| {
            let (shared, topology) = (Arc::clone(&storage), Topology::one_node());
            make(IndexBuild::open_rank_with(shared, "ds", definition, &options, (rank, ranks), topology, transport));
        })),
    }
    check_files(&storage);
    files(&*storage, DatasetPaths::new("ds").index(&definition.name()).root())
}

/// Creates an index without epochs. Its UUID is then in all copies of the storage.
fn create(storage: &MemoryStorage, definition: &SecondaryIndex) {
    let options = IndexOptions { break_lock: true, ..IndexOptions::default() };
    IndexBuild::open_with(Arc::new(storage.clone()), "ds", definition, &options).unwrap().close().unwrap();
}

#[test]
fn any_number_of_processes_and_threads_writes_the_same_bytes() {
    let written = records();
    for (text, memory, parts) in [
        ("value,with=id", (48 << 10, 32), 17),
        ("value", (1 << 20, 32), 1),
        ("hash:id", (48 << 10, 32), 14),
        ("key,with=value", (48 << 10, 1), 14),
        ("nothing", (48 << 10, 32), 1),
    ] {
        let (storage, definition): (_, SecondaryIndex) = (written.crash(), text.parse().unwrap());
        create(&storage, &definition);
        let alone = add(&storage, &definition, 0, 1, memory);
        let folder = DatasetPaths::new("ds").index(&definition.name()).epoch(0);
        assert_eq!(alone.keys().filter(|path| path.starts_with(&folder)).count(), parts, "{text}");
        for (ranks, threads) in [(0, 4), (1, 1), (2, 1), (3, 2), (16, 1)] {
            let shared = add(&storage, &definition, ranks, threads, memory);
            assert!(alone.keys().eq(shared.keys()), "{text}, {ranks} ranks: {:?}", shared.keys());
            let differs = alone.iter().find(|(path, bytes)| shared[*path] != **bytes);
            assert!(
                differs.is_none(),
                "{text}, {ranks} ranks of {threads} threads: {:?}",
                differs.map(|(path, _)| path)
            );
        }
    }
}

/// Runs are cut by the buckets of a large memtable, too. Where memory allows, a part has one run.
#[test]
fn runs_of_large_memtables_are_cut_alike() {
    let storage = records();
    let definition: IndexDefinition = "value,with=id,with=key,with=nothing".parse().unwrap();
    let index = SecondaryIndex::from(definition.clone());
    create(&storage, &index);
    let path = DatasetPaths::new("ds").index("value");
    let file = path.manifest(0, Uuid::from_u128(1));
    let records = Dataset::open_with(Arc::new(storage.clone()), "ds").unwrap();
    let entries = EntryLayout::new(&definition, records.schema()).unwrap().schema;
    // 160,000 entries of 32 bytes, a tenth of them without a value, are two parts of a few runs of 36,000, or of one
    // run. The row groups of both are as large: four of them hold 36,000 rows, in whole pages of 512.
    for (most, expected) in [(1, 4..7), (32, 2..3)] {
        let memory = (36_000 * 32, most);
        let alone = add(&storage, &index, 0, 1, memory);
        let manifest = EpochManifest::decode(alone[&file].clone(), &file, &entries).unwrap();
        let regular = || manifest.row_groups.iter().filter(|group| group.kind == RunKind::Regular);
        let runs: BTreeSet<_> = regular().map(|group| (group.part, group.run)).collect();
        assert!(expected.contains(&runs.len()), "{most} memtables: {runs:?}");
        let largest = regular().map(|group| group.rows).max();
        assert!(largest <= Some(9_216), "{most} memtables: {largest:?} rows");
        for (ranks, threads) in [(0, 3), (2, 1)] {
            assert!(alone == add(&storage, &index, ranks, threads, memory), "{ranks} ranks of {threads} threads");
        }
    }
}

/// A storage that differs from what other ranks and threads see.
#[derive(Debug)]
struct Odd {
    inner: Arc<dyn Storage>,
    /// The name of an epoch that has not appeared yet, as on a rank that looks a moment before another one.
    hidden: String,
    /// Whether the next read panics.
    panics: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OddFile {
    inner: Arc<dyn ReadableFile>,
    panics: Arc<AtomicBool>,
}

impl ReadableFile for OddFile {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "the read that was to panic");
        self.inner.read_at(offset, buffer)
    }
}

impl Storage for Odd {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.inner.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(OddFile { inner: self.inner.open(path)?, panics: self.panics.clone() }))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.inner.kind(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut found = self.inner.list(path)?;
        found.retain(|entry| entry.name != self.hidden);
        Ok(found)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.inner.exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
}

/// Ranks that made different epochs would wait for each other for ever.
#[test]
fn all_ranks_make_the_epochs_that_rank_0_sees() {
    let memory: Arc<dyn Storage> = Arc::new(records());
    let hidden = DatasetPaths::new("ds").epoch(7).file_name().unwrap().to_string_lossy().into_owned();
    for (behind, expected) in [(0, &[0, 3][..]), (1, &[0, 3, 7]), (2, &[0, 3, 7])] {
        for definition in ["id", "bitmap:value"] {
            let seen = run(3, |rank, transport| {
                let (inner, hidden) = (Arc::clone(&memory), hidden.clone());
                let hidden = if rank == behind { hidden } else { String::new() };
                let storage: Arc<dyn Storage> = Arc::new(Odd { inner, hidden, panics: Arc::default() });
                let (options, one_node, place) = (IndexOptions::default(), Topology::one_node(), (rank, 3));
                let index = definition.parse().unwrap();
                let build = IndexBuild::open_rank_with(storage, "ds", &index, &options, place, one_node, transport);
                build.unwrap().missing().unwrap()
            });
            assert!(seen.iter().all(|missing| missing == expected), "{definition}: {seen:?}");
        }
    }
}

/// The other threads wait for the row group of the one that panics, unless they are told.
#[test]
fn a_panic_while_a_row_group_is_read_reaches_the_caller() {
    let (inner, panics) = (Arc::new(records()), Arc::new(AtomicBool::default()));
    let storage: Arc<dyn Storage> = Arc::new(Odd { inner, hidden: String::new(), panics: panics.clone() });
    let (definition, options) = ("value".parse().unwrap(), IndexOptions { threads: Some(2), break_lock: true });
    let mut build = IndexBuild::open_with(Arc::clone(&storage), "ds", &definition, &options).unwrap();
    build.dataset_build().set_memtable_bytes(48 << 10);
    // The reads of the sample for the cuts are over when the first rows are counted. One read panics: the other thread
    // must not end by a panic of its own.
    let first = Once::new();
    let arm = |_| first.call_once(|| panics.store(true, Ordering::SeqCst));
    assert!(catch_unwind(AssertUnwindSafe(|| build.build_epoch(0, &arm))).is_err());
    panics.store(false, Ordering::SeqCst);
    drop(build);
    let mut again = IndexBuild::open_with(Arc::clone(&storage), "ds", &definition, &options).unwrap();
    assert_eq!(again.missing().unwrap(), EPOCHS.map(|(epoch, _)| epoch));
    again.build_epoch(0, &|_| ()).unwrap();
    again.close().unwrap();
    check_files(&storage);
}

/// Nothing is left of an epoch that one of several processes could not write.
#[test]
fn a_share_that_cannot_be_written_fails_on_all_ranks() {
    let memory: Arc<dyn Storage> = Arc::new(records());
    let definition: SecondaryIndex = "id".parse().unwrap();
    let data = DatasetPaths::new("ds").index("id");
    let add = |fails_on: Option<u32>| {
        run(3, |rank, transport| -> Result<u64> {
            let faults = FaultStorage::new(Arc::clone(&memory));
            let storage: Arc<dyn Storage> = Arc::new(faults.clone());
            let (options, one_node, place) = (IndexOptions::default(), Topology::one_node(), (rank, 3));
            let build = IndexBuild::open_rank_with(storage, "ds", &definition, &options, place, one_node, transport);
            let mut build = build?;
            build.dataset_build().set_memtable_bytes(48 << 10);
            if fails_on == Some(rank) {
                let path = data.root().join("_turbidite/tmp");
                faults.add_fault(Fault::Refuse { path, kind: io::ErrorKind::StorageFull });
            }
            let rows = build.build_epoch(0, &|_| ())?.rows;
            build.close()?;
            Ok(rows)
        })
    };
    for failing in [0, 1, 2] {
        let outcomes = add(Some(failing));
        assert!(outcomes.iter().all(Result::is_err), "rank {failing}: {outcomes:?}");
        let parts = files(&*memory, data.root());
        let left: Vec<&PathBuf> =
            parts.keys().filter(|path| path.extension().is_some_and(|end| end == "parquet")).collect();
        assert!(left.is_empty(), "rank {failing}: {left:?}");
    }
    assert!(add(None).into_iter().all(|rows| rows.unwrap() == 160_000));
    check_files(&memory);
}
