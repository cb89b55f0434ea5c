//! Combines all ranks' reports on their sealed parts to the epoch's manifest, on rank 0.
//!
//! A rank's report contains the number of its partition and the number of records that it received, followed by a
//! manifest of its own parts in the manifest's encoding. On the way up the tree, the reports of a subtree are merged
//! into one ([`merge`]), so that rank 0 reads few reports for any number of ranks.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::exchange_metrics::ExchangeMetrics;
use crate::error::{Error, Result};
use crate::format::{EpochManifest, EpochMetrics, MAX_RANGE_COUNTS, RunKind};
use crate::schema::{Clustering, OutOfRange, Schema};
use crate::shuffle::{Engine, EngineMetrics, MessageError, Payloads};
use crate::writer::Outcome;

/// Bytes of a partition and its record count in a report. The number of partitions precedes these pairs.
const LOAD_BYTES: usize = 12;

/// The report of one rank or of several.
#[derive(Debug)]
struct Report {
    /// Partitions, each with the number of records that it received.
    loads: Vec<(u32, u64)>,
    /// The parts and row groups. The manifest's metrics contain no loads.
    manifest: EpochManifest,
}

impl Report {
    fn encode(&self, schema: &Schema) -> Result<Vec<u8>> {
        let mut bytes = (self.loads.len() as u32).to_le_bytes().to_vec();
        for (partition, rows) in &self.loads {
            bytes.extend_from_slice(&partition.to_le_bytes());
            bytes.extend_from_slice(&rows.to_le_bytes());
        }
        bytes.extend(self.manifest.encode(schema)?);
        Ok(bytes)
    }

    fn decode(bytes: &[u8], rank: u32, schema: &Schema) -> Result<Self> {
        let short = || Error::Message { rank, source: MessageError::Short };
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
        let loads_bytes = (u32::from_le_bytes(*count) as usize).checked_mul(LOAD_BYTES).ok_or_else(short)?;
        let (loads, manifest) = rest.split_at_checked(loads_bytes).ok_or_else(short)?;
        let (loads, _) = loads.as_chunks::<LOAD_BYTES>();
        let load = |raw: &[u8; LOAD_BYTES]| {
            let [a, b, c, d, rows @ ..] = *raw;
            (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(rows))
        };
        let manifest = EpochManifest::decode(manifest.to_vec(), &origin_of(rank), schema)?;
        Ok(Self { loads: loads.iter().map(load).collect(), manifest })
    }
}

/// Encodes one rank's part of the manifest. `own` has the metrics that neither the engine nor the writer knows.
pub(super) fn report(
    schema: &Schema,
    epoch: u64,
    commit: Uuid,
    engine: &Engine,
    traffic: ExchangeMetrics,
    own: EpochMetrics,
    outcome: Outcome,
) -> Result<Vec<u8>> {
    let EngineMetrics { delivered, strays, messages, tables, .. } = engine.metrics();
    // Counts records as stored: spilled records with NaN keys are in runs of their own.
    let stored = |kind| outcome.runs.iter().filter(|run| run.kind == kind).map(|run| run.rows).sum();
    let (spills, nan_keys) = (stored(RunKind::Unordered), stored(RunKind::NanKey));
    let metrics = EpochMetrics {
        ranks: 1,
        receivers: u32::from(engine.partition().is_some()),
        expected_rows: engine.expected_rows().unwrap_or(0),
        part_bytes: engine.options().part_bytes,
        rows: delivered,
        strays,
        spills,
        nan_keys,
        renegotiations: tables,
        messages,
        nodes: engine.options().topology.node_count() as u32,
        most_recipients: traffic.recipients,
        most_senders: traffic.senders,
        forwarded: traffic.forwarded,
        most_batch_bytes: traffic.batch_bytes,
        bytes_written: outcome.metrics.bytes_written,
        sort_s: outcome.metrics.sort_s,
        encode_s: outcome.metrics.encode_s,
        write_s: outcome.metrics.write_s,
        sync_s: outcome.metrics.sync_s,
        ..own
    };
    let load = engine.partition().map(|partition| (partition, engine.metrics().received()));
    let Outcome { mut parts, runs, mut keys, .. } = outcome;
    let by_hash = schema.clustering() == Clustering::Hash;
    parts.iter_mut().for_each(|part| part.partition = engine.partition().filter(|_| by_hash));
    let partitions = by_hash.then(|| engine.partitions());
    keys.condense_for(engine.options().ranks);
    let row_groups = runs.into();
    let manifest = EpochManifest { parts, partitions, row_groups, keys, metrics, ..EpochManifest::new(epoch, commit) };
    Report { loads: load.into_iter().collect(), manifest }.encode(schema)
}

/// Merges the reports of several ranks into one. Some of the reports may already be merged.
pub(super) fn merge(schema: &Schema, payloads: Payloads) -> Result<Vec<u8>> {
    match join_reports(schema, payloads)? {
        Some(report) => report.encode(schema),
        None => Ok(Vec::new()),
    }
}

/// Combines the ranks' reports to the epoch's manifest. Reports are validated like a manifest read from storage, since
/// they arrive over a network and may come from another release.
pub(super) fn join(schema: &Schema, epoch: u64, commit: Uuid, payloads: Payloads) -> Result<EpochManifest> {
    let nothing = || Report { loads: Vec::new(), manifest: EpochManifest::new(epoch, commit) };
    let Report { mut loads, manifest } = join_reports(schema, payloads)?.unwrap_or_else(nothing);
    let origin = Path::new("reports of all ranks");
    if (manifest.epoch, manifest.commit) != (epoch, commit) {
        let found = format!("they are of epoch {}, commit {}", manifest.epoch, manifest.commit);
        return Err(Error::corruption(origin, found));
    }
    loads.sort_unstable_by_key(|&(partition, _)| partition);
    let rows_per_receiver = loads.into_iter().map(|(_, rows)| rows).collect();
    let EpochManifest { mut parts, partitions, mut row_groups, keys, metrics, .. } = manifest;
    // The ranks of a subtree are not consecutive.
    parts.sort_unstable_by_key(|part| part.part);
    row_groups.to_mut().sort_by_key(|entry| (entry.part, entry.offset));
    let metrics = EpochMetrics { rows_per_receiver, ..metrics };
    let whole = EpochManifest { parts, partitions, row_groups, keys, metrics, ..EpochManifest::new(epoch, commit) };
    whole.check().map_err(|what| Error::corruption(origin, what))?;
    Ok(whole)
}

/// Combines several reports to one, in any order. Returns `None` if there are none, as in sessions without records.
fn join_reports(schema: &Schema, payloads: Payloads) -> Result<Option<Report>> {
    let mut whole: Option<Report> = None;
    for (rank, payload) in payloads {
        if payload.is_empty() {
            continue;
        }
        let mut part = Report::decode(&payload, rank, schema)?;
        // The key distribution follows from a rank's row groups if they contain as much detail as the rank has.
        part.manifest.keys = part.manifest.range_counts(schema.key_index(), schema).into();
        let Some(Report { loads, manifest }) = &mut whole else {
            whole = Some(part);
            continue;
        };
        if (part.manifest.epoch, part.manifest.commit) != (manifest.epoch, manifest.commit) {
            let found = format!("it is of epoch {}, commit {}", part.manifest.epoch, part.manifest.commit);
            return Err(Error::corruption(&origin_of(rank), found));
        }
        if part.manifest.partitions != manifest.partitions {
            let found =
                format!("it states {:?} partitions, others {:?}", part.manifest.partitions, manifest.partitions);
            return Err(Error::corruption(&origin_of(rank), found));
        }
        loads.extend(part.loads);
        manifest.parts.extend(part.manifest.parts);
        manifest.row_groups.extend(part.manifest.row_groups);
        manifest.keys.extend(part.manifest.keys.take(), MAX_RANGE_COUNTS);
        add(&mut manifest.metrics, &part.manifest.metrics);
    }
    Ok(whole)
}

/// Returns a substitute for a path, for errors about a rank's report.
fn origin_of(rank: u32) -> PathBuf {
    PathBuf::from(format!("report of rank {rank}"))
}

/// Adds the metrics of other ranks. The sums saturate, since metrics are informational.
fn add(sum: &mut EpochMetrics, metrics: &EpochMetrics) {
    let pairs = [
        (&mut sum.rows, metrics.rows),
        (&mut sum.strays, metrics.strays),
        (&mut sum.spills, metrics.spills),
        (&mut sum.nan_keys, metrics.nan_keys),
        (&mut sum.messages, metrics.messages),
        (&mut sum.forwarded, metrics.forwarded),
        (&mut sum.bytes_written, metrics.bytes_written),
    ];
    for (total, more) in pairs {
        *total = total.saturating_add(more);
    }
    OutOfRange::add(&mut sum.out_of_range, &metrics.out_of_range);
    sum.ranks = sum.ranks.saturating_add(metrics.ranks);
    sum.receivers = sum.receivers.saturating_add(metrics.receivers);
    sum.expected_rows = sum.expected_rows.max(metrics.expected_rows);
    sum.part_bytes = sum.part_bytes.max(metrics.part_bytes);
    sum.renegotiations = sum.renegotiations.max(metrics.renegotiations);
    sum.nodes = sum.nodes.max(metrics.nodes);
    sum.most_recipients = sum.most_recipients.max(metrics.most_recipients);
    sum.most_senders = sum.most_senders.max(metrics.most_senders);
    sum.most_batch_bytes = sum.most_batch_bytes.max(metrics.most_batch_bytes);
    sum.route_s += metrics.route_s;
    sum.sort_s += metrics.sort_s;
    sum.encode_s += metrics.encode_s;
    sum.write_s += metrics.write_s;
    sum.sync_s += metrics.sync_s;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ColumnStatistics, PageDirectory, PartEntry, PartId, RangeCount, RowGroupEntry};
    use crate::schema::{Column, DataType, Value};

    fn payload(rank: u32, part: u32, epoch: u64, schema: &Schema) -> (u32, Vec<u8>) {
        let metrics =
            EpochMetrics { ranks: 1, receivers: 1, rows: u64::MAX, messages: u64::MAX, ..EpochMetrics::default() };
        let part = PartId { rank: part, roll: 0 };
        let parts = vec![PartEntry::new(part, 9, 4, 0)];
        let manifest = EpochManifest { parts, metrics, ..EpochManifest::new(epoch, Uuid::from_u128(1)) };
        (rank, Report { loads: vec![(rank, u64::from(rank) + 5)], manifest }.encode(schema).unwrap())
    }

    fn schema() -> Schema {
        Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap()
    }

    /// Found when sums of metrics overflowed and reports were not compared with each other.
    #[test]
    fn reports_that_make_no_sense_together_are_refused() {
        let schema = schema();
        let join = |payloads| join(&schema, 7, Uuid::from_u128(1), payloads);
        let whole = join(vec![payload(1, 1, 7, &schema), payload(0, 0, 7, &schema)]).unwrap();
        assert_eq!((whole.metrics.rows, whole.metrics.messages, whole.parts.len()), (u64::MAX, u64::MAX, 2));
        for (payloads, complaint) in [
            (vec![payload(0, 3, 7, &schema), payload(1, 3, 7, &schema)], "lists a part twice"),
            (vec![payload(0, 0, 8, &schema)], "they are of epoch 8"),
            (
                vec![payload(0, 0, 7, &schema), payload(1, 1, 8, &schema)],
                "report of rank 1 is corrupt: it is of epoch 8",
            ),
        ] {
            let error = join(payloads).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
        let (rank, whole) = payload(3, 3, 7, &schema);
        for cut in [0, 3, 4, 15] {
            let short = join(vec![(rank, whole[..cut].to_vec())]);
            // A session without records has an empty report.
            assert_eq!(short.is_ok(), cut == 0, "{cut}");
        }
        let mut endless = whole;
        endless[..4].fill(0xFF);
        assert!(join(vec![(rank, endless)]).is_err());
    }

    /// The ranks of a subtree are not consecutive, and subtrees merge in any shape.
    #[test]
    fn reports_joined_on_their_way_are_those_of_all_ranks() {
        let schema = schema();
        let report = |rank| payload(rank, rank, 7, &schema);
        let low = merge(&schema, vec![report(0), report(3)]).unwrap();
        let high = merge(&schema, vec![report(2), report(4), (5, Vec::new())]).unwrap();
        let both = merge(&schema, vec![(2, high), (0, low)]).unwrap();
        let whole = join(&schema, 7, Uuid::from_u128(1), vec![(0, both), report(1)]).unwrap();
        let parts: Vec<u32> = whole.parts.iter().map(|part| part.part.rank).collect();
        assert_eq!(parts, [0, 1, 2, 3, 4]);
        assert_eq!(whole.metrics.rows_per_receiver, [5, 6, 7, 8, 9]);
        assert_eq!((whole.metrics.ranks, whole.metrics.receivers), (5, 5));
    }

    /// For a rank without its own key distribution, the row groups count its keys.
    #[test]
    fn the_keys_of_all_ranks_are_counted() {
        let schema = schema();
        let report = |rank: u32, keys: Vec<RangeCount>| {
            let (_, bytes) = payload(rank, rank, 7, &schema);
            let mut report = Report::decode(&bytes, rank, &schema).unwrap();
            let part = PartId { rank, roll: 0 };
            report.manifest.parts[0].bytes = 5000;
            report.manifest.parts[0].footer_offset = 4500;
            let range = Some((Value::Int(0), Value::Int(99)));
            report.manifest.row_groups.to_mut().push(RowGroupEntry {
                part,
                level: 0,
                intervals: None,
                run: 0,
                row_group: 0,
                offset: 4,
                bytes: 4000,
                rows: 100,
                kind: RunKind::Regular,
                table_version: 1,
                bounds: None,
                checksum: 0,
                columns: vec![ColumnStatistics { range, nan_count: 0 }].into(),
                pages: PageDirectory::default(),
            });
            report.manifest.keys = keys.into();
            (rank, report.encode(&schema).unwrap())
        };
        let pages =
            |first| vec![RangeCount { least: first, most: 49, rows: 50 }, RangeCount { least: 50, most: 99, rows: 50 }];
        let low = merge(&schema, vec![report(0, pages(0)), report(1, Vec::new())]).unwrap();
        let whole = join(&schema, 7, Uuid::from_u128(1), vec![report(2, pages(3)), (0, low)]).unwrap();
        let keys = whole.range_counts(0, &schema);
        assert_eq!(keys, whole.keys.get(), "they fit the row groups");
        assert_eq!(keys.iter().map(|range_count| range_count.rows).sum::<u64>(), 300);
        assert!(
            keys.contains(&RangeCount { least: 0, most: 99, rows: 100 })
                && keys.contains(&RangeCount { least: 3, most: 49, rows: 50 })
        );
    }
}
