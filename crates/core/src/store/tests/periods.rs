//! Periods in `dataset.json`: they are stored and required, wild ones are refused, and a dataset keeps them.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::schema::{Column, DataType, Levels, Schema};
use crate::storage::MemoryStorage;
use crate::store::descriptor::closing;
use crate::store::{DatasetDescriptor, DatasetPaths};

fn decode(bytes: &[u8]) -> Result<DatasetDescriptor> {
    DatasetDescriptor::decode(bytes, Path::new("dataset.json"))
}

/// Appends a valid checksum to the text.
fn signed(covered: &str) -> Vec<u8> {
    format!("{covered}{}", closing(covered.as_bytes())).into_bytes()
}

fn of_columns(key: &str) -> Schema {
    let columns = ["x", "y", "id"].map(|name| Column::new(name, DataType::F32)).to_vec();
    Schema::new(columns, key).unwrap()
}

fn periodic(periods: &str) -> DatasetDescriptor {
    let schema = of_columns("space:y,x").with_periods(periods.parse().unwrap()).unwrap();
    DatasetDescriptor::new(Arc::new(schema))
}

#[test]
fn periods_are_stored_and_required() {
    for periods in ["128,0.1", "64,", ",1.7976931348623157e-30"] {
        let descriptor = periodic(periods);
        let bytes = descriptor.encode().unwrap();
        assert_eq!(decode(&bytes).unwrap(), descriptor);
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["requires"], serde_json::json!(["periods"]));
        assert_eq!(json["periods"], serde_json::json!(descriptor.schema.periods().unwrap().as_slice()));
    }
    let schema = Schema::clone(&periodic("128,").schema).with_levels(Levels { count: 2, seed: 7 }).unwrap();
    let both = DatasetDescriptor::new(Arc::new(schema));
    assert_eq!(decode(&both.encode().unwrap()).unwrap(), both);
    let flat = DatasetDescriptor::new(Arc::new(of_columns("space:y,x")));
    let text = String::from_utf8(flat.encode().unwrap()).unwrap();
    assert!(!text.contains("periods"), "{text}");
}

#[test]
fn wild_periods_are_refused() {
    let text = String::from_utf8(periodic("128,").encode().unwrap()).unwrap();
    let covered = text.split_once(",\n  \"checksum\"").unwrap().0;
    let stated = "\"periods\": [\n    128.0,\n    null\n  ]";
    assert!(covered.contains(stated), "{covered}");
    for (wild, expected) in [
        ("[0, 1]", "a period is finite and above zero, not 0"),
        ("[-1, 1]", "a period is finite and above zero, not -1"),
        ("[1e-70, 1]", "a period is 0 when rounded"),
        ("[1e70, 1]", "a period is inf when rounded"),
        ("[1e999, 1]", "it cannot be decoded"),
        ("[NaN, 1]", "it has no format version"),
        ("[\"128\", 1]", "it cannot be decoded"),
        ("[null, null]", "no coordinate has a period"),
        ("[]", "no coordinate has a period"),
        ("[1]", "the key has 2 coordinates, not 1"),
        ("[1, 2, 3]", "the key has 2 coordinates, not 3"),
        ("null", "it does not state its periods"),
        ("{}", "it cannot be decoded"),
    ] {
        let error = decode(&signed(&covered.replace(stated, &format!("\"periods\": {wild}")))).unwrap_err();
        let is_named = matches!(&error, Error::Corruption { path, .. } if path == Path::new("dataset.json"));
        assert!(is_named && error.to_string().contains(expected), "{wild}: {error}");
    }
    for (from, to, expected) in [
        (stated, "\"later\": 1", "it does not state its periods"),
        ("\"space\",\n    \"columns\": [\n      \"y\",", "\"range\",\n    \"columns\": [", "only a key by space"),
    ] {
        assert!(covered.contains(from), "{covered}");
        let error = decode(&signed(&covered.replace(from, to))).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // Without the feature, readers do not know the field.
    let unknown = covered.replace("\"requires\": [\n    \"periods\"\n  ]", "\"requires\": []");
    assert_ne!(unknown, covered);
    assert_eq!(decode(&signed(&unknown)).unwrap().schema.periods(), None);
}

#[test]
fn a_dataset_keeps_its_periods() {
    let storage = MemoryStorage::new();
    let paths = DatasetPaths::new("/ds");
    let first = periodic("0.1,");
    DatasetDescriptor::open_or_create(&storage, &paths, &first).unwrap();
    let unstated = DatasetDescriptor::new(Arc::new(of_columns("space:y,x")));
    let in_f32 = periodic(&format!("{},", f64::from(0.1f32)));
    for same in [&first, &unstated, &in_f32] {
        assert_eq!(DatasetDescriptor::open_or_create(&storage, &paths, same).unwrap(), first);
    }
    let refused =
        |paths: &DatasetPaths, periods| match DatasetDescriptor::open_or_create(&storage, paths, &periodic(periods)) {
            Err(Error::Mismatch { what, .. }) => what,
            other => panic!("{other:?}"),
        };
    assert_eq!(refused(&paths, "0.1,4"), "it has the periods '0.1,', but '0.1,4' were requested");
    assert_eq!(refused(&paths, ",0.1"), "it has the periods '0.1,', but ',0.1' were requested");
    let flat = DatasetPaths::new("/flat");
    DatasetDescriptor::open_or_create(&storage, &flat, &unstated).unwrap();
    assert_eq!(refused(&flat, "0.1,"), "it has no periods, but '0.1,' were requested");
}
