//! Tests of the output formats. Files are read back with their format's library (Parquet, Arrow, JSON), or compared
//! with handwritten text (CSV, tables).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, RecordBatch, UInt64Array};
use arrow_ipc::reader::FileReader;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::rows::TextRows;
use super::*;
use crate::failure::Failure;

/// Returns values that are easily lost in text.
fn batch() -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Float32Array::from(vec![0.1, f32::NAN, f32::INFINITY, -0.0, 1e-40])),
        Arc::new(Float64Array::from(vec![1e300, f64::NEG_INFINITY, 0.1 + 0.2, 16_777_217.0, 5e-324])),
        Arc::new(UInt64Array::from(vec![0, 1, u64::MAX, 1 << 53, (1 << 53) + 1])),
        Arc::new(Int32Array::from(vec![i32::MIN, -1, 0, 1, i32::MAX])),
        Arc::new(
            FixedSizeBinaryArray::try_from_iter([[0u8, 255], [1, 16], [9, 10], [15, 160], [171, 205]].iter()).unwrap(),
        ),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn schema() -> SchemaRef {
    let field = |name: &str, kind| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![
        field("energy", DataType::Float32),
        field("d,\"x\"", DataType::Float64),
        field("big", DataType::UInt64),
        field("i", DataType::Int32),
        field("raw", DataType::FixedSizeBinary(2)),
    ]))
}

fn written(name: &str, batches: &[RecordBatch]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut writer = RowWriter::file(&path, &schema()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    assert!(!path.exists(), "no name before it is complete");
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(writer.finish().unwrap(), rows as u64);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary stays");
    (folder, path)
}

/// Asserts that all values have the same bits, since NaN and -0.0 matter.
fn assert_same(found: &RecordBatch, expected: &RecordBatch) {
    assert_eq!(found.schema().fields(), expected.schema().fields());
    for (one, other) in found.columns().iter().zip(expected.columns()) {
        assert_eq!(one.to_data().buffers()[0].as_slice(), other.to_data().buffers()[0].as_slice());
    }
}

#[test]
fn arrow_files_hold_the_same_bits() {
    let (_folder, path) = written("rows.arrow", &[batch()]);
    let found: Vec<_> = FileReader::try_new(std::fs::File::open(path).unwrap(), None).unwrap().collect();
    assert_eq!(found.len(), 1);
    assert_same(found[0].as_ref().unwrap(), &batch());
}

#[test]
fn parquet_files_hold_the_same_bits() {
    let (_folder, path) = written("rows.parquet", &[batch()]);
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap().build().unwrap();
    let found: Vec<_> = reader.collect();
    assert_eq!(found.len(), 1);
    assert_same(found[0].as_ref().unwrap(), &batch());
}

#[test]
fn csv_reads_back_exactly() {
    let (_folder, path) = written("rows.csv", &[batch(), batch()]);
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "energy,\"d,\"\"x\"\"\",big,i,raw",
        "0.1,1e300,0,-2147483648,00ff",
        "NaN,-inf,1,-1,0110",
        "inf,0.30000000000000004,18446744073709551615,0,090a",
        "-0.0,16777217.0,9007199254740992,1,0fa0",
        "1e-40,5e-324,9007199254740993,2147483647,abcd",
    ];
    assert_eq!(lines[..6], expected);
    assert_eq!(lines[6..], expected[1..], "one header for all batches");
}

#[test]
fn json_lines_are_json() {
    let (_folder, path) = written("rows.jsonl", &[batch()]);
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[0]["energy"].as_f64().unwrap() as f32, 0.1);
    assert_eq!(rows[1]["energy"], "NaN");
    assert_eq!((&rows[2]["energy"], &rows[1]["d,\"x\""]), (&"Infinity".into(), &"-Infinity".into()));
    assert_eq!(rows[2]["d,\"x\""].as_f64(), Some(0.1 + 0.2));
    assert_eq!(rows[2]["big"].as_u64(), Some(u64::MAX));
    assert_eq!(rows[4]["raw"], "abcd");
}

#[test]
fn results_without_rows_still_say_what_they_are() {
    for name in ["none.parquet", "none.arrow", "none.csv", "none.jsonl"] {
        let (_folder, path) = written(name, &[]);
        let bytes = std::fs::metadata(&path).unwrap().len();
        match name {
            "none.csv" => assert_eq!(std::fs::read_to_string(path).unwrap(), "energy,\"d,\"\"x\"\"\",big,i,raw\n"),
            "none.jsonl" => assert_eq!(bytes, 0),
            _ => assert!(bytes > 0),
        }
    }
}

#[test]
fn tables_are_aligned() {
    let mut rows = TextRows::new(TextFormat::Table, &schema());
    let mut out = Vec::new();
    let failed = |error: std::io::Error| panic!("{error}");
    rows.write(&batch(), &mut out, failed).unwrap();
    rows.write(&batch(), &mut out, failed).unwrap();
    rows.finish(&mut out, failed).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 11, "one header");
    assert_eq!(lines[0], "energy                d,\"x\"                   big            i  raw");
    assert_eq!(lines[1], "   0.1                1e300                     0  -2147483648  00ff");
    assert_eq!(lines[3], "   inf  0.30000000000000004  18446744073709551615            0  090a");
}

#[test]
fn an_unfinished_file_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, "old").unwrap();
    let mut writer = RowWriter::file(&path, &schema()).unwrap();
    writer.write(&batch()).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn names_without_a_format_are_refused() {
    for name in ["rows", "rows.xyz", "rows.parquet.gz", ".csv"] {
        assert!(matches!(FileFormat::of(Path::new(name)), Err(Failure::Usage(text)) if text.contains(name)), "{name}");
    }
    assert!(RowWriter::file(Path::new("/nowhere/rows.csv"), &schema()).is_err());
    let folder = tempfile::tempdir().unwrap();
    let sub = folder.path().join("a.csv");
    std::fs::create_dir(&sub).unwrap();
    assert!(matches!(RowWriter::file(&sub, &schema()), Err(Failure::Usage(_))));
}
