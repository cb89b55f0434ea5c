//! Compares the worked example of a dataset that is clustered by hash with its bytes in `testdata/golden/hash` and in
//! FORMAT.md. `TURBIDITE_WRITE_GOLDEN=1` rewrites the files.

use std::path::{Path, PathBuf};

use super::golden::{compare, stored};
use super::*;
use crate::format::{EpochManifest, EpochMetrics, PartFilters};
use crate::schema::{KeyHash, hash_of, partition_of_hash};
use crate::storage::FileSystem;

const PART: &str = "hash/part-00003.parquet";
const MANIFEST: &str = "hash/manifest.arrow";

/// The partition of id 17 among 16 partitions.
const PARTITION: u32 = 14;
const PARTITIONS: u32 = 16;

fn schema() -> Arc<Schema> {
    let columns = vec![Column::new("id", DataType::U32), Column::new("tag", DataType::U16)];
    Arc::new(Schema::new(columns, "hash:id").unwrap())
}

fn identity() -> PartIdentity {
    let uuid = |last: u8| Uuid::from_u128(0x0011_2233_4455_4677_8899_aabb_ccdd_ee00 + u128::from(last));
    PartIdentity { dataset: uuid(1), commit: uuid(2), epoch: 200 }
}

/// Returns the content of the example's part, and the manifest of its epoch.
fn example() -> (Vec<u8>, EpochManifest) {
    let (schema, storage) = (schema(), Arc::new(MemoryStorage::new()));
    let mut table = Memtable::new(Arc::clone(&schema), 10);
    table.push(&[&17u32.to_le_bytes()[..], &7u16.to_le_bytes()].concat());
    let part = PartId { rank: 3, roll: 0 };
    let options = PartOptions::default();
    let mut writer =
        PartWriter::create(Arc::clone(&storage) as _, Path::new("/"), part, schema, options, identity()).unwrap();
    writer.created_by = "turbidite version 1.0.0".to_owned();
    let context = RunContext { run: 0, kind: RunKind::Regular, table_version: 1, bounds: None };
    let runs = writer.append_run(&table, context).unwrap();
    let path = writer.path().to_owned();
    let entry = PartEntry { partition: Some(PARTITION), ..writer.finish().unwrap() };
    let metrics =
        EpochMetrics { ranks: 4, receivers: 4, rows: 1, rows_per_receiver: vec![0, 0, 0, 1], ..Default::default() };
    let manifest = EpochManifest {
        partitions: Some(PARTITIONS),
        indexed_commit: None,
        attributes: Default::default(),
        epoch: 200,
        commit: identity().commit,
        parts: vec![entry],
        row_groups: runs.into(),
        keys: Default::default(),
        metrics,
    };
    (read_all(&*storage, &path, 1 << 20).unwrap(), manifest)
}

#[test]
fn the_example_clustered_by_hash_has_the_golden_bytes() {
    let (part, manifest) = example();
    assert!(stored(PART, &part) == part, "the bytes of parts have changed");
    let bytes = stored(MANIFEST, &manifest.encode(&schema()).unwrap());
    let path = PathBuf::from(MANIFEST);
    assert_eq!(EpochManifest::decode(bytes, &path, &schema()).unwrap(), manifest);
}

#[test]
fn the_golden_filter_has_the_key_and_no_other() {
    let (_, manifest) = example();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden").join(PART);
    let file = FileSystem::new().open(&path).unwrap();
    let filters = PartFilters::read(&*file, &path, &manifest.parts[0], manifest.row_groups.iter()).unwrap();
    let hash = |id: u32| hash_of(&id.to_le_bytes());
    assert_eq!(partition_of_hash(hash(17), PARTITIONS), PARTITION);
    assert!(filters.may_contain(0, hash(17)));
    assert!((0..17).chain(18..1000).all(|id| !filters.may_contain(0, hash(id))));
    let entry = &manifest.parts[0];
    let reader = PartReader::open_sealed(&FileSystem::new(), &path, entry, identity(), schema()).unwrap();
    reader.confirm().unwrap();
    assert_eq!(PartReader::commit_of(&FileSystem::new(), &path, entry).unwrap(), identity().commit);
}

#[test]
fn the_document_shows_the_golden_filter() {
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../FORMAT.md")).unwrap();
    let dump = document.split("```hexdump of the filter\n").nth(1).unwrap().split("```").next().unwrap();
    compare(dump, &example().0);
}

/// The examples of keys that are not one integer: folder, columns of the key, stored values.
fn wide_examples() -> [(&'static str, Vec<DataType>, Vec<u8>); 2] {
    let uuid = 0x0011_2233_4455_4677_8899_aabb_ccdd_ee00u128.to_be_bytes().to_vec();
    let pair = [&3u16.to_le_bytes()[..], &17u64.to_le_bytes()].concat();
    [("hash-bytes", vec![DataType::FixedBytes(16)], uuid), ("hash-columns", vec![DataType::U16, DataType::U64], pair)]
}

#[test]
fn the_examples_of_wide_keys_have_the_golden_bytes() {
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../FORMAT.md")).unwrap();
    for (folder, types, row) in wide_examples() {
        let names = if types.len() == 1 { vec!["uuid"] } else { vec!["cpu", "id"] };
        let columns = names.iter().zip(&types).map(|(name, data_type)| Column::new(*name, *data_type)).collect();
        let schema = Arc::new(Schema::new(columns, &format!("hash:{}", names.join(","))).unwrap());
        let mut hashes = Vec::new();
        KeyHash::new(&schema).hashes(&row, row.len(), &mut hashes);
        assert!(document.contains(&format!("`{:016x}`", hashes[0])), "FORMAT.md lacks {:016x}", hashes[0]);
        let storage = Arc::new(MemoryStorage::new());
        let mut table = Memtable::new(Arc::clone(&schema), 10);
        table.push(&row);
        let (part, options) = (PartId { rank: 3, roll: 0 }, PartOptions::default());
        let (root, written) = (Path::new("/"), Arc::clone(&schema));
        let mut writer =
            PartWriter::create(Arc::clone(&storage) as _, root, part, written, options, identity()).unwrap();
        writer.created_by = "turbidite version 1.0.0".to_owned();
        let context = RunContext { run: 0, kind: RunKind::Regular, table_version: 1, bounds: None };
        let row_groups = writer.append_run(&table, context).unwrap().into();
        let path = writer.path().to_owned();
        let partition = Some(partition_of_hash(hashes[0], PARTITIONS));
        let entry = PartEntry { partition, ..writer.finish().unwrap() };
        let bytes = read_all(&*storage, &path, 1 << 20).unwrap();
        assert!(stored(&format!("{folder}/part-00003.parquet"), &bytes) == bytes, "the bytes of {folder} have changed");
        let manifest = EpochManifest { parts: vec![entry], row_groups, ..example().1 };
        let encoded = manifest.encode(&schema).unwrap();
        let name = format!("{folder}/manifest.arrow");
        let decoded = EpochManifest::decode(stored(&name, &encoded), Path::new(&name), &schema).unwrap();
        assert_eq!(decoded, manifest);
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden").join(folder).join("part-00003.parquet");
        let file = FileSystem::new().open(&path).unwrap();
        let filters = PartFilters::read(&*file, &path, &manifest.parts[0], manifest.row_groups.iter()).unwrap();
        assert!(filters.may_contain(0, hashes[0]) && !filters.may_contain(0, !hashes[0]));
    }
}
