//! Tests with files written by Arrow. `tests/sources` tests files of other writers.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, Float32Array, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow_schema::{DataType as ArrowType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use turbidite::DataType;

use crate::{RankReader, Source, SourceError, SourceOptions};

/// Returns rows `from..to` of the content of every test file.
fn batch(from: i64, to: i64) -> RecordBatch {
    let rows = || from..to;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("energy", Arc::new(Float32Array::from_iter_values(rows().map(|row| row as f32 / 4.0)))),
        ("level", Arc::new(UInt8Array::from_iter_values(rows().map(|row| (row % 7) as u8)))),
        ("id", Arc::new(Int64Array::from_iter_values(rows().map(|row| row - (1 << 40))))),
        (
            "tag",
            Arc::new(FixedSizeBinaryArray::try_from_iter(rows().map(|row| [row as u8, 1, (row >> 8) as u8])).unwrap()),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn write(path: &Path, rows: i64, rows_per_group: usize, batch: impl Fn(i64, i64) -> RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(50)
        .set_compression(Compression::SNAPPY);
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch(0, 1).schema(), Some(properties.build())).unwrap();
    writer.write(&batch(0, rows)).unwrap();
    writer.close().unwrap();
}

fn options() -> SourceOptions {
    SourceOptions { epoch: Some(7), ..SourceOptions::default() }
}

#[track_caller]
fn refused(path: &Path, options: &SourceOptions) -> String {
    Source::open(path, options).unwrap_err().to_string()
}

/// Reads all records. Returns each record's rank, index in its file and encoded columns.
fn read(source: &Source, ranks: u32, limit: usize) -> Result<Vec<(u32, u64, Vec<u8>)>, SourceError> {
    let mut seen = Vec::new();
    for epoch in source.epochs() {
        for mut reader in RankReader::of_epoch(source, epoch, ranks) {
            let mut buffer = Vec::new();
            while let Some(chunk) = reader.next(limit, &mut buffer)? {
                assert!((1..=limit).contains(&chunk.records));
                let views = chunk.views(&buffer).unwrap();
                for row in 0..chunk.records {
                    let bytes = views.iter().flat_map(|view| view.value(row).to_vec()).collect();
                    seen.push((chunk.file.rank, chunk.first + row as u64, bytes));
                }
                reader.release();
            }
        }
    }
    seen.sort();
    Ok(seen)
}

/// Returns the bytes of a record, encoded by hand.
fn record(row: i64) -> Vec<u8> {
    let tag = [row as u8, 1, (row >> 8) as u8];
    [&(row as f32 / 4.0).to_le_bytes()[..], &[(row % 7) as u8], &(row - (1 << 40)).to_le_bytes(), &tag].concat()
}

#[test]
fn every_record_is_read_once_whatever_the_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.parquet");
    write(&path, 20_000, 3_000, batch);
    let source = Source::open(&path, &options()).unwrap();
    assert_eq!((source.ranks(), source.records(7), source.record_bytes()), (7, 20_000, 16));
    let types: Vec<DataType> = source.columns().iter().map(|column| column.data_type).collect();
    assert_eq!(types, [DataType::F32, DataType::U8, DataType::I64, DataType::FixedBytes(3)]);
    let expected: Vec<_> = (0..20_000).map(|row| (0, row as u64, record(row))).collect();
    for (ranks, limit) in [(1, 100_000), (3, 1_000), (7, 128), (40, 7_777)] {
        assert_eq!(read(&source, ranks, limit).unwrap(), expected, "{ranks} ranks, {limit} at a time");
    }
}

#[test]
fn chosen_columns_come_in_the_order_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.parquet");
    write(&path, 10, 100, batch);
    let columns = Some(vec!["tag".to_owned(), " energy".to_owned()]);
    let source = Source::open(&path, &SourceOptions { columns, ..options() }).unwrap();
    let found = read(&source, 1, 100).unwrap();
    assert_eq!(found[5].2, [&[5, 1, 0][..], &1.25f32.to_le_bytes()].concat());
    let wanted = |name: &str| SourceOptions { columns: Some(vec![name.to_owned()]), ..options() };
    assert!(refused(&path, &wanted("nope")).contains("no column 'nope'; its columns are energy, level, id, tag"));
}

#[test]
fn columns_whose_names_begin_with_blanks_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.parquet");
    let renamed = |from, to| {
        let batch = batch(from, to);
        let schema = batch.schema();
        let names = schema.fields().iter().map(|field| format!(" {}", field.name()));
        RecordBatch::try_from_iter(names.zip(batch.columns().iter().cloned())).unwrap()
    };
    write(&path, 10, 100, renamed);
    let source = Source::open(&path, &options()).unwrap();
    let all = read(&source, 1, 100).unwrap();
    assert_eq!((all.len(), &all[5].2), (10, &record(5)));
    let chosen = SourceOptions { columns: Some(vec![" tag".to_owned()]), ..options() };
    assert_eq!(read(&Source::open(&path, &chosen).unwrap(), 1, 100).unwrap()[5].2, [5, 1, 0]);
}

#[test]
fn folders_are_found_by_their_layout() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (epoch, rank) in [(10, 0), (10, 1), (20, 0), (20, 1)] {
        write(&root.join(format!("step-{epoch}/part-{rank:03}.parquet")), 100 * (rank + 1), 50, batch);
    }
    let layout = root.join("layout.toml");
    let with_layout = SourceOptions { layout: Some(layout.clone()), ..SourceOptions::default() };
    let text = "format = 'parquet'\npath = 'step-{epoch}/part-{rank}.parquet'\n";
    std::fs::write(&layout, text).unwrap();
    let source = Source::open(root, &with_layout).unwrap();
    assert_eq!((source.epochs().collect::<Vec<_>>(), source.ranks(), source.records(20)), (vec![10, 20], 2, 300));
    assert_eq!(read(&source, 2, 1000).unwrap().len(), 600);

    std::fs::write(&layout, format!("{text}record_bytes = 4\n")).unwrap();
    assert!(refused(root, &with_layout).contains("omit all settings except format, path and ranks"));
    std::fs::write(&layout, format!("ranks = 3\n{text}")).unwrap();
    assert!(refused(root, &with_layout).contains("part-002.parquet is missing"));
    std::fs::write(&layout, text.replace("'parquet'", "'hdf5'")).unwrap();
    assert!(refused(root, &with_layout).contains("unknown variant `hdf5`"));

    std::fs::write(&layout, text).unwrap();
    let other = |from, to| batch(from, to).project(&[1, 0]).unwrap();
    write(&root.join("step-20/part-001.parquet"), 5, 5, other);
    let message = refused(root, &with_layout);
    assert!(message.contains("step-20/part-001.parquet: its columns are level u8, energy f32"), "{message}");
    let common = SourceOptions { columns: Some(vec!["energy".to_owned()]), ..with_layout };
    assert_eq!(Source::open(root, &common).unwrap().records(20), 105);
}

#[test]
fn what_cannot_be_stored_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.parquet");
    let text = |_: i64, _: i64| {
        let columns: Vec<(&str, ArrayRef)> =
            vec![("energy", Arc::new(Float32Array::from(vec![1.0]))), ("name", Arc::new(StringArray::from(vec!["a"])))];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    write(&path, 1, 10, text);
    let message = refused(&path, &options());
    assert!(
        message.contains("one.parquet: column 'name' has the unsupported type text")
            && message.contains("--columns energy"),
        "{message}"
    );

    let nulls = |_: i64, _: i64| {
        let schema =
            Schema::new(vec![Field::new("a", ArrowType::Float32, true), Field::new("b", ArrowType::Int64, true)]);
        let a: ArrayRef = Arc::new(Float32Array::from(vec![Some(1.0), None, Some(2.0)]));
        let b: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        RecordBatch::try_new(Arc::new(schema), vec![a, b]).unwrap()
    };
    write(&path, 3, 10, nulls);
    let message = refused(&path, &options());
    assert!(message.contains("column 'a' has nulls (row group 0)") && message.contains("--columns b"), "{message}");
    let b = SourceOptions { columns: Some(vec!["b".to_owned()]), ..options() };
    assert_eq!(read(&Source::open(&path, &b).unwrap(), 1, 9).unwrap().len(), 3, "optional without nulls is fine");
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.parquet");
    write(&path, 10, 10, batch);
    assert!(refused(&path, &SourceOptions::default()).contains("--epoch"));
    let species = SourceOptions { species: Some("e".to_owned()), ..options() };
    assert!(refused(&path, &species).contains("--species"));
    let layout = SourceOptions { layout: Some(path.clone()), ..options() };
    assert!(refused(&path, &layout).contains("--layout"));
    assert!(refused(folder.path(), &options()).contains("--epochs"));
    for content in [&b""[..], b"PAR", b"VPIC and more"] {
        std::fs::write(&path, content).unwrap();
        assert!(refused(&path, &options()).contains("neither a folder nor a Parquet file"));
    }
}

/// A corrupt byte anywhere causes an error with the file's name, or a changed value if the file contains nothing that
/// reveals the corruption. It never causes a panic or a different number of records.
#[test]
fn corrupt_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.parquet");
    write(&path, 300, 200, batch);
    let whole = std::fs::read(&path).unwrap();
    let attempt = || Source::open(&path, &options()).and_then(|source| read(&source, 2, 300));
    let mut refusals = 0;
    let mut judge = |content: &[u8], what: &str| {
        std::fs::write(&path, content).unwrap();
        match attempt() {
            Ok(records) => assert_eq!(records.len(), 300, "{what}"),
            Err(error) => {
                refusals += 1;
                assert!(error.to_string().contains("one.parquet"), "{what}: {error}");
            }
        }
    };
    for length in (0..whole.len()).step_by(37) {
        judge(&whole[..length], &format!("cut to {length}"));
    }
    for at in (0..whole.len()).step_by(3) {
        let mut content = whole.clone();
        content[at] ^= [0x01, 0x10, 0x80, 0xff][at / 3 % 4];
        judge(&content, &format!("byte {at}"));
    }
    assert!(refusals > 100, "{refusals}");
}
