//! Tests of indexes that are made while records are written, by all ranks in one process.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use turbidite::query::Use;
use turbidite::random::Random;
use turbidite::storage::{DirEntry, Fault, FaultStorage, FileKind, MemoryStorage, ReadableFile, Storage, WritableFile};
use turbidite::store::{DatasetPaths, IfExists, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, EpochStart, Error, IndexBuild, IndexDefinition, IndexOptions, LocalJob,
    Query, Schema, VerifyOptions, WriteOptions, drop_index_with,
};

const RANKS: u32 = 4;

/// Energy, id, and a small number that many records share.
type Record = (f32, u32, u8);

/// An entry: the bytes of its value and of the columns that it carries, its part and its row.
type Entry = (Vec<u8>, u32, u32);

fn schema(key: &str) -> Schema {
    let columns =
        vec![Column::new("energy", DataType::F32), Column::new("id", DataType::U32), Column::new("cell", DataType::U8)];
    Schema::clustered(columns, &key.parse().unwrap()).unwrap()
}

fn records(seed: u64, count: u32) -> Vec<Record> {
    let mut random = Random::new(seed);
    let energy = |random: &mut Random| match random.below(30) {
        0 => f32::NAN,
        _ => random.below(1 << 20) as f32 / 1000.0,
    };
    (0..count).map(|number| (energy(&mut random), number * 3, (number % 97) as u8)).collect()
}

fn options(indexes: &[&str]) -> WriteOptions {
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 64 << 10;
    options.page_rows = 256;
    options.if_exists = IfExists::Replace;
    // The removal of a lock may fail, too.
    options.break_lock = true;
    options.indexes = indexes.iter().map(|text| text.parse().unwrap()).collect();
    options
}

fn append(job: &LocalJob, records: &[Record]) {
    for (chunk, records) in records.chunks(1_000).enumerate() {
        let energies: Vec<f32> = records.iter().map(|record| record.0).collect();
        let ids: Vec<u32> = records.iter().map(|record| record.1).collect();
        let cells: Vec<u8> = records.iter().map(|record| record.2).collect();
        let cells = ColumnView::new(&cells, 1, cells.len(), DataType::U8).unwrap();
        let columns = [ColumnView::from(&energies), ColumnView::from(&ids), cells];
        job.append(chunk as u32 % RANKS, &columns).unwrap();
    }
}

/// Returns the entries of an epoch of an index, in order, and whether the index has the epoch.
fn entries(storage: &Arc<dyn Storage>, name: &str, epoch: u64) -> Option<Vec<Entry>> {
    let index = DatasetPaths::new(Path::new("/ds")).index(name);
    let dataset = Dataset::open_with(Arc::clone(storage), index.root()).unwrap();
    if !dataset.epochs().unwrap().contains(&epoch) {
        return None;
    }
    let mut found = Vec::new();
    for batch in dataset.run(&Query::new().epochs(epoch)).unwrap() {
        let batch = batch.unwrap();
        let parts = batch.column_by_name("part").unwrap().as_primitive::<UInt32Type>().values().to_vec();
        let rows = batch.column_by_name("row").unwrap().as_primitive::<UInt32Type>().values().to_vec();
        assert_eq!(batch.schema().field(0).name(), name);
        let mut values = vec![Vec::new(); batch.num_rows()];
        for (column, field) in batch.columns().iter().zip(batch.schema().fields()) {
            if !["part", "row", "epoch"].contains(&field.name().as_str()) {
                let (data, width) = (column.to_data(), field.data_type().primitive_width().unwrap());
                let bytes = &data.buffers()[0].as_slice()[data.offset() * width..];
                values.iter_mut().zip(bytes.chunks(width)).for_each(|(value, bytes)| value.extend_from_slice(bytes));
            }
        }
        found.extend(values.into_iter().zip(parts).zip(rows).map(|((value, part), row)| (value, part, row)));
    }
    found.sort();
    Some(found)
}

fn is_missing(storage: &Arc<dyn Storage>, definition: &str) -> Vec<u64> {
    let definition = definition.parse().unwrap();
    let options = IndexOptions { break_lock: true, ..IndexOptions::default() };
    let build = IndexBuild::open_with(Arc::clone(storage), "/ds", &definition, &options).unwrap();
    let missing = build.missing().unwrap();
    build.close().unwrap();
    missing
}

/// Entries that are made in situ lie in many runs, each of which is read for a value. Those of an added index lie in
/// one, so longer lists are looked up.
#[test]
fn lists_are_looked_up_or_scanned_by_the_runs_of_an_index() {
    const ROWS: u32 = 300_000;
    let mut made = records(5, ROWS);
    // Every chunk has ids from everywhere, so all runs of a part overlap.
    made.iter_mut().zip(0u32..).for_each(|(record, number)| record.1 = (number * 7_919) % ROWS);
    let longest = |in_situ: &[&str]| {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let job = LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options(in_situ)).unwrap();
        job.begin_epoch(1).unwrap();
        append(&job, &made);
        job.end_epoch().unwrap();
        job.close().unwrap();
        if in_situ.is_empty() {
            let definition = "id".parse().unwrap();
            let mut build =
                IndexBuild::open_with(Arc::clone(&storage), "/ds", &definition, &Default::default()).unwrap();
            build.build_epoch(1, &|_| ()).unwrap();
            build.close().unwrap();
        }
        let dataset = Dataset::open_with(storage, "/ds").unwrap();
        let read = |count: u32, access: Use| {
            let ids: Vec<String> = (0..count).map(|id| ((2 * id + 1) * (ROWS / count / 2)).to_string()).collect();
            let query = Query::new().epochs(1).filter(format!("id IN ({})", ids.join(", "))).columns(["cell"]);
            let mut stream = dataset.run(&query.threads(1).using(access)).unwrap();
            let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(rows, count as usize);
            (stream.metrics().entries_read > 0, stream.metrics().pages_read)
        };
        let mut longest = 0;
        for count in [1, 2, 4, 8, 16, 32, 64, 128] {
            let (is_indexed, pages) = read(count, Use::Automatic);
            let (_, by_index) = read(count, Use::Index("id".into()));
            let (_, by_scan) = read(count, Use::Scan);
            assert_eq!(pages, if is_indexed { by_index } else { by_scan }, "{count} ids");
            assert!(!is_indexed || by_index < by_scan, "{count} ids: {by_index} and {by_scan} pages");
            if is_indexed {
                longest = count;
            }
        }
        // Three columns of a page of entries in each run, and two of the record.
        (longest, (read(1, Use::Index("id".into())).1 - 2) / 3)
    };
    let ((in_situ, runs), (added, one_run)) = (longest(&["id"]), longest(&[]));
    assert!(runs >= 4 && one_run == 1, "{runs} and {one_run} runs");
    assert!(in_situ >= 1 && added >= 2 * in_situ, "{in_situ} and {added} ids");
}

#[test]
fn entries_made_in_situ_are_those_that_are_added_later() {
    for key in ["energy", "hash:id", "cell"] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        // Two indexes carry the same column.
        let definitions = ["hash:id,with=cell,with=energy", "cell,with=energy", "energy"];
        let job = LocalJob::open_with(Arc::clone(&storage), "/ds", schema(key), options(&definitions)).unwrap();
        for (epoch, count) in [(3, 60_000), (5, 0), (7, 23_456)] {
            assert_eq!(job.begin_epoch(epoch).unwrap(), EpochStart::Started);
            append(&job, &records(epoch, count));
            assert_eq!(job.end_epoch().unwrap().rows, u64::from(count));
        }
        job.close().unwrap();
        let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
        assert!(report.findings.is_empty(), "{key}: {:?}", report.findings);
        for definition in definitions {
            assert_eq!(is_missing(&storage, definition), Vec::<u64>::new(), "{key}, {definition}");
            let definition: IndexDefinition = definition.parse().unwrap();
            let name = definition.name();
            let in_situ: Vec<_> = [3, 5, 7].iter().map(|epoch| entries(&storage, name, *epoch).unwrap()).collect();
            assert_eq!(in_situ.iter().map(Vec::len).collect::<Vec<_>>(), [60_000, 0, 23_456], "{key}, {definition}");
            let bytes: usize = if definition.carried().len() == 2 { 4 + 1 + 4 } else { in_situ[0][0].0.len() };
            assert!(in_situ.iter().flatten().all(|entry| entry.0.len() == bytes), "{definition}");
            drop_index_with(&storage, "/ds", name, &IndexOptions::default()).unwrap();
            let mut build = IndexBuild::open_with(
                Arc::clone(&storage),
                "/ds",
                &definition.clone().into(),
                &IndexOptions::default(),
            )
            .unwrap();
            for (epoch, in_situ) in [3, 5, 7].into_iter().zip(in_situ) {
                build.build_epoch(epoch, &|_| ()).unwrap();
                assert!(entries(&storage, name, epoch).unwrap() == in_situ, "{key}, {definition}, epoch {epoch}");
            }
            build.close().unwrap();
        }
    }
}

/// An append of wide entries has more blocks than one of narrow ones.
#[test]
fn wide_entries_are_made_once_for_each_record() {
    const CARRIED: usize = 24;
    const ROWS: u32 = 40_000;
    let names: Vec<String> = (0..CARRIED).map(|number| format!("c{number}")).collect();
    let mut columns = vec![Column::new("energy", DataType::F32), Column::new("id", DataType::U32)];
    columns.extend(names.iter().map(|name| Column::new(name, DataType::F64)));
    let schema = Schema::new(columns, "energy").unwrap();
    let carried = format!("id,with={}", names.join(",with="));
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut options = options(&[&carried]);
    options.part_bytes = Some(0);
    // Row groups of many records.
    options.memtable_bytes = 4 << 20;
    let job = LocalJob::open_with(Arc::clone(&storage), "/ds", schema, options).unwrap();
    job.begin_epoch(3).unwrap();
    for (chunk, first) in (0..ROWS).step_by(1_000).enumerate() {
        let ids: Vec<u32> = (first..first + 1_000).map(|number| number * 7919 % ROWS).collect();
        let energies: Vec<f32> = ids.iter().map(|id| (id * 31 % 1_009) as f32).collect();
        let numbers: Vec<f64> = ids.iter().map(|id| f64::from(*id)).collect();
        let mut views = vec![ColumnView::from(&energies), ColumnView::from(&ids)];
        views.extend((0..CARRIED).map(|_| ColumnView::from(&numbers)));
        job.append(chunk as u32 % RANKS, &views).unwrap();
    }
    job.end_epoch().unwrap();
    job.close().unwrap();
    let found = entries(&storage, "id", 3).unwrap();
    let mut ids: Vec<u32> =
        found.iter().map(|(value, _, _)| u32::from_le_bytes(*value.first_chunk().unwrap())).collect();
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(0..ROWS), "one entry for each record");
    let mut places: Vec<(u32, u32)> = found.iter().map(|(_, part, row)| (*part, *row)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), ROWS as usize);
}

#[test]
fn an_epoch_whose_index_cannot_be_stored_is_not_committed() {
    let memory = Arc::new(MemoryStorage::new());
    let storage: Arc<dyn Storage> = memory.clone();
    let write = |storage: Arc<dyn Storage>, seed| -> Result<u64, Error> {
        let job = LocalJob::open_with(storage, "/ds", schema("energy"), options(&["id", "cell"]))?;
        job.begin_epoch(0)?;
        append(&job, &records(seed, 20_000));
        let ended = job.end_epoch();
        job.discard_failed()?;
        job.close()?;
        Ok(ended?.rows)
    };
    write(Arc::clone(&storage), 1).unwrap();
    let before = entries(&storage, "id", 0).unwrap();
    let counting = FaultStorage::new(memory.clone());
    write(Arc::new(counting.clone()), 1).unwrap();
    let operations = counting.counters().operations;
    let mut failed = 0;
    for at in (0..operations).step_by(3) {
        let fault = Fault::Fail { first: at, count: 1, kind: ErrorKind::StorageFull };
        let written = write(Arc::new(FaultStorage::with_fault(memory.clone(), fault)), 2);
        failed += u32::from(written.is_err());
        // Whatever failed, the index answers for the records that are there, or says that it lacks them.
        for definition in ["id", "cell"] {
            if is_missing(&storage, definition).is_empty() {
                let rows = Dataset::open_with(Arc::clone(&storage), "/ds").unwrap().manifest(0).unwrap().rows();
                assert_eq!(entries(&storage, definition, 0).unwrap().len() as u64, rows, "operation {at}");
            }
        }
        let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
        assert!(report.is_clean(), "operation {at}: {:?}", report.findings);
    }
    assert!(failed > 10, "{failed} of {operations}");
    write(Arc::clone(&storage), 1).unwrap();
    assert_eq!(entries(&storage, "id", 0).unwrap().len(), before.len());
    assert_eq!(is_missing(&storage, "id"), Vec::<u64>::new());
}

#[test]
fn a_refused_epoch_leaves_no_entries() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options(&["id"])).unwrap();
    job.begin_epoch(0).unwrap();
    append(&job, &records(1, 10_000));
    job.end_epoch().unwrap();
    job.begin_epoch(1).unwrap();
    append(&job, &records(2, 30_000));
    job.abort_epoch("the program says so".to_owned()).unwrap();
    job.begin_epoch(2).unwrap();
    append(&job, &records(3, 10_000));
    job.end_epoch().unwrap();
    assert_eq!(job.truncate_after(0).unwrap(), [2]);
    job.begin_epoch(4).unwrap();
    append(&job, &records(4, 5_000));
    job.end_epoch().unwrap();
    job.close().unwrap();
    let found: Vec<_> = (0..5).map(|epoch| entries(&storage, "id", epoch).map(|entries| entries.len())).collect();
    assert_eq!(found, [Some(10_000), None, None, None, Some(5_000)]);
    assert_eq!(is_missing(&storage, "id"), Vec::<u64>::new());
}

/// A storage that holds the first commit of an index until it is opened.
#[derive(Debug)]
struct Gate {
    inner: MemoryStorage,
    reached: Mutex<Option<Sender<()>>>,
    opened: Mutex<Option<Receiver<()>>>,
}

impl Storage for Gate {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.inner.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        self.inner.open(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.inner.kind(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.starts_with("/ds/_turbidite/index/id/data") {
            if let Some(reached) = self.reached.lock().unwrap().take() {
                reached.send(()).unwrap();
            }
            if let Some(opened) = self.opened.lock().unwrap().take() {
                opened.recv().unwrap();
            }
        }
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

/// A thread that begins the next epoch waits for the thread that ends the last one, between the commits of the index
/// and of the records.
#[test]
fn an_epoch_begins_after_the_end_of_the_last_one() {
    let ((reached, is_reached), (open, opened)) = (channel(), channel());
    let gate =
        Gate { inner: MemoryStorage::new(), reached: Mutex::new(Some(reached)), opened: Mutex::new(Some(opened)) };
    let storage: Arc<dyn Storage> = Arc::new(gate);
    let job = LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options(&["id"])).unwrap();
    let job = &job;
    job.begin_epoch(0).unwrap();
    append(job, &records(1, 10_000));
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| job.end_epoch().unwrap().rows);
        is_reached.recv().unwrap();
        let (begun, has_begun) = channel();
        scope.spawn(move || begun.send(job.begin_epoch(1).is_ok()).unwrap());
        // The time only limits how long a begin that does not wait is looked for.
        assert!(has_begun.recv_timeout(Duration::from_millis(200)).is_err(), "epoch 1 begins before epoch 0 has ended");
        open.send(()).unwrap();
        assert_eq!(ending.join().unwrap(), 10_000);
        assert!(has_begun.recv().unwrap());
    });
    append(job, &records(2, 5_000));
    assert_eq!(job.end_epoch().unwrap().rows, 5_000);
    let found: Vec<_> = (0..2).map(|epoch| entries(&storage, "id", epoch).map(|entries| entries.len())).collect();
    assert_eq!(found, [Some(10_000), Some(5_000)]);
}

#[test]
fn indexes_that_cannot_be_made_are_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    for (indexes, expected) in
        [(&["nothing"][..], "'nothing'"), (&["id", "hash:id"], "'id' is named twice"), (&["hash:energy"], "energy")]
    {
        let refused = LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options(indexes));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(expected), "{indexes:?}: {error}");
    }
    // An index of another definition exists.
    let open = |indexes: &[&str]| LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options(indexes));
    open(&["id"]).unwrap().close().unwrap();
    let error = open(&["hash:id"]).unwrap_err().to_string();
    assert!(error.contains("_turbidite/index/id"), "{error}");
}

/// If one of several indexes cannot be made, none is left behind.
#[test]
fn a_refused_job_creates_no_index() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open = |indexes: &[&str]| {
        let mut options = options(indexes);
        options.break_lock = false;
        LocalJob::open_with(Arc::clone(&storage), "/ds", schema("energy"), options)
    };
    let folders = || {
        let listed = storage.list(Path::new("/ds/_turbidite/index")).unwrap_or_default();
        listed.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    open(&["id", "bitmap:cell"]).unwrap().close().unwrap();
    assert_eq!(folders(), ["bitmap:cell", "id"]);
    for (indexes, expected) in [
        (["energy", "bitmap:energy", "hash:id"], "_turbidite/index/id"),
        (["energy", "bitmap:energy", "id,with=cell"], "_turbidite/index/id"),
        (["energy", "bitmap:energy", "bitmap:cell,precision=4"], "drop it first"),
    ] {
        let error = open(&indexes).unwrap_err().to_string();
        assert!(error.contains(expected), "{indexes:?}: {error}");
        assert_eq!(folders(), ["bitmap:cell", "id"], "{indexes:?}");
    }
    let build =
        IndexBuild::open_with(Arc::clone(&storage), "/ds", &"id".parse().unwrap(), &IndexOptions::default()).unwrap();
    assert!(matches!(open(&["energy", "bitmap:energy", "id"]), Err(Error::Locked { .. })));
    assert_eq!(folders(), ["bitmap:cell", "id"]);
    build.close().unwrap();
    open(&["energy", "bitmap:energy", "id"]).unwrap().close().unwrap();
    assert_eq!(folders(), ["bitmap:cell", "bitmap:energy", "energy", "id"]);
}
