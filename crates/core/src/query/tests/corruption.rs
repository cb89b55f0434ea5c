//! Corrupt bytes, missing files, and epochs that are replaced during a read.

use super::*;
use crate::error::{Error, ErrorClass};
use crate::storage::{Fault, FaultStorage};

const PART: PartId = PartId { rank: 0, roll: 0 };

/// Writes one epoch of one part with a regular run, a run of strays and a run of NaN keys.
fn small() -> (Fixture, Vec<Record>) {
    let fixture = Fixture::new(DataType::F32, 7, 2);
    let mut epoch = partitioned(1, 1, 3, 20);
    epoch.parts[0].1[2].kind = RunKind::NanKey;
    for row in &mut epoch.parts[0].1[2].rows {
        row.key = f64::NAN;
    }
    epoch.parts[0].1[1].kind = RunKind::Stray;
    fixture.write(&epoch);
    (fixture, epoch.stored())
}

fn queries() -> Vec<Query> {
    vec![
        Query::new().threads(1),
        Query::new().threads(1).filter("energy > 0.25 and a < 50").columns(["id"]),
        Query::new().threads(1).filter("isnan(energy) or b > 0").ordered(true),
    ]
}

/// Returns the ids of a query's rows, or the query's error.
fn ids(storage: Arc<dyn Storage>, query: &Query) -> Result<Vec<u64>, Error> {
    let dataset = Dataset::open_with(storage, ROOT)?;
    let (count, _) = dataset.count(query)?;
    let mut ids = Vec::new();
    for batch in dataset.run(query)? {
        ids.extend(batch?.column_by_name("id").unwrap().as_primitive::<UInt64Type>().values());
    }
    assert_eq!(count, ids.len() as u64);
    Ok(ids)
}

fn file_bytes(fixture: &Fixture, path: &Path) -> u64 {
    fixture.storage.open(path).unwrap().bytes()
}

#[test]
fn no_flipped_byte_changes_an_answer() {
    let (fixture, _) = small();
    let part = fixture.part_path(1, PART);
    let manifests = fixture.paths.manifests();
    let manifest = manifests.join(&fixture.storage.list(&manifests).unwrap()[0].name);
    let expected: Vec<Vec<u64>> = queries().iter().map(|query| ids(fixture.storage.clone(), query).unwrap()).collect();
    for path in [part, manifest, fixture.paths.descriptor()] {
        let mut errors = 0;
        for offset in 0..file_bytes(&fixture, &path) {
            let mask = 1 << (mix(offset) % 8);
            let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
            storage.add_fault(Fault::Flip { path: path.clone(), offset, mask });
            for (query, expected) in queries().iter().zip(&expected) {
                match ids(storage.clone(), query) {
                    Ok(answer) => assert_eq!(&answer, expected, "byte {offset} of {}", path.display()),
                    Err(error) => {
                        errors += 1;
                        let stated =
                            matches!(error.class(), ErrorClass::Corruption) || matches!(error, Error::Version { .. });
                        assert!(stated, "byte {offset} of {}: {error}", path.display());
                    }
                }
            }
        }
        assert!(errors > 100, "flips of {} were noticed {errors} times only", path.display());
    }
}

#[test]
fn a_corrupt_page_is_named() {
    let (fixture, _) = small();
    let part = fixture.part_path(1, PART);
    let run = fixture.open().manifest(1).unwrap().row_groups[1].clone();
    // The last byte of the row group's pages is the last byte of its opaque payloads.
    let offset = run.offset + run.bytes - 1;
    let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
    storage.add_fault(Fault::Flip { path: part.clone(), offset, mask: 4 });
    let error = ids(storage.clone(), &Query::new()).unwrap_err();
    let Error::Corruption { path, place: Some(place), .. } = &error else { panic!("{error:?}") };
    assert_eq!(path, &part);
    let entries = &fixture.open().manifest(1).unwrap().row_groups;
    let (first, rows) = (entries[0].rows, entries[1].rows);
    assert!(first > 0 && rows > 0);
    let named = format!("run 0, row group 1, column 'tag', page 0 (rows {first} to {} of the file)", first + rows - 1);
    assert_eq!(place, &named, "numbers of rows count the part's earlier row groups");
    let unchecked = ids(storage, &Query::new().check(false)).unwrap();
    assert_eq!(unchecked.len(), 60, "without checks, a query returns what is stored");
}

#[test]
fn a_shortened_part_is_corruption() {
    let (fixture, _) = small();
    let part = fixture.part_path(1, PART);
    let bytes = file_bytes(&fixture, &part);
    for kept in [0, 1, 100, bytes / 2, bytes - 9, bytes - 1] {
        let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
        storage.add_fault(Fault::Cut { path: part.clone(), bytes: kept });
        let error = ids(storage, &Query::new()).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Corruption, "{kept} bytes: {error}");
        assert!(error.to_string().contains("part-00000.parquet"), "{error}");
    }
}

#[test]
fn a_missing_part_is_corruption() {
    let (fixture, _) = small();
    fixture.storage.remove_file(&fixture.part_path(1, PART)).unwrap();
    let error = ids(fixture.storage.clone(), &Query::new().filter("a > 1")).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Corruption, "{error}");
    assert!(error.to_string().contains("part-00000.parquet"), "{error}");
}

#[test]
fn reading_that_the_system_refuses_is_no_corruption() {
    let (fixture, _) = small();
    let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
    let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
    dataset.manifest(1).unwrap();
    storage.add_fault(Fault::Refuse { path: fixture.part_path(1, PART), kind: std::io::ErrorKind::PermissionDenied });
    let error = dataset.run(&Query::new()).unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Failed, "{error}");
}

#[test]
fn a_stream_ends_after_its_error() {
    let (fixture, _) = small();
    let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
    let run = fixture.open().manifest(1).unwrap().row_groups[3].clone();
    let offset = run.offset + run.bytes - 1;
    storage.add_fault(Fault::Flip { path: fixture.part_path(1, PART), offset, mask: 1 });
    let dataset = Dataset::open_with(storage, ROOT).unwrap();
    for ordered in [false, true] {
        let mut stream = dataset.run(&Query::new().ordered(ordered).batch_rows(3).threads(2)).unwrap();
        let outcomes: Vec<bool> = (&mut stream).map(|batch| batch.is_ok()).collect();
        assert_eq!(outcomes.iter().filter(|ok| !**ok).count(), 1);
        assert_eq!(outcomes.last(), Some(&false));
        assert!(stream.next().is_none());
    }
}

#[test]
fn a_manifest_that_misstates_rows_or_keys_is_found_out() {
    let (fixture, _) = small();
    let epoch = partitioned(2, 1, 2, 20);
    fixture.write_with(&epoch, |manifest| manifest.row_groups.to_mut()[0].rows += 1);
    let error = ids(fixture.storage.clone(), &Query::new().epochs(2)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Corruption, "{error}");
    fixture.write_with(&epoch, |manifest| {
        let key = manifest.row_groups.to_mut()[0].columns[1].range.as_mut().unwrap();
        key.0 = key.1;
    });
    let error = ids(fixture.storage.clone(), &Query::new().epochs(2).ordered(true)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Corruption, "{error}");
}

#[test]
fn a_replaced_epoch_is_read_anew_or_to_its_end() {
    let fixture = Fixture::new(DataType::F32, 7, 1);
    let (old, new) = (partitioned(1, 3, 2, 500), partitioned(1, 2, 1, 30));
    fixture.write(&old);
    let dataset = fixture.open();
    let records = |rows: Vec<(u64, Record)>| rows.into_iter().map(|(_, record)| record).collect::<Vec<_>>();
    // The manifest is cached, but no part is open.
    assert_eq!(dataset.count(&Query::new()).unwrap().0, 3_000);
    let mut reading = dataset.run(&Query::new().batch_rows(10)).unwrap();
    let first = super::records(&reading.next().unwrap().unwrap());
    fixture.write(&new);
    let mut rest: Vec<(u64, Record)> = first;
    rest.extend(reading.flat_map(|batch| super::records(&batch.unwrap())));
    assert_eq!(records(rest), old.stored(), "what had begun reads the old epoch to its end");
    let unopened = fixture.open();
    let fresh = partitioned(1, 2, 2, 40);
    unopened.manifest(1).unwrap();
    fixture.write(&fresh);
    assert_eq!(records(rows_of(&unopened, &Query::new())), fresh.stored(), "what begins now reads the new one");
}

#[test]
fn an_epoch_replaced_between_two_parts_is_an_error_once() {
    let fixture = Fixture::new(DataType::F32, 7, 1);
    fixture.write(&partitioned(1, 8, 1, 50));
    let dataset = fixture.open();
    // With a limit, only the first parts are opened ahead.
    let mut reading = dataset.run(&Query::new().limit(390).threads(1).batch_rows(10)).unwrap();
    reading.next().unwrap().unwrap();
    let new = partitioned(1, 8, 1, 20);
    fixture.write(&new);
    let error = reading.find_map(Result::err).unwrap();
    assert_eq!(error.class(), ErrorClass::Failed, "{error}");
    assert!(error.to_string().contains("was replaced while it was read"), "{error}");
    assert_eq!(rows_of(&dataset, &Query::new().limit(1000)).len(), 160);
}
