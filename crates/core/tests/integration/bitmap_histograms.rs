//! Tests of histograms by bitmap indexes: random ones with every encoding and clustering, what they read, and corruption.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use turbidite::query::{
    BinScale, Binned, Bins, Estimate, Histogram, HistogramRequest, QueryProgress, Source, Unbinned, Use,
};
use turbidite::random::Random;
use turbidite::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use turbidite::store::IfExists;
use turbidite::{Dataset, LocalJob, Query, Value, WriteOptions};

use crate::support::indexed::add;
use crate::support::plasma::{Record, append, records, schema};
use crate::support::wrapped::WrappedStorage;

const INDEX: &str = "bitmap:ux,uy,cell,kind";

/// A column of a record, as the value that bins compare.
type Axis = (&'static str, fn(&Record) -> f64);

const AXES: [Axis; 5] = [
    ("ux", |record| record.ux.into()),
    ("uy", |record| record.uy),
    ("cell", |record| record.cell.into()),
    ("kind", |record| record.kind.into()),
    ("energy", |record| record.energy.into()),
];

/// Writes an epoch of one rank.
fn write(storage: &Arc<MemoryStorage>, key: &str, epoch: u64, records: &[Record], memtable_bytes: usize) {
    let mut options = WriteOptions::new(2);
    options.if_exists = IfExists::Replace;
    options.memtable_bytes = memtable_bytes;
    options.page_rows = 256;
    let job = LocalJob::open_with(storage.clone(), "/ds", schema(key), options).unwrap();
    job.begin_epoch(epoch).unwrap();
    append(&job, 0, 0, records);
    job.end_epoch().unwrap();
    job.close().unwrap();
}

/// A predicate as text, and as a function of a record.
type Condition = (&'static str, fn(&Record) -> bool);

const CONDITIONS: [Condition; 10] = [
    ("ux > 1", |record| record.ux > 1.0),
    ("ux > 0.1234 AND uy <= 0.7", |record| record.ux > 0.1234 && record.uy <= 0.7),
    ("isnan(uy) OR kind = 3", |record| record.uy.is_nan() || record.kind == 3),
    ("energy > 300", |record| record.energy > 300.0),
    ("energy BETWEEN 200 AND 400 AND NOT (ux < 0)", |record| {
        (200.0..=400.0).contains(&record.energy) && (record.ux >= 0.0 || record.ux.is_nan())
    }),
    ("ux > uy", |record| f64::from(record.ux) > record.uy),
    ("ux * ux + uy * uy < 2", |record| f64::from(record.ux) * f64::from(record.ux) + record.uy * record.uy < 2.0),
    ("cell < 0 AND abs(uy) < 0.5", |record| record.cell < 0 && record.uy.abs() < 0.5),
    ("uy = 0", |record| record.uy == 0.0),
    ("ux > 1e9", |record| record.ux > 1e9),
];

/// Returns the cell of a value: minus infinity, below, the bins, above, infinity, NaN.
fn cell(value: f64, edges: &[f64]) -> usize {
    let bins = edges.len().saturating_sub(1);
    match value {
        value if value.is_nan() => bins + 4,
        f64::NEG_INFINITY => 0,
        f64::INFINITY => bins + 3,
        value if edges.is_empty() || value < edges[0] => 1,
        value if value > edges[bins] => bins + 2,
        value => 2 + (edges[..bins].partition_point(|edge| *edge <= value) - 1),
    }
}

/// Returns the edges of an axis.
fn edges(found: &Histogram, axis: usize) -> Vec<f64> {
    found.axes[axis].edges.iter().map(|edge| edge.as_f64()).collect()
}

/// Requests a histogram of one column.
fn of_column(query: &Query, column: &str, bins: &Bins, source: Source) -> HistogramRequest {
    HistogramRequest::new(query.clone(), column, bins.clone()).source(source)
}

/// Requests a histogram of two columns.
fn of_pairs(query: &Query, x: (&str, &Bins), y: (&str, &Bins), source: Source) -> HistogramRequest {
    of_column(query, x.0, x.1, source).by(y.0, y.1.clone())
}

/// Returns the counts of each cell.
fn places(found: &Histogram) -> Vec<Estimate<u64>> {
    let rows = &found.rows;
    let mut places = vec![rows.at(Unbinned::NegativeInfinity), rows.at(Unbinned::Below)];
    places.extend(rows.bins.iter());
    places.extend([Unbinned::Above, Unbinned::PositiveInfinity, Unbinned::Nan].map(|reason| rows.at(reason)));
    places
}

/// Returns the counts of each pair of bins, of rows outside, infinite ones, and NaN.
fn pairs(rows: &Binned<u64>) -> Vec<Estimate<u64>> {
    let apart = [Unbinned::Outside, Unbinned::Infinite, Unbinned::Nan].map(|reason| rows.at(reason));
    rows.bins.iter().chain(apart).collect()
}

/// Compares bounds with counts.
fn check(bounds: &[Estimate<u64>], exact: &[Estimate<u64>], counts: &[u64], what: &str) {
    assert_eq!((bounds.len(), exact.len()), (counts.len(), counts.len()), "{what}");
    for (place, ((bound, exact), count)) in bounds.iter().zip(exact).zip(counts).enumerate() {
        assert_eq!(*exact, Estimate::exactly(*count), "{what}: place {place}");
        assert!(bound.least <= *count && *count <= bound.most, "{what}: place {place}: {bound:?} for {count}");
        assert!(bound.least <= bound.estimate && bound.estimate <= bound.most, "{what}: {bound:?}");
    }
}

fn check_one(dataset: &Dataset, query: &Query, rows: &[Record], (name, value): Axis, bins: &Bins, what: &str) {
    let [bounds, exact] =
        [Source::Bounds, Source::Exact].map(|source| dataset.histogram(&of_column(query, name, bins, source)).unwrap());
    assert_eq!(bounds.axes, exact.axes, "{what}");
    let edges = edges(&exact, 0);
    let mut counts = vec![0; edges.len().saturating_sub(1) + 5];
    rows.iter().for_each(|record| counts[cell(value(record), &edges)] += 1);
    check(&places(&bounds), &places(&exact), &counts, what);
    check(&[bounds.rows.all], &[exact.rows.all], &[rows.len() as u64], what);
}

fn check_two(
    dataset: &Dataset,
    query: &Query,
    rows: &[Record],
    (x, y): (Axis, Axis),
    (of_x, of_y): (&Bins, &Bins),
    what: &str,
) {
    let [bounds, exact] = [Source::Bounds, Source::Exact]
        .map(|source| dataset.histogram(&of_pairs(query, (x.0, of_x), (y.0, of_y), source)).unwrap());
    assert_eq!(bounds.axes, exact.axes, "{what}");
    let [x_edges, y_edges] = [0, 1].map(|axis| edges(&exact, axis));
    let (across, along) = (x_edges.len() - 1, y_edges.len() - 1);
    // The bins, then rows outside, infinite ones, and NaN.
    let mut counts = vec![0; across * along + 3];
    for record in rows {
        let (value_x, value_y) = (x.1(record), y.1(record));
        let (cell_x, cell_y) = (cell(value_x, &x_edges).wrapping_sub(2), cell(value_y, &y_edges).wrapping_sub(2));
        let place = match () {
            () if value_x.is_nan() || value_y.is_nan() => across * along + 2,
            () if value_x.is_infinite() || value_y.is_infinite() => across * along + 1,
            () if cell_x < across && cell_y < along => cell_x * along + cell_y,
            () => across * along,
        };
        counts[place] += 1;
    }
    check(&pairs(&bounds.rows), &pairs(&exact.rows), &counts, what);
    check(&[bounds.rows.all], &[exact.rows.all], &[rows.len() as u64], what);
}

fn any_bins(random: &mut Random) -> Bins {
    let count = 1 + random.below(24) as usize;
    let tenth = |random: &mut Random, most: u64| random.below(most) as f64 / 10.0;
    let is_log = random.below(4) == 0;
    let range = match random.below(4) {
        // On edges of an index: decimals of few digits.
        0 => (-1.2, 1.2),
        1 if is_log => (0.01, 100.0),
        1 => (-3.0, 3.0),
        _ => {
            let from = tenth(random, 40) - 2.0;
            (from, from + tenth(random, 60))
        }
    };
    let scale = if is_log && range.0 > 0.0 { BinScale::Log } else { BinScale::Linear };
    Bins { range: Some((Value::Float(range.0), Value::Float(range.1))), scale, ..Bins::new(count) }
}

/// Checks random histograms with a loop over the records, on one clustering and with one encoding.
fn check_random(key: &str, encoding: Option<&str>, seed: u64) {
    let storage = Arc::new(MemoryStorage::new());
    let epochs = [(10, records(seed + 10, 7_000)), (20, records(seed + 20, 5_000))];
    for (epoch, records) in &epochs {
        write(&storage, key, *epoch, records, 128 << 10);
    }
    add(&storage, &encoding.map_or(INDEX.to_owned(), |encoding| format!("{INDEX},encoding={encoding}")));
    // An epoch without bins.
    let late = (30, records(seed + 30, 2_000));
    write(&storage, key, late.0, &late.1, 128 << 10);
    let epochs = [&epochs[..], &[late]].concat();
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let mut random = Random::new(seed);
    for round in 0..40u64 {
        let (text, holds) = CONDITIONS[random.below(10) as usize];
        let chosen: Vec<&(u64, Vec<Record>)> = match round % 3 {
            0 => epochs.iter().collect(),
            _ => vec![&epochs[random.below(2) as usize]],
        };
        let labels: Vec<u64> = chosen.iter().map(|(epoch, _)| *epoch).collect();
        let is_filtered = round % 5 > 0;
        let is_kept = |record: &&Record| !is_filtered || holds(record);
        let rows: Vec<Record> =
            chosen.iter().flat_map(|(_, records)| records.iter().filter(is_kept).copied()).collect();
        let mut query = Query::new().epochs(labels.clone());
        if is_filtered {
            query = query.filter(text);
        }
        query = query.using(match random.below(3) {
            0 => Use::Automatic,
            1 => Use::Index(INDEX.to_owned()),
            _ => Use::Scan,
        });
        let mut axis = || AXES[random.below(5) as usize];
        let (x, y) = (axis(), axis());
        let (of_x, of_y) = (any_bins(&mut random), any_bins(&mut random));
        let what =
            format!("{key}: {} by {} of epochs {labels:?} where {text}, {is_filtered}: {of_x:?} {of_y:?}", x.0, y.0);
        // Integers have no value between some ends.
        let is_empty = |(axis, bins): (Axis, &Bins)| {
            let (from, to) = bins.range.unwrap();
            ["cell", "kind"].contains(&axis.0)
                && (from.as_f64().ceil() > to.as_f64().floor() || axis.0 == "kind" && to.as_f64() < 0.0)
        };
        if is_empty((x, &of_x)) || is_empty((y, &of_y)) {
            continue;
        }
        check_one(&dataset, &query, &rows, x, &of_x, &what);
        check_two(&dataset, &query, &rows, (x, y), (&of_x, &of_y), &what);
        if !is_filtered {
            let epochs = Query::new().epochs(labels.clone());
            let whole = |source| dataset.histogram(&of_column(&epochs, x.0, &of_x, source)).unwrap();
            let exact = dataset.histogram(&of_column(&query, x.0, &of_x, Source::Exact)).unwrap();
            let counts: Vec<u64> = places(&exact).iter().map(|rows| rows.most).collect();
            check(&places(&whole(Source::Bounds)), &places(&whole(Source::Exact)), &counts, &what);
        }
    }
}

#[test]
fn random_histograms_of_records_clustered_by_range() {
    check_random("energy", None, 1);
    check_random("cell", None, 2);
}

#[test]
fn random_histograms_of_records_clustered_by_hash_and_by_space() {
    check_random("hash:number", None, 3);
    check_random("space:ux,uy", None, 4);
}

#[test]
fn random_histograms_by_each_encoding() {
    for (encoding, seed) in [("bytes", 5), ("slices", 6), ("runs", 7)] {
        check_random("energy", Some(encoding), seed);
    }
}

/// Returns an epoch of row groups that are large enough for many bins, with an index.
fn indexed() -> (Arc<MemoryStorage>, Vec<Record>) {
    let (storage, records) = (Arc::new(MemoryStorage::new()), records(7, 60_000));
    write(&storage, "energy", 10, &records, 2 << 20);
    add(&storage, INDEX);
    (storage, records)
}

fn on_edges(count: usize, from: f64, to: f64) -> Bins {
    Bins { range: Some((Value::Float(from), Value::Float(to))), ..Bins::new(count) }
}

#[test]
fn histograms_on_edges_read_no_byte_of_the_records() {
    let (inner, records) = indexed();
    let bytes = Arc::new(Mutex::new(0));
    let dataset = Dataset::open_with(Arc::new(WrappedStorage::counting(inner, bytes.clone())), "/ds").unwrap();
    // The manifest is read once, with the end of a part, which names its commit.
    let warm = dataset.histogram(&of_column(&Query::new(), "ux", &Bins::new(3), Source::Bounds)).unwrap();
    assert_eq!(warm.metrics.pages_read, 0);
    assert!(*bytes.lock().unwrap() < 5_000, "{} bytes", bytes.lock().unwrap());
    *bytes.lock().unwrap() = 0;
    let (of_ux, of_uy) = (on_edges(6, -3.0, 3.0), on_edges(10, -0.5, 0.5));
    let of_kind = Bins { range: Some((Value::Int(0), Value::Int(4))), ..Bins::new(5) };
    for (text, holds) in [
        ("true", (|_| true) as fn(&Record) -> bool),
        ("ux > 1", |record| record.ux > 1.0),
        ("NOT (uy < 0.5) AND kind <> 2", |record| (record.uy >= 0.5 || record.uy.is_nan()) && record.kind != 2),
    ] {
        let query = Query::new().epochs(10).filter(text);
        let rows: Vec<Record> = records.iter().filter(|record| holds(record)).copied().collect();
        let bounds = dataset.histogram(&of_column(&query, "ux", &of_ux, Source::Bounds)).unwrap();
        assert!(places(&bounds).iter().all(|rows| rows.is_exact()), "{text}: {bounds:?}");
        check_one(&dataset, &query, &rows, AXES[0], &of_ux, text);
        let found = dataset.histogram(&of_pairs(&query, ("ux", &of_ux), ("uy", &of_uy), Source::Bounds)).unwrap();
        assert!(pairs(&found.rows).iter().all(|rows| rows.is_exact()), "{text}: {found:?}");
        assert!(found.rows.all.is_exact(), "{text}");
        check_two(&dataset, &query, &rows, (AXES[0], AXES[1]), (&of_ux, &of_uy), text);
        check_two(&dataset, &query, &rows, (AXES[3], AXES[1]), (&of_kind, &of_uy), text);
        let exact = dataset.histogram(&of_pairs(&query, ("ux", &of_ux), ("uy", &of_uy), Source::Exact)).unwrap();
        assert_eq!((exact.metrics.pages_read, exact.metrics.runs_touched), (0, 0), "{text}");
    }
    // One column without a predicate: its bins suffice, which are kept.
    let epoch = Query::new().epochs(10);
    let whole = dataset.histogram(&of_column(&epoch, "ux", &of_ux, Source::Exact)).unwrap();
    assert_eq!(whole.metrics.bytes_read, 0, "{:?}", whole.metrics);
    let bounds = of_pairs(&Query::new(), ("ux", &of_ux), ("uy", &of_uy), Source::Bounds);
    let bounds = dataset.histogram(&bounds).unwrap();
    assert!(bounds.metrics.bytes_read > 60_000, "{:?}", bounds.metrics);
    assert_eq!(*bytes.lock().unwrap(), 0);
    let scan = of_pairs(&Query::new().using(Use::Scan), ("ux", &of_ux), ("uy", &of_uy), Source::Exact);
    let scan = dataset.histogram(&scan).unwrap();
    assert!(scan.metrics.pages_read > 0 && *bytes.lock().unwrap() > 60_000);
}

#[test]
fn only_rows_in_doubt_are_read() {
    let (storage, records) = indexed();
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    // One edge lies in the tail, where bins have few rows.
    let bins = on_edges(1, -3.0, 6.789);
    let pages = |access| {
        let query = Query::new().filter("kind = 3").using(access);
        let rows: Vec<Record> = records.iter().filter(|record| record.kind == 3).copied().collect();
        check_one(&dataset, &query, &rows, AXES[0], &bins, "in doubt");
        dataset.histogram(&of_column(&query, "ux", &bins, Source::Exact)).unwrap().metrics.pages_read
    };
    let (scanned, by_bins) = (pages(Use::Scan), pages(Use::Index(INDEX.to_owned())));
    assert!(by_bins > 0 && by_bins * 2 < scanned, "{by_bins} and {scanned} pages");
}

#[test]
fn any_flipped_byte_of_an_index_changes_no_count() {
    let (storage, records) = indexed();
    let rows: Vec<Record> = records.iter().filter(|record| record.uy < 0.3).copied().collect();
    let (of_ux, of_uy) = (on_edges(6, -3.0, 3.0), on_edges(10, -0.5, 0.5));
    let (mut random, mut unreadable) = (Random::new(11), 0);
    for (path, bytes) in sidecars(&storage, Path::new("/ds/_turbidite/index")) {
        for place in 0..10 {
            // The directory, which the end of the file states, and any other place.
            let offset = if place < 3 { bytes - 1 - 9 * place } else { random.below(bytes) };
            let fault = Fault::Flip { path: path.clone(), offset, mask: 1 << random.below(8) };
            let broken: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(storage.clone(), fault));
            let dataset = Dataset::open_with(broken, "/ds").unwrap();
            let query = Query::new().filter("uy < 0.3");
            let what = format!("{}: byte {offset} of {bytes}", path.display());
            check_one(&dataset, &query, &rows, AXES[0], &of_ux, &what);
            check_two(&dataset, &query, &rows, (AXES[0], AXES[1]), (&of_ux, &of_uy), &what);
            let exact = dataset.histogram(&of_pairs(&query, ("ux", &of_ux), ("uy", &of_uy), Source::Exact)).unwrap();
            unreadable += exact.metrics.corrupt_indexes;
        }
    }
    assert!(unreadable > 8, "{unreadable}");
}

/// Returns the sidecars below a folder with their sizes.
fn sidecars(storage: &MemoryStorage, folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in storage.list(folder).unwrap() {
        let path = folder.join(&entry.name);
        match storage.open(&path) {
            Ok(file) if path.to_string_lossy().contains("/10.") => found.push((path, file.bytes())),
            Ok(_) => {}
            Err(_) => found.extend(sidecars(storage, &path)),
        }
    }
    found
}

#[test]
fn a_dataset_that_is_held_open_counts_the_records_of_now() {
    let (storage, records) = indexed();
    let held = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let (of_ux, query) = (on_edges(6, -3.0, 3.0), Query::new().filter("uy > 0"));
    let kept = |records: &[Record]| records.iter().filter(|record| record.uy > 0.0).copied().collect::<Vec<_>>();
    check_one(&held, &query, &kept(&records), AXES[0], &of_ux, "at first");
    write(&storage, "energy", 10, &records[..5_000], 2 << 20);
    check_one(&held, &query, &kept(&records[..5_000]), AXES[0], &of_ux, "replaced");
    add(&storage, INDEX);
    write(&storage, "energy", 10, &records[..900], 2 << 20);
    check_two(&held, &query, &kept(&records[..900]), (AXES[0], AXES[1]), (&of_ux, &of_ux), "replaced again");
}

#[test]
fn a_histogram_of_an_epoch_is_of_one_commit() {
    let (storage, records) = indexed();
    let held = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let of_ux = on_edges(6, -3.0, 3.0);
    for records in [&records[..], &records[..5_000], &records[..900]] {
        if records.len() < 60_000 {
            write(&storage, "energy", 10, records, 2 << 20);
            add(&storage, INDEX);
        }
        let epoch = Query::new().epochs(10);
        let found = held.histogram(&of_column(&epoch, "ux", &of_ux, Source::Bounds)).unwrap();
        let counts = &found.rows;
        let nan = records.iter().filter(|record| record.ux.is_nan()).count() as u64;
        assert_eq!((counts.all.estimate, counts.at(Unbinned::Nan).estimate), (records.len() as u64, nan));
        let sum: u64 = places(&found).iter().map(|rows| rows.most).sum();
        assert!(sum >= counts.all.most, "{found:?}");
        assert!(counts.bins.most().iter().all(|most| *most <= counts.all.most), "{found:?}");
    }
}

/// The range counts of the key are of fewer rows than bins of an index.
#[test]
fn an_index_of_the_key_does_not_widen_its_bounds() {
    let (storage, _) = indexed();
    let of_energy = on_edges(7, 0.123, 1000.456);
    let bounds = || {
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let epoch = Query::new().epochs(10);
        dataset.histogram(&of_column(&epoch, "energy", &of_energy, Source::Bounds)).unwrap().rows.bins
    };
    let before = bounds();
    add(&storage, "bitmap:energy");
    assert_eq!(bounds(), before);
    assert!(before.iter().any(|rows| !rows.is_exact()));
}

/// Statistics of pages decide for a column that follows the key, although edges lie within bins.
#[test]
fn exact_counts_of_a_column_that_follows_the_key_read_few_pages() {
    let (storage, mut records) = (Arc::new(MemoryStorage::new()), records(7, 60_000));
    records.iter_mut().for_each(|record| record.uy = f64::from(record.energy) / 100.0);
    write(&storage, "energy", 10, &records, 2 << 20);
    add(&storage, INDEX);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let of_uy = on_edges(3, 1.23456, 9.87654);
    let found = dataset.histogram(&of_column(&Query::new().epochs(10), "uy", &of_uy, Source::Exact)).unwrap();
    for (bin, edge) in found.rows.bins.iter().zip(found.axes[0].edges.windows(2)) {
        let is_within = |record: &&Record| (edge[0].as_f64()..edge[1].as_f64()).contains(&record.uy);
        assert_eq!(bin, Estimate::exactly(records.iter().filter(is_within).count() as u64));
    }
    // Each of the four edges lies in one page of one or two row groups, which have a dozen.
    assert!((1..10).contains(&found.metrics.pages_read), "{:?}", found.metrics);
}

#[test]
fn requests_tell_their_progress_and_can_be_cancelled() {
    let (storage, _) = indexed();
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let (of_ux, of_uy) = (on_edges(6, -3.0, 3.0), on_edges(7, -0.5123, 0.5));
    type Request<'a> = &'a dyn Fn(&Dataset, &Query) -> turbidite::Result<()>;
    let exact: [Request<'_>; 3] = [
        &|dataset, query| dataset.histogram(&of_pairs(query, ("ux", &of_ux), ("uy", &of_uy), Source::Exact)).map(drop),
        &|dataset, query| dataset.histogram(&of_column(query, "uy", &of_uy, Source::Exact)).map(drop),
        &|dataset, _| dataset.histogram(&of_column(&Query::new().epochs(10), "uy", &of_uy, Source::Exact)).map(drop),
    ];
    let bounds: [Request<'_>; 2] = [
        &|dataset, query| dataset.histogram(&of_pairs(query, ("ux", &of_ux), ("uy", &of_uy), Source::Bounds)).map(drop),
        &|dataset, query| dataset.histogram(&of_column(query, "uy", &of_uy, Source::Bounds)).map(drop),
    ];
    for access in [Use::Automatic, Use::Index(INDEX.to_owned()), Use::Scan] {
        let query = Query::new().filter("ux > 0.1 AND kind < 3").using(access.clone());
        for request in exact {
            let progress = Arc::new(QueryProgress::counting());
            request(&dataset.watched(&progress), &query).unwrap();
            assert!(progress.total() > 0, "{access:?}");
            assert_eq!(progress.done(), progress.total(), "{access:?}");
        }
        for request in exact.iter().chain(&bounds) {
            let progress = Arc::new(QueryProgress::new());
            progress.cancel();
            let cancelled = request(&dataset.watched(&progress), &query).unwrap_err();
            assert!(matches!(cancelled, turbidite::Error::Cancelled), "{cancelled}");
        }
    }
}

#[test]
fn ranges_and_options_are_checked() {
    let (storage, records) = indexed();
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    // Without a range, bounds have that of the values that may match.
    let large = Query::new().filter("energy >= 300");
    let found = dataset.histogram(&of_column(&large, "energy", &Bins::new(4), Source::Bounds)).unwrap();
    let most = records.iter().map(|record| record.energy).fold(0.0, f32::max);
    assert_eq!(edges(&found, 0)[0], 300.0);
    assert_eq!(edges(&found, 0)[4], f64::from(most));
    let unknown = Query::new().using(Use::Index("bitmap:uz".to_owned()));
    let error = dataset.histogram(&of_column(&unknown, "ux", &Bins::new(4), Source::Bounds)).unwrap_err().to_string();
    assert!(error.contains("there is no index 'bitmap:uz'"), "{error}");
    let many = on_edges(1 << 12, -1.0, 1.0);
    let many = of_pairs(&Query::new(), ("ux", &many), ("uy", &many), Source::Bounds);
    let error = dataset.histogram(&many).unwrap_err().to_string();
    assert!(error.contains("are more than"), "{error}");
    let piece = dataset.pieces(&Query::new(), 1 << 40).unwrap().remove(0);
    let of_piece = of_column(&Query::new().piece(piece), "ux", &Bins::new(4), Source::Bounds);
    let error = dataset.histogram(&of_piece).unwrap_err();
    assert!(error.to_string().contains("piece"), "{error}");
}
