//! A dataset with every kind of run: reading, and everything that changes a dataset.

mod sample;

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int16Type, Int64Type, UInt64Type};
use sample::{Record, records, schema};
use turbidite::query::QuantilesRequest;
use turbidite::storage::{FileSystem, Storage};
use turbidite::store::{DatasetPaths, Finding, FindingKind, IfExists, VerifyOptions, list_epochs, salvage, verify};
use turbidite::{Column, ColumnView, CompactOptions, Compaction, Dataset, LocalJob, Query, WriteOptions};

/// A record in a form that can be compared: NaN equals itself.
type Bits = (u64, u64, u32, u64, i16, Vec<u8>);

fn bits(record: &Record) -> Bits {
    let Record { epoch, id, energy, a, b } = *record;
    (epoch, id, energy.to_bits(), a.to_bits(), b, record.tag().to_vec())
}

fn rows_of(batch: &RecordBatch) -> Vec<Bits> {
    let column = |name| batch.column_by_name(name).unwrap();
    let epochs = column("epoch").as_primitive::<Int64Type>();
    let ids = column("id").as_primitive::<UInt64Type>();
    let energies = column("energy").as_primitive::<Float32Type>();
    let a = column("a").as_primitive::<Float64Type>();
    let b = column("b").as_primitive::<Int16Type>();
    let tags = column("tag").as_fixed_size_binary();
    let row = |at: usize| {
        let tag = tags.value(at).to_vec();
        (epochs.value(at) as u64, ids.value(at), energies.value(at).to_bits(), a.value(at).to_bits(), b.value(at), tag)
    };
    (0..batch.num_rows()).map(row).collect()
}

fn answer(dataset: &Dataset, query: &Query) -> Vec<Bits> {
    dataset.run(query).unwrap().flat_map(|batch| rows_of(&batch.unwrap())).collect()
}

type Filter = fn(&Record) -> bool;

/// Predicates on the key, on other columns and on both, that need every kind of run.
const PREDICATES: [(&str, Filter); 8] = [
    ("true", |_| true),
    ("energy >= 0.25 and energy < 0.75", |record| record.energy >= 0.25 && record.energy < 0.75),
    ("energy between 2.5 and 2.51", |record| record.energy >= 2.5 && record.energy <= 2.51),
    ("energy < 0", |record| record.energy < 0.0),
    ("isnan(energy)", |record| record.energy.is_nan()),
    ("energy > 0.5 and a < 0", |record| record.energy > 0.5 && record.a < 0.0),
    ("b > 5000", |record| record.b > 5000),
    ("energy > 100", |record| record.energy > 100.0),
];

/// Checks that a dataset has the records `expected`.
fn check_answers(dataset: &Dataset, expected: &[Record]) {
    for (text, filter) in PREDICATES {
        let query = Query::new().filter(text);
        let mut wanted: Vec<Bits> = expected.iter().filter(|record| filter(record)).map(bits).collect();
        wanted.sort_unstable();
        for ordered in [false, true] {
            let mut found = answer(dataset, &query.clone().ordered(ordered));
            if ordered {
                let keys: Vec<(u64, f32)> = found.iter().map(|row| (row.0, f32::from_bits(row.2))).collect();
                assert!(keys.is_sorted_by(|one, two| one.0 < two.0 || one.1 <= two.1 || two.1.is_nan()), "{text}");
            }
            found.sort_unstable();
            assert!(found == wanted, "{text}: {} rows instead of {}", found.len(), wanted.len());
        }
        assert_eq!(dataset.count(&query).unwrap().0, wanted.len() as u64, "{text}");
    }
}

/// Checks a dataset's files, and that `unfinished` attempts are found beside its epochs.
fn check_files(root: &Path, rows: usize, unfinished: u64) {
    let report = verify(root, &VerifyOptions::default(), &|_| ()).unwrap();
    let is_problem = |finding: &&Finding| finding.kind != FindingKind::Notice;
    assert_eq!(report.findings.iter().find(is_problem), None);
    assert_eq!((report.rows, report.unfinished), (rows as u64, unfinished));
}

/// Checks that every file of a dataset states the format version.
fn check_version(root: &Path) {
    let text = std::fs::read_to_string(root.join("_turbidite/dataset.json")).unwrap();
    assert!(text.contains("\"format_version\": 2,"), "{text}");
    let folder = root.join("data");
    let parts = std::fs::read_dir(folder).unwrap().flat_map(|epoch| std::fs::read_dir(epoch.unwrap().path()).unwrap());
    let mut files = 0;
    for part in parts {
        let content = std::fs::read(part.unwrap().path()).unwrap();
        let stated = b"turbidite.format_version\x18\x012";
        assert!(content.windows(stated.len()).any(|window| window == stated));
        files += 1;
    }
    assert!(files > 0);
    for manifest in std::fs::read_dir(root.join("_turbidite/manifest")).unwrap() {
        let content = std::fs::read(manifest.unwrap().path()).unwrap();
        assert!(content.ends_with(b"TBDTMAN2"));
    }
}

/// Appends the records to an epoch of the dataset, which may exist.
fn write_epoch(root: &Path, epoch: u64, records: &[Record]) {
    let mut options = WriteOptions::new(3);
    (options.memtable_bytes, options.page_rows, options.row_groups_per_run) = (4 << 10, 16, 2);
    options.if_exists = IfExists::Replace;
    let job = LocalJob::open(root, schema(), options).unwrap();
    job.begin_epoch(epoch).unwrap();
    for (rank, records) in (0u32..).zip(records.chunks(records.len().div_ceil(3).max(1))) {
        let (schema, mut rows) = (schema(), Vec::new());
        records.iter().for_each(|record| record.pack(&mut rows));
        let view = |(index, column): (usize, &Column)| {
            ColumnView::new(&rows[schema.offset(index)..], schema.row_bytes(), records.len(), column.data_type).unwrap()
        };
        let views: Vec<ColumnView<'_>> = schema.columns().iter().enumerate().map(view).collect();
        job.append(rank, &views).unwrap();
    }
    job.end_epoch().unwrap();
    job.close().unwrap();
}

#[test]
fn a_dataset_with_every_kind_of_run_is_read_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("new");
    sample::write(&root).unwrap();
    let mut expected = records();
    check_version(&root);
    check_files(&root, expected.len(), 1);
    let dataset = Dataset::open(&root).unwrap();
    check_answers(&dataset, &expected);
    assert_eq!(dataset.epochs().unwrap(), [1, 2, 30]);
    let exact = dataset.quantiles(&QuantilesRequest::new(Query::new().epochs(1), "energy", &[0.0, 1.0])).unwrap();
    assert_eq!(exact.quantiles.iter().map(|at| at.value.estimate.as_f64()).collect::<Vec<_>>(), [-1.0, 2.984375]);

    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let paths = DatasetPaths::new(&root);
    let unfinished = salvage::list(&*storage, &paths, dataset.descriptor()).unwrap();
    assert_eq!((unfinished[0].epoch, unfinished[0].runs(), unfinished[0].rows()), (40, 2, 48));
    let saved =
        salvage::recover_into(&storage, &paths, dataset.descriptor(), &unfinished[0], &folder.path().join("saved"));
    assert_eq!(saved.map(|saved| (saved.runs, saved.rows, saved.corrupt.len())).unwrap(), (2, 48, 0));

    let target = folder.path().join("sorted");
    let mut compaction = Compaction::open(&dataset, &target, CompactOptions::default()).unwrap();
    for epoch in [1, 2, 30] {
        compaction.compact_epoch(epoch, &|_| ()).unwrap().unwrap();
    }
    compaction.close().unwrap();
    check_version(&target);
    check_files(&target, expected.len(), 0);
    check_answers(&Dataset::open(&target).unwrap(), &expected);

    let copied = |from: u64, to: u64| -> Vec<Record> {
        records()
            .into_iter()
            .filter(|record| record.epoch == from)
            .map(|record| Record { epoch: to, ..record })
            .collect()
    };
    for (epoch, new) in [(7, copied(1, 7)), (2, copied(1, 2)), (30, copied(2, 30))] {
        write_epoch(&root, epoch, &new);
        expected.retain(|record| record.epoch != epoch);
        expected.extend(new);
    }
    check_version(&root);
    check_files(&root, expected.len(), 1);
    check_answers(&Dataset::open(&root).unwrap(), &expected);

    let job = LocalJob::open(&root, schema(), WriteOptions::new(1)).unwrap();
    assert_eq!(job.truncate_after(2).unwrap(), [7, 30]);
    job.close().unwrap();
    expected.retain(|record| record.epoch <= 2);
    check_files(&root, expected.len(), 1);
    check_answers(&Dataset::open(&root).unwrap(), &expected);
    assert_eq!(list_epochs(&*storage, &paths).unwrap(), [1, 2]);
}
