//! Estimates from levels of detail: the rows of the levels that are stated and no others, bounds that hold, errors.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::cursors::{Point, PointRun, ids, memory, open, points, write_points};
use super::*;
use crate::format::PartEntry;
use crate::query::{Count, Unbinned};
use crate::schema::{Levels, Value};
use crate::storage::{FaultStorage, ReadEvent};

const BINS: usize = 8;

fn written(seed: u64, levels: u8, shape: (u32, u32, u32)) -> (Arc<dyn Storage>, BTreeMap<u64, Point>) {
    let (storage, runs) = (memory(), points(seed, levels, shape));
    write_points(&storage, Some(Levels { count: levels, seed }), &runs);
    let points = |run: &PointRun| run.2.iter().map(|point| (point.id, *point)).collect::<Vec<_>>();
    (storage, runs.iter().flat_map(points).collect())
}

/// Returns the bytes that were read of the pages of each level, and those that were read elsewhere in its parts.
fn part_reads(dataset: &Dataset, events: Vec<ReadEvent>) -> BTreeMap<u8, (u64, u64)> {
    let (manifest, paths) = (dataset.manifest(1).unwrap(), DatasetPaths::new(Path::new(ROOT)));
    let mut found: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    for event in events.into_iter().filter(|event| !event.is_announced) {
        let read = |entry: &&PartEntry| paths.part(1, entry, dataset.schema()) == event.path;
        let Some(entry) = manifest.parts.iter().find(read) else { continue };
        // The read of a commit begins before the seals, in the last page.
        let is_page = manifest
            .row_groups
            .iter()
            .filter(|group| group.part == entry.part)
            .any(|group| group.offset <= event.range.start && event.range.end <= group.offset + group.bytes);
        let (pages, others) = found.entry(entry.level).or_default();
        *(if is_page { pages } else { others }) += event.range.end - event.range.start;
    }
    found
}

/// Returns the bin of a value.
fn place_of(value: f64, edges: &[Value]) -> Option<usize> {
    let edges: Vec<f64> = edges.iter().map(|edge| edge.as_f64()).collect();
    let last = edges.len() - 1;
    if value == edges[last] {
        return Some(last - 1);
    }
    (0..last).find(|bin| edges[*bin] <= value && value < edges[*bin + 1])
}

/// Checks an estimate of `truth` rows, of which `matched` are in the sample.
fn check(found: Estimate<u64>, (truth, matched): (u64, u64), stands_for: u64) {
    assert!(found.least <= truth && truth <= found.most, "{truth} rows: {found:?}");
    assert!(found.least <= found.estimate && found.estimate <= found.most, "{found:?}");
    let error = found.error.unwrap();
    if found.is_exact() {
        assert_eq!(error, 0.0);
        return;
    }
    assert!(found.estimate == matched * stands_for || found.estimate == found.most || found.estimate == found.least);
    let weight = stands_for as f64;
    let expected = f64::sqrt(weight * (weight - 1.0)) * (1.0 + f64::sqrt(matched as f64 + 0.75));
    assert!((error - expected).abs() < 1e-9 * expected, "{error}, {expected}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn estimates_are_those_of_the_rows_of_a_level(
        seed in any::<u64>(),
        levels in 1u8..4,
        above in 0u8..4,
        shape in (1u32..4, 1u32..4, prop::sample::select(vec![3u32, 90, 400])),
        filter in prop::sample::select(vec![
            None, Some("v > 0.7"), Some("x < 20 and v > 0.2"), Some("isnan(x)"), Some("y > 4 or v < 0.1"), Some("false"),
        ]),
        sides in prop::sample::select(vec![None, Some("10:30,:"), Some("31:34,2:5.5")]),
        column in prop::sample::select(vec!["v", "x"]),
        range in prop::sample::select(vec![None, Some((0.25, 0.75)), Some((8.0, 40.0))]),
        threads in 1usize..3,
    ) {
        let level = above.min(levels);
        let (storage, by_id) = written(seed, levels, shape);
        let query = Query::new().epochs(1).restricted(filter.map(str::to_owned), sides.map(str::to_owned), None);
        let query = query.columns(["id"]).threads(threads);
        let matching: Vec<Point> =
            open(&storage).run(&query).unwrap().flat_map(|batch| ids(&batch.unwrap())).map(|id| by_id[&id]).collect();
        let sampled = |point: &&Point| point.level >= level;
        let count = |of: &dyn Fn(&Point) -> bool| {
            let chosen = || matching.iter().filter(|point| of(point));
            (chosen().count() as u64, chosen().filter(sampled).count() as u64)
        };
        let (truth, matched) = count(&|_| true);
        let unplaced = if level > 0 { count(&|point| point.x.is_nan()).0 } else { 0 };
        let stands_for = 8u64.pow(level.into());

        let faults = Arc::new(FaultStorage::new(storage.clone()));
        let dataset = Dataset::open_with(faults.clone(), ROOT).unwrap();
        let Count { rows, sample: Some(sample), .. } = dataset.count_from(&query, Source::Level(level)).unwrap() else {
            panic!("no sample");
        };
        prop_assert_eq!((sample.level, sample.matched, sample.stands_for()), (level, matched, Some(stands_for)));
        prop_assert!(sample.unplaced.least <= unplaced && unplaced <= sample.unplaced.most);
        check(rows, (truth, matched), stands_for);
        prop_assert!(rows.is_exact() || filter.is_some() || sides.is_some());
        prop_assert!(level > 0 || rows == Estimate::exactly(truth));

        let range = range.map(|(from, to)| (Value::Float(from), Value::Float(to)));
        let bins = Bins { range, ..Bins::new(BINS) };
        let found = dataset.histogram(&of_column(&query, column, &bins, Source::Level(level))).unwrap();
        let reads = part_reads(&dataset, faults.take_events());
        prop_assert!(reads.iter().all(|(of, (pages, _))| *of >= level || *pages == 0), "{level}: {reads:?}");
        let (edges, counts) = (found.axes[0].edges.as_slice(), &found.rows);
        prop_assert_eq!(found.sample, Some(sample));
        prop_assert_eq!(counts.all, rows);
        let value = |point: &Point| f64::from(if column == "x" { point.x } else { point.v });
        prop_assert_eq!(counts.bins.len(), edges.len().saturating_sub(1));
        for (bin, rows) in counts.bins.iter().enumerate() {
            check(rows, count(&|point| place_of(value(point), edges) == Some(bin)), stands_for);
        }
        if let (Some(first), Some(last)) = (edges.first(), edges.last()) {
            check(counts.at(Unbinned::Below), count(&|point| value(point) < first.as_f64()), stands_for);
            check(counts.at(Unbinned::Above), count(&|point| value(point) > last.as_f64()), stands_for);
        }
        let nan = counts.at(Unbinned::Nan);
        check(nan, count(&|point| value(point).is_nan()), stands_for);
        prop_assert!(nan.is_exact() || filter.is_some() || sides.is_some() || level == 0);
    }
}

#[test]
fn only_the_bytes_of_a_level_are_read() {
    let (storage, by_id) = written(5, 3, (3, 2, 6_000));
    let faults = Arc::new(FaultStorage::new(storage));
    let mut bytes = Vec::new();
    for level in 0..=3 {
        let dataset = Dataset::open_with(faults.clone(), ROOT).unwrap();
        faults.take_events();
        let query = Query::new().epochs(1).filter("v > 0.25").within("4:60,:");
        let found = dataset.histogram(&of_column(&query, "v", &Bins::new(BINS), Source::Level(level))).unwrap();
        let reads = part_reads(&dataset, faults.take_events());
        let with_pages = reads.iter().filter(|(_, (pages, _))| *pages > 0).map(|(of, _)| *of);
        assert!(with_pages.eq(level..=3), "level {level}: {reads:?}");
        assert_eq!(found.metrics.bytes_read, reads.values().map(|(pages, _)| pages).sum::<u64>());
        // The commit of one part identifies the manifest.
        assert!(reads.iter().all(|(of, (_, others))| *of >= level || *others <= 8 << 10), "level {level}: {reads:?}");
        assert!(found.sample.unwrap().matched > 10);
        bytes.push(found.metrics.bytes_read);
        // Integers are neither infinite nor NaN.
        let found = dataset.histogram(&of_column(&query, "id", &Bins::new(BINS), Source::Level(level))).unwrap();
        for reason in [Unbinned::Nan, Unbinned::PositiveInfinity] {
            assert_eq!(found.rows.at(reason), Estimate::exactly(0));
        }
        assert!(level == 0 || found.rows.bins.errors().unwrap()[0] > 8.0);
        // Without a predicate, manifests know the number of all rows.
        let all = dataset.count_from(&Query::new(), Source::Level(level)).unwrap();
        assert_eq!(all.rows, Estimate::exactly(by_id.len() as u64));
        assert_eq!(all.sample.unwrap().unplaced, Estimate::exactly(if level > 0 { 15 } else { 0 }));
    }
    assert!(bytes.windows(2).all(|pair| pair[1] * 5 < pair[0]), "{bytes:?}");
}

#[test]
fn estimates_that_cannot_be_are_refused() {
    let (storage, _) = written(1, 2, (1, 1, 90));
    let dataset = open(&storage);
    let refused = |dataset: &Dataset, query: Query, level: u8| {
        let count = dataset.count_from(&query, Source::Level(level)).unwrap_err().to_string();
        let request = of_column(&query, "v", &Bins::new(4), Source::Level(level));
        let histogram = dataset.histogram(&request).unwrap_err().to_string();
        assert_eq!(count, histogram);
        count
    };
    assert!(refused(&dataset, Query::new(), 3).contains("level: the dataset has the levels 0 to 2, and no level 3"));
    let piece = dataset.pieces(&Query::new(), 1 << 20).unwrap().remove(0);
    assert!(refused(&dataset, Query::new().piece(piece), 1).contains("not of a piece"));
    assert!(refused(&dataset, Query::new().epochs(7), 1).contains("epoch 7"));
    assert!(dataset.histogram(&of_column(&Query::new(), "tag", &Bins::new(4), Source::Level(1))).is_err());
    let plain = memory();
    write_points(&plain, None, &points(1, 0, (1, 1, 90)));
    let words = refused(&open(&plain), Query::new(), 1);
    assert!(words.contains("no levels of detail") && words.contains("--levels"), "{words}");
}

#[test]
fn estimates_are_of_the_commit_of_now() {
    let (storage, _) = written(1, 2, (1, 1, 90));
    let dataset = open(&storage);
    let before = dataset.count_from(&Query::new().filter("v > 0.5"), Source::Level(1)).unwrap();
    write_points(&storage, Some(Levels { count: 2, seed: 1 }), &points(2, 2, (1, 1, 900)));
    let after = dataset.count_from(&Query::new().filter("v > 0.5"), Source::Level(1)).unwrap();
    let matched = |found: &Count| found.sample.unwrap().matched;
    assert!(matched(&after) > matched(&before) && after.rows.most > before.rows.most, "{before:?}, {after:?}");
}
