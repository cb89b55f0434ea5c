//! Extrapolates the size of a manifest from an encoded sample.

use turbidite::format::{
    ColumnStatistics, EpochManifest, EpochMetrics, PageDirectory, PartEntry, PartId, RowGroupEntry, RunKind,
};
use turbidite::{Clustering, Column, KeyOrder, Result, Schema};
use uuid::Uuid;

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
    let summary = |column: &Column| ColumnStatistics {
        range: KeyOrder::new(column.data_type).map(KeyOrder::extremes),
        nan_count: 0,
    };
    let by_hash = schema.clustering() == Clustering::Hash;
    let by_range = schema.clustering() == Clustering::Range;
    // Pages of a dataset that is clustered by hash have a quarter of the rows.
    let (page_rows, sampled_pages, filter_bytes) =
        if by_hash { (512, 4 * SAMPLED_PAGES, 1 << 16) } else { (2048, SAMPLED_PAGES, 0) };
    let first_keys = (by_hash || by_range).then(|| vec![0; sampled_pages - 1]);
    let pages = PageDirectory { page_rows, first_keys, filter_bytes, ..PageDirectory::default() };
    let run = |number: u32| RowGroupEntry {
        level: 0,
        intervals: None,
        part: part(number),
        run: 0,
        row_group: 0,
        offset: 4,
        bytes: 1 << 20,
        rows: 1 << 17,
        kind: RunKind::Regular,
        table_version: 1,
        bounds: by_range.then(|| schema.key_order().extremes()),
        checksum: u64::MAX,
        columns: schema.columns().iter().map(summary).collect(),
        pages: pages.clone(),
    };
    let entry = |number: u32| PartEntry {
        filter_offset: by_hash.then_some(62 << 20),
        partition: by_hash.then_some(number),
        ..PartEntry::new(part(number), 64 << 20, 63 << 20, u64::MAX)
    };
    let metrics = EpochMetrics { rows_per_receiver: vec![1 << 20; parts as usize], ..EpochMetrics::default() };
    let manifest = EpochManifest {
        partitions: by_hash.then_some(parts),
        epoch: 1,
        commit: Uuid::nil(),
        indexed_commit: None,
        attributes: Default::default(),
        parts: (0..parts).map(entry).collect(),
        row_groups: (0..row_groups).map(run).collect(),
        keys: Default::default(),
        metrics,
    };
    Ok(manifest.encode(schema)?.len() as u64)
}
