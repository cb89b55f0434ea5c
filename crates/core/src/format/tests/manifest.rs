//! Tests that manifests round-trip, and that other bytes are refused.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::format::manifest::container::sealed;
use crate::format::{
    ColumnStatistics, EpochAttributes, EpochManifest, EpochMetrics, PageDirectory, RangeCount, RowGroupStatistics,
};
use crate::schema::Value;

const PATH: &str = "/ds/_turbidite/manifest/200.arrow";

fn value(data_type: DataType, bits: u64) -> Value {
    match data_type {
        DataType::F32 => Value::Float(f64::from((bits as i32) as f32 / 1000.0)),
        DataType::F64 => Value::Float(bits as i64 as f64 / 1000.0),
        integer => Value::from_stored(integer, &bits.to_le_bytes()),
    }
}

fn manifest(schema: &Schema, runs: usize, seed: u64) -> EpochManifest {
    let mut noise = Noise(seed);
    let parts =
        (0..3).map(|rank| PartEntry::new(PartId { rank, roll: rank % 2 }, 1 << 40, (1 << 40) - 1, noise.next()));
    let parts: Vec<PartEntry> = parts.collect();
    let runs = (0..runs as u32).map(|run| {
        let rows = noise.next() >> 33;
        let columns = schema.columns().iter().map(|column| {
            let range = (column.data_type.is_numeric() && !noise.next().is_multiple_of(5))
                .then(|| (value(column.data_type, noise.next()), value(column.data_type, noise.next())));
            let nan_count = if column.data_type.is_float() { noise.next() % (rows + 1) } else { 0 };
            ColumnStatistics { range, nan_count }
        });
        let columns = columns.collect();
        let key = schema.key().data_type;
        let mut key_ordinal = || schema.key_order().ordinal_of(value(key, noise.next()));
        let first_keys = (!run.is_multiple_of(4)).then(|| (0..run % 7).map(|_| key_ordinal()).collect());
        let directory = PageDirectory {
            page_rows: noise.next() as u32 >> 1 | 1,
            index_offset: noise.next(),
            index_bytes: noise.next() as u32,
            index_checksum: noise.next(),
            first_keys,
            ..PageDirectory::default()
        };
        RowGroupEntry {
            part: parts[run as usize % 3].part,
            level: 0,
            intervals: None,
            run,
            row_group: noise.next() as u32,
            offset: noise.next() >> 25,
            bytes: noise.next() >> 25 | 1 << 31,
            rows,
            kind: [RunKind::Regular, RunKind::Stray, RunKind::Unordered, RunKind::NanKey][run as usize % 4],
            table_version: noise.next() as u32,
            bounds: (run % 3 > 0).then(|| (value(key, noise.next()), value(key, noise.next()))),
            checksum: noise.next(),
            columns,
            pages: directory,
        }
    });
    let runs = runs.collect();
    let metrics = EpochMetrics {
        ranks: 16,
        rows_per_receiver: vec![1, u64::MAX, 3],
        wall_s: 0.1 + seed as f64 / 3.0,
        sync_s: 1e-300,
        ..EpochMetrics::default()
    };
    // More range counts than row groups; a manifest would omit fewer.
    let range_count = |number: u64| RangeCount {
        least: number << 32,
        most: (number << 32) + noise.next() % 99,
        rows: noise.next() >> 40,
    };
    let keys: Vec<RangeCount> = if seed.is_multiple_of(2) { (0..150).map(range_count).collect() } else { Vec::new() };
    let keys = keys.into();
    let mut attributes = EpochAttributes::default();
    for number in 0..seed % 4 {
        attributes
            .set(&format!("ä {number}"), 0.1 / (seed + number + 1) as f64, (number > 0).then_some("m s^-1"))
            .unwrap();
    }
    EpochManifest {
        attributes,
        partitions: None,
        indexed_commit: seed.is_multiple_of(3).then(|| Uuid::from_u128(!u128::from(seed))),
        epoch: u64::MAX,
        commit: Uuid::from_u128(u128::from(seed)),
        parts,
        row_groups: runs,
        keys,
        metrics,
    }
}

fn decode(bytes: &[u8], schema: &Schema) -> crate::Result<EpochManifest> {
    EpochManifest::decode(bytes.to_vec(), Path::new(PATH), schema)
}

proptest! {
    #[test]
    fn manifests_come_back(
        types in prop::collection::vec(prop::sample::select(ALL_TYPES.to_vec()), 1..8),
        // More row groups than one block of entries.
        runs in 0usize..100,
        seed in 1u64..,
        cut in 0usize..100,
    ) {
        let mut types = types;
        types.push(DataType::U64);
        let schema = schema_of(&types, types.len() - 1);
        let manifest = manifest(&schema, runs, seed);
        let bytes = manifest.encode(&schema).unwrap();
        let found = decode(&bytes, &schema).unwrap();
        // Some values are read from the arrays before entries are created.
        prop_assert_eq!((found.row_groups.len(), found.rows(), found.row_groups.made()), (runs, manifest.rows(), 0));
        let ordinals = |manifest: &EpochManifest| manifest.row_groups.ordinals(schema.key_index(), schema.key_order());
        prop_assert_eq!(ordinals(&found), ordinals(&manifest));
        prop_assert_eq!(found.row_groups.get(cut), manifest.row_groups.get(cut));
        prop_assert!(found.row_groups.made() <= 32);
        prop_assert_eq!(&found, &manifest);
    }

    /// A scan reads a manifest by column, from a file. What it reads is what the whole manifest says.
    #[test]
    fn a_scan_reads_the_statistics_of_its_columns(
        types in prop::collection::vec(prop::sample::select(ALL_TYPES.to_vec()), 1..8),
        runs in 0usize..3000,
        seed in 1u64..,
        wanted in prop::collection::vec(0usize..8, 0..3),
    ) {
        let mut types = types;
        types.push(DataType::U64);
        let key = types.len() - 1;
        let schema = schema_of(&types, key);
        let manifest = manifest(&schema, runs, seed);
        let storage = MemoryStorage::new();
        let path = Path::new("/1.arrow");
        storage.create(path).unwrap().write_at(0, &manifest.encode(&schema).unwrap()).unwrap();
        let found = EpochManifest::read_for_scan(storage.open(path).unwrap(), path, &schema, &wanted).unwrap();
        prop_assert_eq!((found.epoch, found.commit, &found.parts), (manifest.epoch, manifest.commit, &manifest.parts));
        for (found, expected) in found.row_groups.iter().zip(&manifest.row_groups) {
            for (column, data_type) in types.iter().enumerate() {
                let is_known = column == key || wanted.contains(&column) || !data_type.is_numeric();
                prop_assert_eq!(found.columns.one(column), is_known.then(|| expected.columns[column]));
            }
            let RowGroupEntry { bounds, checksum, table_version, .. } = *expected;
            let columns = expected.columns.clone();
            let rest = RowGroupEntry { columns, bounds, checksum, table_version, ..found.clone() };
            prop_assert_eq!(&rest, expected);
        }
        prop_assert_eq!(found.row_groups.len(), runs);
    }

    #[test]
    fn arbitrary_bytes_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        seal in any::<bool>(),
        directory_offset in 0u64..300,
    ) {
        let schema = schema_of(&[DataType::F32], 0);
        let bytes = if seal { sealed(bytes, directory_offset) } else { bytes };
        prop_assert!(matches!(decode(&bytes, &schema), Err(Error::Corruption { .. })), "corruption is what it is called");
    }
}

/// A scan verifies every byte that it reads of a large manifest.
#[test]
fn a_flipped_byte_is_corruption_to_a_scan_or_not_read() {
    let schema = schema_of(&[DataType::F32, DataType::I64, DataType::F64], 0);
    let manifest = manifest(&schema, 30_000, 11);
    let bytes = manifest.encode(&schema).unwrap();
    let path = Path::new("/1.arrow");
    let read = |bytes: &[u8]| {
        let storage = MemoryStorage::new();
        storage.create(path).unwrap().write_at(0, bytes).unwrap();
        let read = EpochManifest::read_for_scan(storage.open(path).unwrap(), path, &schema, &[1]);
        read.map(|found| (found.parts, found.row_groups.iter().map(|run| (run.offset, run.columns.one(1))).collect()))
    };
    type Read = (Vec<PartEntry>, Vec<(u64, Option<ColumnStatistics>)>);
    let expected: Read = read(&bytes).unwrap();
    let (mut corrupted, mut unread) = (0, 0);
    for offset in (0..bytes.len()).step_by(39_989).chain(bytes.len() - 80..bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[offset] ^= 0x20;
        match read(&flipped) {
            Ok(found) => {
                assert!(found == expected, "byte {offset}");
                unread += 1;
            }
            Err(Error::Corruption { .. }) => corrupted += 1,
            Err(other) => panic!("byte {offset}: {other}"),
        }
    }
    assert!(corrupted > 50 && unread > 30, "{corrupted} corrupted, {unread} not read");
    for cut in (0..bytes.len()).step_by(499_979) {
        assert!(matches!(read(&bytes[..cut]), Err(Error::Corruption { .. })), "cut to {cut}");
    }
}

/// Returns the bytes of a manifest that checksums cover, and a function that appends a valid trailer to as many others.
fn opened(bytes: &[u8]) -> (Vec<u8>, impl Fn(&[u8]) -> Vec<u8>) {
    let number = |at: usize| u64::from_le_bytes(bytes[bytes.len() - at..][..8].try_into().unwrap());
    let (covered, directory_offset) = (number(24) as usize, number(32));
    let seal = move |covered: &[u8]| sealed(covered.to_vec(), directory_offset.min(covered.len() as u64));
    (bytes[..covered].to_vec(), seal)
}

#[test]
fn a_flipped_or_missing_byte_is_corruption() {
    let schema = schema_of(&[DataType::F32, DataType::I64], 0);
    let bytes = manifest(&schema, 5, 11).encode(&schema).unwrap();
    for offset in 0..bytes.len() {
        let mut corrupted = bytes.clone();
        corrupted[offset] ^= 0x20;
        let error = decode(&corrupted, &schema).unwrap_err();
        assert!(matches!(error, Error::Corruption { .. }), "byte {offset}: {error}");
        assert!(error.to_string().contains(PATH), "{error}");
        assert!(decode(&bytes[..offset], &schema).is_err(), "cut to {offset} bytes");
    }
}

/// Forged streams with a valid checksum are refused or decoded. Arrow's decoder panics on a few of them; their messages
/// in the output of this test are expected.
#[test]
fn a_forged_stream_does_not_panic() {
    let schema = schema_of(&[DataType::F32, DataType::I64, DataType::FixedBytes(4)], 0);
    let bytes = manifest(&schema, 3, 11).encode(&schema).unwrap();
    let (covered, seal) = opened(&bytes);
    assert!(seal(&covered) == bytes);
    for offset in 0..covered.len() {
        for flip in [0x01u8, 0x08, 0x7f, 0x80, 0xff] {
            let mut forged = covered.clone();
            forged[offset] ^= flip;
            if let Ok(found) = decode(&seal(&forged), &schema) {
                found.row_groups.iter().for_each(drop);
            }
        }
        let _ = decode(&seal(&covered[..offset]), &schema);
    }
}

/// A fuzzer's corpus contained such an epoch. Counting its rows ran out of memory, and sums overflowed.
#[test]
fn more_rows_than_bytes_are_refused() {
    let schema = schema_of(&[DataType::F32, DataType::I64], 0);
    let whole = manifest(&schema, 3, 11);
    type Change = fn(&mut RowGroupEntry);
    let changes: [(Change, &str); 3] = [
        (|run| run.rows = run.bytes + 1, "more rows than its bytes"),
        (|run| (run.rows, run.bytes) = (1 << 32, 1 << 33), "more rows than its bytes"),
        (|run| run.columns[0].nan_count = run.rows + 1, "more NaN values than rows"),
    ];
    for (change, complaint) in changes {
        let mut forged = whole.clone();
        change(&mut forged.row_groups.to_mut()[1]);
        forged.row_groups.to_mut()[1].offset = 0;
        let error = decode(&forged.encode(&schema).unwrap(), &schema).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}

#[test]
fn another_schema_or_version_is_refused() {
    let schema = schema_of(&[DataType::F32, DataType::I64], 0);
    let bytes = manifest(&schema, 3, 11).encode(&schema).unwrap();
    let other = schema_of(&[DataType::F32, DataType::I32], 0);
    assert!(matches!(decode(&bytes, &other), Err(Error::Corruption { .. })));
    let again = manifest(&schema, 3, 11).encode(&schema).unwrap();
    assert!(again == bytes, "equal manifests have equal bytes");
    let bytes = manifest(&schema, 3, 11).encode(&schema).unwrap();
    let (covered, seal) = opened(&bytes);
    let changed = |from: &str, to: &str| {
        let at = covered.windows(from.len()).rposition(|window| window == from.as_bytes()).unwrap();
        decode(&seal(&[&covered[..at], to.as_bytes(), &covered[at + from.len()..]].concat()), &schema)
    };
    assert!(matches!(changed("\"format_version\":2", "\"format_version\":3"), Err(Error::Version { found: 3, .. })));
    let first = decode(&[&covered[..], &[0; 8], b"TBDTMANI"].concat(), &schema).unwrap_err();
    assert!(matches!(first, Error::Version { found: 1, supported: 2, .. }), "{first}");
    let error = changed("\"requires\":[]", "\"requires\":[\"levels\"]").unwrap_err();
    assert!(matches!(&error, Error::Feature { feature, .. } if feature == "levels"), "{error}");
    changed("\"epoch\"", "\"later\":1,\"epoch\"").expect("unknown fields are ignored");
}

#[test]
fn a_metric_that_is_no_number_does_not_spoil_the_manifest() {
    let schema = schema_of(&[DataType::F32], 0);
    let mut odd = manifest(&schema, 3, 11);
    odd.metrics.wall_s = f64::NAN;
    odd.metrics.sort_s = f64::INFINITY;
    let decoded = decode(&odd.encode(&schema).unwrap(), &schema).unwrap();
    assert_eq!((decoded.metrics.wall_s, decoded.metrics.sort_s), (0.0, 0.0));
    assert_eq!((decoded.metrics.ranks, decoded.row_groups), (16, odd.row_groups));
}

#[test]
fn runs_outside_the_parts_are_refused() {
    let schema = schema_of(&[DataType::F32], 0);
    let mut wrong = manifest(&schema, 3, 11);
    wrong.row_groups.to_mut()[1].offset = 1 << 40;
    assert!(decode(&wrong.encode(&schema).unwrap(), &schema).is_err());
    let mut wrong = manifest(&schema, 3, 11);
    wrong.row_groups.to_mut()[1].part.rank = 9;
    assert!(decode(&wrong.encode(&schema).unwrap(), &schema).is_err());
    let mut wrong = manifest(&schema, 3, 11);
    wrong.row_groups.to_mut().iter_mut().for_each(|run| run.rows = u64::MAX);
    assert!(decode(&wrong.encode(&schema).unwrap(), &schema).is_err());
    let mut wrong = manifest(&schema, 3, 11);
    wrong.row_groups.to_mut()[0].columns = RowGroupStatistics::default();
    assert!(wrong.encode(&schema).is_err());
}
