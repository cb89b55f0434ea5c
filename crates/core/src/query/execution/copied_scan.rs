//! Rows of epochs of which copies by space may be read instead of the records.
//!
//! Epochs are considered one after another. Those of which no copy is read are scanned together. The rows of a copy are
//! held back until all are read, or many: if the copy turns out to be corrupt, the records answer instead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::query::access::candidate::readable;
use crate::query::access::space::{ChosenCopy, consider};
use crate::query::catalog::Catalog;
use crate::query::execution::pieces::Pieces;
use crate::query::execution::read::PackedRows;
use crate::query::execution::unordered_scan::Scan;
use crate::query::metrics::{Counters, add};
use crate::query::planning::scan::announce_chosen;
use crate::query::request::ResolvedQuery;

/// Size of the rows of a copy that are held back, in bytes. A copy that turns out to be corrupt after that is an error.
const HELD_BYTES: usize = 32 << 20;

/// Maximum number of epochs that are considered ahead, and scanned together if no copy of them is read.
const EPOCHS_AHEAD: usize = 16;

/// The pipeline of an unordered query that copies may answer.
pub(in crate::query) struct CopiedScan {
    dataset: Arc<Catalog>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    /// The epochs to consider.
    epochs: VecDeque<u64>,
    /// The copy that is read when the scan has ended.
    next: Option<(u64, ChosenCopy)>,
    /// The scan of records, or of the rest of a copy.
    scan: Option<Running>,
    held: VecDeque<PackedRows>,
}

/// A scan whose pieces are handed out as they come.
struct Running {
    scan: Scan,
    /// What it has read, if it is the scan of a copy.
    own: Option<Arc<Counters>>,
}

impl CopiedScan {
    /// Creates the pipeline of a query of some epochs.
    pub(in crate::query) fn new(
        dataset: Arc<Catalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
    ) -> Self {
        let (next, scan, held) = (None, None, VecDeque::new());
        Self { dataset, resolved, counters, epochs: epochs.into(), next, scan, held }
    }

    fn records_of(&self, epochs: Vec<u64>) -> Running {
        let scan = Scan::new(self.dataset.clone(), self.resolved.clone(), self.counters.clone(), epochs);
        Running { scan, own: None }
    }

    /// Considers the next epochs, up to one of which a copy is read. Returns false if none is left.
    fn proceed(&mut self) -> Result<bool> {
        if let Some((epoch, copy)) = self.next.take() {
            self.read(epoch, copy)?;
            return Ok(true);
        }
        let mut scanned = Vec::new();
        while scanned.len() < EPOCHS_AHEAD
            && let Some(epoch) = self.epochs.pop_front()
        {
            match consider(&self.dataset, &self.resolved, epoch, &self.counters)?.chosen {
                None => scanned.push(epoch),
                Some(copy) => {
                    self.next = Some((epoch, copy));
                    break;
                }
            }
        }
        if !scanned.is_empty() {
            self.scan = Some(self.records_of(scanned));
        }
        Ok(self.scan.is_some() || self.next.is_some())
    }

    /// Reads a copy of an epoch. If it cannot be read, the records of the epoch are scanned.
    fn read(&mut self, epoch: u64, chosen: ChosenCopy) -> Result<()> {
        let ChosenCopy { copy, resolved, scanned_groups, .. } = chosen;
        let own = Arc::new(Counters::new(self.counters.recycler.clone(), None));
        let mut scan = Scan::new(copy, resolved.clone(), own.clone(), vec![epoch]);
        let (mut held, mut held_bytes) = (VecDeque::new(), 0);
        let is_whole = loop {
            self.counters.check()?;
            let piece = readable(&self.counters, scan.next_piece().map(Some), || self.dataset.ignore_corruption(1))?;
            let Some(piece) = piece else {
                self.scan = Some(self.records_of(vec![epoch]));
                return Ok(());
            };
            let Some(rows) = piece else { break true };
            held_bytes += rows.rows * resolved.row_bytes();
            held.push_back(rows);
            if held_bytes > HELD_BYTES {
                break false;
            }
        };
        self.held = held;
        if let Some(progress) = &self.counters.progress {
            progress.advance(scanned_groups);
        }
        match is_whole {
            true => take_over(&own, &self.counters),
            false => self.scan = Some(Running { scan, own: Some(own) }),
        }
        Ok(())
    }
}

/// Reads all rows of a copy of an epoch, and passes on what `finish` makes of each piece. Returns false if the copy
/// cannot be read: the pieces that were passed on are then not those of the epoch.
///
/// # Errors
/// Cancellation, and errors other than those of an unreadable copy.
pub(in crate::query) fn read_copy<T: Send + 'static>(
    dataset: &Catalog,
    chosen: ChosenCopy,
    epoch: u64,
    counters: &Arc<Counters>,
    finish: impl Fn(PackedRows) -> T + Send + Sync + 'static,
    mut pass: impl FnMut(T),
) -> Result<bool> {
    let own = Arc::new(Counters::new(counters.recycler.clone(), None));
    let mut scan = Scan::finishing(chosen.copy, chosen.resolved, own.clone(), vec![epoch], finish);
    loop {
        counters.check()?;
        let piece = readable(counters, scan.next_piece().map(Some), || dataset.ignore_corruption(1))?;
        match piece {
            None => return Ok(false),
            Some(Some(piece)) => pass(piece),
            Some(None) => break,
        }
    }
    take_over(&own, counters);
    if let Some(progress) = &counters.progress {
        progress.advance(chosen.scanned_groups);
    }
    Ok(true)
}

/// Adds what the scan of a copy has read and found to the counters of the request.
fn take_over(own: &Counters, counters: &Counters) {
    own.move_reads_to(counters);
    for (from, to) in [(&own.rows_matched, &counters.rows_matched), (&own.runs_considered, &counters.runs_considered)] {
        add(to, from.swap(0, Ordering::Relaxed));
    }
}

impl Pieces for CopiedScan {
    fn announce(&self) -> Result<()> {
        announce_chosen(&self.dataset, &self.resolved, self.epochs.iter().copied(), &self.counters, 1)
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        loop {
            if let Some(rows) = self.held.pop_front() {
                return Ok(Some(rows));
            }
            if let Some(running) = &mut self.scan {
                self.counters.check()?;
                let piece = running.scan.next_piece()?;
                if let Some(own) = &running.own {
                    take_over(own, &self.counters);
                }
                match piece {
                    Some(rows) => return Ok(Some(rows)),
                    None => self.scan = None,
                }
            } else if !self.proceed()? {
                return Ok(None);
            }
        }
    }
}
