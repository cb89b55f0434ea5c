//! Extrapolates the size of a manifest from an encoded sample.

use uuid::Uuid;

use crate::error::Result;
use crate::format::{
    ColumnStatistics, EpochManifest, EpochStatistics, FormatVersion, PageDirectory, PartEntry, PartId, RowGroupEntry,
    RunKind,
};
use crate::schema::Schema;

/// Number of parts and row groups in the encoded sample.
const SAMPLED: u32 = 256;

/// Number of pages of a row group in the encoded sample, as a memtable of 7 MiB has with records of 36 bytes.
const SAMPLED_PAGES: usize = 25;

/// Returns the size of the manifest of an epoch with `parts` and `row_groups`, in bytes.
///
/// # Errors
/// When a manifest cannot be encoded, which only a bug can cause.
pub fn manifest_bytes(schema: &Schema, parts: u64, row_groups: u64) -> Result<u64> {
    let empty = encoded_bytes(schema, 0, 0)?;
    let with_parts = encoded_bytes(schema, SAMPLED, 0)?;
    let with_groups = encoded_bytes(schema, SAMPLED, SAMPLED)?;
    let per_part = (with_parts - empty) as f64 / f64::from(SAMPLED);
    let per_group = (with_groups - with_parts) as f64 / f64::from(SAMPLED);
    Ok(empty + (parts as f64 * per_part + row_groups as f64 * per_group) as u64)
}

fn encoded_bytes(schema: &Schema, parts: u32, row_groups: u32) -> Result<u64> {
    // The list of parts is text, so the sample's numbers have as many digits as those of large jobs.
    let part = |number: u32| PartId { rank: 100_000 + number, roll: 0 };
    let summary = |column: &crate::schema::Column| ColumnStatistics {
        range: crate::schema::KeyOrder::new(column.data_type).map(crate::schema::KeyOrder::extremes),
        nan_count: 0,
    };
    let first_keys = Some(vec![0; SAMPLED_PAGES - 1]);
    let pages = PageDirectory { page_rows: 2048, first_keys, ..PageDirectory::default() };
    let run = |number: u32| RowGroupEntry {
        part: part(number),
        run: 0,
        row_group: 0,
        offset: 4,
        bytes: 1 << 20,
        rows: 1 << 17,
        kind: RunKind::Regular,
        table_version: 1,
        bounds: Some(schema.key_order().extremes()),
        checksum: u64::MAX,
        columns: schema.columns().iter().map(summary).collect(),
        pages: Some(pages.clone()),
    };
    let entry = |number: u32| PartEntry::new(part(number), 64 << 20, 63 << 20, u64::MAX);
    let statistics = EpochStatistics { rows_per_receiver: vec![1 << 20; parts as usize], ..EpochStatistics::default() };
    let manifest = EpochManifest {
        partitions: None,
        epoch: 1,
        commit: Uuid::nil(),
        parts: (0..parts).map(entry).collect(),
        row_groups: (0..row_groups).map(run).collect(),
        keys: Default::default(),
        statistics,
    };
    Ok(manifest.encode(schema, FormatVersion::LATEST)?.len() as u64)
}
