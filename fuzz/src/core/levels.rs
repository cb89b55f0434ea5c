//! A whole dataset with levels of detail in proportion to a column and with periods, and with some modified bytes,
//! lengths, files or statistics. As in `dataset`: without recomputed checksums, every result must be correct or an
//! error that reports corruption; with recomputed checksums, every call must return.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use turbidite::format::EpochManifest;
use turbidite::query::{Bins, CursorRequest, Dataset, HistogramRequest, Query, Source, Step};
use turbidite::storage::Storage;
use turbidite::store::{DatasetPaths, VerifyOptions, salvage, verify_on};
use turbidite::{Error, Value};

use super::corruption::{Answer, reports_corruption, values};
use super::dataset::{change, repair};
use super::sample::ROOT;
use super::script::Script;
use super::space_sample::{EPOCH, SpaceSample};

/// Returns the sample, which is written once.
pub fn sample() -> &'static SpaceSample {
    static SAMPLE: OnceLock<SpaceSample> = OnceLock::new();
    SAMPLE.get_or_init(SpaceSample::new)
}

/// Returns the correct results.
fn answers() -> &'static [Answer] {
    static ANSWERS: OnceLock<Vec<Answer>> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        let answers = ask_everything(&sample().files, true);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        answers
    })
}

/// Returns the seeds of the corpus: one change of each kind, with and without recomputed checksums.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1]];
    for choice in [0u8, 1] {
        for kind in 0..6u8 {
            for file in 0..8u8 {
                seeds.push(vec![choice, kind, file, 0x40, 1, 0, 0, 0x55, 9, 9, 9, 9, 9, 9, 9]);
            }
        }
    }
    // Statistics change with their checksums only.
    seeds.extend((0..28u8).map(|field| vec![1, 6, 0, 0, field, 7, 0, 0, 0, 0, 0, 0, 0x80]));
    for field in 0..4u8 {
        seeds.extend([0u8, 1, 2, 3, 0xff].map(|value| vec![1, 7, field, value, value]));
    }
    seeds
}

/// Runs all requests on a modified dataset.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let has_checksums = script.byte() & 1 == 1;
    let mut files = sample().files.clone();
    let mut manifests = [sample().manifest.clone()];
    for _ in 0..12 {
        if script.is_over() {
            break;
        }
        // The changes of every dataset, and those of levels.
        match script.clone().byte() % 8 {
            7 => {
                script.byte();
                restate_levels(&mut script, &mut manifests[0]);
            }
            _ => change(&mut script, &mut files, &mut manifests),
        }
    }
    if has_checksums {
        repair(&mut files, &mut manifests, &sample().schema);
        // The results may be wrong, but every call must return.
        let _ = ask_everything(&files, false);
        let _ = ask_everything(&files, true);
        return;
    }
    for (expected, found) in answers().iter().zip(&ask_everything(&files, true)) {
        match (expected, found) {
            (Ok(expected), Ok(found)) => assert_eq!(expected, found, "a wrong answer"),
            (_, Err(error)) => assert!(reports_corruption(error), "{error}"),
            (Err(error), _) => panic!("{error}"),
        }
    }
}

/// Changes what a manifest states of levels.
fn restate_levels(script: &mut Script<'_>, manifest: &mut EpochManifest) {
    let (field, which, other) = (script.byte() % 4, usize::from(script.byte()), usize::from(script.byte()));
    let groups = manifest.row_groups.len().max(1);
    let of_other = manifest.row_groups.get(other % groups).and_then(|group| group.intervals.clone());
    let parts = manifest.parts.len().max(1);
    if let (0, Some(part)) = (field, manifest.parts.get_mut(which % parts)) {
        part.level = other as u8;
    }
    let Some(group) = manifest.row_groups.to_mut().get_mut(which % groups) else { return };
    match field {
        1 => group.level = other as u8,
        2 => group.intervals = of_other,
        3 => group.intervals = None,
        _ => {}
    }
}

/// A request for the rows of a box across a boundary of the periods.
fn wrapped() -> Query {
    Query::new().threads(1).epochs(EPOCH).within("7:9.5,0.5:3").filter("w < 40")
}

fn count(dataset: &Dataset, check: bool, level: u8) -> Answer {
    let found = dataset.count_from(&wrapped().check(check), Source::Level(level))?;
    Ok(format!("{:?} {:?}", found.rows, found.sample).into_bytes())
}

fn sums(dataset: &Dataset, check: bool, level: u8) -> Answer {
    let bins = Bins { range: Some((Value::Int(0), Value::Int(8))), ..Bins::new(5) };
    let request = HistogramRequest::new(wrapped().check(check), "x", bins).source(Source::Level(level));
    let found = dataset.histogram(&request.weights("w"))?;
    Ok(format!("{:?} {:?}", found.rows, found.sums).into_bytes())
}

/// Returns the rows of a cursor's steps, and what they stand for.
fn steps(dataset: &Dataset, check: bool) -> Answer {
    let mut cursor = dataset.cursor(&CursorRequest::new(wrapped().check(check)))?;
    let mut answer = Vec::new();
    for step in [Step::Quality(0.02), Step::Rows(40), Step::Quality(1.0)] {
        cursor.advance(step)?;
        let batches = cursor.by_ref().collect::<Result<Vec<_>, Error>>()?;
        for batch in &batches {
            let stand_for: Vec<_> = (0..3).map(|level| batch.stand_for(level)).collect();
            answer.extend(format!("{} {stand_for:?}", batch.level).into_bytes());
        }
        answer.extend(values(batches.into_iter().map(|batch| Ok(batch.rows)))?);
        answer.extend(format!("{:?}", cursor.complete_level()).into_bytes());
    }
    Ok(answer)
}

/// Runs all requests on a dataset of these files.
fn ask_everything(files: &[(PathBuf, Vec<u8>)], check: bool) -> Vec<Answer> {
    let storage: Arc<dyn Storage> = Arc::new(SpaceSample::storage(files));
    let layout = DatasetPaths::new(ROOT);
    let opened = || Dataset::open_with(storage.clone(), ROOT);
    let rows =
        |dataset: &Dataset| -> Result<Vec<RecordBatch>, Error> { dataset.run(&wrapped().check(check))?.collect() };
    let requests: [&dyn Fn(&Dataset) -> Answer; 7] = [
        &|dataset| values(rows(dataset)?.into_iter().map(Ok)),
        &|dataset| count(dataset, check, 0),
        &|dataset| count(dataset, check, 1),
        &|dataset| sums(dataset, check, 1),
        &|dataset| sums(dataset, check, 2),
        &|dataset| steps(dataset, check),
        &|dataset| Ok(format!("{:?}", dataset.schema().periods()).into_bytes()),
    ];
    let answers = requests.iter().map(|request| request(&opened()?)).collect();
    if let Ok(dataset) = opened() {
        let _ = salvage::list(&*storage, &layout, dataset.descriptor());
    }
    let mut options = VerifyOptions::default();
    options.threads = 1;
    let _ = verify_on(&storage, &layout, &options, &|_| ());
    answers
}
