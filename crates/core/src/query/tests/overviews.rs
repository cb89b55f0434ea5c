//! Cursors that begin with an overview: few reads of many parts, every row once, and the records where there is none.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::cursors::{PointRun, ids, memory, open, points, step, take, write_points};
use super::*;
use crate::index::Overview;
use crate::index_build::{IndexBuild, IndexOptions, drop_index_with};
use crate::query::{Cursor, CursorRequest, Step, Use};
use crate::schema::Levels;
use crate::storage::{Fault, FaultStorage, ReadEvent};

/// Completes the overview, with parts of about this many bytes and pages of this many rows.
pub(super) fn add_overview(storage: &Arc<dyn Storage>, part_bytes: usize, page_rows: u32) -> Vec<u64> {
    let options = IndexOptions { threads: Some(1), break_lock: true };
    let mut build = IndexBuild::open_with(storage.clone(), ROOT, &Overview.into(), &options).unwrap();
    // A part is three quarters of four memtables.
    build.dataset_build().set_memtable_bytes(part_bytes.div_ceil(3));
    build.dataset_build().set_page_rows(page_rows);
    let missing = build.missing().unwrap();
    for &epoch in &missing {
        build.build_epoch(epoch, &|_| ()).unwrap();
    }
    build.close().unwrap();
    missing
}

pub(super) fn overview_paths() -> DatasetPaths {
    DatasetPaths::new(Path::new(ROOT)).index("overview")
}

/// Returns the offsets of the row groups in the parts of the overview, if there is one.
fn row_groups_of_overview(storage: &Arc<dyn Storage>) -> BTreeSet<u64> {
    let overview = Dataset::open_with(storage.clone(), overview_paths().root()).and_then(|copy| copy.manifest(1));
    overview.map_or(BTreeSet::new(), |manifest| manifest.row_groups.iter().map(|group| group.offset).collect())
}

fn cursor_of(dataset: &Dataset) -> Cursor {
    dataset.cursor(&CursorRequest::new(Query::new().epochs(1))).unwrap()
}

/// Returns the ids and levels of the rows of the next step.
fn step_of(cursor: &mut Cursor, step: Step) -> Vec<(u64, u8)> {
    take(cursor, step).iter().flat_map(|batch| ids(&batch.rows).into_iter().map(|id| (id, batch.level))).collect()
}

/// The levels of all rows.
fn levels_of(runs: &[PointRun]) -> BTreeMap<u64, u8> {
    runs.iter().flat_map(|run| run.2.iter().map(|point| (point.id, point.level))).collect()
}

#[test]
fn the_first_rows_of_many_parts_need_few_reads() {
    const RECEIVERS: u32 = 4096;
    let (storage, seed) = (memory(), 11);
    let runs = points(seed, 1, (RECEIVERS, 1, 110));
    write_points(&storage, Some(Levels { count: 1, seed }), &runs);
    let reads = |wanted: u64| {
        let faults = Arc::new(FaultStorage::new(storage.clone()));
        faults.take_events();
        let dataset = Dataset::open_with(faults.clone(), ROOT).unwrap();
        let found = step_of(&mut cursor_of(&dataset), Step::Rows(wanted));
        assert!((wanted..wanted + 2048).contains(&(found.len() as u64)), "{} rows", found.len());
        // Those of manifests and descriptions, too. One call reads pages of a row group into several buffers.
        let begins = row_groups_of_overview(&storage);
        let events: Vec<_> = faults.take_events().into_iter().filter(|event| !event.is_announced).collect();
        let is_next = |pair: &&[ReadEvent]| {
            let is_adjacent = pair[0].path == pair[1].path && pair[0].range.end == pair[1].range.start;
            is_adjacent && !begins.contains(&pair[1].range.start)
        };
        events.len() - events.windows(2).filter(is_next).count()
    };
    assert!(reads(50_000) > RECEIVERS as usize);
    add_overview(&storage, 21 << 20, 2048);
    let reads = reads(50_000);
    println!("{reads} reads");
    assert!(reads <= 64, "{reads} reads");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn each_row_is_returned_once_from_the_overview_or_the_records(
        seed in any::<u64>(),
        levels in 1u8..4,
        shape in (1u32..6, 1u32..4, prop::sample::select(vec![3u32, 90, 400])),
        filter in prop::sample::select(vec![None, Some("v > 0.7"), Some("y > 4 or v < 0.1"), Some("false")]),
        sides in prop::sample::select(vec![None, Some("10:30,:"), Some("31:34,2:5.5")]),
        columns in prop::sample::select(vec![vec!["id"], vec!["id", "tag"], vec!["epoch", "v", "id"]]),
        near in prop::sample::select(vec![None, Some([40.0, 1.0])]),
        (part_bytes, page_rows) in (prop::sample::select(vec![1usize << 10, 1 << 20]), 1u32..20),
        threads in 1usize..3,
        steps in prop::collection::vec(step(), 0..8),
    ) {
        let storage = memory();
        let runs = points(seed, levels, shape);
        write_points(&storage, Some(Levels { count: levels, seed }), &runs);
        let query = Query::new().epochs(1).restricted(filter.map(str::to_owned), sides.map(str::to_owned), None);
        let query = query.columns(columns.clone()).threads(threads);
        let expected: BTreeSet<u64> =
            open(&storage).run(&query).unwrap().flat_map(|batch| ids(&batch.unwrap())).collect();
        let level_of = levels_of(&runs);
        prop_assert_eq!(add_overview(&storage, part_bytes, page_rows), [1]);
        let of_top = level_of.values().filter(|level| **level == levels).count() as u64;
        prop_assert_eq!(Dataset::open_with(storage.clone(), overview_paths().root()).unwrap().manifest(1).unwrap().rows(), of_top);

        let dataset = open(&storage);
        let request = CursorRequest::new(query);
        let request = if let Some(point) = near { request.near(point) } else { request };
        let mut cursor = dataset.cursor(&request).unwrap();
        let mut found = BTreeSet::new();
        for step in steps.into_iter().chain([Step::Quality(1.0)]) {
            let before = found.len();
            for batch in take(&mut cursor, step) {
                prop_assert!(batch.rows.num_rows() > 0);
                prop_assert_eq!(batch.run.is_none(), batch.level == levels);
                for id in ids(&batch.rows) {
                    prop_assert!(found.insert(id), "row {} is returned twice", id);
                    prop_assert_eq!(level_of[&id], batch.level);
                }
            }
            let returned = (found.len() - before) as u64;
            if let Step::Rows(rows) = step {
                prop_assert!(returned >= rows || cursor.is_finished(), "{} of {}", returned, rows);
            }
            prop_assert!(cursor.rows_most() >= (expected.len() - found.len()) as u64);
            let complete = cursor.complete_level().unwrap_or(levels + 1);
            for id in expected.iter().filter(|id| level_of[*id] >= complete) {
                prop_assert!(found.contains(id), "level {} is complete", complete);
            }
        }
        prop_assert_eq!(&found, &expected);
        prop_assert!(cursor.is_finished() && cursor.stands_for() == Some(1.0));
        prop_assert_eq!(cursor.metrics().rows_matched, expected.len() as u64);
        prop_assert_eq!(dataset.ignored_corruption(), 0);
    }
}

/// Returns the files below a folder.
pub(super) fn files(storage: &dyn Storage, folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in storage.list(folder).unwrap() {
        let path = folder.join(&entry.name);
        match entry.kind {
            crate::storage::FileKind::Directory => found.extend(files(storage, &path)),
            _ => drop(found.insert(path.clone(), storage.open(&path).unwrap().bytes())),
        }
    }
    found
}

#[test]
fn records_answer_for_a_corrupt_overview() {
    let (memory, seed) = (memory(), 4);
    let runs = points(seed, 1, (3, 2, 900));
    write_points(&memory, Some(Levels { count: 1, seed }), &runs);
    add_overview(&memory, 8 << 10, 16);
    let expected = levels_of(&runs);
    let (mut ignored, mut refused) = (0, 0);
    for (path, bytes) in files(&*memory, overview_paths().root()) {
        for offset in (0..40).map(|place| (bytes - 1) * place / 39) {
            let faults = FaultStorage::with_fault(memory.clone(), Fault::Flip { path: path.clone(), offset, mask: 4 });
            let dataset = Dataset::open_with(Arc::new(faults), ROOT).unwrap();
            let mut cursor = cursor_of(&dataset);
            let found = step_of(&mut cursor, Step::Quality(1.0));
            assert_eq!(found.len(), expected.len(), "{} at {offset}", path.display());
            assert_eq!(BTreeMap::from_iter(found), expected);
            assert_eq!(cursor.metrics().corrupt_indexes, dataset.ignored_corruption());
            assert_eq!(cursor.metrics().rows_matched, expected.len() as u64);
            ignored += u64::from(dataset.ignored_corruption() > 0);
            // Once some rows have been returned, the others cannot be told from them.
            let mut cursor = cursor_of(&dataset);
            let mut found = step_of(&mut cursor, Step::Rows(1));
            cursor.advance(Step::Quality(1.0)).unwrap();
            let rest: Result<Vec<_>, _> = cursor.collect();
            match rest {
                Ok(batches) => {
                    found.extend(
                        batches.iter().flat_map(|batch| ids(&batch.rows).into_iter().map(|id| (id, batch.level))),
                    );
                    assert_eq!(found.len(), expected.len());
                    assert_eq!(BTreeMap::from_iter(found), expected);
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("overview"), "{error}");
                }
            }
        }
    }
    assert!(ignored > 50 && refused > 10 && refused < ignored, "{ignored} {refused}");
}

#[test]
fn overviews_of_other_commits_are_not_read() {
    let (storage, levels) = (memory(), Some(Levels { count: 1, seed: 3 }));
    let old = points(5, 1, (2, 1, 500));
    write_points(&storage, levels, &old);
    add_overview(&storage, 1 << 20, 16);
    let dataset = open(&storage);
    let mut begun = cursor_of(&dataset);
    assert!(take(&mut begun, Step::Rows(1)).iter().all(|batch| batch.run.is_none()));
    let new = points(6, 1, (2, 1, 600));
    write_points(&storage, levels, &new);
    // The old overview is read to its end, and then the old records are missing.
    let rest: Result<Vec<_>, _> = {
        begun.advance(Step::Quality(1.0)).unwrap();
        begun.collect()
    };
    let error = rest.unwrap_err().to_string();
    assert!(error.contains("epoch 1 was replaced"), "{error}");
    let all = |dataset: &Dataset, is_from_overview: bool| {
        let mut cursor = cursor_of(dataset);
        let batches = take(&mut cursor, Step::Quality(1.0));
        assert!(batches.iter().all(|batch| batch.run.is_none() == (is_from_overview && batch.level == 1)));
        let found = batches.iter().flat_map(|batch| ids(&batch.rows).into_iter().map(|id| (id, batch.level)));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), levels_of(&new));
        assert_eq!(dataset.ignored_corruption(), 0);
    };
    let named = || CursorRequest::new(Query::new().epochs(1).using(Use::named("overview")));
    for dataset in [&dataset, &open(&storage)] {
        all(dataset, false);
        let refused = dataset.cursor(&named()).unwrap_err().to_string();
        assert!(refused.contains("epoch 1") && refused.contains("index add DS overview"), "{refused}");
    }
    assert_eq!(add_overview(&storage, 1 << 20, 16), [1]);
    assert!(add_overview(&storage, 1 << 20, 16).is_empty());
    for dataset in [&dataset, &open(&storage)] {
        all(dataset, true);
        assert!(dataset.cursor(&named()).is_ok());
        let scanned = CursorRequest::new(Query::new().epochs(1).using(Use::Scan));
        let mut scanned = dataset.cursor(&scanned).unwrap();
        assert!(take(&mut scanned, Step::Quality(1.0)).iter().all(|batch| batch.run.is_some()));
        let refused = dataset.count(&Query::new().using(Use::named("overview"))).unwrap_err().to_string();
        assert!(refused.contains("only cursors"), "{refused}");
    }
    drop_index_with(&storage, ROOT, "overview", &IndexOptions::default()).unwrap();
    all(&open(&storage), false);
    // It has the files open.
    all(&dataset, true);
}

#[test]
fn overviews_of_records_without_levels_are_refused() {
    let storage = memory();
    write_points(&storage, None, &points(5, 0, (1, 1, 50)));
    let refused =
        IndexBuild::open_with(storage, ROOT, &Overview.into(), &IndexOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("highest level of detail") && refused.contains("--levels"), "{refused}");
}
