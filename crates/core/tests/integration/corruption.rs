//! Exhaustive corruption of a small dataset with all kinds of content. Every byte of every file is changed in two ways,
//! and every file is truncated at every length. After each change the test runs all queries and verifies the dataset. A
//! query must return the correct result or an error that reports corruption. Verification must detect the change,
//! except in unfinished attempts, which it does not read.
//!
//! `make test` tries some of the positions, others with each commit. `make corruption` tries all positions.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fuzz_targets::corruption::{Answers, ask_everything, reports_corruption};
use crate::fuzz_targets::sample::{Record, Sample, mix};
use crate::support::sweeps::{is_whole, part_of};

/// A change of one file.
#[derive(Debug, Clone, Copy)]
enum Change {
    Flip { at: usize, mask: u8 },
    Cut { bytes: usize },
}

/// A change and its result.
struct Case<'a> {
    path: &'a Path,
    change: Change,
    answers: Answers,
}

type Files = Vec<(PathBuf, Vec<u8>)>;

/// Number of commits after which `make test` has tried every position.
const PARTS: usize = 64;

/// Returns the positions of a file to try: one in [`PARTS`] of a part, one in eight of other files, and a quarter of
/// those near the borders of blocks.
fn places(path: &Path, bytes: usize) -> Vec<usize> {
    let Some(part) = part_of(PARTS) else { return (0..bytes).collect() };
    // Small files have few positions, and each has a meaning of its own.
    let parts = if path.extension().is_some_and(|name| name == "parquet") { PARTS } else { PARTS / 8 };
    let is_near_border = |at: usize| at % 4096 < 6 || at % 4096 >= 4088;
    let is_taken = |at: usize| mix(at as u64) as usize % parts == part % parts;
    (0..bytes).filter(|&at| is_taken(at) || is_near_border(at) && at % 4 == part % 4).collect()
}

/// Applies changes to all files on two threads.
fn each_change(
    sample: &Sample,
    changes: impl Fn(usize) -> Vec<Change> + Sync,
    judge: impl Fn(Case<'_>) + Sync,
) -> usize {
    let mut tasks = Vec::new();
    for (file, (path, content)) in sample.files.iter().enumerate() {
        tasks.extend(places(path, content.len()).into_iter().flat_map(&changes).map(|change| (file, change)));
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut files: Files = sample.files.clone();
        while let Some((file, change)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let whole = files[*file].1.clone();
            match *change {
                Change::Flip { at, mask } => files[*file].1[at] ^= mask,
                Change::Cut { bytes } => files[*file].1.truncate(bytes),
            }
            judge(Case { path: &sample.files[*file].0, change: *change, answers: ask_everything(&files, true) });
            files[*file].1 = whole;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    tasks.len()
}

/// Returns whether a file is in an unfinished attempt, whose content readers and verification do not read.
fn is_unfinished(path: &Path) -> bool {
    path.starts_with("/ds/_turbidite/tmp")
}

/// Checks the requirements for a change: each result is correct or an error that reports corruption and names a file,
/// and verification detects the change.
fn judge(expected: &Answers, case: &Case<'_>) {
    let Case { path, change, answers } = case;
    let place = format!("{change:?} of {}", path.display());
    for (right, found) in expected.answers.iter().zip(&answers.answers) {
        match found {
            Ok(found) if !is_unfinished(path) => assert!(Some(found) == right.as_ref().ok(), "{place}: a wrong answer"),
            Ok(_) => {}
            Err(error) => {
                assert!(reports_corruption(error), "{place}: {error}");
                assert!(error.to_string().contains("/ds"), "{place}: which file? {error}");
            }
        }
    }
    match &answers.report {
        Ok(report) if is_unfinished(path) => assert!(report.is_clean(), "{place}"),
        Ok(report) => assert!(!report.is_clean(), "{place} is not found by verification"),
        Err(error) => assert!(reports_corruption(error), "{place}: {error}"),
    }
}

#[test]
fn the_sample_holds_what_it_should() {
    let sample = Sample::new();
    let answers = Answers::of(&sample.files);
    let rows = |index: usize| u64::from_le_bytes(*answers.answers[index].as_ref().unwrap().first_chunk().unwrap());
    let count = |keep: fn(&Record) -> bool| sample.records.iter().filter(|record| keep(record)).count() as u64;
    assert_eq!(rows(0), sample.records.len() as u64);
    assert_eq!(rows(1), count(|record| record.epoch == 1 && record.energy > 0.25 && record.a < 50.0));
    assert_eq!(rows(2), count(|record| record.energy.is_nan() || record.b > 0));
    assert_eq!(rows(3), count(|record| record.epoch == 2 && (0.5..=0.75).contains(&record.energy)));
    assert_eq!(rows(4), count(|record| record.id % 2 == 1 && !record.a.is_nan()));
    assert_eq!(rows(5), 0);
    let report = answers.report.unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!((report.epochs, report.parts, report.rows), (3, 5, sample.records.len() as u64));
}

#[test]
fn every_flipped_byte_is_found() {
    let sample = Sample::new();
    let expected = Answers::of(&sample.files);
    let changes =
        |at: usize| vec![Change::Flip { at, mask: 0xff }, Change::Flip { at, mask: 1 << (mix(at as u64) % 8) }];
    let cases = each_change(&sample, changes, |case| judge(&expected, &case));
    println!("{cases} flips");
    assert!(cases > if is_whole() { 8_000 } else { 1_000 }, "{cases}");
}

#[test]
fn every_cut_is_found() {
    let sample = Sample::new();
    let expected = Answers::of(&sample.files);
    let cases = each_change(&sample, |bytes| vec![Change::Cut { bytes }], |case| judge(&expected, &case));
    println!("{cases} cuts");
    assert!(cases > if is_whole() { 4_000 } else { 500 }, "{cases}");
}
