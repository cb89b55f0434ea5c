//! What ranks tell rank 0 when their parts are sealed, and how rank 0 makes the epoch's manifest of it.
//!
//! A rank's report is a manifest of its own parts, in the manifest's encoding, so no second format is needed.

use std::path::Path;

use uuid::Uuid;

use super::station::RankTraffic;
use crate::engine::{Engine, EngineFigures};
use crate::error::Result;
use crate::format::{EpochFigures, EpochManifest, RunKind};
use crate::schema::Schema;
use crate::writer::Outcome;

/// Encodes one rank's part of the manifest.
pub(super) fn report(
    schema: &Schema,
    epoch: u64,
    commit: Uuid,
    engine: &Engine,
    traffic: RankTraffic,
    route_s: f64,
    outcome: Outcome,
) -> Result<Vec<u8>> {
    let EngineFigures { delivered, strays, messages, tables, .. } = engine.figures();
    // As they are stored: of the records that were kept back, those whose key is no number are in runs of their own.
    let stored = |kind| outcome.runs.iter().filter(|run| run.kind == kind).map(|run| run.rows).sum();
    let (spills, nan_keys) = (stored(RunKind::Unordered), stored(RunKind::NanKey));
    let figures = EpochFigures {
        rows: delivered,
        rows_per_receiver: engine.options().partition().map(|_| engine.figures().received()).into_iter().collect(),
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
        bytes_written: outcome.figures.bytes_written,
        route_s,
        sort_s: outcome.figures.sort_s,
        encode_s: outcome.figures.encode_s,
        write_s: outcome.figures.write_s,
        sync_s: outcome.figures.sync_s,
        ..EpochFigures::default()
    };
    EpochManifest { epoch, commit, parts: outcome.parts, runs: outcome.runs, figures }.encode(schema)
}

/// Joins the ranks' reports into the epoch's manifest.
pub(super) fn join(
    schema: &Schema,
    epoch: u64,
    commit: Uuid,
    mut payloads: Vec<(u32, Vec<u8>)>,
) -> Result<EpochManifest> {
    payloads.sort_unstable_by_key(|&(rank, _)| rank);
    let mut sum = EpochFigures { ranks: payloads.len() as u32, ..EpochFigures::default() };
    let mut whole =
        EpochManifest { epoch, commit, parts: Vec::new(), runs: Vec::new(), figures: EpochFigures::default() };
    for (rank, payload) in payloads {
        let origin = format!("report of rank {rank}");
        let part = EpochManifest::decode(&payload, Path::new(&origin), schema)?;
        whole.parts.extend(part.parts);
        whole.runs.extend(part.runs);
        let figures = part.figures;
        sum.receivers += figures.rows_per_receiver.len() as u32;
        sum.rows_per_receiver.extend(figures.rows_per_receiver);
        sum.rows += figures.rows;
        sum.strays += figures.strays;
        sum.spills += figures.spills;
        sum.nan_keys += figures.nan_keys;
        sum.renegotiations = sum.renegotiations.max(figures.renegotiations);
        sum.messages += figures.messages;
        sum.nodes = sum.nodes.max(figures.nodes);
        sum.most_recipients = sum.most_recipients.max(figures.most_recipients);
        sum.most_senders = sum.most_senders.max(figures.most_senders);
        sum.forwarded += figures.forwarded;
        sum.most_batch_bytes = sum.most_batch_bytes.max(figures.most_batch_bytes);
        sum.bytes_written += figures.bytes_written;
        sum.route_s += figures.route_s;
        sum.sort_s += figures.sort_s;
        sum.encode_s += figures.encode_s;
        sum.write_s += figures.write_s;
        sum.sync_s += figures.sync_s;
    }
    whole.figures = sum;
    Ok(whole)
}
