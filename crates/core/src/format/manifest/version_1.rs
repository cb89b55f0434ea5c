//! Manifests of format version 1: an Arrow IPC stream whose metadata describes the epoch, then a checksum and a magic.
//!
//! The checksum is verified before any other byte is used. The stream is then decoded in place, without copies, so no
//! length in the stream leads to an allocation.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Schema as ArrowSchema, SchemaRef};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::format::manifest::arrow_values::{numbers, with_arrow_type};
use crate::format::manifest::entries::{PartEntry, PartId};
use crate::format::manifest::epoch_manifest::{EpochManifest, EpochStatistics};
use crate::format::manifest::range_counts::KeyRangeCounts;
use crate::format::manifest::row_group_entries::RowGroupEntries;
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::manifest::stored_row_groups::StoredRowGroups;
use crate::format::version::FormatVersion;
use crate::schema::{DataType, Schema, Value};

/// Magic number at the end of a manifest.
const MANIFEST_MAGIC: &[u8; 8] = b"TBDTMANI";
const TRAILER_BYTES: usize = 16;

/// The names of the columns of bounds.
const BOUNDS: [&str; 2] = ["lower", "upper"];

/// The columns that every manifest has, in order.
const FIXED: [(&str, ArrowType); 9] = [
    ("rank", ArrowType::UInt32),
    ("roll", ArrowType::UInt32),
    ("run", ArrowType::UInt32),
    ("row_group", ArrowType::UInt32),
    ("offset", ArrowType::UInt64),
    ("bytes", ArrowType::UInt64),
    ("rows", ArrowType::UInt64),
    ("kind", ArrowType::UInt8),
    ("table_version", ArrowType::UInt32),
];

/// Returns the columns of the row groups: the fixed columns, the checksum and the bounds with these names, then the
/// range and NaN count of each schema column.
pub(super) fn fields(schema: &Schema, [lower, upper]: [&str; 2]) -> Vec<Field> {
    let mut fields: Vec<Field> =
        FIXED.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), false)).collect();
    fields.push(Field::new("checksum", ArrowType::UInt64, false));
    let key = schema.key_value_type().arrow();
    fields.push(Field::new(lower, key.clone(), true));
    fields.push(Field::new(upper, key, true));
    for (name, data_type) in known_columns(schema).map(|(index, data_type)| (&schema.columns()[index].name, data_type))
    {
        fields.push(Field::new(format!("min:{name}"), data_type.arrow(), true));
        fields.push(Field::new(format!("max:{name}"), data_type.arrow(), true));
        if data_type.is_float() {
            fields.push(Field::new(format!("nan:{name}"), ArrowType::UInt64, false));
        }
    }
    fields
}

/// Returns the columns that have statistics, and the types of these.
fn known_columns(schema: &Schema) -> impl Iterator<Item = (usize, DataType)> {
    (0..schema.columns().len()).filter_map(|index| schema.statistics_type(index).map(|data_type| (index, data_type)))
}

/// Converts an error of Arrow's encoder. Only a bug can cause such an error, since the arrays match the schema.
pub(super) fn refused(error: &ArrowError) -> Error {
    Error::Io { operation: "encode", path: "manifest".into(), source: std::io::Error::other(error.to_string()) }
}

/// Encodes a manifest, whose row groups have statistics of all columns.
pub(super) fn encode(manifest: &EpochManifest, schema: &Schema) -> Result<Vec<u8>> {
    let schema_with_notes = Arc::new(ArrowSchema::new_with_metadata(fields(schema, BOUNDS), notes(manifest)));
    let batch = RecordBatch::try_new(Arc::clone(&schema_with_notes), arrays(manifest, schema))
        .map_err(|error| refused(&error))?;
    let mut out = Vec::new();
    let mut writer = StreamWriter::try_new(&mut out, &schema_with_notes).map_err(|error| refused(&error))?;
    writer.write(&batch).and_then(|()| writer.finish()).map_err(|error| refused(&error))?;
    drop(writer);
    let checksum = xxh3_64(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(MANIFEST_MAGIC);
    Ok(out)
}

/// Returns the properties of the epoch, which are stored as metadata of the stream's schema.
fn notes(manifest: &EpochManifest) -> HashMap<String, String> {
    let part = |part: &PartEntry| {
        serde_json::json!([part.part.rank, part.part.roll, part.bytes, part.footer_offset, part.footer_checksum])
    };
    let parts: Vec<serde_json::Value> = manifest.parts.iter().map(part).collect();
    let mut notes = HashMap::from([
        ("turbidite.format_version".to_owned(), FormatVersion::V1.to_string()),
        ("turbidite.epoch".to_owned(), manifest.epoch.to_string()),
        ("turbidite.commit".to_owned(), manifest.commit.to_string()),
        ("turbidite.parts".to_owned(), serde_json::Value::Array(parts).to_string()),
        ("turbidite.figures".to_owned(), manifest.statistics.text()),
    ]);
    notes.extend(manifest.keys.text(manifest.row_groups.len()).map(|text| ("turbidite.keys".to_owned(), text)));
    notes
}

/// Returns the columns of [`fields`].
pub(super) fn arrays(manifest: &EpochManifest, schema: &Schema) -> Vec<ArrayRef> {
    let runs = &manifest.row_groups;
    let u32s = |pick: fn(&RowGroupEntry) -> u32| -> ArrayRef {
        Arc::new(runs.iter().map(|run| Some(pick(run))).collect::<PrimitiveArray<UInt32Type>>())
    };
    let u64s = |pick: fn(&RowGroupEntry) -> u64| -> ArrayRef {
        Arc::new(runs.iter().map(|run| Some(pick(run))).collect::<PrimitiveArray<UInt64Type>>())
    };
    let kinds = runs.iter().map(|run| Some(run.kind.code())).collect::<PrimitiveArray<UInt8Type>>();
    let mut arrays = vec![
        u32s(|run| run.part.rank),
        u32s(|run| run.part.roll),
        u32s(|run| run.run),
        u32s(|run| run.row_group),
        u64s(|run| run.offset),
        u64s(|run| run.bytes),
        u64s(|run| run.rows),
        Arc::new(kinds),
        u32s(|run| run.table_version),
        u64s(|run| run.checksum),
    ];
    let typed = |data_type: DataType, pick: &dyn Fn(&RowGroupEntry) -> Option<Value>| -> Option<ArrayRef> {
        with_arrow_type!(data_type, T => Some(numbers::<T>(runs.iter().map(pick))), otherwise None)
    };
    let key = schema.key_value_type();
    arrays.extend(typed(key, &|run| run.bounds.map(|bounds| bounds.0)));
    arrays.extend(typed(key, &|run| run.bounds.map(|bounds| bounds.1)));
    for (index, data_type) in known_columns(schema) {
        arrays.extend(typed(data_type, &|run| run.columns[index].range.map(|range| range.0)));
        arrays.extend(typed(data_type, &|run| run.columns[index].range.map(|range| range.1)));
        if data_type.is_float() {
            let counts = runs.iter().map(|run| Some(run.columns[index].nan_count));
            arrays.push(Arc::new(counts.collect::<PrimitiveArray<UInt64Type>>()));
        }
    }
    arrays
}

/// Decodes a manifest. `path` is the path of its file, for error messages.
pub(super) fn decode(bytes: Vec<u8>, path: &Path, schema: &Schema) -> Result<EpochManifest> {
    let corruption = |what: &str| Error::corruption(path, what);
    let covered = bytes
        .len()
        .checked_sub(TRAILER_BYTES)
        .map(|end| &bytes[..end])
        .filter(|_| bytes.ends_with(MANIFEST_MAGIC))
        .ok_or_else(|| corruption("it has no manifest trailer"))?;
    if bytes[covered.len()..covered.len() + 8] != xxh3_64(covered).to_le_bytes() {
        return Err(corruption("checksum mismatch"));
    }
    // Arrow's decoder panics on some forged streams with a valid checksum. These streams are reported as corrupt.
    let covered = covered.len();
    let stream = Buffer::from_vec(bytes).slice_with_length(0, covered);
    let (found, batches) = std::panic::catch_unwind(|| decode_stream(stream, schema))
        .unwrap_or_else(|_| Err("it is not an Arrow stream".to_owned()))
        .map_err(|what| corruption(&what))?;
    let notes = found.metadata();
    let version = notes.get("turbidite.format_version").and_then(|version| version.parse().ok());
    let version = version.ok_or_else(|| corruption("it has no format version"))?;
    if FormatVersion::stated(version, path)? != FormatVersion::V1 {
        return Err(corruption("it states another format version"));
    }
    let mut manifest = take_notes(notes).ok_or_else(|| corruption("the epoch's metadata cannot be decoded"))?;
    let batches: Option<Vec<StoredRowGroups>> =
        batches.iter().map(|batch| StoredRowGroups::of(batch, schema)).collect();
    let batches = batches.ok_or_else(|| corruption("a row group cannot be decoded"))?;
    if batches.iter().any(StoredRowGroups::has_excess_nans) {
        return Err(corruption("a row group has more NaN values than rows"));
    }
    manifest.row_groups = RowGroupEntries::stored(batches);
    manifest.check().map_err(corruption)?;
    Ok(manifest)
}

/// Decodes an Arrow IPC stream with the columns of a manifest. Returns its schema, whose metadata describes the epoch,
/// and its record batches.
fn decode_stream(mut buffer: Buffer, schema: &Schema) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !buffer.is_empty() {
        let before = buffer.len();
        match decoder.decode(&mut buffer) {
            Ok(batch) => batches.extend(batch),
            Err(error) => return Err(format!("it is not an Arrow stream: {error}")),
        }
        if buffer.len() == before {
            return Err("bytes follow the end of its Arrow stream".to_owned());
        }
    }
    decoder.finish().map_err(|error| format!("its Arrow stream is incomplete: {error}"))?;
    let found = decoder.schema().ok_or("it is empty")?;
    let expected = fields(schema, BOUNDS);
    let same = found.fields().len() == expected.len()
        && found
            .fields()
            .iter()
            .zip(&expected)
            .all(|(found, expected)| found.name() == expected.name() && found.data_type() == expected.data_type());
    if !same {
        return Err("its columns differ from the dataset's schema".to_owned());
    }
    Ok((found, batches))
}

/// Decodes the manifest except for its row groups.
fn take_notes(notes: &HashMap<String, String>) -> Option<EpochManifest> {
    let parts = notes.get("turbidite.parts")?;
    let parts = match take_parts(parts) {
        Some(parts) => parts,
        None => {
            let parts: Vec<(u32, u32, u64, u64, u64)> = serde_json::from_str(parts).ok()?;
            let part = |(rank, roll, bytes, footer_offset, footer_checksum)| {
                PartEntry::new(PartId { rank, roll }, bytes, footer_offset, footer_checksum)
            };
            parts.into_iter().map(part).collect()
        }
    };
    let statistics: EpochStatistics = serde_json::from_str(notes.get("turbidite.figures")?).ok()?;
    Some(EpochManifest {
        epoch: notes.get("turbidite.epoch")?.parse().ok()?,
        commit: notes.get("turbidite.commit")?.parse().ok()?,
        parts,
        partitions: None,
        indexed_commit: None,
        row_groups: RowGroupEntries::default(),
        // Key counts are parsed on first use. Most queries do not need them.
        keys: notes.get("turbidite.keys").cloned().map(KeyRangeCounts::stored).unwrap_or_default(),
        statistics,
    })
}

/// Parses the list of parts in the format of [`EpochManifest::notes`], `[[0,0,1,2,3],…]` with integers only. Returns
/// `None` for any other text, which the caller passes to the general JSON parser.
///
/// The list of 131,072 parts is several megabytes long, and a general parser takes several times as long as this one.
fn take_parts(text: &str) -> Option<Vec<PartEntry>> {
    let mut parts = Vec::with_capacity(text.len() / 32);
    let mut rest = text.as_bytes().strip_prefix(b"[")?;
    while let Some(fields) = rest.strip_prefix(b"[") {
        rest = fields;
        let mut numbers = [0u64; 5];
        for (place, number) in numbers.iter_mut().enumerate() {
            (*number, rest) = take_whole(rest)?;
            rest = rest.strip_prefix(if place < 4 { b"," } else { b"]" })?;
        }
        let [rank, roll, bytes, footer_offset, footer_checksum] = numbers;
        let part = PartId { rank: rank.try_into().ok()?, roll: roll.try_into().ok()? };
        parts.push(PartEntry::new(part, bytes, footer_offset, footer_checksum));
        match rest.strip_prefix(b",") {
            // A comma must be followed by another part.
            Some(next) if next.first() == Some(&b'[') => rest = next,
            Some(_) => return None,
            None => break,
        }
    }
    (rest == b"]").then_some(parts)
}

/// Parses a JSON integer. Returns the integer and the rest of the text.
fn take_whole(text: &[u8]) -> Option<(u64, &[u8])> {
    let (mut number, mut digits) = (0u64, 0);
    while let Some(digit) = text.get(digits).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        // Numbers of up to 19 digits always fit in a `u64`.
        number = match digits {
            0..19 => number * 10 + u64::from(digit),
            _ => number.checked_mul(10)?.checked_add(u64::from(digit))?,
        };
        digits += 1;
    }
    (digits == 1 || (digits > 1 && text[0] != b'0')).then(|| (number, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Fields = (u32, u32, u64, u64, u64);

    proptest! {
        /// The specialised parser returns the same parts as the general one, or `None`.
        #[test]
        fn parts_are_read_as_a_general_parser_does(
            parts in prop::collection::vec(any::<Fields>(), 0..20),
            change in prop::option::of((0usize..200, any::<u8>())),
        ) {
            let mut text = serde_json::to_string(&parts).unwrap().into_bytes();
            if let Some((place, byte)) = change {
                let place = place % text.len();
                text[place] = byte;
            }
            let Ok(text) = String::from_utf8(text) else { return Ok(()) };
            let expected: Option<Vec<Fields>> = serde_json::from_str(&text).ok();
            let found = take_parts(&text).map(|parts| -> Vec<Fields> {
                let fields = |part: &PartEntry| {
                    (part.part.rank, part.part.roll, part.bytes, part.footer_offset, part.footer_checksum)
                };
                parts.iter().map(fields).collect()
            });
            prop_assert!(found.is_none() || found == expected, "{}", text);
            prop_assert!(change.is_some() || found.is_some());
        }
    }
}
