//! Tests of histograms that are counted from spatial indexes: the same counts as from the records, by fewer bytes, and
//! by the records where a copy is corrupt.

use std::path::PathBuf;
use std::sync::Arc;

use crate::support::places::{ROOT, Records, options, schema, verify};
use turbidite::query::{Bins, HistogramRequest, Source, Use};
use turbidite::storage::{Fault, FaultStorage, FileKind, MemoryStorage, Storage};
use turbidite::store::DatasetPaths;
use turbidite::{Dataset, IndexBuild, IndexOptions, LocalJob, Query, Value};

const NAME: &str = "space:x,y";

/// Writes two epochs in the order of `z`, of which only the first has a spatial index.
fn write() -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(storage.clone(), ROOT, schema("z"), options()).unwrap();
    for epoch in [1, 2] {
        job.begin_epoch(epoch).unwrap();
        Records::even(epoch, 0.0, 1000.0).append(&job);
        job.end_epoch().unwrap();
        if epoch == 1 {
            let shared: Arc<dyn Storage> = storage.clone();
            let definition = NAME.parse().unwrap();
            let mut build = IndexBuild::open_with(shared, ROOT, &definition, &IndexOptions::default()).unwrap();
            build.build_epoch(epoch, &|_| ()).unwrap();
            build.close().unwrap();
        }
    }
    job.close().unwrap();
    verify(&storage);
    storage
}

fn dataset(storage: &Arc<MemoryStorage>) -> Dataset {
    Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).unwrap()
}

/// Printed histograms, bytes read, and number of corrupt indexes.
type Found = (String, u64, u64);

/// Returns the histograms of a query by one column and by two, and the sums of a third one.
fn histograms(dataset: &Dataset, query: &Query, range: Option<(Value, Value)>) -> [Found; 3] {
    let mut bins = Bins::new(9);
    bins.range = range;
    let one = dataset.histogram(&HistogramRequest::new(query.clone(), "y", bins.clone())).unwrap();
    let pairs = HistogramRequest::new(query.clone(), "x", bins.clone()).by("y", bins);
    let both = dataset.histogram(&pairs).unwrap();
    let summed = dataset.histogram(&pairs.weights("z")).unwrap();
    let of =
        |said: String, metrics: &turbidite::query::QueryMetrics| (said, metrics.bytes_read, metrics.corrupt_indexes);
    [
        of(format!("{:?} {:?}", one.rows, one.axes), &one.metrics),
        of(format!("{:?} {:?}", both.rows, both.axes), &both.metrics),
        of(format!("{:?} {:?} {:?}", summed.rows, summed.axes, summed.sums), &summed.metrics),
    ]
}

fn small_box() -> Query {
    Query::new().within("x=100:220,y=300:420").filter("z < 900")
}

#[test]
fn copies_count_what_the_records_do_by_fewer_bytes() {
    let storage = write();
    let dataset = dataset(&storage);
    for range in [None, Some((Value::Int(150), Value::Int(400)))] {
        for epochs in [vec![1], vec![1, 2]] {
            let query = small_box().epochs(epochs);
            let plain = histograms(&dataset, &query.clone().using(Use::Scan), range);
            let found = histograms(&dataset, &query, range);
            for (number, (found, plain)) in found.iter().zip(&plain).enumerate() {
                assert_eq!(found.0, plain.0, "{range:?}");
                // Sums are rounded in the order of the records, so they read these.
                let reads_less = found.1 < plain.1;
                assert_eq!(reads_less, number < 2 || range.is_none(), "{} and {} bytes", found.1, plain.1);
            }
        }
        let (named, plain) = (small_box().using(Use::named(NAME)), small_box().using(Use::Scan));
        let said = |query: &Query| histograms(&dataset, query, range).map(|(said, ..)| said);
        assert_eq!(said(&named), said(&plain), "{range:?}");
        // Of an epoch without a copy, the records are read.
        let query = small_box().epochs(2);
        assert_eq!(histograms(&dataset, &query, range), histograms(&dataset, &query.clone().using(Use::Scan), range));
    }
    let everything = Query::new().epochs(1);
    assert_eq!(
        histograms(&dataset, &everything, None),
        histograms(&dataset, &everything.clone().using(Use::Scan), None)
    );
}

/// Returns all files below a folder.
fn files(storage: &MemoryStorage, folder: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in storage.list(&folder).unwrap() {
        let path = folder.join(&entry.name);
        match storage.kind(&path).unwrap() {
            Some(FileKind::Directory) => found.extend(files(storage, path)),
            _ => found.push(path),
        }
    }
    found
}

#[test]
fn records_are_counted_where_a_copy_is_corrupt() {
    let storage = write();
    let query = small_box().epochs(1);
    let expected = histograms(&dataset(&storage), &query.clone().using(Use::Scan), None);
    let data = files(&storage, DatasetPaths::new(ROOT).index(NAME).epoch(1));
    let mut ignored = 0;
    for path in data {
        let bytes = storage.open(&path).unwrap().bytes();
        for place in 0..8 {
            let faults = FaultStorage::new(storage.clone() as Arc<dyn Storage>);
            faults.add_fault(Fault::Flip { path: path.clone(), offset: (bytes - 1) * place / 7, mask: 4 });
            let dataset = Dataset::open_with(Arc::new(faults) as Arc<dyn Storage>, ROOT).unwrap();
            for (found, expected) in histograms(&dataset, &query, None).iter().zip(&expected) {
                assert_eq!(found.0, expected.0, "{} at {place}", path.display());
                ignored += found.2;
            }
        }
    }
    assert!(ignored > 5, "{ignored} histograms met a corrupt copy");
}

/// Returns six standard deviations of the sum of these values, each of which is in the sample or not. Which ones are
/// follows from the order in which threads wrote the records, and an error that is estimated from two of them may be
/// far too small.
fn most(level: u8, values: impl Iterator<Item = f64>) -> f64 {
    let stands_for = 8f64.powi(level.into());
    6.0 * f64::sqrt((stands_for - 1.0) * values.map(|value| value * value).sum::<f64>())
}

/// A dataset without levels has estimates from the levels of a copy.
#[test]
fn estimates_are_those_of_a_copy() {
    let storage = write();
    let records = dataset(&storage);
    let copy = Dataset::open_with(storage.clone() as Arc<dyn Storage>, DatasetPaths::new(ROOT).index(NAME).root());
    let (copy, of_epoch) = (copy.unwrap(), Records::even(1, 0.0, 1000.0));
    let inside = |row: &usize| of_epoch.x[*row] < 400.0 && of_epoch.z[*row] < 300;
    let chosen: Vec<usize> = (0..of_epoch.x.len()).filter(inside).collect();
    let bins = Bins { range: Some((Value::Int(0), Value::Int(1000))), ..Bins::new(4) };
    // Sides without names are those of the copy.
    for sides in ["x=0:400", "0:400,:"] {
        let query = Query::new().epochs(1).within(sides).filter("z < 300");
        for level in 0..=copy.schema().top_level() {
            let found = records.count_from(&query, Source::Level(level)).unwrap();
            let expected = copy.count_from(&query, Source::Level(level)).unwrap();
            assert_eq!((found.rows, found.sample), (expected.rows, expected.sample));
            let counted = found.rows.estimate as f64 - chosen.len() as f64;
            assert!(counted.abs() <= most(level, chosen.iter().map(|_| 1.0)), "{found:?}, {}", chosen.len());
            let request = HistogramRequest::new(query.clone(), "y", bins.clone()).source(Source::Level(level));
            let found = records.histogram(&request.weights("number")).unwrap();
            let (sums, sampled) = (found.sums.unwrap(), found.sampled.unwrap());
            for (number, (sum, rows)) in sums.bins.iter().zip(found.rows.bins.iter()).enumerate() {
                let of_bin = |row: &&usize| (of_epoch.y[**row] / 250.0) as usize == number;
                let values = chosen.iter().filter(of_bin).map(|row| f64::from(of_epoch.number[*row]));
                let truth: f64 = values.clone().sum();
                assert!((sum.estimate - truth).abs() <= most(level, values) + 1e-9 * truth, "{sum:?}, {truth}");
                assert_eq!(sum.error == Some(0.0), level == 0);
                assert_eq!(sampled.bins.at(number).estimate, rows.least);
            }
        }
    }
    let whole = records.count_from(&Query::new().epochs(1), Source::Level(1)).unwrap();
    assert!(whole.rows.is_exact() && whole.rows.estimate == of_epoch.x.len() as u64);
}

#[test]
fn estimates_without_a_copy_are_refused() {
    let storage = write();
    let refused = |storage: &Arc<MemoryStorage>, query: &Query, level: u8| {
        let count = dataset(storage).count_from(query, Source::Level(level)).unwrap_err().to_string();
        let request = HistogramRequest::new(query.clone(), "y", Bins::new(4)).source(Source::Level(level));
        let histogram = dataset(storage).histogram(&request).unwrap_err().to_string();
        assert_eq!(count, histogram);
        count
    };
    let first = Query::new().epochs(1);
    assert!(dataset(&storage).count_from(&first, Source::Level(1)).is_ok());
    // The second epoch has no copy.
    for query in [Query::new(), Query::new().epochs(2)] {
        let words = refused(&storage, &query, 1);
        assert!(words.contains("'turbidite index add DS space:x,y'"), "{words}");
    }
    let words = refused(&storage, &first, 7);
    assert!(words.contains("the spatial index has the levels 0 to 3, and no level 7"), "{words}");
    // The copy is of records that have been replaced.
    let mut replacing = options();
    replacing.if_exists = turbidite::IfExists::Replace;
    let job = LocalJob::open_with(storage.clone(), ROOT, schema("z"), replacing).unwrap();
    job.begin_epoch(1).unwrap();
    Records::even(5, 0.0, 1000.0).append(&job);
    job.end_epoch().unwrap();
    job.close().unwrap();
    let words = refused(&storage, &first, 1);
    assert!(words.contains("turbidite index add DS space:x,y"), "{words}");
    let plain = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(plain.clone(), ROOT, schema("z"), options()).unwrap();
    job.begin_epoch(1).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let words = refused(&plain, &first, 1);
    assert!(words.contains("no levels of detail") && words.contains("'turbidite index add DS space:X,Y,Z'"), "{words}");
}
