//! Cursors: every row once and no page twice for any steps, estimates without bias, pages near to a point first.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::overviews::add_overview;
use super::*;
use crate::query::{Cursor, CursorBatch, CursorRequest, Step};
use crate::random::Random;
use crate::schema::Levels;
use crate::storage::FaultStorage;

/// Rows of a page of the coordinates.
const PAGE_ROWS: u32 = 16;

/// Most rows after which pages of the coordinates and of `tag` end together. At level 0, which has seven rows in eight,
/// pages of the coordinates have 14 rows and pages of `tag` 9; above, they have 16 and 10.
const TAG_UNIT_ROWS: u64 = 14 * 9;

/// A record at a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) id: u64,
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) v: f32,
    pub(super) level: u8,
}

/// The records of a run of a receiver.
pub(super) type PointRun = (u32, u32, Vec<Point>);

fn point_schema(levels: Option<Levels>) -> Schema {
    let columns = vec![
        Column::new("id", DataType::U64),
        Column::new("x", DataType::F32),
        Column::new("v", DataType::F32),
        Column::new("y", DataType::F32),
        Column::new("tag", DataType::FixedBytes(12)),
    ];
    let schema = Schema::new(columns, "space:x,y").unwrap();
    levels.map_or(schema.clone(), |levels| schema.with_levels(levels).unwrap())
}

/// Writes epoch 1 of a new dataset, or replaces it.
pub(super) fn write_points(storage: &Arc<dyn Storage>, levels: Option<Levels>, runs: &[PointRun]) {
    write_pages(storage, levels, runs, PAGE_ROWS);
}

/// Writes an epoch as [`write_points`] does, with this many rows in a page.
pub(super) fn write_pages(storage: &Arc<dyn Storage>, levels: Option<Levels>, runs: &[PointRun], page_rows: u32) {
    let paths = DatasetPaths::new(Path::new(ROOT));
    let wanted = DatasetDescriptor::new(Arc::new(point_schema(levels)));
    let descriptor = DatasetDescriptor::open_or_create(storage.as_ref(), &paths, &wanted).unwrap();
    let schema = descriptor.schema.clone();
    let commit = EpochCommit::begin(storage, &paths, &descriptor, 1, IfExists::Replace).unwrap().unwrap();
    let options = PartOptions { page_rows, row_groups_per_run: 2, ..PartOptions::default() };
    let (mut parts, mut row_groups) = (Vec::new(), Vec::new());
    let ranks: BTreeSet<u32> = runs.iter().map(|run| run.0).collect();
    for (rank, level) in ranks.iter().flat_map(|rank| (0..=schema.top_level()).map(move |level| (*rank, level))) {
        let part = PartId { rank, roll: level.into() };
        let own: Vec<(u32, Vec<Point>)> = runs
            .iter()
            .filter(|run| run.0 == rank)
            .map(|(_, run, points)| (*run, points.iter().filter(|point| point.level == level).copied().collect()))
            .filter(|(_, points): &(u32, Vec<Point>)| !points.is_empty())
            .collect();
        if own.is_empty() {
            continue;
        }
        let folder = commit.directory();
        let mut writer =
            PartWriter::create_at(storage.clone(), &folder, (part, level), schema.clone(), options, commit.identity())
                .unwrap();
        for (run, points) in own {
            let mut packed = Vec::new();
            for point in &points {
                packed.extend_from_slice(&point.id.to_le_bytes());
                [point.x, point.v, point.y].iter().for_each(|value| packed.extend_from_slice(&value.to_le_bytes()));
                packed.extend_from_slice(&[point.id as u8; 12]);
            }
            let mut memtable = Memtable::new(schema.clone(), packed.len());
            memtable.push(&packed);
            let kind = if points[0].x.is_nan() { RunKind::NanKey } else { RunKind::Regular };
            row_groups.extend(
                writer.append_run(&memtable, RunContext { run, kind, table_version: 1, bounds: None }).unwrap(),
            );
        }
        parts.push(writer.finish().unwrap());
    }
    row_groups.sort_by_key(|group| (group.part, group.offset));
    let manifest = EpochManifest {
        partitions: None,
        indexed_commit: None,
        attributes: Default::default(),
        epoch: 1,
        commit: commit.identity().commit,
        parts,
        row_groups: row_groups.into(),
        keys: Default::default(),
        metrics: EpochMetrics { receivers: ranks.len() as u32, ..EpochMetrics::default() },
    };
    commit.commit(manifest).unwrap();
}

/// Returns runs of random points of receivers that divide the domain of 64 x 8 along x. A row is at level k or above
/// with the probability of 8^-k. Each receiver has a run of NaN.
pub(super) fn points(seed: u64, levels: u8, (receivers, runs, rows): (u32, u32, u32)) -> Vec<PointRun> {
    let mut random = Random::new(seed ^ 0x5EED);
    let mut found = Vec::new();
    let mut id = 0;
    for (rank, run) in (0..receivers).flat_map(|rank| (0..=runs).map(move |run| (rank, run))) {
        let is_nan = run == runs;
        let mut point = || {
            id += 1;
            let x = 64.0 * (f64::from(rank) + random.fraction()) / f64::from(receivers);
            let (y, v) = (8.0 * random.fraction(), random.fraction());
            let level = (0..levels).take_while(|_| random.below(8) == 0).count() as u8;
            let (x, level) = if is_nan { (f64::NAN, 0) } else { (x, level) };
            Point { id, x: x as f32, y: y as f32, v: v as f32, level }
        };
        found.push((rank, run, (0..if is_nan { 5 } else { rows }).map(|_| point()).collect()));
    }
    found
}

pub(super) fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

pub(super) fn open(storage: &Arc<dyn Storage>) -> Dataset {
    Dataset::open_with(storage.clone(), ROOT).unwrap()
}

pub(super) fn ids(rows: &RecordBatch) -> Vec<u64> {
    rows.column_by_name("id").unwrap().as_primitive::<UInt64Type>().values().to_vec()
}

/// Takes a step. Returns its batches.
pub(super) fn take(cursor: &mut Cursor, step: Step) -> Vec<CursorBatch> {
    cursor.advance(step).unwrap();
    cursor.by_ref().map(|batch| batch.unwrap()).collect()
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..400).prop_map(Step::Rows),
        (0u32..1000).prop_map(|share| Step::Quality((f64::from(share) / 1000.0).powi(3))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn each_row_is_returned_once_and_each_page_read_once(
        seed in any::<u64>(),
        levels in 1u8..4,
        shape in (1u32..4, 1u32..4, prop::sample::select(vec![3u32, 90, 400])),
        filter in prop::sample::select(vec![None, Some("v > 0.7"), Some("x < 20 and v > 0.2"), Some("y > 4 or v < 0.1"), Some("false")]),
        sides in prop::sample::select(vec![None, Some("10:30,:"), Some("31:34,2:5.5")]),
        columns in prop::sample::select(vec![vec!["id"], vec!["id", "tag"], vec!["x", "id", "y"], vec!["epoch", "v", "id"]]),
        near in prop::sample::select(vec![None, Some([40.0, 1.0])]),
        threads in 1usize..3,
        steps in prop::collection::vec(step(), 0..8),
    ) {
        let storage = memory();
        let runs = points(seed, levels, shape);
        write_points(&storage, Some(Levels { count: levels, seed }), &runs);
        let query = Query::new().epochs(1).restricted(filter.map(str::to_owned), sides.map(str::to_owned), None);
        let query = query.columns(columns.clone()).threads(threads);
        let expected: BTreeSet<u64> = open(&storage).run(&query).unwrap().flat_map(|batch| ids(&batch.unwrap())).collect();
        let by_id: BTreeMap<u64, (u32, u32, Point)> =
            runs.iter().flat_map(|(rank, run, points)| points.iter().map(|point| (point.id, (*rank, *run, *point)))).collect();

        let faults = Arc::new(FaultStorage::new(storage.clone()));
        let dataset = Dataset::open_with(faults.clone(), ROOT).unwrap();
        let request = CursorRequest::new(query.clone());
        let request = if let Some(point) = near { request.near(point) } else { request };
        let mut cursor = dataset.cursor(&request).unwrap();
        prop_assert!(cursor.rows_most() >= expected.len() as u64);
        faults.take_events();
        let mut found = BTreeSet::new();
        for step in steps.into_iter().chain([Step::Quality(1.0)]) {
            let before = found.len();
            for batch in take(&mut cursor, step) {
                prop_assert!(batch.rows.num_rows() > 0);
                for id in ids(&batch.rows) {
                    prop_assert!(found.insert(id), "row {} is returned twice", id);
                    let (rank, run, point) = by_id[&id];
                    prop_assert_eq!((Some((rank, run)), point.level), (batch.run, batch.level));
                    prop_assert_eq!(batch.bounds.is_none(), point.x.is_nan());
                    for ((low, high), value) in batch.bounds.iter().flatten().zip([point.x, point.y]) {
                        prop_assert!((*low..=*high).contains(&f64::from(value)));
                    }
                }
            }
            let returned = (found.len() - before) as u64;
            match step {
                Step::Rows(rows) => {
                    prop_assert!(returned >= rows || cursor.is_finished(), "{} of {}", returned, rows);
                    let page = if columns.contains(&"tag") { TAG_UNIT_ROWS } else { u64::from(PAGE_ROWS) };
                    let is_at_most_a_page_more = returned < rows + page || rows == 0 && returned == 0;
                    prop_assert!(filter.is_some() || sides.is_some() || is_at_most_a_page_more, "{returned} of {rows}");
                }
                Step::Quality(quality) => {
                    let complete = (0..=levels).filter(|level| 8f64.powi(-i32::from(*level)) <= quality).collect::<Vec<_>>();
                    for id in expected.iter().filter(|id| complete.contains(&by_id[*id].2.level)) {
                        prop_assert!(found.contains(id), "row {} of level {}", id, by_id[id].2.level);
                    }
                }
            }
            prop_assert!(cursor.rows_most() >= (expected.len() - found.len()) as u64);
        }
        prop_assert_eq!(&found, &expected);
        prop_assert!(cursor.is_finished() && cursor.stands_for() == Some(1.0));
        prop_assert!(take(&mut cursor, Step::Rows(1)).is_empty());

        let manifest = dataset.manifest(1).unwrap();
        let mut reads = Vec::new();
        for event in faults.take_events().into_iter().filter(|event| !event.is_announced) {
            let is_page = |group: crate::format::RowGroupEntry| {
                let part = manifest.parts.iter().find(|part| part.part == group.part).unwrap();
                event.path == DatasetPaths::new(Path::new(ROOT)).part(1, part, dataset.schema())
                    && group.offset <= event.range.start && event.range.end <= group.offset + group.bytes
            };
            if (0..manifest.row_groups.len()).any(|entry| is_page(manifest.row_groups[entry].clone())) {
                reads.push((event.path, event.range.start, event.range.end));
            }
        }
        reads.sort();
        prop_assert!(reads.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1), "{:?}", reads);
        prop_assert_eq!(reads.iter().map(|read| read.2 - read.1).sum::<u64>(), cursor.metrics().bytes_read);
    }
}

#[test]
fn ten_steps_read_as_many_bytes_as_one_query() {
    let storage = memory();
    write_points(&storage, Some(Levels { count: 3, seed: 7 }), &points(1, 3, (3, 2, 4_000)));
    let dataset = open(&storage);
    for filter in [None, Some("v > 0.9"), Some("x < 17.5")] {
        let query =
            Query::new().epochs(1).restricted(filter.map(str::to_owned), None, None).columns(["x", "y", "v", "id"]);
        let mut stream = dataset.run(&query).unwrap();
        let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        let mut cursor = dataset.cursor(&CursorRequest::new(query)).unwrap();
        let mut returned = 0;
        for tenth in 1..=10 {
            let share = f64::from(tenth) / 10.0;
            returned +=
                take(&mut cursor, Step::Quality(share)).iter().map(|batch| batch.rows.num_rows()).sum::<usize>();
            let expected = share * rows as f64;
            assert!(
                (returned as f64 - expected).abs() < 0.05 * expected + 300.0,
                "{returned} of {expected} {filter:?}"
            );
        }
        assert_eq!(returned, rows);
        let (steps, one) = (cursor.metrics(), stream.metrics());
        assert!(steps.bytes_read as f64 <= 1.05 * one.bytes_read as f64, "{filter:?}: {steps:?}, {one:?}");
        assert_eq!((steps.rows_matched, steps.runs_touched), (one.rows_matched, one.runs_touched));
    }
}

/// Returns the weighted numbers of returned rows in 16 x 2 cells: with the same weight for all rows, and with the
/// weight of each row.
fn estimates(cursor: &Cursor, batches: &[CursorBatch], by_id: &BTreeMap<u64, Point>) -> [Vec<f64>; 2] {
    let mut found = [vec![0.0; 32], vec![0.0; 32]];
    let stands_for = cursor.stands_for().unwrap();
    let rows = batches.iter().flat_map(|batch| ids(&batch.rows)).zip(cursor.weights(batches));
    for (id, weight) in rows {
        let point = by_id[&id];
        if point.x.is_nan() {
            assert_eq!(weight, 1.0);
            continue;
        }
        let cell = (point.x / 4.0) as usize * 2 + usize::from(point.y >= 4.0);
        found[0][cell] += stands_for;
        found[1][cell] += weight;
    }
    found
}

#[test]
fn estimates_have_no_bias_at_any_step() {
    let errors = check_bias(|_| ());
    // In the middle of level 0, weights tell where the rows that stand for eight are.
    assert!(errors[4][1] < 0.5 * errors[4][0], "{errors:?}");
}

/// Rows of an overview are of several runs, whose units may have been read or not.
#[test]
fn estimates_that_begin_with_an_overview_have_no_bias() {
    check_bias(|storage| assert_eq!(add_overview(storage, 1 << 20, 10), [1]));
}

/// Checks that estimates have no bias, at several qualities, of datasets to which `add` may have added an index.
/// Returns the squared errors of each quality.
fn check_bias(add: impl Fn(&Arc<dyn Storage>)) -> Vec<[f64; 2]> {
    let (seeds, shape) = (200u64, (2, 2, 1_500));
    let qualities = [0.01, 0.07, 0.125, 0.3, 0.6];
    let mut sums = vec![[0.0f64; 4]; qualities.len() * 32];
    let mut errors = vec![[0.0f64; 2]; qualities.len()];
    for seed in 0..seeds {
        let storage = memory();
        let mut runs = points(1, 2, shape);
        let mut random = Random::new(seed);
        for (.., run) in &mut runs {
            let moves = |point: &mut Point| point.level = (0..2).take_while(|_| random.below(8) == 0).count() as u8;
            run.iter_mut().filter(|point| !point.x.is_nan()).for_each(moves);
        }
        write_pages(&storage, Some(Levels { count: 2, seed }), &runs, 256);
        add(&storage);
        let by_id: BTreeMap<u64, Point> =
            runs.iter().flat_map(|run| run.2.iter().map(|point| (point.id, *point))).collect();
        let mut truth = vec![0.0; 32];
        for point in by_id.values().filter(|point| !point.x.is_nan()) {
            truth[(point.x / 4.0) as usize * 2 + usize::from(point.y >= 4.0)] += 1.0;
        }
        let mut cursor = open(&storage).cursor(&CursorRequest::new(Query::new().epochs(1).columns(["id"]))).unwrap();
        let mut batches = Vec::new();
        for (number, quality) in qualities.into_iter().enumerate() {
            batches.extend(take(&mut cursor, Step::Quality(quality)));
            let stands_for = cursor.stands_for().unwrap();
            // Runs have six pages, so the share that is read is not the quality.
            assert!((0.4..2.5).contains(&(stands_for * quality)), "{stands_for} at {quality}");
            let [everywhere, by_place] = estimates(&cursor, &batches, &by_id);
            let placed = by_id.values().filter(|point| !point.x.is_nan()).count() as f64;
            assert!((by_place.iter().sum::<f64>() / placed - 1.0).abs() < 1e-9);
            for cell in 0..32 {
                let deviations = [everywhere[cell] - truth[cell], by_place[cell] - truth[cell]];
                let sum = &mut sums[number * 32 + cell];
                for (kind, deviation) in deviations.into_iter().enumerate() {
                    sum[2 * kind] += deviation;
                    sum[2 * kind + 1] += deviation * deviation;
                    errors[number][kind] += deviation * deviation;
                }
            }
        }
    }
    for (place, sum) in sums.iter().enumerate() {
        for kind in 0..2 {
            let mean = sum[2 * kind] / seeds as f64;
            let error = (sum[2 * kind + 1] / seeds as f64 / seeds as f64).sqrt();
            assert!(mean.abs() < 4.5 * error, "kind {kind}, place {place}: {mean} +- {error}");
        }
    }
    errors
}

/// Returns the shares of rows that have been returned within and outside the boxes of read units of the lowest level.
fn densities(batches: &[CursorBatch], by_id: &BTreeMap<u64, (u32, u32, Point)>) -> [f64; 2] {
    let finest = batches.iter().map(|batch| batch.level).min().unwrap();
    let read: Vec<&CursorBatch> = batches.iter().filter(|batch| batch.level == finest).collect();
    let is_read = |(rank, run, point): &(u32, u32, Point)| {
        let at = [f64::from(point.x), f64::from(point.y)];
        let within = |batch: &&&CursorBatch| {
            let bounds = batch.bounds.iter().flatten();
            batch.run == Some((*rank, *run)) && bounds.zip(at).all(|((low, high), at)| *low <= at && at <= *high)
        };
        read.iter().any(|batch| within(&batch))
    };
    let placed = || by_id.values().filter(|(.., point)| !point.x.is_nan());
    let returned: Vec<u64> = batches.iter().flat_map(|batch| ids(&batch.rows)).collect();
    let counts = |inside: bool| {
        let rows = placed().filter(|point| is_read(point) == inside).count() as f64;
        returned.iter().filter(|id| !by_id[*id].2.x.is_nan() && is_read(&by_id[*id]) == inside).count() as f64 / rows
    };
    [counts(true), counts(false)]
}

#[test]
fn the_density_ratio_is_that_of_regions() {
    let storage = memory();
    let runs = points(9, 2, (2, 2, 6_000));
    write_pages(&storage, Some(Levels { count: 2, seed: 9 }), &runs, 64);
    let by_id: BTreeMap<u64, (u32, u32, Point)> = runs
        .iter()
        .flat_map(|(rank, run, points)| points.iter().map(|point| (point.id, (*rank, *run, *point))))
        .collect();
    let at = |quality: f64, near: bool| {
        let request = CursorRequest::new(Query::new().epochs(1).columns(["id"]));
        let request = if near { request.near([40.0, 1.0]) } else { request };
        let mut cursor = open(&storage).cursor(&request).unwrap();
        assert_eq!(cursor.density_ratio(), None);
        let batches = take(&mut cursor, Step::Quality(quality));
        let is_known = cursor.weights(&batches).iter().all(|weight| weight.is_finite());
        (cursor.density_ratio().unwrap(), densities(&batches, &by_id), is_known)
    };
    for near in [false, true] {
        for quality in [0.07, 0.5] {
            let (ratio, [read, other], is_known) = at(quality, near);
            let found = read / other;
            assert!(ratio == 8.0 && (6.5..9.5).contains(&found) && is_known, "{found} at {quality}");
        }
        for quality in [1.0 / 64.0, 0.125, 1.0] {
            assert_eq!((at(quality, near).0, at(quality, near).2), (1.0, true));
        }
        let (ratio, [read, other], is_known) = at(0.005, near);
        assert!(ratio.is_infinite() && read > 0.0 && other == 0.0, "{ratio}, {read}, {other}");
        assert_eq!(is_known, !near, "nothing stands for what is far");
    }
    // Weights in the middle of a level need the positions of rows.
    let request = CursorRequest::new(Query::new().epochs(1).columns(["id"])).without_positions();
    let mut cursor = open(&storage).cursor(&request).unwrap();
    let whole = take(&mut cursor, Step::Quality(0.125));
    assert!((cursor.weights(&whole).iter().sum::<f64>() - 24_000.0).abs() < 1e-6);
    let batches: Vec<CursorBatch> = whole.into_iter().chain(take(&mut cursor, Step::Quality(0.5))).collect();
    let weights = cursor.weights(&batches);
    assert!(weights.iter().any(|weight| weight.is_nan()) && weights.iter().any(|weight| weight.is_finite()));
}

#[test]
fn pages_near_a_point_come_first() {
    let storage = memory();
    write_points(&storage, Some(Levels { count: 2, seed: 3 }), &points(5, 2, (3, 2, 2_000)));
    let at = [50.0, 3.0];
    let request = CursorRequest::new(Query::new().epochs(1).columns(["id"])).near(at);
    let mut cursor = open(&storage).cursor(&request).unwrap();
    let (mut last, mut farthest) = (2, 0.0);
    while !cursor.is_finished() {
        for batch in take(&mut cursor, Step::Rows(1)) {
            assert!(batch.level <= last);
            farthest = if batch.level < last { 0.0 } else { farthest };
            last = batch.level;
            let bounds = batch.bounds.unwrap_or(vec![(f64::INFINITY, f64::INFINITY); 2]);
            let along = |(at, (low, high)): (f64, &(f64, f64))| (low - at).max(at - high).max(0.0);
            let distance = at.into_iter().zip(&bounds).map(along).fold(0.0, f64::hypot);
            assert!(distance >= farthest, "{distance} after {farthest}");
            farthest = distance;
        }
    }
    assert_eq!(last, 0);
    assert!(farthest.is_infinite(), "rows without a place come last");
}

#[test]
fn a_replaced_epoch_ends_the_cursor() {
    let storage = memory();
    let levels = Some(Levels { count: 1, seed: 3 });
    write_points(&storage, levels, &points(5, 1, (1, 1, 500)));
    let dataset = open(&storage);
    let mut cursor = dataset.cursor(&CursorRequest::new(Query::new().epochs(1))).unwrap();
    assert!(!take(&mut cursor, Step::Quality(0.125)).is_empty());
    write_points(&storage, levels, &points(6, 1, (1, 1, 500)));
    cursor.advance(Step::Quality(1.0)).unwrap();
    let error = cursor.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("epoch 1 was replaced"), "{error}");
    assert!(cursor.next().is_none());
    assert_eq!(cursor.complete_level(), None);
    let ended = cursor.advance(Step::Rows(1)).unwrap_err().to_string();
    assert!(ended.contains("open a new one"), "{ended}");
}

#[test]
fn requests_that_no_cursor_can_answer_are_refused() {
    let storage = memory();
    write_points(&storage, Some(Levels { count: 1, seed: 3 }), &points(5, 1, (1, 1, 50)));
    let dataset = open(&storage);
    let refused = |request: CursorRequest| dataset.cursor(&request).unwrap_err().to_string();
    let all = || Query::new().epochs(1);
    assert!(refused(CursorRequest::new(all().ordered_by("v"))).contains("in no other order"));
    assert!(refused(CursorRequest::new(all().limit(5))).contains("no limit"));
    assert!(refused(CursorRequest::new(Query::new().epochs(Vec::new()))).contains("one epoch"));
    assert!(refused(CursorRequest::new(Query::new().epochs(2))).contains("epoch 2"));
    let piece = dataset.pieces(&all(), 1).unwrap().remove(0);
    assert!(refused(CursorRequest::new(all().piece(piece))).contains("piece"));
    for point in [vec![1.0], vec![1.0, f64::NAN], vec![1.0, 2.0, 3.0]] {
        assert!(refused(CursorRequest::new(all()).near(point)).contains("2 coordinates"));
    }
    let mut cursor = dataset.cursor(&CursorRequest::new(all())).unwrap();
    for quality in [-0.1, 1.5, f64::NAN] {
        assert!(cursor.advance(Step::Quality(quality)).unwrap_err().to_string().contains("from 0 to 1"));
    }
    assert!(cursor.next().is_none(), "no step was taken");
    let storage = memory();
    write_points(&storage, None, &[(0, 0, vec![Point { id: 1, x: 1.0, y: 1.0, v: 1.0, level: 0 }])]);
    let error = open(&storage).cursor(&CursorRequest::new(all())).unwrap_err().to_string();
    assert!(error.contains("no levels of detail") && error.contains("--levels"), "{error}");
}
