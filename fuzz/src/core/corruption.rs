//! Queries of a possibly corrupt dataset, and checks of their results.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use turbidite::query::{Bins, Dataset, HistogramRequest, QuantilesRequest, Query, Source, TrackRequest};
use turbidite::storage::Storage;
use turbidite::store::{DatasetPaths, EpochRange, VerifyOptions, VerifyReport, salvage, verify_on};
use turbidite::{Error, ErrorClass};

use super::sample::{ROOT, Sample};

/// The result of a query, or the error.
pub type Answer = Result<Vec<u8>, Error>;

/// The queries: epochs, filter, and whether results are ordered. Each query reads data that the others do not.
const QUESTIONS: [(u64, u64, &str, bool); 6] = [
    (0, u64::MAX, "", false),
    (1, 1, "energy > 0.25 and a < 50", false),
    (1, 2, "isnan(energy) or b > 0", true),
    (2, 2, "energy between 0.5 and 0.75", true),
    (0, u64::MAX, "id % 2 = 1 and not isnan(a)", false),
    (0, 30, "energy < -5", false),
];

/// All results of a dataset.
#[derive(Debug)]
pub struct Answers {
    /// Results in the order of the queries.
    pub answers: Vec<Answer>,
    /// The result of verification.
    pub report: Result<VerifyReport, Error>,
}

/// Returns the values of all columns, byte for byte. No value may be null.
pub(super) fn values(batches: impl Iterator<Item = Result<RecordBatch, Error>>) -> Answer {
    let mut all = Vec::new();
    for batch in batches {
        for column in batch?.columns() {
            let data = column.to_data();
            let width = match data.data_type() {
                DataType::FixedSizeBinary(width) => *width as usize,
                other => other.primitive_width().expect("numbers and bytes only"),
            };
            let from = data.offset() * width;
            all.extend_from_slice(&data.buffers()[0].as_slice()[from..from + data.len() * width]);
        }
    }
    Ok(all)
}

fn ask(dataset: &Dataset, question: (u64, u64, &str, bool), check: bool) -> Answer {
    let (first, last, filter, ordered) = question;
    let query = Query::new().threads(1).epochs(EpochRange { first, last }).ordered(ordered).check(check);
    let query = if filter.is_empty() { query } else { query.filter(filter) };
    let (count, _) = dataset.count(&query)?;
    let mut answer = count.to_le_bytes().to_vec();
    answer.extend(values(dataset.run(&query)?)?);
    Ok(answer)
}

/// Runs the queries that need only statistics, and those that track particles.
fn ask_aside(dataset: &Dataset, check: bool) -> Answer {
    let bins = Bins::new(7);
    let all = || Query::new().epochs(EpochRange::ALL);
    let histogram = dataset.histogram(&HistogramRequest::new(all(), "energy", bins.clone()).source(Source::Bounds))?;
    let exact = dataset.histogram(&HistogramRequest::new(all(), "a", bins))?;
    let shares = [0.0, 0.3, 1.0];
    let quantiles = dataset.quantiles(&QuantilesRequest::new(all(), "energy", &shares))?;
    let explained = dataset.explain(&Query::new().filter("energy > 1.5"))?;
    let profile = dataset.key_profile(1)?;
    let request = TrackRequest::new("energy > 0.9", 2, "id").rows(Query::new().threads(1).check(check));
    let tracks = values(dataset.tracks(&request, &|_| ())?)?;
    let stated = (histogram.rows, exact.rows, quantiles.quantiles, explained.epochs.len(), profile.rows);
    Ok([format!("{stated:?}").into_bytes(), tracks].concat())
}

/// Runs all queries on a dataset of these files.
pub fn ask_everything(files: &[(PathBuf, Vec<u8>)], check: bool) -> Answers {
    let storage: Arc<dyn Storage> = Arc::new(Sample::storage(files));
    let layout = DatasetPaths::new(ROOT);
    let opened = || Dataset::open_with(storage.clone(), ROOT);
    let mut answers = Vec::new();
    match opened() {
        Ok(dataset) => {
            answers.extend(QUESTIONS.iter().map(|question| ask(&dataset, *question, check)));
            answers.push(ask_aside(&dataset, check));
            if let Ok(unfinished) = salvage::list(&*storage, &layout, dataset.descriptor()) {
                answers.push(Ok(unfinished.iter().flat_map(|epoch| epoch.rows().to_le_bytes()).collect()));
            }
        }
        Err(_) => answers.extend((0..QUESTIONS.len() + 1).filter_map(|_| opened().err()).map(Err)),
    }
    let mut options = VerifyOptions::default();
    options.threads = 1;
    Answers { answers, report: verify_on(&storage, &layout, &options, &|_| ()) }
}

/// Returns whether an error reports corrupt or missing data, or data of a later release.
pub fn reports_corruption(error: &Error) -> bool {
    error.class() == ErrorClass::Corruption
        || matches!(error, Error::Version { .. } | Error::EpochMissing { .. } | Error::NotADataset { .. })
}

impl Answers {
    /// Returns the results of an intact dataset.
    pub fn of(files: &[(PathBuf, Vec<u8>)]) -> Self {
        let answers = ask_everything(files, true);
        for answer in &answers.answers {
            assert!(answer.is_ok(), "{answer:?}");
        }
        answers
    }

    /// Compares another dataset's results with these. Each must be equal, or an error that reports corruption.
    pub fn compare(&self, other: &Self) {
        for (expected, found) in self.answers.iter().zip(&other.answers).take(QUESTIONS.len() + 1) {
            match (expected, found) {
                (Ok(expected), Ok(found)) => assert_eq!(expected, found, "a wrong answer"),
                (_, Err(error)) => assert!(reports_corruption(error), "{error}"),
                (Err(error), _) => panic!("{error}"),
            }
        }
    }
}
