//! What ranks tell rank 0 when their parts are sealed, and how rank 0 makes the epoch's manifest of it.
//!
//! A rank's report is a manifest of its own parts, in the manifest's encoding, so no second format is needed.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::station::RankTraffic;
use crate::engine::{Engine, EngineFigures};
use crate::error::{Error, Result};
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

/// Joins the ranks' reports into the epoch's manifest. What a rank says is checked like a manifest that is read: it came by a
/// network, perhaps from another release.
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
        let origin = PathBuf::from(format!("report of rank {rank}"));
        let part = EpochManifest::decode(&payload, &origin, schema)?;
        if (part.epoch, part.commit) != (epoch, commit) {
            return Err(Error::damage(&origin, format!("it is of epoch {}, commit {}", part.epoch, part.commit)));
        }
        whole.parts.extend(part.parts);
        whole.runs.extend(part.runs);
        add(&mut sum, part.figures);
    }
    whole.check().map_err(|what| Error::damage(Path::new("reports of all ranks"), what))?;
    whole.figures = sum;
    Ok(whole)
}

/// Adds a rank's figures. They are for people; a sum too large for them must not end the program.
fn add(sum: &mut EpochFigures, figures: EpochFigures) {
    let pairs = [
        (&mut sum.rows, figures.rows),
        (&mut sum.strays, figures.strays),
        (&mut sum.spills, figures.spills),
        (&mut sum.nan_keys, figures.nan_keys),
        (&mut sum.messages, figures.messages),
        (&mut sum.forwarded, figures.forwarded),
        (&mut sum.bytes_written, figures.bytes_written),
    ];
    for (total, more) in pairs {
        *total = total.saturating_add(more);
    }
    sum.receivers = sum.receivers.saturating_add(figures.rows_per_receiver.len() as u32);
    sum.rows_per_receiver.extend(figures.rows_per_receiver);
    sum.renegotiations = sum.renegotiations.max(figures.renegotiations);
    sum.nodes = sum.nodes.max(figures.nodes);
    sum.most_recipients = sum.most_recipients.max(figures.most_recipients);
    sum.most_senders = sum.most_senders.max(figures.most_senders);
    sum.most_batch_bytes = sum.most_batch_bytes.max(figures.most_batch_bytes);
    sum.route_s += figures.route_s;
    sum.sort_s += figures.sort_s;
    sum.encode_s += figures.encode_s;
    sum.write_s += figures.write_s;
    sum.sync_s += figures.sync_s;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{PartEntry, PartId};
    use crate::schema::{Column, DataType};

    fn payload(rank: u32, part: u32, epoch: u64, schema: &Schema) -> (u32, Vec<u8>) {
        let figures = EpochFigures { rows: u64::MAX, messages: u64::MAX, ..EpochFigures::default() };
        let part = PartId { rank: part, roll: 0 };
        let parts = vec![PartEntry { part, bytes: 9, footer_offset: 4, footer_checksum: 0 }];
        let manifest = EpochManifest { epoch, commit: Uuid::from_u128(1), parts, runs: Vec::new(), figures };
        (rank, manifest.encode(schema).unwrap())
    }

    /// Sums of figures overflowed, and what ranks say together was not checked.
    #[test]
    fn reports_that_make_no_sense_together_are_refused() {
        let schema = Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap();
        let join = |payloads| join(&schema, 7, Uuid::from_u128(1), payloads);
        let whole = join(vec![payload(1, 1, 7, &schema), payload(0, 0, 7, &schema)]).unwrap();
        assert_eq!((whole.figures.rows, whole.figures.messages, whole.parts.len()), (u64::MAX, u64::MAX, 2));
        for (payloads, complaint) in [
            (vec![payload(0, 3, 7, &schema), payload(1, 3, 7, &schema)], "lists a part twice"),
            (vec![payload(0, 0, 8, &schema)], "it is of epoch 8"),
        ] {
            let error = join(payloads).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
