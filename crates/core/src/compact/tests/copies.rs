//! Tests that copies of random datasets are sorted as a whole and contain each row once.

use proptest::prelude::*;

use super::*;
use crate::error::{Error, ErrorClass};
use crate::schema::KEY_TYPES;

/// Generates the bytes of a key: any bits, few values, one value, infinities, and zeros of both signs.
fn key_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0u64..5).prop_map(|key| key * 0x0101_0101_0101_0101),
        Just(0x4000_0000_4000_0040),
        prop::sample::select(vec![
            0,
            0x8000_0000_0000_0000,
            0x8000_0000,
            0x7f80_0000,
            0xff80_0000,
            f64::INFINITY.to_bits(),
            f64::NEG_INFINITY.to_bits(),
            u64::MAX,
        ]),
    ]
}

fn keys(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        4 => prop::collection::vec(key_bytes(), 0..most),
        1 => (any::<u64>(), 0..most).prop_map(|(key, rows)| vec![key; rows]),
    ]
}

/// Moves NaN keys to separate runs, as writers do.
fn separate(key: DataType, epoch: Vec<Vec<Vec<u64>>>) -> TestEpoch {
    let kinds = [RunKind::Regular, RunKind::Stray, RunKind::Unordered];
    let is_nan = |bytes: &u64| Value::from_stored(key, &bytes.to_le_bytes()).as_f64().is_nan();
    let part = |runs: Vec<Vec<u64>>| {
        let mut found = Vec::new();
        for (number, keys) in runs.into_iter().enumerate() {
            let (nan, keys): (Vec<u64>, Vec<u64>) = keys.into_iter().partition(is_nan);
            found.push(TestRun { kind: kinds[number % 3], keys });
            found.push(TestRun { kind: RunKind::NanKey, keys: nan });
        }
        found
    };
    epoch.into_iter().map(part).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn copies_are_sorted_and_whole(
        key in prop::sample::select(KEY_TYPES.to_vec()),
        epoch in prop::collection::vec(prop::collection::vec(keys(300), 0..6), 1..5),
        (source_page_rows, source_row_groups) in (1u32..70, 1u32..5),
        (page_rows, row_groups_per_run) in (1u32..70, 1u32..5),
        slab_bytes in prop_oneof![Just(1024usize), 1024usize..100_000],
        threads in 1usize..4,
    ) {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let epoch = separate(key, epoch);
        let paths =
            PartOptions { page_rows: source_page_rows, row_groups_per_run: source_row_groups, ..PartOptions::default() };
        write_source(&storage, key, paths, (7, &epoch, 1), |_| ());
        let part = PartOptions { page_rows, row_groups_per_run, ..PartOptions::default() };
        let options = CompactOptions { threads, slab_bytes, part, ..small_options() };
        let done = compact(&storage, options).unwrap().remove(0).unwrap();
        let rows = rows_of(&schema(key), &epoch, 1);
        prop_assert_eq!(done.metrics.rows, rows.len() as u64);
        prop_assert_eq!((done.metrics.strays, done.metrics.spills), (0, 0));
        prop_assert!(done.bytes_read >= done.source_bytes, "all of it was read");
        check_copy(&storage, key, 7, rows);
    }
}

#[test]
fn many_runs_through_several_slabs_and_threads() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let epoch = mixed_epoch(40, 1000);
    let part = PartOptions { page_rows: 64, row_groups_per_run: 4, ..PartOptions::default() };
    write_source(&storage, DataType::F32, part, (1, &epoch, 1), |_| ());
    let options = CompactOptions { threads: 3, slab_bytes: 200_000, part, ..small_options() };
    let schema = schema(DataType::F32);
    let slab_rows = options.slab_rows(&schema) as f64;
    let done = compact(&storage, options).unwrap().remove(0).unwrap();
    check_copy(&storage, DataType::F32, 1, rows_of(&schema, &epoch, 1));
    let metrics = &done.metrics;
    assert!(metrics.receivers > 3 && metrics.nan_keys == 3, "{metrics:?}");
    assert_eq!(metrics.rows_per_receiver.iter().sum::<u64>(), metrics.rows);
    // Each of the 42 runs has two pages with a cut, and one page of keys that is read twice for a cut.
    let factor = done.bytes_read as f64 / done.source_bytes as f64;
    println!("read factor {factor:.2} where 42 runs overlap and a slab has {slab_rows} rows");
    assert!(factor < 1.0 + 4.0 * 42.0 * 64.0 / slab_rows, "{factor}");
}

#[test]
fn a_sorted_dataset_is_read_little_more_than_once() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let keys: Vec<u64> = (0..20_000u64).map(|key| u64::from((key as f32).to_bits())).collect();
    let runs = keys.chunks(1000).map(|keys| TestRun { kind: RunKind::Regular, keys: keys.to_vec() }).collect();
    let part = PartOptions { page_rows: 64, row_groups_per_run: 4, ..PartOptions::default() };
    let epoch = vec![runs];
    write_source(&storage, DataType::F32, part, (1, &epoch, 1), |_| ());
    let done = compact(&storage, CompactOptions { slab_bytes: 200_000, part, ..small_options() }).unwrap();
    check_copy(&storage, DataType::F32, 1, rows_of(&schema(DataType::F32), &epoch, 1));
    let done = done[0].as_ref().unwrap();
    assert!(done.bytes_read < done.source_bytes * 105 / 100, "{done:?}");
}

#[test]
fn epochs_without_rows_and_with_one() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let one = vec![vec![TestRun { kind: RunKind::Stray, keys: vec![3] }]];
    let nan = vec![vec![TestRun { kind: RunKind::NanKey, keys: vec![u64::from(f32::NAN.to_bits())] }]];
    for (label, epoch) in [(0, vec![Vec::new()]), (1, one.clone()), (2, nan.clone())] {
        write_source(&storage, DataType::F32, PartOptions::default(), (label, &epoch, label + 1), |_| ());
    }
    compact(&storage, CompactOptions { threads: 4, ..CompactOptions::default() }).unwrap();
    for (label, epoch) in [(0, vec![Vec::new()]), (1, one), (2, nan)] {
        check_copy(&storage, DataType::F32, label, rows_of(&schema(DataType::F32), &epoch, label + 1));
    }
}

#[test]
fn the_copy_says_what_it_is() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    write_source(&storage, DataType::F32, PartOptions::default(), (1, &mixed_epoch(1, 9), 1), |_| ());
    compact(&storage, small_options()).unwrap();
    let source = DatasetDescriptor::read(&*storage, &DatasetPaths::new(SOURCE)).unwrap();
    let copy = DatasetDescriptor::read(&*storage, &DatasetPaths::new(COPY)).unwrap();
    assert_eq!((&copy.schema, &copy.derivations), (&source.schema, &source.derivations), "with units");
    assert_ne!(copy.uuid, source.uuid);
    assert_eq!(copy.source, Some(format!("sorted copy of dataset {}, from dumps/run7", source.uuid)));
}

#[test]
fn epochs_that_exist_are_refused_replaced_or_skipped() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (first, second) = (mixed_epoch(2, 50), mixed_epoch(3, 60));
    write_source(&storage, DataType::F32, PartOptions::default(), (1, &first, 1), |_| ());
    compact(&storage, small_options()).unwrap();
    write_source(&storage, DataType::F32, PartOptions::default(), (1, &second, 2), |_| ());
    assert!(matches!(compact(&storage, small_options()), Err(Error::EpochExists { epoch: 1, .. })));
    let skipped = compact(&storage, CompactOptions { if_exists: IfExists::Skip, ..small_options() }).unwrap();
    assert_eq!(skipped, [None]);
    let schema = schema(DataType::F32);
    check_copy(&storage, DataType::F32, 1, rows_of(&schema, &first, 1));
    compact(&storage, CompactOptions { if_exists: IfExists::Replace, ..small_options() }).unwrap();
    check_copy(&storage, DataType::F32, 1, rows_of(&schema, &second, 2));
}

#[test]
fn a_copy_into_its_source_is_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    write_source(&storage, DataType::F32, PartOptions::default(), (1, &mixed_epoch(1, 9), 1), |_| ());
    let source = Dataset::open_with(Arc::clone(&storage), SOURCE).unwrap();
    // Another path of the same folder.
    storage.create_dir_all(std::path::Path::new("/elsewhere/_turbidite")).unwrap();
    let json = DatasetPaths::new(SOURCE).descriptor();
    let content = crate::storage::read_all(&*storage, &json, 1 << 20).unwrap();
    let mut file = storage.create(&DatasetPaths::new("/elsewhere").descriptor()).unwrap();
    file.write_at(0, &content).unwrap();
    for target in [SOURCE, "/source.tbd/copy", "/elsewhere"] {
        let opened = Compaction::open_with(&source, Arc::clone(&storage), target, small_options());
        assert!(opened.is_err_and(|error| error.class() == ErrorClass::Usage), "{target}");
    }
    let oversized = CompactOptions { slab_bytes: 100, ..small_options() };
    let opened = Compaction::open_with(&source, Arc::clone(&storage), COPY, oversized);
    assert!(opened.is_err_and(|error| error.class() == ErrorClass::Usage));
}

#[test]
fn a_source_that_is_replaced_meanwhile_is_copied_as_it_was() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (before, after) = (mixed_epoch(10, 100), mixed_epoch(4, 100));
    write_source(&storage, DataType::F32, PartOptions::default(), (1, &before, 1), |_| ());
    let source = Dataset::open_with(Arc::clone(&storage), SOURCE).unwrap();
    let mut copy = Compaction::open_with(&source, Arc::clone(&storage), COPY, small_options()).unwrap();
    let replaced = std::sync::Once::new();
    copy.compact_epoch(1, &|_| {
        replaced.call_once(|| {
            write_source(&storage, DataType::F32, PartOptions::default(), (1, &after, 2), |_| ());
        });
    })
    .unwrap();
    assert!(replaced.is_completed());
    check_copy(&storage, DataType::F32, 1, rows_of(&schema(DataType::F32), &before, 1));
}
