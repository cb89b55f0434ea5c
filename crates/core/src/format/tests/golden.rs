//! Compares the worked example of FORMAT.md with its bytes in `testdata/golden/range` and in the document.
//!
//! A difference means that the format has changed. If the change is intended, `TURBIDITE_WRITE_GOLDEN=1` rewrites the
//! files.

use std::path::{Path, PathBuf};

use super::*;
use crate::format::{ColumnStatistics, EpochManifest, EpochMetrics};
use crate::schema::Value;
use crate::storage::FileSystem;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden").join(name)
}

fn example_schema() -> Arc<Schema> {
    let energy = Column::new("energy", DataType::F32).with_unit("m_e c^2");
    Arc::new(Schema::new(vec![energy, Column::new("tag", DataType::U16)], "energy").unwrap())
}

/// The three records of the example, in append order.
const EXAMPLE_ROWS: [(f32, u16); 3] = [(1.5, 7), (-0.0, 8), (0.25, 9)];

/// The example's files in `testdata/golden`.
const PART: &str = "range/part-00000.parquet";
const MANIFEST: &str = "range/manifest.arrow";
const ATTRIBUTES: &str = "range/manifest-attributes.arrow";

fn example_identity() -> PartIdentity {
    let uuid = |last: u8| Uuid::from_u128(0x0011_2233_4455_4677_8899_aabb_ccdd_ee00 + u128::from(last));
    PartIdentity { dataset: uuid(1), commit: uuid(2), epoch: 200 }
}

/// Returns the content of the example's part, and its entries in the manifest.
fn example_part() -> (Vec<u8>, PartEntry, Vec<RowGroupEntry>) {
    let (schema, storage) = (example_schema(), Arc::new(MemoryStorage::new()));
    let mut table = Memtable::new(Arc::clone(&schema), 1000);
    for (energy, tag) in EXAMPLE_ROWS {
        table.push(&[&energy.to_le_bytes()[..], &tag.to_le_bytes()].concat());
    }
    let part = PartId { rank: 0, roll: 0 };
    let options = PartOptions::default();
    let mut writer =
        PartWriter::create(Arc::clone(&storage) as _, Path::new("/"), part, schema, options, example_identity())
            .unwrap();
    writer.created_by = "turbidite version 1.0.0".to_owned();
    let bounds = Some((Value::Float(-1.0), Value::Float(2.0)));
    let runs =
        writer.append_run(&table, RunContext { run: 0, kind: RunKind::Regular, table_version: 1, bounds }).unwrap();
    let path = writer.path().to_owned();
    let entry = writer.finish().unwrap();
    (read_all(&*storage, &path, 1 << 20).unwrap(), entry, runs)
}

fn example_manifest() -> EpochManifest {
    let (_, entry, runs) = example_part();
    let metrics = EpochMetrics { ranks: 1, receivers: 1, rows: 3, rows_per_receiver: vec![3], ..Default::default() };
    EpochManifest {
        partitions: None,
        indexed_commit: None,
        attributes: Default::default(),
        epoch: 200,
        commit: example_identity().commit,
        parts: vec![entry],
        row_groups: runs.into(),
        keys: Default::default(),
        metrics,
    }
}

/// Returns the content of a golden file. Rewrites the file first if requested.
pub(super) fn stored(name: &str, fresh: &[u8]) -> Vec<u8> {
    if std::env::var_os("TURBIDITE_WRITE_GOLDEN").is_some() {
        std::fs::write(golden(name), fresh).unwrap();
    }
    std::fs::read(golden(name)).unwrap()
}

#[test]
fn the_example_has_the_golden_bytes() {
    let (fresh, ..) = example_part();
    assert!(fresh == stored(PART, &fresh), "the bytes of parts have changed");
}

#[test]
fn the_golden_part_is_read() {
    let (manifest, path, identity) = (example_manifest(), golden(PART), example_identity());
    let entry = &manifest.parts[0];
    let reader = PartReader::open(&FileSystem::new(), &path, entry, identity.commit, example_schema()).unwrap();
    assert_eq!(reader.identity(), identity);
    let (mut energies, mut tags) = (Vec::new(), Vec::new());
    reader.read_page(0, 0, 0, true, &mut energies).unwrap();
    reader.read_page(0, 1, 0, true, &mut tags).unwrap();
    assert_eq!(energies, [-0.0f32, 0.25, 1.5].map(f32::to_le_bytes).concat());
    assert_eq!(tags, [8u16, 9, 7].map(u16::to_le_bytes).concat());
    assert_eq!(
        manifest.row_groups[0].columns[1],
        ColumnStatistics { range: Some((Value::Int(7), Value::Int(9))), nan_count: 0 }
    );
    assert_eq!(PartReader::commit_of(&FileSystem::new(), &path, entry).unwrap(), identity.commit);
    let sealed = PartReader::open_sealed(&FileSystem::new(), &path, entry, identity, example_schema()).unwrap();
    sealed.confirm().unwrap();
    for by_index in [false, true] {
        let pages = sealed.row_group(&manifest.row_groups[0], by_index).unwrap();
        for column in 0..2 {
            assert_eq!(sealed.locations(&pages, 0, column).unwrap(), reader.pages(0, column).unwrap());
        }
        assert_eq!(pages.range(0, 0), reader.page_range(0, 0, 0));
        assert_eq!(pages.range(1, 0), reader.page_range(0, 1, 0).filter(|_| by_index));
    }
}

/// Decodes the golden manifest. A newer Arrow encoder may lay out the stream differently, but must decode old files to
/// the same content.
#[test]
fn the_golden_manifest_says_what_it_said() {
    let manifest = example_manifest();
    let bytes = stored(MANIFEST, &manifest.encode(&example_schema()).unwrap());
    assert_eq!(EpochManifest::decode(bytes, &golden(MANIFEST), &example_schema()).unwrap(), manifest);
}

/// The manifest of the example, which has no attributes, shows that they are optional.
#[test]
fn the_golden_manifest_with_attributes_is_read() {
    let mut manifest = example_manifest();
    manifest.attributes.set("time", 1.5, Some("fs")).unwrap();
    manifest.attributes.set("beam_charge", -2.5e-12, Some("C")).unwrap();
    manifest.attributes.set("seed", 7.0, None).unwrap();
    let bytes = stored(ATTRIBUTES, &manifest.encode(&example_schema()).unwrap());
    let document = std::fs::read_to_string(golden("../../FORMAT.md")).unwrap();
    let shown = document.lines().find(|line| line.starts_with("\"attributes\":")).unwrap();
    assert!(bytes.windows(shown.len()).any(|part| part == shown.as_bytes()), "FORMAT.md differs from the file");
    assert_eq!(EpochManifest::decode(bytes, &golden(ATTRIBUTES), &example_schema()).unwrap(), manifest);
}

/// Parses a hex dump of the document. A line has an offset, two spaces, bytes in hexadecimal, and optionally `;` and a
/// note. Bytes between the lines are zero.
fn documented(dump: &str) -> Vec<u8> {
    let mut content = Vec::new();
    for line in dump.lines().filter(|line| !line.trim_start().starts_with(';') && !line.trim().is_empty()) {
        let (offset, rest) = line.split_once("  ").unwrap_or_else(|| panic!("no offset in '{line}'"));
        let offset = usize::from_str_radix(offset, 16).unwrap();
        assert!(offset >= content.len(), "'{line}' goes back");
        content.resize(offset, 0);
        let bytes = rest.split(';').next().unwrap().split_whitespace();
        content.extend(bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    content
}

/// Compares a part or one of its ranges with a hex dump of the document.
#[track_caller]
pub(super) fn compare(dump: &str, fresh: &[u8]) {
    let shown = documented(dump);
    let first =
        dump.trim_start().split_once("  ").and_then(|(offset, _)| usize::from_str_radix(offset, 16).ok()).unwrap();
    let difference = (first..shown.len()).find(|at| fresh.get(*at) != Some(&shown[*at]));
    assert_eq!(difference, None, "FORMAT.md differs from the file at this byte");
}

#[test]
fn the_document_shows_the_golden_bytes() {
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../FORMAT.md")).unwrap();
    let dumps: Vec<&str> =
        document.split("```hexdump\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [whole] = dumps.as_slice() else { panic!("FORMAT.md has {} hexdumps", dumps.len()) };
    let (fresh, ..) = example_part();
    compare(whole, &fresh);
    assert_eq!(documented(whole).len(), fresh.len(), "FORMAT.md shows another number of bytes");
}
