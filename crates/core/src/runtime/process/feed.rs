//! Entries on their way from the thread that writes records to the jobs of indexes.
//!
//! The thread that encodes row groups must not call the transport, which belongs to the program's thread. It leaves the
//! entries in a feed for each index. Whenever the program's thread makes progress on the index's job, it appends them.
//!
//! Invariants:
//! - Entries left before the index's epoch has begun on this rank wait for it.
//! - A feed holds the entries of few runs: the rank writes no further run while it holds more than [`FULL_BYTES`].
//!   Nothing waits for that except the writing of runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result, UsageError};
use crate::format::{ColumnTap, TappedGroup};
use crate::index::{IndexedValues, RecordPlace};
use crate::partition::sample_order;
use crate::runtime::endpoint::Endpoint;
use crate::shuffle::{Action, Engine, Progress};

/// Maximum number of entries that are appended together.
const PIECE_ROWS: usize = 2048;

/// Bytes of the place of a record in an entry: its part and its row.
const PLACE_BYTES: usize = 8;

/// Size of the waiting entries above which no further run is written, in bytes.
const FULL_BYTES: usize = 512 << 10;

/// The entries of one index that wait for its job.
pub(in crate::runtime) struct EntryFeed {
    indexed: IndexedValues,
    /// Number of entries that are appended together. An append of so few takes them in their order, so that it can be
    /// continued.
    piece_rows: usize,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    waiting: Mutex<Entries>,
}

impl std::fmt::Debug for EntryFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryFeed").field("indexed", &self.indexed).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Entries {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Why the index's epoch fails. Entries are discarded then.
    failure: Option<Error>,
    is_refused: bool,
    /// Whether the job should not append until it has its next table.
    awaits_table: bool,
}

/// Entries of neighbouring rows of one part.
#[derive(Debug)]
struct Piece {
    part: [u8; 4],
    first_row: u32,
    rows: u32,
    /// Values of each indexed column.
    values: Vec<Vec<u8>>,
}

impl Piece {
    fn bytes(&self) -> usize {
        self.values.iter().map(Vec::len).sum()
    }
}

impl EntryFeed {
    /// Creates an empty feed for the values of an index. `clock` returns the time since a fixed point.
    pub(in crate::runtime) fn new(
        indexed: IndexedValues,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let value_bytes: usize = indexed.types.iter().map(|data_type| data_type.width()).sum();
        let piece_rows = PIECE_ROWS.min(Engine::rows_in_order(value_bytes + PLACE_BYTES));
        Self { indexed, piece_rows, clock: Box::new(clock), waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares for the entries of the next epoch. Called before the records' epoch begins.
    pub(in crate::runtime) fn reset(&self) {
        *self.lock() = Entries::default();
    }

    /// Discards entries from now on, since the index's epoch has not begun or its job has failed.
    pub(in crate::runtime) fn refuse(&self) {
        *self.lock() = Entries { is_refused: true, ..Entries::default() };
    }

    pub(in crate::runtime) fn is_empty(&self) -> bool {
        let waiting = self.lock();
        waiting.pieces.is_empty() && waiting.failure.is_none()
    }

    /// Returns whether no further run should be written now.
    pub(in crate::runtime) fn is_full(&self) -> bool {
        self.lock().bytes > FULL_BYTES
    }

    /// Adds the entries of a row group.
    fn add(&self, group: &TappedGroup<'_>, columns: &[Vec<u8>]) {
        let mut waiting = self.lock();
        if waiting.is_refused {
            return;
        }
        match RecordPlace::of_group(group.part, group.first_row, group.rows as u64) {
            Ok((part, rows)) => {
                // The records are sorted, and so may be these values. Each prefix of the sequence is to be a sample.
                for number in sample_order(rows.len().div_ceil(self.piece_rows), u64::from(rows.start)) {
                    let of_piece = number * self.piece_rows..rows.len().min((number + 1) * self.piece_rows);
                    let values = columns.iter().zip(&self.indexed.types).map(|(values, data_type)| {
                        values[of_piece.start * data_type.width()..of_piece.end * data_type.width()].to_vec()
                    });
                    let values = values.collect();
                    let (first_row, rows) = (rows.start + of_piece.start as u32, of_piece.len() as u32);
                    let piece = Piece { part: part.to_le_bytes(), first_row, rows, values };
                    waiting.bytes += piece.bytes();
                    waiting.pieces.push_back(piece);
                }
            }
            Err(error) => waiting.failure = waiting.failure.take().or(Some(error)),
        }
    }

    /// Appends waiting entries to the endpoint as far as it takes them. Returns whether it took any.
    pub(in crate::runtime) fn append_waiting(&self, endpoint: &mut Endpoint) -> Result<bool> {
        if !endpoint.takes_records() || self.lock().awaits_table {
            return Ok(false);
        }
        if let Some(error) = self.lock().failure.take() {
            endpoint.object(error);
            self.refuse();
            return Ok(true);
        }
        let mut appended = false;
        loop {
            // The thread that writes may add more in the meantime.
            let Some(mut piece) = self.lock().pieces.pop_front() else { return Ok(appended) };
            let taken = self.append(endpoint, &piece)?;
            appended |= taken > 0;
            let mut waiting = self.lock();
            if taken == piece.rows {
                waiting.bytes = waiting.bytes.saturating_sub(piece.bytes());
                continue;
            }
            for (values, data_type) in piece.values.iter_mut().zip(&self.indexed.types) {
                values.drain(..taken as usize * data_type.width());
                waiting.bytes = waiting.bytes.saturating_sub(taken as usize * data_type.width());
            }
            piece.first_row += taken;
            piece.rows -= taken;
            waiting.pieces.push_front(piece);
            return Ok(appended);
        }
    }

    /// Decides how the job goes on with waiting entries, after it has appended and exchanged messages. Returns whether
    /// entries were spilled.
    pub(in crate::runtime) fn decide(&self, endpoint: &mut Endpoint, progress: Progress) -> bool {
        if self.lock().pieces.is_empty() || !endpoint.takes_records() {
            return false;
        }
        let action = endpoint.decide((self.clock)(), progress);
        self.lock().awaits_table = matches!(action, Action::AwaitTable { .. });
        if let Action::Spill(spill) = action { endpoint.spill(spill) } else { false }
    }

    /// Appends a piece as far as there is room. Returns the number of entries taken.
    fn append(&self, endpoint: &mut Endpoint, piece: &Piece) -> Result<u32> {
        let rows: Vec<u32> = (piece.first_row..piece.first_row + piece.rows).collect();
        let columns = self.indexed.entries(&piece.values, &piece.part, &rows)?;
        let before = endpoint.engine.metrics().originated;
        let mut append = endpoint
            .engine
            .append(&columns)
            .map_err(|error| Error::from(UsageError::Option { option: "index", what: error.to_string() }))?;
        endpoint.advance(&mut append);
        let taken = endpoint.engine.metrics().originated - before;
        // No more than the piece has.
        Ok(taken.min(u64::from(piece.rows)) as u32)
    }
}

/// Passes the indexed columns of a rank's records to the feeds of its indexes.
#[derive(Debug)]
pub(in crate::runtime) struct EntryTap {
    /// Positions of the columns of all indexes among the records' columns, index by index.
    columns: Vec<usize>,
    feeds: Vec<Arc<EntryFeed>>,
}

impl EntryTap {
    /// Creates the tap of some indexes.
    pub(in crate::runtime) fn new(feeds: Vec<Arc<EntryFeed>>) -> Self {
        let columns = feeds.iter().flat_map(|feed| &feed.indexed.columns).copied().collect();
        Self { columns, feeds }
    }
}

impl ColumnTap for EntryTap {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Entries that cannot be made fail the index's epoch, and with it that of the records.
    fn receive(&self, group: &TappedGroup<'_>) -> Result<()> {
        let mut rest = group.columns;
        for feed in &self.feeds {
            let (values, others) = rest.split_at(feed.indexed.columns.len());
            rest = others;
            feed.add(group, values);
        }
        Ok(())
    }
}
