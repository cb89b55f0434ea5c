//! Tests of spatial indexes: copies that any number of processes make of committed epochs, and that boxes and cursors
//! read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use proptest::prelude::*;
use uuid::Uuid;

use super::indexes::check_files;
use super::*;
use crate::index::SpaceDefinition;
use crate::index_build::{IndexBuild, IndexOptions, drop_index_with};
use crate::query::{CursorRequest, Step, Use};
use crate::random::Random;
use crate::shuffle::Topology;
use crate::store::{DatasetDescriptor, VerifyOptions, truncate_after, verify_on};

/// Size of the memtables of these tests, of which the parts of copies are three quarters.
const MEMTABLE_BYTES: usize = 64 << 10;

/// A record at a place.
#[derive(Debug, Clone, Copy)]
struct Point {
    id: u64,
    energy: f32,
    x: f32,
    y: f64,
    z: i16,
}

fn records_schema() -> Schema {
    let columns = vec![
        Column::new("id", DataType::U64),
        Column::new("x", DataType::F32),
        Column::new("energy", DataType::F32).with_unit("MeV"),
        Column::new("z", DataType::I16),
        Column::new("y", DataType::F64),
        Column::new("tag", DataType::FixedBytes(12)),
    ];
    Schema::new(columns, "energy").unwrap()
}

/// Returns points of a kind: spread evenly, in a few places, all in one, or with strange coordinates.
fn points(kind: u8, rows: u64, seed: u64) -> Vec<Point> {
    let mut random = Random::new(seed);
    let point = |id: u64| {
        let mut place = [random.fraction() * 64.0, random.fraction() * 8.0, random.fraction() * 100.0];
        match kind {
            1 => place = place.map(|coordinate| coordinate.floor() % 3.0),
            2 => place = [1.0, 2.0, 3.0],
            3 => match random.below(20) {
                0 => place[0] = f64::NAN,
                1 => place[1] = f64::NAN,
                2 => place[0] = f64::INFINITY,
                3 => place[1] = f64::NEG_INFINITY,
                4 => place[0] = 1e30,
                5 => place[0] = -0.0,
                _ => {}
            },
            _ => {}
        }
        let energy = (random.fraction() * 10.0) as f32;
        Point { id, energy, x: place[0] as f32, y: place[1], z: place[2] as i16 }
    };
    (0..rows).map(point).collect()
}

/// Writes an epoch, or replaces it.
fn write(storage: &Arc<dyn Storage>, epoch: u64, points: &[Point]) {
    let options = WriteOptions { if_exists: IfExists::Replace, break_lock: true, ..options(3) };
    let job = LocalJob::open_with(storage.clone(), "ds", records_schema(), options).unwrap();
    job.begin_epoch(epoch).unwrap();
    for (number, chunk) in points.chunks(5_000).enumerate() {
        let column = |value: &dyn Fn(&Point) -> Vec<u8>| chunk.iter().flat_map(value).collect::<Vec<u8>>();
        let id = column(&|point| point.id.to_le_bytes().to_vec());
        let x = column(&|point| point.x.to_le_bytes().to_vec());
        let energy = column(&|point| point.energy.to_le_bytes().to_vec());
        let z = column(&|point| point.z.to_le_bytes().to_vec());
        let y = column(&|point| point.y.to_le_bytes().to_vec());
        let tag = column(&|point| vec![point.id as u8; 12]);
        let columns = [&id, &x, &energy, &z, &y, &tag];
        let schema = records_schema();
        let views = columns.iter().zip(schema.columns()).map(|(bytes, column)| {
            ColumnView::new(bytes, column.data_type.width(), chunk.len(), column.data_type).unwrap()
        });
        job.append(number as u32 % 3, &views.collect::<Vec<_>>()).unwrap();
    }
    job.end_epoch().unwrap();
    job.close().unwrap();
}

fn build(storage: &Arc<dyn Storage>, definition: &str, threads: usize) -> IndexBuild {
    let options = IndexOptions { threads: Some(threads), break_lock: true };
    let mut build = IndexBuild::open_with(storage.clone(), "ds", &definition.parse().unwrap(), &options).unwrap();
    build.dataset_build().set_memtable_bytes(MEMTABLE_BYTES);
    build
}

/// Completes an index. Returns the epochs that it lacked.
fn add(storage: &Arc<dyn Storage>, definition: &str) -> Vec<u64> {
    let mut build = build(storage, definition, 2);
    let missing = build.missing().unwrap();
    for &epoch in &missing {
        build.build_epoch(epoch, &|_| ()).unwrap();
    }
    build.close().unwrap();
    missing
}

fn opened(storage: &Arc<dyn Storage>) -> Dataset {
    Dataset::open_with(storage.clone(), "ds").unwrap()
}

/// Returns the sorted ids of the rows of a query, after a check of their tags and number.
fn ids(dataset: &Dataset, query: &Query) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for batch in dataset.run(query)? {
        let batch = batch?;
        let (ids, tags) = (batch.column_by_name("id").unwrap(), batch.column_by_name("tag").unwrap());
        for (id, tag) in ids.as_primitive::<UInt64Type>().values().iter().zip(tags.as_fixed_size_binary().iter()) {
            assert_eq!(tag, Some([*id as u8; 12].as_slice()));
            found.push(*id);
        }
    }
    assert_eq!(dataset.count(query)?.0, found.len() as u64);
    found.sort_unstable();
    Ok(found)
}

/// A box of x and y, and a condition on the energy.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    x: (f32, f32),
    y: (f64, f64),
    energy: f32,
}

impl Wanted {
    fn query(&self) -> Query {
        let Self { x, y, energy } = self;
        let sides = format!("x={}:{},y={}:{}", x.0, x.1, y.0, y.1);
        Query::new().epochs(1).within(sides).filter(format!("energy >= {energy}"))
    }

    fn ids(&self, points: &[Point]) -> Vec<u64> {
        let is_within = |point: &&Point| {
            let (x, y) = (self.x.0..self.x.1, self.y.0..self.y.1);
            x.contains(&point.x) && y.contains(&point.y) && point.energy >= self.energy
        };
        points.iter().filter(is_within).map(|point| point.id).collect()
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let side = |most: f64| (0.0..most, 0.0..most);
    (side(64.0), side(8.0), prop_oneof![Just(0.0f32), 0.0f32..10.0]).prop_map(|(x, y, energy)| {
        let (x, y) = ((x.0.min(x.1) as f32, x.0.max(x.1) as f32 + 0.5), (y.0.min(y.1), y.0.max(y.1) + 0.25));
        Wanted { x, y, energy }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every way to read an epoch returns the rows of a scan of the records in memory.
    #[test]
    fn copies_answer_as_the_records_do(
        kind in 0u8..4,
        rows in prop_oneof![Just(0u64), 1u64..3000, 10_000u64..20_000],
        seed in any::<u64>(),
        definition in prop_oneof![Just("space:x,y"), Just("space:y,z,x"), Just("space:x,y,z,levels=2")],
        boxes in prop::collection::vec(wanted(), 3),
        steps in prop::collection::vec(1u64..4000, 1..6),
    ) {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let points = points(kind, rows, seed);
        write(&storage, 1, &points);
        prop_assert_eq!(add(&storage, definition), [1]);
        check_files(&storage);
        let dataset = opened(&storage);
        let name = definition.parse::<SpaceDefinition>().unwrap().name();
        let all = Query::new().epochs(1).using(Use::named(&name));
        prop_assert_eq!(ids(&dataset, &all).unwrap(), (0..rows).collect::<Vec<_>>());
        for wanted in &boxes {
            let expected = wanted.ids(&points);
            for access in [Use::Automatic, Use::Scan, Use::named(&name)] {
                prop_assert_eq!(&ids(&dataset, &wanted.query().using(access)).unwrap(), &expected);
            }
            let mut cursor = dataset.cursor(&CursorRequest::new(wanted.query())).unwrap();
            let (mut found, mut steps) = (Vec::<u64>::new(), steps.iter().cycle());
            while !cursor.is_finished() {
                cursor.advance(Step::Rows(*steps.next().unwrap())).unwrap();
                for batch in cursor.by_ref() {
                    let batch = batch.unwrap();
                    found.extend(batch.rows.column_by_name("id").unwrap().as_primitive::<UInt64Type>().values());
                }
            }
            found.sort_unstable();
            prop_assert_eq!(&found, &expected);
        }
        prop_assert_eq!(dataset.ignored_corruption(), 0);
    }
}

#[test]
fn boxes_are_read_from_the_copy_where_that_is_less() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let points = points(0, 40_000, 1);
    write(&storage, 1, &points);
    add(&storage, "space:x,y");
    let dataset = opened(&storage);
    let small = Wanted { x: (3.0, 5.0), y: (1.0, 2.0), energy: 0.0 };
    let read = |access| {
        let mut stream = dataset.run(&small.query().using(access)).unwrap();
        let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, small.ids(&points).len());
        stream.metrics().bytes_read
    };
    assert!(read(Use::Automatic) * 3 < read(Use::Scan), "{} {}", read(Use::Automatic), read(Use::Scan));
    let explained = dataset.explain(&small.query()).unwrap();
    assert_eq!(explained.epochs[0].covered_by.as_deref(), Some("space:x,y"));
    let text = explained.to_string();
    assert!(text.contains("access path space:x,y: at most") && text.contains("a copy of the epoch"), "{text}");
    // Row groups of few strays may be pruned.
    let of_scan = |text: &str| text.lines().find(|line| line.contains("access path scan: at most ")).map(str::to_owned);
    assert!(of_scan(&text).is_some_and(|line| line.ends_with("rows to test; not used")), "{text}");
    // The key finds few rows, and a limit takes those that a scan finds first.
    let by_key = Query::new().epochs(1).filter("energy > 9.99 AND x < 40");
    let few = small.query().limit(3);
    for query in [by_key, few, small.query().ordered(true), small.query().using(Use::Scan)] {
        assert_eq!(dataset.explain(&query).unwrap().epochs[0].covered_by, None, "{query:?}");
    }
    let beside = dataset.explain(&Query::new().epochs(1).filter("x < 63")).unwrap().to_string();
    assert!(beside.contains("access path space:x,y"), "{beside}");
    assert!(of_scan(&beside).is_some_and(|line| line.ends_with("rows to test; used")), "{beside}");
}

/// An index that is added later must not change what a box of a cursor means.
#[test]
fn sides_without_names_are_refused_where_copies_differ() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    write(&storage, 1, &points(0, 2_000, 1));
    add(&storage, "space:x,y");
    let rows = |query: &Query| -> Result<usize> {
        let mut cursor = opened(&storage).cursor(&CursorRequest::new(query.clone()))?;
        cursor.advance(Step::Quality(1.0))?;
        cursor.map(|batch| Ok(batch?.rows.num_rows())).sum()
    };
    let (unnamed, named) = (Query::new().epochs(1).within("3:50,1:7"), Query::new().epochs(1).within("x=3:50,y=1:7"));
    let expected = rows(&named).unwrap();
    assert!(expected > 0);
    assert_eq!(rows(&unnamed).unwrap(), expected);
    add(&storage, "space:y,x");
    let refused = rows(&unnamed).unwrap_err().to_string();
    assert!(refused.contains("several spatial indexes") && refused.contains("as in x=0:10"), "{refused}");
    assert_eq!(rows(&named).unwrap(), expected);
    assert_eq!(rows(&unnamed.using(Use::named("space:x,y"))).unwrap(), expected);
}

/// Returns the files of the index, except for locks.
fn files(storage: &dyn Storage, folder: PathBuf) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in storage.list(&folder).unwrap() {
        let path = folder.join(&entry.name);
        match entry.kind {
            crate::storage::FileKind::Directory => found.extend(files(storage, path)),
            _ => drop(found.insert(path.clone(), crate::storage::read_all(storage, &path, 1 << 30).unwrap())),
        }
    }
    found
}

#[test]
fn any_number_of_processes_and_threads_copies_the_same_bytes() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    write(&storage, 1, &points(3, 20_000, 5));
    write(&storage, 4, &[]);
    // The identity of the index is then in all copies of the storage.
    build(&storage, "space:x,y,z", 1).close().unwrap();
    let index = DatasetPaths::new("ds").index("space:x,y,z");
    let made = |ranks: u32, threads: usize| {
        let storage: Arc<dyn Storage> = Arc::new(memory.crash());
        let make = |mut build: IndexBuild| {
            build.dataset_build().set_memtable_bytes(MEMTABLE_BYTES);
            for epoch in build.missing().unwrap() {
                build.dataset_build().commit_next_as(Uuid::from_u128(u128::from(epoch) + 1));
                build.build_epoch(epoch, &|_| ()).unwrap();
            }
            build.close().unwrap();
        };
        match ranks {
            0 => make(build(&storage, "space:x,y,z", threads)),
            _ => drop(run(ranks, |rank, transport| {
                let options = IndexOptions { threads: Some(threads), break_lock: true };
                let (place, one_node) = ((rank, ranks), Topology::one_node());
                let definition = "space:x,y,z".parse().unwrap();
                let build = IndexBuild::open_rank_with(
                    storage.clone(),
                    "ds",
                    &definition,
                    &options,
                    place,
                    one_node,
                    transport,
                );
                make(build.unwrap());
            })),
        }
        check_files(&storage);
        files(&*storage, index.root().to_owned())
    };
    let alone = made(0, 1);
    let parts = alone.keys().filter(|path| path.starts_with(index.epoch(1)));
    assert!(parts.count() > 40, "parts of several levels");
    for (ranks, threads) in [(0, 4), (1, 1), (3, 2), (8, 1)] {
        let shared = made(ranks, threads);
        assert!(alone == shared, "{ranks} ranks of {threads} threads");
    }
}

#[test]
fn copies_of_replaced_and_removed_epochs_are_not_read() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let paths = DatasetPaths::new("ds");
    for epoch in [1, 2] {
        write(&storage, epoch, &points(0, 9_000, epoch));
    }
    assert_eq!(add(&storage, "space:x,y,levels=2"), [1, 2]);
    let before = opened(&storage);
    let replaced = points(0, 9_500, 7);
    write(&storage, 1, &replaced);
    let wanted = Wanted { x: (1.0, 9.0), y: (0.0, 4.0), energy: 0.0 };
    let query = wanted.query().using(Use::named("space:x,y"));
    let cursor_of = |dataset: &Dataset, epoch: u64| {
        dataset
            .cursor(&CursorRequest::new(Query::new().epochs(epoch)))
            .map(|cursor| (cursor.rows_most(), cursor.levels()))
    };
    for dataset in [&before, &opened(&storage)] {
        assert_eq!(ids(dataset, &query).unwrap(), wanted.ids(&replaced));
        let refused = cursor_of(dataset, 1).unwrap_err().to_string();
        assert!(refused.contains("index add DS space:x,y") && refused.contains("epoch 1"), "{refused}");
        assert_eq!(cursor_of(dataset, 2).unwrap(), (9_000, 2));
    }
    check_files(&storage);
    // The levels are those of the index, unless others are stated.
    let differs =
        IndexBuild::open_with(storage.clone(), "ds", &"space:x,y,levels=4".parse().unwrap(), &IndexOptions::default());
    let differs = differs.unwrap_err().to_string();
    assert!(differs.contains("exists as 'space:x,y,levels=2'; drop it"), "{differs}");
    assert_eq!(add(&storage, "space:x,y"), [1]);
    for dataset in [&before, &opened(&storage)] {
        assert_eq!(cursor_of(dataset, 1).unwrap(), (9_500, 2));
        assert_eq!(ids(dataset, &query).unwrap(), wanted.ids(&replaced));
    }
    let descriptor = DatasetDescriptor::read(&*storage, &paths).unwrap();
    assert_eq!(truncate_after(&storage, &paths, &descriptor, 1, false).unwrap().removed, [2]);
    let index = opened_index(&storage);
    assert_eq!(index.epochs().unwrap(), [1]);
    drop_index_with(&storage, "ds", "space:x,y", &IndexOptions::default()).unwrap();
    let refused = cursor_of(&opened(&storage), 1).unwrap_err().to_string();
    assert!(refused.contains("index add DS space:X,Y,Z"), "{refused}");
    // A dataset that was opened before goes on with the records.
    assert_eq!(ids(&before, &wanted.query()).unwrap(), wanted.ids(&replaced));
    check_files(&storage);
}

fn opened_index(storage: &Arc<dyn Storage>) -> Dataset {
    Dataset::open_with(storage.clone(), DatasetPaths::new("ds").index("space:x,y").root()).unwrap()
}

#[test]
fn records_answer_for_a_corrupt_copy() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let points = points(0, 20_000, 3);
    write(&memory, 1, &points);
    add(&memory, "space:x,y");
    let index = DatasetPaths::new("ds").index("space:x,y");
    let all = files(&*memory, index.root().to_owned());
    let wanted = Wanted { x: (10.0, 20.0), y: (2.0, 6.0), energy: 1.0 };
    let query = wanted.query().using(Use::named("space:x,y"));
    let (mut ignored, mut found) = (0, 0);
    for (path, bytes) in &all {
        for place in 0..6 {
            let faults = FaultStorage::new(memory.clone());
            let offset = (bytes.len() as u64 - 1) * place / 5;
            faults.add_fault(Fault::Flip { path: path.clone(), offset, mask: 4 });
            let storage: Arc<dyn Storage> = Arc::new(faults);
            let dataset = opened(&storage);
            assert_eq!(ids(&dataset, &query).unwrap(), wanted.ids(&points), "{} at {offset}", path.display());
            ignored += u64::from(dataset.ignored_corruption() > 0);
            let report = verify_on(&storage, &DatasetPaths::new("ds"), &VerifyOptions::default(), &|_| ()).unwrap();
            found += u64::from(!report.findings.is_empty());
            let steps = dataset.cursor(&CursorRequest::new(wanted.query())).and_then(|mut cursor| {
                cursor.advance(Step::Quality(1.0))?;
                cursor.map(|batch| batch.map(|batch| batch.rows.num_rows())).sum::<Result<usize>>()
            });
            match steps {
                Ok(rows) => assert_eq!(rows, wanted.ids(&points).len()),
                Err(error) => assert!(error.to_string().contains("space:x,y"), "{error}"),
            }
        }
    }
    assert!(ignored > 10 && found > ignored, "{ignored} of {found}");
}

/// Nothing of a copy whose making fails is used, and the next one is whole.
#[test]
fn a_copy_that_cannot_be_written_leaves_nothing() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    write(&memory, 1, &points(0, 9_000, 4));
    build(&memory, "space:x,y", 1).close().unwrap();
    let faults = FaultStorage::new(memory.clone());
    let storage: Arc<dyn Storage> = Arc::new(faults.clone());
    let mut failing = build(&storage, "space:x,y", 2);
    let path = DatasetPaths::new("ds").index("space:x,y").root().join("_turbidite/manifest");
    faults.add_fault(Fault::Refuse { path, kind: std::io::ErrorKind::StorageFull });
    failing.build_epoch(1, &|_| ()).unwrap_err();
    drop(failing);
    let dataset = opened(&memory);
    assert!(dataset.cursor(&CursorRequest::new(Query::new().epochs(1))).is_err());
    assert_eq!(ids(&dataset, &Query::new()).unwrap().len(), 9_000);
    assert_eq!(add(&memory, "space:x,y"), [1]);
    check_files(&memory);
    assert_eq!(dataset.cursor(&CursorRequest::new(Query::new().epochs(1))).unwrap().rows_most(), 9_000);
}

#[test]
fn cursors_take_the_index_that_fits_the_request() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    write(&storage, 1, &points(0, 5_000, 8));
    for definition in ["space:energy,z,levels=1", "space:x,y,levels=2", "space:x,y,z,levels=4"] {
        add(&storage, definition);
    }
    let dataset = opened(&storage);
    let levels = |request: CursorRequest| dataset.cursor(&request).map(|cursor| cursor.levels());
    let query = || Query::new().epochs(1);
    assert_eq!(levels(CursorRequest::new(query().filter("energy > 5"))).unwrap(), 1);
    assert_eq!(levels(CursorRequest::new(query().within("x=1:2,y=3:4"))).unwrap(), 2);
    assert_eq!(levels(CursorRequest::new(query().filter("x > 1 AND y > 2 AND z > 3"))).unwrap(), 4);
    assert_eq!(levels(CursorRequest::new(query()).near([1.0, 2.0, 3.0])).unwrap(), 4);
    assert_eq!(levels(CursorRequest::new(query().using(Use::named("space:x,y")))).unwrap(), 2);
    // Sides without names are those of the coordinates of the copy.
    assert_eq!(levels(CursorRequest::new(query().within("0:1,2:3,:"))).unwrap(), 4);
    for (request, words) in [
        (CursorRequest::new(query().using(Use::Scan)), "no levels of detail"),
        (CursorRequest::new(query().using(Use::named("space:y,x"))), "no spatial index 'space:y,x'"),
        (CursorRequest::new(query()).near([1.0]), "give as many finite numbers"),
        (CursorRequest::new(query().limit(3)), "has no limit"),
        (CursorRequest::new(Query::new().epochs(2)), "epoch 2"),
    ] {
        let error = levels(request).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let named = query().using(Use::named("space:y,x"));
    let unknown = dataset.count(&named).unwrap_err().to_string();
    assert!(unknown.ends_with("the dataset has 'space:energy,z', 'space:x,y', 'space:x,y,z'"), "{unknown}");
}
