//! One rank of a parallel program whose peers send arbitrary messages. Every call returns a result or an error, and the
//! dataset stays consistent. Covers announcements, agreements, reports of other ranks, and outcomes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use turbidite::format::EpochManifest;
use turbidite::partition::{CutPoint, PartitionTable};
use turbidite::query::{Dataset, Query};
use turbidite::runtime::Process;
use turbidite::shuffle::{Channel, Sent, Transport};
use turbidite::storage::Storage;
use turbidite::{Column, ColumnView, EpochStart, IfExists, RankJob, Schema, WriteOptions};

use super::dataset;
use super::sample::{ROOT, Sample, mix, schema};
use super::script::Script;
use super::wire;

/// The peers' script, and the position in it. The transport fails at the script's end, so that no call waits.
struct Peers {
    bytes: Vec<u8>,
    at: usize,
    rank: u32,
    /// The session number in messages.
    session: u32,
    table_version: u32,
    /// Batches created by the script.
    batches: VecDeque<Vec<u8>>,
}

/// Returns the payload of a valid peer: an announcement as JSON, a report, or metrics.
fn payload(script: &mut Script<'_>) -> Vec<u8> {
    let text = |text: &str| text.as_bytes().to_vec();
    match script.byte() % 8 {
        0 => {
            let descriptor = dataset::sample().descriptor.encode().expect("it is JSON");
            text(&format!(r#"{{"Dataset":{{"descriptor":{descriptor:?},"receivers":2}}}}"#))
        }
        1 => text(&format!(r#"{{"Epoch":{{"epoch":5,"commit":{:?}}}}}"#, [7u8; 16])),
        2 => text(r#"{"Skipped":{"epoch":5}}"#),
        3 => text(r#"{"Truncated":{"epochs":[1,2]}}"#),
        4 => text(r#"{"Refused":{"class":"Failed","cause":"no"}}"#),
        5 => report(script),
        6 => text(r#"{"rows":18446744073709551615}"#),
        _ => script.long_chunk().to_vec(),
    }
}

/// Returns a rank's report: a manifest with some modified metrics.
fn report(script: &mut Script<'_>) -> Vec<u8> {
    let mut manifest: EpochManifest = dataset::sample().manifests[script.one_of(3)].clone();
    manifest.epoch = 5;
    for part in &mut manifest.parts {
        part.part.rank += 1;
    }
    for run in manifest.row_groups.to_mut() {
        run.part.rank += 1;
    }
    let value = script.long();
    match script.byte() % 6 {
        0 => manifest.metrics.rows = value,
        1 => (manifest.metrics.strays, manifest.metrics.messages) = (value, value),
        2 => manifest.metrics.rows_per_receiver = vec![value; 3],
        3 => manifest.parts.clear(),
        4 => manifest.row_groups.to_mut().iter_mut().for_each(|run| run.rows = value),
        _ => {}
    }
    manifest.encode(&schema()).expect("the columns fit")
}

impl Peers {
    fn table(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let cut = CutPoint { ordinal: 1 << 31, tie: 0 };
        PartitionTable::new(self.table_version, vec![cut]).expect("one cut is in order").encode(&mut bytes);
        bytes
    }

    /// Returns the next message if it is a control message.
    fn next(&mut self, script: &mut Script<'_>) -> Option<Vec<u8>> {
        match script.byte() % (wire::KINDS + 5) {
            // 15 to 18 are other events, so the last kind of message has number 19.
            byte @ (0..wire::KINDS | 19) => {
                let kind = byte.min(wire::KINDS);
                let (payload, table) = (payload(script), self.table());
                self.table_version += u32::from(kind == 6);
                Some(wire::control(kind, self.session, script, &table, &payload))
            }
            15 => {
                self.session = u32::from(script.byte());
                None
            }
            16 => {
                let row_bytes = schema().row_bytes();
                let rows = script.chunk();
                let count = rows.len() / row_bytes;
                let (version, rows) = (u32::from(script.byte() % 3), &rows[..count * row_bytes]);
                self.batches.push_back(wire::data(self.session, self.rank, version, count as u32, rows));
                None
            }
            17 => Some(script.chunk().to_vec()),
            _ => None,
        }
    }
}

impl Transport for Peers {
    fn send(&mut self, _to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        // Every other attempt to send a batch lacks credit.
        if channel != Channel::Control && self.at & 1 == 1 { Sent::NoCredit(message) } else { Sent::Accepted }
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        match channel {
            Channel::Data => self.batches.pop_front(),
            Channel::Control => {
                let bytes = std::mem::take(&mut self.bytes);
                let mut script = Script::new(&bytes[self.at..]);
                let message = if script.is_over() { None } else { self.next(&mut script) };
                self.at = bytes.len() - script.left();
                self.bytes = bytes;
                message
            }
            Channel::Outward | Channel::Across => None,
        }
    }

    fn failure(&self) -> Option<&str> {
        (self.at == self.bytes.len()).then_some("the script is over")
    }
}

/// Returns scripts for a leaf that receives all expected messages, and for a root whose child replies.
pub fn seeds() -> Vec<Vec<u8>> {
    let leaf = b"\x01\x02\x00\x01\x0f\x01\x0d\x02\x01\x0f\x02\x02\x01\x01\x03\x07\x01\x06\x07\x00\x01\x08\x01\x0a\x0d\x06\x01\x01\x01\x01".to_vec();
    let root = b"\x00\x01\x00\x07\x07\x00\x0b\x07\x01\x01\x01\x0f\x02\x01\x07\x07\x07\x00\x09\x07\x01\x00\x0b\x05\x00\x00\x00\x00\x00\x00\x01\x01\x01\x01".to_vec();
    let report = |number: u8| [&root[..17], &[number], &root[18..]].concat();
    vec![leaf, root.clone(), report(3), report(5)]
}

/// Runs one of two ranks, from opening to closing, until its peers' script ends.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let rank = u32::from(script.byte() & 1);
    let calls = script.byte();
    let bytes = script.rest().to_vec();
    let memory = Sample::storage(&dataset::sample().files);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let peers = Peers { bytes, at: 0, rank, session: 1, table_version: 1, batches: VecDeque::new() };
    // The calls return a result or an error for any behaviour of the peers.
    let _ = calls_of(storage, rank, calls, peers);
    let memory: Arc<dyn Storage> = Arc::new(memory);
    let rows = |epoch: u64| dataset::sample().records.iter().filter(|record| record.epoch == epoch).count() as u64;
    let dataset = Dataset::open_with(memory, ROOT).expect("the dataset is there");
    let (found, _) = dataset.count(&Query::new().threads(1).epochs(1)).expect("what was committed before can be read");
    assert_eq!(found, rows(1));
}

/// Makes a program's calls: opens the dataset, writes epochs, appends records, and truncates.
fn calls_of(storage: Arc<dyn Storage>, rank: u32, calls: u8, peers: Peers) -> turbidite::Result<()> {
    let mut options = WriteOptions::new(2);
    options.if_exists = IfExists::Replace;
    options.credit_timeout = Duration::ZERO;
    options.stall_limit = Some(Duration::from_secs(2));
    options.memtable_bytes = 1 << 12;
    options.pivots = 4;
    options.derivations = dataset::sample().descriptor.derivations.clone();
    let schema = Schema::clone(&schema());
    let mut job = RankJob::open_on(Arc::new(Process::new()), storage, ROOT, schema, options, rank, Box::new(peers))?;
    for epoch in 5..8 {
        if job.begin_epoch(epoch)? == EpochStart::Skipped {
            continue;
        }
        let rows: Vec<u8> = (0..u64::from(calls >> 2) * 21).map(|byte| mix(byte) as u8).collect();
        append(&mut job, &rows)?;
        if calls & 1 == 1 {
            job.renegotiate()?;
        }
        job.progress()?;
        job.end_epoch()?;
    }
    if calls & 2 == 2 {
        job.truncate_after(40)?;
    }
    job.close()
}

/// Appends stored rows.
fn append(job: &mut RankJob, rows: &[u8]) -> turbidite::Result<()> {
    let schema = schema();
    let row_bytes = schema.row_bytes();
    let view = |(index, column): (usize, &Column)| {
        let start = schema.offset(index).min(rows.len());
        ColumnView::new(&rows[start..], row_bytes, rows.len() / row_bytes, column.data_type)
    };
    let views = schema.columns().iter().enumerate().map(view).collect::<Result<Vec<_>, _>>()?;
    job.append(&views)
}
