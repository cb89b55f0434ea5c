//! The path of a record: from the application's columns to a batch, and from a batch to `deliver`.
//!
//! Columns are packed into stored rows one block at a time, unless the caller's records already have the stored layout.
//! A block fits the first-level cache. Each row is then copied to its destination's open batch. Large appends take
//! their blocks in stratified random order (`partition::sample_order`), so that every prefix of the sequence samples
//! the whole domain. The tables are then planned from the whole domain, not from the part that is first in memory.

use super::session::{EMPTY_RANGE, Installed, Phase};
use super::{Engine, EngineOptions};
use crate::format::RunKind;
use crate::partition::{PartitionTable, TieSequence, sample_order};
use crate::random;
use crate::schema::{ColumnView, Packing, Schema, SchemaError};
use crate::shuffle::backpressure::Spill;
use crate::shuffle::message::DataHeader;
use crate::shuffle::outbox::Batch;
use crate::shuffle::placement::Placement;
use crate::shuffle::receiver::Receiver;
use crate::shuffle::wire::MessageError;

/// Maximum rows per block. It limits blocks of narrow rows.
const BLOCK_ROWS: usize = 1024;

/// Maximum bytes per block. It limits blocks of wide rows.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of blocks that are appended in memory order.
const IN_ORDER_BLOCKS: usize = 4;

/// An append in progress: its columns and its position.
#[derive(Debug)]
pub struct Append<'a> {
    /// All rows, if the caller's memory has the stored layout. No packing is needed then.
    stored: Option<&'a [u8]>,
    packing: Packing<'a>,
    rows: usize,
    bytes: usize,
    block_rows: usize,
    blocks: usize,
    /// The order of the blocks. Empty for memory order.
    order: Vec<usize>,
    taken: usize,
}

impl<'a> Append<'a> {
    fn new(schema: &Schema, columns: &'a [ColumnView<'a>], rows: usize, seed: u64) -> Self {
        let (stored, packing) = (schema.stored_rows(columns), Packing::new(schema, columns));
        let block_rows = Engine::block_rows(schema.row_bytes());
        let blocks = rows.div_ceil(block_rows);
        let order = if blocks <= IN_ORDER_BLOCKS { Vec::new() } else { sample_order(blocks, seed) };
        let bytes = rows.saturating_mul(schema.row_bytes());
        Self { stored, packing, rows, bytes, block_rows, blocks, order, taken: 0 }
    }

    /// Returns whether all rows have been taken.
    pub fn is_done(&self) -> bool {
        self.taken == self.blocks
    }

    /// Returns the size of all rows in bytes, as they are sent.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn next_rows(&self) -> std::ops::Range<usize> {
        let block = self.order.get(self.taken).copied().unwrap_or(self.taken);
        let start = block * self.block_rows;
        start..(start + self.block_rows).min(self.rows)
    }
}

impl Engine {
    /// Returns the number of rows per block. [`Engine::advance`] takes whole blocks.
    pub fn block_rows(row_bytes: usize) -> usize {
        (BLOCK_BYTES / row_bytes).clamp(1, BLOCK_ROWS)
    }

    /// Returns the number of rows up to which an append takes them in memory order, so that it can be continued behind
    /// those that it has taken.
    pub(crate) fn rows_in_order(row_bytes: usize) -> usize {
        IN_ORDER_BLOCKS * Self::block_rows(row_bytes)
    }

    /// Begins an append of `columns`.
    ///
    /// # Errors
    /// [`SchemaError`] when the columns do not fit the schema.
    pub fn append<'a>(&self, columns: &'a [ColumnView<'a>]) -> Result<Append<'a>, SchemaError> {
        let rows = self.schema.check(columns)?;
        // Ranks visit the phases of a period at different times, and so do the appends of one rank.
        let seed =
            random::mix(self.options.seed ^ u64::from(self.options.rank) ^ self.session.metrics.originated << 20);
        Ok(Append::new(&self.schema, columns, rows, seed))
    }

    /// Takes rows until the buffers are full or a new table is requested. The runtime proceeds as
    /// [`crate::shuffle::Backpressure`] decides, until [`Append::is_done`].
    pub fn advance(&mut self, append: &mut Append<'_>) {
        debug_assert_eq!(self.session.phase, Phase::Open);
        let was_negotiating = self.is_negotiating();
        while !append.is_done() && self.outbox.has_room() {
            if !self.is_routing() && self.hold_is_full() {
                break;
            }
            self.take_block(append);
            append.taken += 1;
            self.consider_renegotiation();
            if self.is_negotiating() && !was_negotiating {
                break;
            }
        }
        self.consider_renegotiation();
    }

    pub(in crate::shuffle) fn hold_is_full(&self) -> bool {
        // A rank that may hold nothing would never take a record.
        self.held.len() >= self.options.hold_bytes.max(1)
    }

    fn take_block(&mut self, append: &Append<'_>) {
        let row_bytes = self.schema.row_bytes();
        let rows = append.next_rows();
        let count = rows.len();
        let mut block = std::mem::take(&mut self.scratch.block);
        let mut ordinals = std::mem::take(&mut self.scratch.ordinals);
        let stored = match append.stored {
            Some(stored) => &stored[rows.start * row_bytes..rows.end * row_bytes],
            None => {
                block.resize(count * row_bytes, 0);
                append.packing.pack(rows, &mut block);
                &block
            }
        };
        ordinals.clear();
        self.partitioner.ordinals(stored, row_bytes, &mut ordinals);
        if self.needs_points() {
            self.partitioner.sample(stored, row_bytes, &mut self.random, &mut self.session.points);
        }
        self.session.metrics.originated += count as u64;
        self.size_batches();
        self.observe(&ordinals);
        if self.is_routing() {
            self.route(stored, &ordinals, true);
        } else {
            self.held.extend_from_slice(stored);
            self.session.metrics.held += count as u64;
        }
        self.scratch.block = block;
        self.scratch.ordinals = ordinals;
        self.compare_first_keys(false);
    }

    /// Adjusts the batch size to the epoch's size so far.
    pub(in crate::shuffle) fn size_batches(&mut self) {
        let rows = self.session.metrics.originated.saturating_add(self.session.metrics.forwarded);
        let bytes = rows.saturating_mul(self.schema.row_bytes() as u64);
        self.outbox.size_batches(bytes, self.session.placement.partitions());
    }

    pub(super) fn observe(&mut self, ordinals: &[u64]) {
        self.session.negotiation.observed += ordinals.len() as u64;
        self.session.negotiation.observed_since_round += ordinals.len() as u64;
        let range = span(ordinals);
        if self.partitioner.is_nan(range.1) {
            let numbers: Vec<u64> =
                ordinals.iter().copied().filter(|&ordinal| !self.partitioner.is_nan(ordinal)).collect();
            self.observe_numbers(&numbers, span(&numbers));
        } else {
            self.observe_numbers(ordinals, range);
        }
    }

    fn observe_numbers(&mut self, ordinals: &[u64], (low, high): (u64, u64)) {
        self.session.negotiation.observed_range =
            (self.session.negotiation.observed_range.0.min(low), self.session.negotiation.observed_range.1.max(high));
        let range = &mut self.session.negotiation.epoch_range;
        *range = (range.0.min(low), range.1.max(high));
        if self.negotiates() {
            self.sketch.observe(ordinals);
        }
    }

    /// Routes stored rows to their destinations. With `may_hold`, rows outside the known key range are held back while
    /// there is room, since the table does not cover them.
    fn route(&mut self, rows: &[u8], ordinals: &[u64], may_hold: bool) {
        let Some(installed) = &self.session.installed else { return };
        let (low, high) = span(ordinals);
        let known = low >= installed.range.0 && high <= installed.range.1;
        if self.partitioner.is_nan(high) || (may_hold && !known) {
            self.route_singly(rows, ordinals, may_hold);
            return;
        }
        let version = installed.table.version();
        self.scratch.destinations.clear();
        let receivers =
            Receivers { table: &installed.table, placement: self.session.placement, options: &self.options };
        receivers.of_all(ordinals, &mut self.ties, &mut self.scratch.destinations);
        self.outbox.push_all(&self.scratch.destinations, rows, self.session.number, version);
    }

    /// Routes like [`Engine::route`], but checks every record for NaN keys and keys outside the known range.
    fn route_singly(&mut self, rows: &[u8], ordinals: &[u64], may_hold: bool) {
        let Some(installed) = &self.session.installed else { return };
        let row_bytes = self.schema.row_bytes();
        let version = installed.table.version();
        let receivers =
            Receivers { table: &installed.table, placement: self.session.placement, options: &self.options };
        let (low, high) = installed.range;
        let hold_limit = self.options.out_of_bounds_rows * row_bytes;
        for (row, &ordinal) in rows.chunks_exact(row_bytes).zip(ordinals) {
            let tie = self.ties.next_tie();
            let nan = self.partitioner.is_nan(ordinal);
            if may_hold && !nan && (ordinal < low || ordinal > high) {
                self.session.negotiation.outside += 1;
                if self.held.len() < hold_limit {
                    self.held.extend_from_slice(row);
                    self.session.metrics.held += 1;
                    continue;
                }
            }
            let destination = receivers.of((ordinal, tie), nan);
            self.outbox.push(destination, row, self.session.number, version);
        }
    }

    /// Reroutes waiting batches by the table in force.
    pub(in crate::shuffle) fn reroute_waiting(&mut self) {
        let Self { session, outbox, options, partitioner, ties, scratch, .. } = self;
        let ordinals = &mut scratch.ordinals;
        let Some(Installed { table, .. }) = &session.installed else { return };
        let receivers = Receivers { table, placement: session.placement, options };
        let rerouted = outbox.reroute(session.number, table.version(), |rows, stride, destinations| {
            ordinals.clear();
            partitioner.ordinals(rows, stride, ordinals);
            if partitioner.is_nan(span(ordinals).1) {
                destinations.extend(ordinals.iter().map(|&ordinal| {
                    let nan = partitioner.is_nan(ordinal);
                    receivers.of((ordinal, ties.next_tie()), nan)
                }));
            } else {
                receivers.of_all(ordinals, ties, destinations);
            }
        });
        self.session.metrics.rerouted += rerouted;
    }

    /// Routes the records held back, by the table in force.
    pub(in crate::shuffle) fn route_held(&mut self) {
        if !self.is_routing() || self.held.is_empty() {
            return;
        }
        let rows = std::mem::take(&mut self.held);
        self.route_stored(&rows);
        self.held = rows;
        self.held.clear();
    }

    /// Routes stored rows by the table in force.
    pub(in crate::shuffle) fn route_stored(&mut self, rows: &[u8]) {
        let mut ordinals = Vec::with_capacity(rows.len() / self.schema.row_bytes());
        self.key_ordinals(rows, &mut ordinals);
        self.route(rows, &ordinals, false);
    }

    pub(in crate::shuffle) fn key_ordinals(&self, rows: &[u8], ordinals: &mut Vec<u64>) {
        self.partitioner.ordinals(rows, self.schema.row_bytes(), ordinals);
    }

    /// Keeps records that wait for other ranks on this rank, unordered: a batch, or the records held back while there
    /// is no table. Returns their number, which includes forwarded records in the same batch. All ranks that records
    /// wait for count as unresponsive until they accept a batch.
    pub fn spill(&mut self, spill: Spill, receiver: &mut dyn Receiver) -> u64 {
        let batch = match spill {
            Spill::Unresponsive => match self.outbox.pop_own_to(&self.session.unresponsive) {
                None => return 0,
                batch => batch,
            },
            Spill::Oldest => {
                self.session.unresponsive.extend(self.outbox.awaited());
                self.outbox.pop_own()
            }
        };
        if let Some(batch) = batch {
            self.keep(batch, receiver)
        } else if !self.is_routing() && self.hold_is_full() {
            let rows = std::mem::take(&mut self.held);
            let count = self.deliver_unordered(&rows, receiver);
            self.held = rows;
            self.held.clear();
            self.count_kept(count)
        } else {
            0
        }
    }

    fn keep(&mut self, batch: Batch, receiver: &mut dyn Receiver) -> u64 {
        let count = self.deliver_unordered(&batch.rows(self.schema.row_bytes()), receiver);
        self.outbox.recycle(batch.message);
        self.count_kept(count)
    }

    fn count_kept(&mut self, rows: u64) -> u64 {
        self.session.metrics.spills += rows;
        self.session.metrics.delivered += rows;
        rows
    }

    fn deliver_unordered(&mut self, rows: &[u8], receiver: &mut dyn Receiver) -> u64 {
        let mut ordinals = Vec::new();
        self.key_ordinals(rows, &mut ordinals);
        let kinds = ordinals
            .iter()
            .map(|&ordinal| if self.partitioner.is_nan(ordinal) { RunKind::NanKey } else { RunKind::Unordered });
        deliver_by_kind(rows, self.schema.row_bytes(), kinds, receiver);
        ordinals.len() as u64
    }

    /// Delivers a batch and separates its strays. A batch routed by a newer table is buffered until this rank has that
    /// table.
    pub(in crate::shuffle) fn receive_data(
        &mut self,
        message: Vec<u8>,
        receiver: &mut dyn Receiver,
    ) -> Result<(), MessageError> {
        let (header, rows) = DataHeader::read(&message, self.schema.row_bytes())?;
        if header.session != self.session.number || header.destination != self.options.rank {
            return Err(MessageError::Field { field: "destination or session" });
        }
        self.session.traffic.received(header.origin, self.options.rank);
        if header.table_version > self.table_version() {
            // A rank receives a table only after every rank has the previous one.
            if header.table_version - 1 > self.table_version() {
                return Err(MessageError::Field { field: "table version" });
            }
            self.ahead.push(message);
            return Ok(());
        }
        let bounds = self.session.installed.as_ref().and_then(|installed| installed.own_bounds);
        if bounds.is_none() {
            // Receivers are added to an epoch, and never removed.
            return Err(MessageError::Field { field: "destination, which stores no partition" });
        }
        let mut ordinals = std::mem::take(&mut self.scratch.ordinals);
        ordinals.clear();
        self.key_ordinals(rows, &mut ordinals);
        let (least, largest) = span(&ordinals);
        if bounds.is_some_and(|(low, high)| low <= least && largest <= high) && !self.partitioner.is_nan(largest) {
            if !rows.is_empty() {
                receiver.deliver(RunKind::Regular, rows);
            }
            self.session.metrics.delivered += u64::from(header.rows);
            self.scratch.ordinals = ordinals;
            self.outbox.recycle(message);
            return Ok(());
        }
        let mut strays = 0;
        let kinds = ordinals.iter().map(|&ordinal| {
            if self.partitioner.is_nan(ordinal) {
                RunKind::NanKey
            } else if bounds.is_some_and(|(low, high)| low <= ordinal && ordinal <= high) {
                RunKind::Regular
            } else {
                strays += 1;
                RunKind::Stray
            }
        });
        deliver_by_kind(rows, self.schema.row_bytes(), kinds, receiver);
        self.session.metrics.delivered += u64::from(header.rows);
        self.session.metrics.strays += strays;
        self.scratch.ordinals = ordinals;
        self.outbox.recycle(message);
        Ok(())
    }
}

/// The receivers of records by a table.
struct Receivers<'a> {
    table: &'a PartitionTable,
    placement: Placement,
    options: &'a EngineOptions,
}

impl Receivers<'_> {
    /// Appends the receiver of each key to `out`. No key may be NaN.
    fn of_all(&self, ordinals: &[u64], ties: &mut TieSequence, out: &mut Vec<u32>) {
        let begin = out.len();
        if self.placement.partitions() == 1 {
            out.resize(begin + ordinals.len(), self.placement.receiver(self.options, 0));
            return;
        }
        self.table.destinations(ordinals, ties, out);
        if !self.placement.is_identity(self.options) {
            out[begin..].iter_mut().for_each(|slot| *slot = self.placement.receiver(self.options, *slot));
        }
    }

    /// Returns the receiver of one record. Records with NaN keys are spread over all receivers.
    fn of(&self, (ordinal, tie): (u64, u32), nan: bool) -> u32 {
        let any = || ((u64::from(tie) * u64::from(self.placement.partitions())) >> 32) as u32;
        let partition = if nan { any() } else { self.table.destination(ordinal, tie) };
        self.placement.receiver(self.options, partition)
    }
}

/// Returns the smallest and largest of `ordinals`, or the empty range if there are none. NaN is the largest ordinal.
fn span(ordinals: &[u64]) -> (u64, u64) {
    ordinals.iter().fold(EMPTY_RANGE, |(low, high), &ordinal| (low.min(ordinal), high.max(ordinal)))
}

/// Delivers rows in contiguous sequences of one kind.
fn deliver_by_kind(rows: &[u8], row_bytes: usize, kinds: impl Iterator<Item = RunKind>, receiver: &mut dyn Receiver) {
    let mut start = 0;
    let mut current = None;
    let mut end = 0;
    for kind in kinds {
        if current != Some(kind) {
            if let Some(kind) = current {
                receiver.deliver(kind, &rows[start..end]);
            }
            current = Some(kind);
            start = end;
        }
        end += row_bytes;
    }
    if let Some(kind) = current {
        receiver.deliver(kind, &rows[start..end]);
    }
}
