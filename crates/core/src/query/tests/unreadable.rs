//! Indexes that cannot be read: requests of every family with every fault, compared with a scan.

use std::io;

use super::cursors::{memory, points, write_points};
use super::overviews::{add_overview, files, overview_paths};
use super::paths::{BITMAP, SPATIAL, checked_byte, page_of, write_by};
use super::*;
use crate::error::{Error, ErrorClass};
use crate::query::{CursorRequest, QueryMetrics, Step, TrackRequest, Use};
use crate::schema::{Levels, Value};
use crate::storage::{Fault, FaultStorage, ReadEvent};

/// Rows that are read by an index.
struct Family {
    name: &'static str,
    index: &'static str,
    filter: &'static str,
    columns: &'static [&'static str],
}

const ALL: &[&str] = &["id", "small", "value"];

const FAMILIES: [Family; 4] = [
    Family { name: "value", index: "id", filter: "id >= 100", columns: ALL },
    Family { name: "covering", index: "id", filter: "id >= 100", columns: &["id", "small"] },
    Family { name: "bitmap", index: BITMAP, filter: "small < 3", columns: ALL },
    // Statistics do not tell that both products are the same.
    Family { name: "spatial", index: SPATIAL, filter: "x * y + small >= x * y", columns: ALL },
];

/// Number of rows that are ordered by a column in memory. More are returned as a walk reads them.
const FEW: u64 = 2_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Request {
    Rows,
    ByKey,
    /// In the order of a column: the first rows, or all of them.
    ByColumn {
        is_whole: bool,
    },
    Pieces,
    Count,
    Histogram,
    Tracks,
    Cursor,
}

const REQUESTS: [Request; 9] = [
    Request::Rows,
    Request::ByKey,
    Request::ByColumn { is_whole: false },
    Request::ByColumn { is_whole: true },
    Request::Pieces,
    Request::Count,
    Request::Histogram,
    Request::Tracks,
    Request::Cursor,
];

/// The answer to a request: ids, or numbers, and the error that ended it.
#[derive(Debug, Default)]
struct Answer {
    found: Vec<u64>,
    metrics: QueryMetrics,
    error: Option<Error>,
}

impl Answer {
    /// Takes the rows of a stream until its error.
    fn take(&mut self, batches: impl Iterator<Item = Result<RecordBatch, Error>>) {
        for batch in batches {
            match batch {
                Ok(batch) => {
                    self.found.extend(batch.column_by_name("id").unwrap().as_primitive::<UInt64Type>().values());
                }
                Err(error) => self.error = Some(error),
            }
        }
    }

    fn run(&mut self, dataset: &Dataset, query: &Query) -> Result<(), Error> {
        let mut stream = dataset.run(query)?;
        self.take(&mut stream);
        self.metrics = stream.metrics();
        Ok(())
    }
}

/// Makes a request by an access path.
fn answer(dataset: &Dataset, family: &Family, request: Request, (access, threads): (Use, usize)) -> Answer {
    let query = Query::new().filter(family.filter).columns(family.columns.iter().copied()).epochs(0);
    let query = query.using(access.clone()).threads(threads).batch_rows(1000);
    let mut answer = Answer::default();
    let asked = (|| -> Result<(), Error> {
        match request {
            Request::Rows => answer.run(dataset, &query)?,
            Request::ByKey => answer.run(dataset, &query.ordered(true))?,
            Request::ByColumn { is_whole: true } => answer.run(dataset, &query.ordered_by("id"))?,
            Request::ByColumn { is_whole: false } => answer.run(dataset, &query.ordered_by("id").limit(FEW))?,
            Request::Pieces => {
                for piece in dataset.pieces(&query, 300_000)? {
                    answer.run(dataset, &query.clone().piece(piece))?;
                }
                // Those of the last piece alone.
                answer.metrics = QueryMetrics::default();
            }
            Request::Count => {
                let (rows, metrics) = dataset.count(&query)?;
                (answer.found, answer.metrics) = (vec![rows], metrics);
            }
            Request::Histogram => {
                let mut bins = Bins::new(50);
                bins.range = Some((Value::Int(0), Value::Int(30_000)));
                let histogram = dataset.histogram(&of_column(&query, "id", &bins, Source::Exact))?;
                answer.found = places(&histogram.rows).iter().map(|rows| rows.estimate).collect();
                answer.metrics = histogram.metrics;
            }
            Request::Tracks => {
                let rows = Query::new().columns(["small"]).using(access).threads(threads);
                let particles = Query::new().filter("x < 9 AND y < 40");
                let request = TrackRequest::of_query(particles, 0, "id").rows(rows);
                let mut tracks = dataset.tracks(&request, &|_| {})?;
                answer.take(&mut tracks);
                answer.metrics = tracks.metrics().read;
            }
            Request::Cursor => {
                let mut cursor = dataset.cursor(&CursorRequest::new(query))?;
                cursor.advance(Step::Quality(1.0))?;
                answer.take((&mut cursor).map(|batch| batch.map(|batch| batch.rows)));
                answer.metrics = cursor.metrics();
            }
        }
        Ok(())
    })();
    answer.error = answer.error.take().or(asked.err());
    if !matches!(request, Request::ByColumn { .. } | Request::Count | Request::Histogram | Request::Tracks) {
        answer.found.sort_unstable();
    }
    answer
}

/// Returns the answer by the index of a family, and the reads that it took.
fn events_of(
    storage: &Arc<dyn Storage>,
    family: &Family,
    request: Request,
    threads: usize,
) -> (Answer, Vec<ReadEvent>) {
    let recorded = FaultStorage::new(storage.clone());
    let dataset = Dataset::open_with(Arc::new(recorded.clone()), ROOT).unwrap();
    recorded.take_events();
    let found = answer(&dataset, family, request, (Use::named(family.index), threads));
    (found, recorded.take_events())
}

/// A fault, and where it is.
#[derive(Debug, Clone)]
struct Spot {
    story: String,
    fault: Fault,
    path: PathBuf,
    /// The corrupt byte.
    offset: Option<u64>,
}

impl Spot {
    /// Returns whether the fault is in what a healthy request reads.
    fn is_in(&self, events: &[ReadEvent]) -> bool {
        let is_hit = |range: &std::ops::Range<u64>| self.offset.is_none_or(|offset| range.contains(&offset));
        events.iter().any(|event| !event.is_announced && event.path.starts_with(&self.path) && is_hit(&event.range))
    }

    /// Returns whether the fault is no corruption, but refuses an operation.
    fn is_refusal(&self) -> bool {
        matches!(&self.fault, Fault::Refuse { kind, .. } if *kind != io::ErrorKind::NotFound)
    }
}

/// Returns the kind of an error of the system, such as EIO.
fn kind_of(errno: i32) -> io::ErrorKind {
    io::Error::from_raw_os_error(errno).kind()
}

/// Returns corruption at two places, and errors of a file and of the folder of an index.
fn spots(root: &Path, places: [(PathBuf, u64); 2]) -> Vec<Spot> {
    let refuse = |story: &str, path: &Path, kind: io::ErrorKind| Spot {
        story: story.to_owned(),
        fault: Fault::Refuse { path: path.to_owned(), kind },
        path: path.to_owned(),
        offset: None,
    };
    let last = places[1].0.clone();
    let flipped = |(is_first, (path, offset)): (bool, (PathBuf, u64))| Spot {
        story: if is_first { "first page".to_owned() } else { "last page".to_owned() },
        fault: Fault::Flip { path: path.clone(), offset, mask: 4 },
        path,
        offset: Some(offset),
    };
    let mut spots: Vec<Spot> = [true, false].into_iter().zip(places).map(flipped).collect();
    spots.push(refuse("missing file", &last, io::ErrorKind::NotFound));
    spots.push(refuse("EMFILE", &last, kind_of(24)));
    spots.push(refuse("EIO", &last, kind_of(5)));
    spots.push(refuse("EACCES", &last, kind_of(13)));
    spots.push(refuse("EACCES of the folder", root, kind_of(13)));
    spots
}

/// Returns the faults of the index of a family, in a dataset of [`write_by`].
fn spots_of(storage: &Arc<dyn Storage>, family: &Family) -> Vec<Spot> {
    let paths = DatasetPaths::new(ROOT).index(family.index);
    if family.index != BITMAP {
        let [first, mut last] = [true, false].map(|is_first| page_of(storage, &paths, 0, is_first));
        if family.name == "value" {
            // The last page is of a carried column. That of the places is before it.
            let events = events_of(storage, family, Request::Rows, 1).1;
            let pages = events.iter().filter(|event| event.path == last.0 && event.range.end <= last.1);
            let end = pages.map(|event| event.range.end).max().unwrap();
            last.1 = checked_byte(storage, &paths, &last.0, end - 10);
        }
        return spots(paths.root(), [first, last]);
    }
    let manifest = Dataset::open_with(storage.clone(), ROOT).unwrap().manifest(0).unwrap();
    let sidecars = files(&**storage, &paths.sidecars(0, manifest.commit));
    let (first, last) = (sidecars.first_key_value().unwrap(), sidecars.last_key_value().unwrap());
    spots(paths.root(), [(first.0.clone(), 20), (last.0.clone(), last.1 / 2)])
}

/// Compares an answer with that of a scan. `is_read` says whether what is faulty is read.
fn check(found: &Answer, expected: &Answer, family: &Family, request: Request, (spot, is_read): (&Spot, bool)) {
    let story = format!("{} by {:?}, {}, {is_read}", family.name, request, spot.story);
    let Some(error) = &found.error else {
        assert_eq!(found.found, expected.found, "{story}");
        assert!(!(is_read && spot.is_refusal()), "{story}: there is no error");
        if request == Request::Pieces {
            return;
        }
        assert_eq!(found.metrics.corrupt_indexes > 0, is_read, "{story}");
        if matches!(request, Request::Rows | Request::ByKey | Request::Count) {
            assert_eq!(found.metrics.rows_matched, expected.metrics.rows_matched, "{story}");
        }
        // Bitmaps have been read for other row groups, and entries whose carried columns are corrupt still name rows.
        let is_abandoned = matches!(family.name, "value" | "spatial") && request != Request::Tracks;
        if is_read && is_abandoned {
            let timeless = |metrics: QueryMetrics| QueryMetrics {
                corrupt_indexes: 0,
                read_s: 0.0,
                filter_s: 0.0,
                merge_s: 0.0,
                ..metrics
            };
            assert_eq!(timeless(found.metrics), timeless(expected.metrics), "{story}");
        }
        return;
    };
    let text = error.to_string();
    assert!(is_read && text.contains(family.index), "{story}: {text}");
    let is_only_source = request == Request::Cursor;
    assert!(text.contains("--use scan") || is_only_source, "{story}: {text}");
    if !spot.is_refusal() {
        let is_streaming = match request {
            Request::Rows => family.name == "spatial" && spot.story != "first page",
            Request::ByColumn { is_whole } => is_whole && family.index == "id",
            request => request == Request::Cursor,
        };
        assert!(is_streaming, "{story}: {text}");
    }
    assert_eq!(error.class() == ErrorClass::Corruption, !spot.is_refusal(), "{story}: {text}");
    let is_among = match request {
        Request::ByColumn { .. } => expected.found.starts_with(&found.found),
        _ => found.found.iter().all(|id| expected.found.binary_search(id).is_ok()),
    };
    assert!(is_among, "{story}: rows before the error are wrong");
}

#[test]
fn no_request_returns_wrong_rows_for_an_index_that_cannot_be_read() {
    let storage = write_by("value");
    let mut late = Vec::new();
    for family in &FAMILIES {
        let spots = spots_of(&storage, family);
        for (request, threads) in REQUESTS.into_iter().flat_map(|request| [(request, 1), (request, 4)]) {
            // Only copies have levels of detail, and only entries of this column are in its order.
            let is_possible = match request {
                Request::Cursor => family.index == SPATIAL,
                Request::ByColumn { is_whole: true } => family.index == "id",
                _ => true,
            };
            if !is_possible {
                continue;
            }
            let access = Use::named(family.index);
            let (by_index, events) = events_of(&storage, family, request, threads);
            let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
            // A scan has no levels of detail, and keeps fewer rows in memory.
            let needs_index = matches!(request, Request::Cursor | Request::ByColumn { is_whole: true });
            let of_scan = if needs_index { access.clone() } else { Use::Scan };
            let expected = answer(&dataset, family, request, (of_scan, threads));
            assert!(expected.error.is_none() && by_index.error.is_none(), "{:?} {:?}", expected.error, by_index.error);
            assert_eq!(by_index.found, expected.found, "{} by {request:?}", family.name);
            for spot in &spots {
                let faults = Arc::new(FaultStorage::with_fault(storage.clone(), spot.fault.clone()));
                let dataset = Dataset::open_with(faults, ROOT).unwrap();
                let found = answer(&dataset, family, request, (access.clone(), threads));
                check(&found, &expected, family, request, (spot, spot.is_in(&events)));
                if found.error.is_some() && spot.story == "last page" {
                    late.push((family.name, request));
                }
            }
        }
    }
    late.dedup();
    let by_column = Request::ByColumn { is_whole: true };
    let streams =
        [("value", by_column), ("covering", by_column), ("spatial", Request::Rows), ("spatial", Request::Cursor)];
    assert_eq!(late, streams, "rows have been returned before the last page is read");
}

#[test]
fn every_family_is_read_by_some_request() {
    let storage = write_by("value");
    for (family, request) in [
        (0, Request::Rows),
        (0, Request::ByKey),
        (0, Request::ByColumn { is_whole: true }),
        (0, Request::ByColumn { is_whole: false }),
        (0, Request::Pieces),
        (0, Request::Count),
        (0, Request::Tracks),
        (1, Request::Rows),
        (1, Request::Histogram),
        (2, Request::Rows),
        (2, Request::ByKey),
        (2, Request::Pieces),
        (2, Request::Count),
        (2, Request::Histogram),
        (3, Request::Rows),
        (3, Request::Count),
        (3, Request::Histogram),
        (3, Request::Tracks),
        (3, Request::Cursor),
    ] {
        let family = &FAMILIES[family];
        let folder = DatasetPaths::new(ROOT).index(family.index);
        let events = events_of(&storage, family, request, 1).1;
        assert!(events.iter().any(|event| event.path.starts_with(folder.root())), "{} by {request:?}", family.name);
    }
}

#[test]
fn corrupt_filters_are_left_out() {
    let storage = write_by("hash:id");
    let paths = DatasetPaths::new(ROOT);
    let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
    let manifest = dataset.manifest(0).unwrap();
    let (first, last) = (&manifest.parts[0], &manifest.parts[manifest.parts.len() - 1]);
    for part in [first, last] {
        let (path, offset) = (paths.part(0, part, dataset.schema()), part.filter_offset.unwrap() + 20);
        let fault = Fault::Flip { path, offset, mask: 1 };
        let mut corrupt = 0;
        for (id, threads) in (0..20).flat_map(|id| [(id, 1), (id, 4)]) {
            let faults = FaultStorage::with_fault(storage.clone(), fault.clone());
            let dataset = Dataset::open_with(Arc::new(faults), ROOT).unwrap();
            let query = Query::new().filter(format!("id = {id}")).epochs(0).threads(threads);
            for ordered in [false, true] {
                let mut found = Answer::default();
                found.run(&dataset, &query.clone().columns(["id"]).ordered(ordered)).unwrap();
                assert_eq!(found.found, [id], "{:?}", found.error);
            }
            let (rows, metrics) = dataset.count(&query).unwrap();
            assert_eq!(rows, 1);
            corrupt += metrics.corrupt_filters;
        }
        assert!(corrupt > 0);
    }
}

#[test]
fn records_answer_for_an_overview_until_its_first_row() {
    let (memory, seed) = (memory(), 4);
    let runs = points(seed, 1, (3, 2, 900));
    write_points(&memory, Some(Levels { count: 1, seed }), &runs);
    add_overview(&memory, 8 << 10, 16);
    let mut expected: Vec<u64> = runs.iter().flat_map(|run| run.2.iter().map(|point| point.id)).collect();
    expected.sort_unstable();
    let places = [true, false].map(|is_first| page_of(&memory, &overview_paths(), 1, is_first));
    let (manifest, bytes) = files(&*memory, &overview_paths().manifests()).pop_first().unwrap();
    let of_manifest = Spot {
        story: "manifest".to_owned(),
        fault: Fault::Flip { path: manifest.clone(), offset: bytes / 2, mask: 4 },
        path: manifest,
        offset: Some(bytes / 2),
    };
    for spot in spots(overview_paths().root(), places).into_iter().chain([of_manifest]) {
        for (access, threads) in [(Use::Automatic, 1), (Use::named("overview"), 4)] {
            for steps in [&[Step::Quality(1.0)][..], &[Step::Rows(1), Step::Quality(1.0)]] {
                let story = format!("{} by {access:?} in {} steps", spot.story, steps.len());
                let faults = FaultStorage::with_fault(memory.clone(), spot.fault.clone());
                let dataset = Dataset::open_with(Arc::new(faults), ROOT).unwrap();
                let request = CursorRequest::new(Query::new().epochs(1).using(access.clone()).threads(threads));
                let mut found = Answer::default();
                match dataset.cursor(&request) {
                    Ok(mut cursor) => {
                        for step in steps {
                            if cursor.advance(*step).is_ok() {
                                found.take((&mut cursor).map(|batch| batch.map(|batch| batch.rows)));
                            }
                        }
                        found.metrics = cursor.metrics();
                    }
                    Err(error) => found.error = Some(error),
                }
                found.found.sort_unstable();
                match &found.error {
                    None => {
                        assert_eq!(found.found, expected, "{story}");
                        assert!(!spot.is_refusal() && found.metrics.corrupt_indexes == 1, "{story}");
                    }
                    Some(error) => {
                        let text = error.to_string();
                        assert!(text.contains("overview") && text.contains("--use scan"), "{story}: {text}");
                        assert!(spot.is_refusal() || steps.len() > 1, "{story}: {text}");
                        assert!(found.found.iter().all(|id| expected.binary_search(id).is_ok()), "{story}");
                    }
                }
            }
        }
    }
}

/// Particles are found in a spatial index, whose last page is corrupt.
#[test]
fn trajectories_start_over() {
    let storage = write_by("value");
    let ask = |storage: Arc<dyn Storage>, threads: usize, access: Use| {
        let dataset = Dataset::open_with(storage, ROOT).unwrap();
        let rows = Query::new().epochs(0).columns(["small"]).threads(threads).using(access);
        let request = TrackRequest::of_query(Query::new().filter("x < 60 AND y < 60"), 0, "id").rows(rows);
        let mut tracks = dataset.tracks(&request, &|_| {}).unwrap();
        let mut found = Answer::default();
        found.take(&mut tracks);
        assert_eq!(tracks.metrics().ids, found.found.len() as u64);
        (found.found, tracks.metrics().read.corrupt_indexes)
    };
    let recorded = FaultStorage::new(storage.clone());
    recorded.take_events();
    let expected = ask(Arc::new(recorded.clone()), 1, Use::Automatic);
    let folder = DatasetPaths::new(ROOT).index(SPATIAL).epoch(0);
    let is_of_page = |event: &ReadEvent| !event.is_announced && event.path.starts_with(&folder);
    let last = recorded.take_events().into_iter().rfind(is_of_page).unwrap();
    let fault = Fault::Flip { path: last.path, offset: last.range.end - 10, mask: 4 };
    for threads in [1, 4] {
        let faults = Arc::new(FaultStorage::with_fault(storage.clone(), fault.clone()));
        assert_eq!(ask(faults.clone(), threads, Use::Automatic), (expected.0.clone(), 1));
        assert_eq!(ask(faults, threads, Use::Scan), (expected.0.clone(), 0));
    }
    assert_eq!(expected.1, 0);
}
