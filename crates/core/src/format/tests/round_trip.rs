//! Reads written parts with our reader and with the parquet crate's.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::ColumnReader;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use proptest::prelude::*;

use super::*;
use crate::format::manifest::entries::ColumnStatistics;
use crate::schema::Value;

/// Returns one column of a row group, read by the parquet crate and converted to stored width.
fn foreign_column(file: &SerializedFileReader<Bytes>, row_group: usize, column: usize, data_type: DataType) -> Vec<u8> {
    let group = file.get_row_group(row_group).unwrap();
    let rows = group.metadata().num_rows() as usize;
    let width = data_type.width();
    macro_rules! values {
        ($reader:expr) => {{
            let mut values = Vec::new();
            $reader.read_records(rows, None, None, &mut values).unwrap();
            values.iter().flat_map(|value| value.to_le_bytes()[..width.min(size_of_val(value))].to_vec()).collect()
        }};
    }
    match group.get_column_reader(column).unwrap() {
        ColumnReader::Int32ColumnReader(mut reader) => values!(reader),
        ColumnReader::Int64ColumnReader(mut reader) => values!(reader),
        ColumnReader::FloatColumnReader(mut reader) => values!(reader),
        ColumnReader::DoubleColumnReader(mut reader) => values!(reader),
        ColumnReader::FixedLenByteArrayColumnReader(mut reader) => {
            let mut values = Vec::new();
            reader.read_records(rows, None, None, &mut values).unwrap();
            values.iter().flat_map(|value| value.data().to_vec()).collect()
        }
        _ => panic!("a physical type we never write"),
    }
}

pub(super) fn foreign_reader(content: Vec<u8>) -> SerializedFileReader<Bytes> {
    let options = ReadOptionsBuilder::new().with_page_index().build();
    SerializedFileReader::new_with_options(Bytes::from(content), options).unwrap()
}

fn our_column(reader: &PartReader, row_group: u32, column: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for page in 0..reader.pages(row_group, column).unwrap().len() {
        reader.read_page(row_group, column, page, true, &mut out).unwrap();
    }
    out
}

/// Computes statistics value by value.
fn plain_summary(data_type: DataType, packed: &[u8]) -> ColumnStatistics {
    let mut summary = ColumnStatistics { range: None, nan_count: 0 };
    if !data_type.is_numeric() {
        return summary;
    }
    for raw in packed.chunks(data_type.width()) {
        let value = Value::from_stored(data_type, raw);
        if value.compare(value).is_none() {
            summary.nan_count += 1;
            continue;
        }
        let (low, high) = summary.range.unwrap_or((value, value));
        summary.range = Some((
            if value.compare(low).unwrap().is_lt() { value } else { low },
            if value.compare(high).unwrap().is_gt() { value } else { high },
        ));
    }
    summary
}

fn check_part(written: &Written, runs: &[(RunContext, Vec<u8>)]) {
    check_content(written, &written.open().unwrap(), runs);
}

/// Compares the contents of a part with the rows in `runs`.
pub(super) fn check_content(written: &Written, reader: &PartReader, runs: &[(RunContext, Vec<u8>)]) {
    let schema = &written.schema;
    let foreign = foreign_reader(written.content());
    assert_eq!(reader.row_groups() as usize, written.runs.len());
    assert_eq!(foreign.metadata().num_row_groups(), written.runs.len());
    let mut entries = written.runs.iter();
    for (context, rows) in runs {
        let sorted = plainly_sorted(schema, rows);
        let mut rest = &sorted[..];
        while !rest.is_empty() {
            let entry = entries.next().unwrap();
            let (group, after) = rest.split_at(entry.rows as usize * schema.row_bytes());
            rest = after;
            assert_eq!((entry.run, entry.kind), (context.run, context.kind));
            for (column, definition) in schema.columns().iter().enumerate() {
                let expected = column_of(schema, group, column);
                let data_type = definition.data_type;
                assert_eq!(our_column(reader, entry.row_group, column), expected, "ours: {data_type}");
                let foreign_values = foreign_column(&foreign, entry.row_group as usize, column, data_type);
                assert_eq!(foreign_values, expected, "the parquet crate's: {data_type}");
                let summary = plain_summary(data_type, &expected);
                assert_eq!(entry.columns[column], summary, "{data_type}");
                check_pages(reader, entry.row_group, column, data_type, &expected);
                check_statistics(&foreign, entry.row_group as usize, column, summary);
            }
        }
    }
    assert!(entries.next().is_none());
}

fn check_pages(reader: &PartReader, row_group: u32, column: usize, data_type: DataType, expected: &[u8]) {
    let whole = plain_summary(data_type, expected);
    for (index, page) in reader.pages(row_group, column).unwrap().iter().enumerate() {
        let start = page.first_row as usize * data_type.width();
        let values = &expected[start..start + page.rows as usize * data_type.width()];
        let range = plain_summary(data_type, values).range.filter(|_| whole.nan_count == 0);
        assert_eq!(reader.page_range(row_group, column, index), range);
    }
}

/// Checks that statistics exist if and only if there is no NaN. Checks their bounds, including the signs of zeros.
fn check_statistics(foreign: &SerializedFileReader<Bytes>, row_group: usize, column: usize, summary: ColumnStatistics) {
    let chunk = foreign.metadata().row_group(row_group).column(column);
    let expected = summary.range.filter(|_| summary.nan_count == 0);
    assert_eq!(chunk.statistics().is_some(), expected.is_some());
    assert_eq!(chunk.column_index_offset().is_some(), expected.is_some());
    let (Some(statistics), Some((low, high))) = (chunk.statistics(), expected) else { return };
    assert_eq!(statistics.null_count_opt(), Some(0));
    assert!(statistics.min_is_exact() && statistics.max_is_exact());
    let (min, max) = (statistics.min_bytes_opt().unwrap(), statistics.max_bytes_opt().unwrap());
    match (low, high) {
        (Value::Int(low), Value::Int(high)) => {
            assert_eq!(min, &(low as u64).to_le_bytes()[..min.len()]);
            assert_eq!(max, &(high as u64).to_le_bytes()[..max.len()]);
        }
        (Value::Float(low), Value::Float(high)) => {
            let number = |bytes: &[u8]| match bytes.len() {
                4 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
                _ => f64::from_le_bytes(bytes.try_into().unwrap()),
            };
            assert_eq!((number(min), number(max)), (low, high));
            assert!(low != 0.0 || number(min).is_sign_negative(), "a smallest zero may be -0.0");
            assert!(high != 0.0 || number(max).is_sign_positive(), "a largest zero may be 0.0");
        }
        _ => panic!("one bound is an integer, the other is not"),
    }
}

fn options() -> impl Strategy<Value = PartOptions> {
    (1u32..300, 1u32..6).prop_map(|(page_rows, row_groups_per_run)| PartOptions {
        page_rows,
        row_groups_per_run,
        write_bytes: 1 << 20,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn rows_come_back_sorted(
        types in prop::collection::vec(prop::sample::select(ALL_TYPES.to_vec()), 1..8),
        key in 0usize..8,
        options in options(),
        lengths in prop::collection::vec(1usize..900, 0..4),
        seed in 1u64..,
    ) {
        let mut types = types;
        let key = key % types.len();
        if !types[key].is_numeric() {
            types[key] = DataType::F64;
        }
        let schema = schema_of(&types, key);
        let mut noise = Noise(seed);
        let runs: Vec<(RunContext, Vec<u8>)> = lengths
            .iter()
            .enumerate()
            .map(|(run, rows)| (context(run as u32), random_rows(&schema, *rows, &mut noise, |column| column != key)))
            .collect();
        check_part(&write_part(&schema, options, &runs), &runs);
    }
}

#[test]
fn runs_longer_than_a_write_come_back() {
    let schema = schema_of(&[DataType::F32, DataType::U64, DataType::FixedBytes(56)], 0);
    let mut noise = Noise(5);
    let runs: Vec<_> =
        (0..2).map(|run| (context(run), random_rows(&schema, 60_000, &mut noise, |column| column != 0))).collect();
    let written = write_part(&schema, PartOptions::default(), &runs);
    assert_eq!(written.runs.len(), 8, "two runs of four row groups");
    check_part(&written, &runs);
}

#[test]
fn rows_with_a_nan_key_come_last_without_statistics() {
    let schema = schema_of(&[DataType::F32, DataType::I32], 0);
    let rows: Vec<u8> = [1.0f32, f32::NAN, -2.0, f32::NAN]
        .iter()
        .zip(0i32..)
        .flat_map(|(key, row)| [key.to_le_bytes(), row.to_le_bytes()].concat())
        .collect();
    let runs = [(RunContext { kind: RunKind::NanKey, ..context(0) }, rows)];
    let written = write_part(&schema, PartOptions::default(), &runs);
    check_part(&written, &runs);
    assert_eq!(written.runs[0].columns[0].nan_count, 2);
    assert!(foreign_reader(written.content()).metadata().row_group(0).sorting_columns().is_none());
}

#[test]
fn runs_whose_keys_lie_far_apart_have_small_pages() {
    let schema = schema_of(&[DataType::F32, DataType::FixedBytes(32)], 0);
    let options = PartOptions { page_rows: 400, row_groups_per_run: 2, ..PartOptions::default() };
    for (kind, page_rows) in [(RunKind::Regular, [400, 100]), (RunKind::Stray, [100, 25])] {
        let runs = [(RunContext { kind, ..context(0) }, random_rows(&schema, 950, &mut Noise(11), |_| false))];
        let written = write_part(&schema, options, &runs);
        check_part(&written, &runs);
        let groups: Vec<u64> = written.runs.iter().map(|run| run.rows).collect();
        assert_eq!(groups, [800, 150], "{kind:?}: no more row groups for that");
        let reader = written.open().unwrap();
        assert_eq!([0, 1].map(|column| reader.pages(0, column).unwrap()[0].rows), page_rows, "{kind:?}");
    }
}

#[test]
fn an_empty_part_is_a_file_without_rows() {
    let schema = schema_of(&[DataType::F32], 0);
    let written = write_part(&schema, PartOptions::default(), &[]);
    assert_eq!(written.entry.footer_offset, 4);
    check_part(&written, &[]);
    assert_eq!(PartReader::identify(&*written.storage, &written.path).unwrap(), identity());
}

#[test]
fn an_empty_memtable_is_no_run() {
    let schema = schema_of(&[DataType::F32], 0);
    let storage = Arc::new(MemoryStorage::new());
    let part = PartId { rank: 0, roll: 0 };
    let mut writer =
        PartWriter::create(storage, Path::new("/"), part, Arc::clone(&schema), PartOptions::default(), identity())
            .unwrap();
    assert_eq!(writer.append_run(&Memtable::new(schema, 100), context(0)).unwrap(), []);
    assert_eq!((writer.row_groups(), writer.metrics().bytes_written), (0, 0));
}

#[test]
fn the_footer_says_what_other_engines_need() {
    let schema = schema_of(&ALL_TYPES, 8);
    let runs = [(context(0), random_rows(&schema, 700, &mut Noise(9), |_| false))];
    let written = write_part(&schema, PartOptions { page_rows: 100, ..PartOptions::default() }, &runs);
    let foreign = foreign_reader(written.content());
    let metadata = foreign.metadata();
    let logical: Vec<_> = metadata
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .map(|column| column.logical_type_ref().cloned())
        .collect();
    let integer = |bit_width, is_signed| Some(LogicalType::integer(bit_width, is_signed));
    assert_eq!(logical[0], integer(8, true));
    assert_eq!(logical[1], integer(16, true));
    assert_eq!(logical[2], None);
    assert_eq!(logical[5], integer(16, false));
    assert_eq!(logical[7], integer(64, false));
    assert_eq!(metadata.file_metadata().schema_descr().column(7).converted_type(), ConvertedType::UINT_64);
    let sorting = metadata.row_group(0).sorting_columns().unwrap();
    assert_eq!((sorting[0].column_idx, sorting[0].descending), (8, false));
    let index = &metadata.column_index().unwrap()[0];
    assert_eq!(index[8].get_boundary_order(), Some(parquet::basic::BoundaryOrder::ASCENDING));
    assert_eq!(index[8].num_pages(), 2, "700 rows in 4 row groups of whole pages of 100 rows");
    let notes = metadata.file_metadata().key_value_metadata().unwrap();
    let note = |key: &str| notes.iter().find(|note| note.key == key).and_then(|note| note.value.clone()).unwrap();
    assert_eq!(note("turbidite.commit"), identity().commit.to_string());
    assert_eq!(note("turbidite.epoch"), "200");
    assert_eq!(note("turbidite.part"), "part-00007.parquet");
    assert_eq!(note("turbidite.format_version"), "2");
    assert_eq!(note("turbidite.clustering"), "range:c8");
    assert!(note("turbidite.columns").starts_with(r#"[{"name":"c0","type":"i8"}"#));
}
