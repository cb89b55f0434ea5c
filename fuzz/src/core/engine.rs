//! An engine whose peers send arbitrary messages. The result is an error, never a panic, and memory stays within the
//! limits of the buffers. The calls between the messages are those of a driver.

use std::collections::VecDeque;
use std::sync::Arc;

use turbidite::format::RunKind;
use turbidite::partition::{CutPoint, PartitionTable};
use turbidite::shuffle::{Channel, Engine, EngineOptions, Event, Sent, Spill, Transport};
use turbidite::{Column, ColumnView, DataType, Schema, Topology};

use super::script::Script;
use super::wire;

/// Places of the engine: rank, number of ranks and number of nodes.
const PLACES: [(u32, u32, u32); 6] = [(0, 1, 1), (0, 3, 1), (2, 3, 1), (1, 9, 1), (1, 9, 3), (0, 6, 2)];

/// Limit of the buffers in bytes, with ample margin: the outbox, held records and buffered batches.
const MAX_RESIDENT_BYTES: usize = 8 << 20;

/// Maximum number of messages besides batches that one step of the engine may send.
const MAX_CONTROL: usize = 64;

/// The arrived messages, and the state of sending.
#[derive(Debug, Default)]
struct Post {
    arrived: [VecDeque<Vec<u8>>; Channel::COUNT],
    credit: bool,
    control_sent: usize,
}

impl Transport for Post {
    fn send(&mut self, _to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        if channel == Channel::Control {
            self.control_sent += 1;
        } else if !self.credit {
            return Sent::NoCredit(message);
        }
        Sent::Accepted
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        self.arrived[channel as usize].pop_front()
    }
}

fn schema() -> Arc<Schema> {
    let columns = vec![Column::new("key", DataType::F32), Column::new("id", DataType::U16)];
    Arc::new(Schema::new(columns, "key").expect("it is a schema"))
}

/// Returns a job without failures, once as seen from a rank with a parent and once from a rank with children.
pub fn seeds() -> Vec<Vec<u8>> {
    let leaf: Vec<u8> = [
        &[2, 1][..],      // place and credit
        &[0],             // begin
        &[3, 2, 1, 0],    // Go
        &[1, 40],         // append
        &[3, 4, 1, 1],    // Begin table 1
        &[3, 6, 9, 1],    // Table
        &[4, 1, 0, 1, 2], // two records
        &[2],             // end
        &[3, 8, 1],       // Probe
        &[3, 10, 2],      // Closed
        &[3, 13, 1],      // Outcome
    ]
    .concat();
    let root: Vec<u8> = [
        &[1, 1][..],
        &[0],
        &[3, 1],
        &[3, 1], // Ready from both children
        &[1, 200],
        &[7], // ask for a table
        &[3, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1],
        &[3, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1],
        &[2],
        &[3, 7, 0, 0, 254, 0, 0, 1],
        &[3, 7, 0, 0, 254, 0, 0, 1],
        &[3, 9, 1, 0],
        &[3, 9, 1, 0],
        &[5],
        &[3, 11, 1, 1, 1],
        &[3, 11, 1, 2, 1],
    ]
    .concat();
    let node: Vec<u8> =
        [&[4, 1, 0][..], &[3, 2, 1, 0], &[4, 2, 0, 0, 3], &[4, 3, 0, 0, 3], &[1, 9], &[2], &[6]].concat();
    vec![leaf, root, node]
}

/// An engine, and the state of its driver.
struct Job {
    engine: Engine,
    post: Post,
    session: u32,
    /// Whether an epoch is in progress, from its beginning to its outcome.
    busy: bool,
    delivered: u64,
}

/// Runs a driver and its peers, controlled by a script.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let (rank, ranks, nodes) = PLACES[usize::from(script.byte()) % PLACES.len()];
    let credit = script.byte() & 1 == 1;
    let labels: Vec<u32> = (0..ranks).map(|rank| rank * nodes / ranks).collect();
    let topology = if nodes == 1 { Topology::one_node() } else { Topology::from_nodes(&labels) };
    let options = EngineOptions { batch_bytes: 64, pivots: 8, topology, ..EngineOptions::new(rank, ranks) };
    let engine = Engine::new(options, schema());
    let post = Post { credit, ..Post::default() };
    let mut job = Job { engine, post, session: 0, busy: false, delivered: 0 };
    while !script.is_over() {
        if !job.step(&mut script) || !job.exchange() {
            // An invalid message ends the job.
            return;
        }
    }
}

impl Job {
    /// Makes one call of the driver, or delivers one message of a peer. Returns false when nothing more can happen.
    fn step(&mut self, script: &mut Script<'_>) -> bool {
        match script.byte() % 9 {
            0 if !self.busy => {
                self.engine.begin(b"words".to_vec());
                (self.busy, self.delivered) = (true, 0);
                self.session += 1;
            }
            1 if self.engine.is_open() => self.append(script),
            2 if self.engine.is_open() => self.engine.end(),
            3 => {
                let kind = script.byte() % (wire::KINDS + 2);
                let message = wire::control(kind, self.session, script, &self.table(), b"{}");
                self.post.arrived[Channel::Control as usize].push_back(message);
            }
            4 => self.data(script),
            5 => self.engine.idle(),
            6 if self.busy => {
                let delivered = &mut self.delivered;
                self.engine.spill(Spill::Oldest, &mut |_: RunKind, rows: &[u8]| *delivered += count(rows));
            }
            7 if self.busy => self.engine.request_renegotiation(),
            8 => {
                let message = script.chunk().to_vec();
                self.post.arrived[usize::from(script.byte()) % Channel::COUNT].push_back(message);
                self.post.credit = script.byte() & 1 == 0;
            }
            _ => {}
        }
        true
    }

    fn append(&mut self, script: &mut Script<'_>) {
        let rows = usize::from(script.byte());
        let keys: Vec<u8> = (0..rows).flat_map(|row| (row as f32 * 1.5).to_le_bytes()).collect();
        let ids = vec![1; 2 * rows];
        let view =
            |bytes, data_type: DataType| ColumnView::new(bytes, data_type.width(), rows, data_type).expect("fits");
        let columns = [view(&keys, DataType::F32), view(&ids, DataType::U16)];
        let mut append = self.engine.append(&columns).expect("they fit");
        for _ in 0..4 {
            if append.is_done() || !self.engine.is_open() {
                return;
            }
            self.engine.advance(&mut append);
            if !self.exchange() {
                return;
            }
        }
    }

    /// Returns a table that may be the next one.
    fn table(&self) -> Vec<u8> {
        let receivers = self.engine.options().receivers;
        let cuts = (1..receivers).map(|cut| CutPoint { ordinal: (u64::from(cut) + 8) << 28, tie: 0 }).collect();
        let mut bytes = Vec::new();
        let table = PartitionTable::new(self.engine.table_version().wrapping_add(1), cuts).expect("they ascend");
        table.encode(&mut bytes);
        bytes
    }

    fn data(&mut self, script: &mut Script<'_>) {
        let channel = usize::from(script.byte()) % Channel::COUNT;
        let version = u32::from(script.byte());
        let destination = self.engine.options().rank + u32::from(script.byte() & 3 == 3);
        let rows = u32::from(script.byte());
        let forwarded = channel == Channel::Outward as usize || channel == Channel::Across as usize;
        let mut content = Vec::new();
        for row in 0..rows {
            if forwarded {
                content.extend_from_slice(&(u32::from(script.byte()) % 12).to_le_bytes());
            }
            content.extend_from_slice(&script.word().to_le_bytes());
            content.extend_from_slice(&(row as u16).to_le_bytes());
        }
        let message = wire::data(self.session, destination, version, rows, &content);
        self.post.arrived[channel].push_back(message);
    }

    /// Exchanges messages until none moves, as a driver does. Returns false if the engine refused a message.
    fn exchange(&mut self) -> bool {
        loop {
            let delivered = &mut self.delivered;
            self.post.control_sent = 0;
            let moved = self.engine.exchange(&mut self.post, &mut |_: RunKind, rows: &[u8]| *delivered += count(rows));
            let Ok(moved) = moved else { return false };
            assert!(self.post.control_sent <= MAX_CONTROL * 16, "{} control messages at once", self.post.control_sent);
            assert!(self.engine.resident_bytes() < MAX_RESIDENT_BYTES, "{} bytes", self.engine.resident_bytes());
            assert_eq!(
                self.engine.metrics().delivered,
                self.delivered,
                "every record that was counted was handed over"
            );
            let mut events = 0;
            while let Some(event) = self.engine.event() {
                events += 1;
                self.act(event);
            }
            if !moved && events == 0 {
                return true;
            }
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Opened { .. } => {}
            Event::Closed => self.engine.sealed(Ok(b"{}".to_vec())),
            Event::Gathered { payloads } => self.engine.finish(payloads.map(|_| b"{}".to_vec())),
            Event::Over { .. } => self.busy = false,
        }
    }
}

/// Returns the number of records in stored rows.
fn count(rows: &[u8]) -> u64 {
    assert!(rows.len().is_multiple_of(schema_row_bytes()), "whole rows");
    (rows.len() / schema_row_bytes()) as u64
}

/// Returns the size of a row: four bytes of key and two bytes of ID.
const fn schema_row_bytes() -> usize {
    6
}
