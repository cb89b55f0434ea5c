//! Tests that sealed runs are found in a truncated part, and recovered into a complete part.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::format::{SealedRun, has_seal, recover_part, scan_seals};
use crate::schema::Value;

fn small_options() -> PartOptions {
    PartOptions { page_rows: 64, row_groups_per_run: 3, write_bytes: 1 << 20 }
}

fn three_runs(schema: &Schema) -> Vec<(RunContext, Vec<u8>)> {
    let mut noise = Noise(77);
    let bounds = Some((Value::Float(-1.5), Value::Float(2.5)));
    [
        RunContext { bounds, ..context(0) },
        RunContext { kind: RunKind::Stray, bounds, table_version: 9, ..context(1) },
        RunContext { kind: RunKind::Unordered, ..context(2) },
    ]
    .map(|context| (context, random_rows(schema, 400 + 100 * context.run as usize, &mut noise, |column| column == 2)))
    .to_vec()
}

fn scan(written: &Written) -> Vec<SealedRun> {
    let file = written.storage.open(&written.path).unwrap();
    let seals = scan_seals(&*file, &written.path, &written.schema).unwrap();
    assert_eq!(has_seal(&*file, &written.path, &written.schema).unwrap(), !seals.is_empty());
    seals
}

fn test_schema() -> Arc<Schema> {
    schema_of(&[DataType::F64, DataType::U8, DataType::F32, DataType::FixedBytes(9)], 0)
}

#[test]
fn seals_repeat_what_the_manifest_would_say() {
    let schema = test_schema();
    let runs = three_runs(&schema);
    let written = write_part(&schema, small_options(), &runs);
    let seals = scan(&written);
    assert_eq!(seals.len(), 3);
    for (seal, (context, rows)) in seals.iter().zip(&runs) {
        assert_eq!((seal.run, seal.kind, seal.table_version), (context.run, context.kind, context.table_version));
        assert_eq!(seal.bounds, context.bounds);
        assert_eq!((seal.identity, seal.part), (identity(), PartId { rank: 7, roll: 0 }));
        assert_eq!(seal.rows() as usize, rows.len() / schema.row_bytes());
        let entries: Vec<&RowGroupEntry> = written.runs.iter().filter(|entry| entry.run == seal.run).collect();
        assert_eq!(entries.len(), seal.row_groups.len());
        for (group, entry) in seal.row_groups.iter().zip(entries) {
            assert_eq!((group.offset, group.bytes, group.rows), (entry.offset, entry.bytes, entry.rows));
            assert_eq!(group.checksum, entry.checksum);
        }
    }
}

/// Truncates the part at every block. Only complete runs are found, and all found runs are recovered.
#[test]
fn a_part_cut_anywhere_gives_back_its_sealed_runs() {
    let schema = test_schema();
    let runs = three_runs(&schema);
    let written = write_part(&schema, small_options(), &runs);
    let content = written.content();
    let ends: Vec<usize> = (1..=content.len() / 4096).map(|block| block * 4096).collect();
    let mut found_most = 0;
    for end in ends.into_iter().chain([0, 4095, 4097, content.len()]) {
        written.put(&content[..end]);
        let seals = scan(&written);
        let whole = |run: &RunContext| {
            let last = written.runs.iter().rfind(|entry| entry.run == run.run).unwrap();
            (last.offset + last.bytes).next_multiple_of(4096) as usize <= end
        };
        // A seal may need another block after the block of its last page, so fewer runs may be found than are complete.
        assert!(seals.len() <= runs.iter().filter(|(run, _)| whole(run)).count());
        found_most = found_most.max(seals.len());
        recovered_equals(&written, &seals, &runs[..seals.len()]);
    }
    assert_eq!(found_most, 3);
}

/// Recovers the sealed runs into another file, and compares it with the rows of `runs`.
fn recovered_equals(written: &Written, seals: &[SealedRun], runs: &[(RunContext, Vec<u8>)]) {
    let part = PartId { rank: 7, roll: 1 };
    let storage: Arc<dyn Storage> = Arc::clone(&written.storage) as _;
    let directory = Path::new("/recovered");
    let _ = storage.remove_file(&directory.join(part.file_name()));
    storage.create_dir_all(directory).unwrap();
    let target = PartIdentity { commit: Uuid::from_u128(0xaffe), ..identity() };
    let recovered =
        recover_part(&storage, &written.path, seals, directory, (part, 0), &written.schema, target).unwrap();
    assert!(recovered.corrupt.is_empty());
    let again = Written {
        storage: Arc::clone(&written.storage),
        path: directory.join(part.file_name()),
        schema: Arc::clone(&written.schema),
        entry: recovered.entry,
        runs: recovered.runs,
    };
    assert!(again.open().is_err(), "the recovered part belongs to another commit");
    let reader =
        PartReader::open(&*storage, &again.path, &again.entry, target.commit, Arc::clone(&again.schema)).unwrap();
    round_trip::check_content(&again, &reader, runs);
}

#[test]
fn a_corrupt_run_is_left_out_and_reported() {
    let schema = test_schema();
    let runs = three_runs(&schema);
    let written = write_part(&schema, small_options(), &runs);
    let mut content = written.content();
    let victim = written.runs.iter().find(|entry| entry.run == 1).unwrap();
    content[(victim.offset + victim.bytes / 2) as usize] ^= 4;
    written.put(&content);
    let seals = scan(&written);
    assert_eq!(seals.len(), 3, "the seal itself is whole");
    let storage: Arc<dyn Storage> = Arc::clone(&written.storage) as _;
    let part = PartId { rank: 7, roll: 1 };
    let directory = Path::new("/recovered");
    storage.create_dir_all(directory).unwrap();
    let recovered = recover_part(&storage, &written.path, &seals, directory, (part, 0), &schema, identity()).unwrap();
    assert_eq!(recovered.corrupt.len(), 1);
    assert_eq!(recovered.corrupt[0].0, 1);
    assert!(recovered.corrupt[0].1.to_string().contains("run 1"), "{}", recovered.corrupt[0].1);
    let left: Vec<u32> = recovered.runs.iter().map(|entry| entry.run).collect();
    assert!(left.contains(&0) && left.contains(&2) && !left.contains(&1), "{left:?}");
}

#[test]
fn a_seal_in_another_place_is_none() {
    let schema = test_schema();
    let written = write_part(&schema, small_options(), &three_runs(&schema)[..1]);
    let content = written.content();
    let shifted = [vec![0; 4096], content].concat();
    written.put(&shifted);
    assert_eq!(scan(&written), []);
}
