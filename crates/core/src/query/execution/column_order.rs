//! Rows in the order of a column that is not the key, epoch by epoch.
//!
//! The entries of an index are in the order of their values. A `walk` takes them in this order, reads the records that
//! they name (unless entries carry all columns), tests them, and stops at the limit. Each record lies in another page,
//! so a walk is taken if few rows are wanted. Otherwise all matching rows are scanned, and the first of them are kept
//! in memory (`first_rows`). If the wanted rows do not fit into memory, rows are walked in large steps, and a query is
//! refused before its first row if an epoch has no index to walk along.
//!
//! A walk may find that the predicate excludes nearly all records that come first, or that the index is corrupt. The
//! rows of an epoch are therefore held back until its walk has ended, if a scan can take its place.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Error, Result, UsageError};
use crate::format::EpochManifest;
use crate::query::access::candidate::readable;
use crate::query::access::covering::columns;
use crate::query::access::path::AccessPath;
use crate::query::catalog::Catalog;
use crate::query::execution::first_rows::FirstRows;
use crate::query::execution::pieces::Pieces;
use crate::query::execution::read::PackedRows;
use crate::query::execution::unordered_scan::Scan;
use crate::query::execution::walk::{Walk, steps};
use crate::query::metrics::{Counters, add};
use crate::query::planning::explain::EpochExplanation;
use crate::query::planning::scan::{announce_chosen, choose};
use crate::query::request::ResolvedQuery;
use crate::query::use_path::Use;
use crate::schema::KeyOrder;

/// Maximum size of the first rows of an epoch that are kept in memory, in bytes. Twice as many are collected.
const KEPT_BYTES: u64 = 64 << 20;

/// Size of a kept row beside its columns, in bytes: the ordinal of its value and its position.
const KEPT_ROW_BYTES: u64 = 16;

/// Number of rows of an epoch for each entry of a walk that reads records. They then lie in at most half of the pages.
const ROWS_PER_ENTRY: u64 = 4096;

/// How the rows of an epoch are brought into the order of a column.
#[derive(Debug, Clone, Copy)]
enum Way<'a> {
    /// By a walk along an index. A scan takes over after `most` entries, or if the index is corrupt. Without `most`, no
    /// scan can.
    Walk {
        path: &'a dyn AccessPath,
        /// Size of the index's pages of the epoch.
        bytes: u64,
        most: Option<u64>,
    },
    /// By a scan whose first rows are kept.
    Scan,
}

impl<'a> Way<'a> {
    /// Chooses the way of an epoch, of which `limit` rows are wanted.
    fn of(
        dataset: &'a Catalog,
        resolved: &ResolvedQuery,
        column: usize,
        manifest: &EpochManifest,
        limit: u64,
        counters: &Counters,
    ) -> Result<Self> {
        let mut found = None;
        for (path, bytes) in ordering(dataset, resolved, column, manifest) {
            let bytes = readable(counters, bytes, || dataset.ignore_corruption(1))?;
            found = found.or(bytes.map(|bytes| (path, bytes)));
        }
        let wanted = limit.min(manifest.rows());
        let fits = wanted <= most_kept(resolved, column);
        let Some((path, bytes)) = found else {
            return if fits { Ok(Self::Scan) } else { Err(unordered(dataset, resolved, column, manifest)) };
        };
        let pays = wanted.saturating_mul(ROWS_PER_ENTRY) <= manifest.rows();
        let is_forced = resolved.access != Use::Automatic;
        Ok(match fits {
            false => Self::Walk { path, bytes, most: None },
            true if is_forced || path.has_columns(&columns(resolved)) => {
                Self::Walk { path, bytes, most: Some(u64::MAX) }
            }
            true if pays => Self::Walk { path, bytes, most: Some(manifest.rows() / ROWS_PER_ENTRY) },
            true => Self::Scan,
        })
    }
}

/// Returns the indexes that a query may use, with the sizes of their pages if they have an epoch in the order of a
/// column.
fn ordering<'a, 'q>(
    dataset: &'a Catalog,
    resolved: &'q ResolvedQuery,
    column: usize,
    manifest: &'q EpochManifest,
) -> impl Iterator<Item = (&'a dyn AccessPath, Result<Option<u64>>)> {
    let paths = dataset.indexes().iter().map(|path| &**path);
    let allowed = paths.filter(|path| resolved.access.allows(path.name()));
    allowed.map(move |path| (path, path.order_bytes(column, manifest)))
}

/// Returns the maximum number of first rows that are kept in memory.
fn most_kept(resolved: &ResolvedQuery, column: usize) -> u64 {
    KEPT_BYTES / ((resolved.row_bytes() + resolved.width(column)) as u64 + KEPT_ROW_BYTES)
}

/// Returns the error for a column by which so many rows of an epoch cannot be ordered.
fn unordered(dataset: &Catalog, resolved: &ResolvedQuery, column: usize, manifest: &EpochManifest) -> Error {
    let (most, epoch) = (most_kept(resolved, column), manifest.epoch);
    let name = &resolved.schema.columns()[column].name;
    let unreadable = ordering(dataset, resolved, column, manifest).find(|(_, bytes)| bytes.is_err());
    let (cause, remedy) = match (&resolved.access, unreadable) {
        (Use::Scan, _) => ("a scan keeps no more in memory".to_owned(), "let it use an index of the column".to_owned()),
        (_, Some((path, _))) => (
            format!("index '{}' cannot be read", path.name()),
            "rebuild the index with 'turbidite index drop' and 'index add'".to_owned(),
        ),
        (Use::Index(used), None) if used != name => {
            (format!("index '{used}' is not of this column"), format!("use an index of '{name}'"))
        }
        (_, None) => (format!("'{name}' has no index of this epoch"), "run 'turbidite index add'".to_owned()),
    };
    let what = format!(
        "more than {most} rows of epoch {epoch} cannot be ordered by '{name}': {cause}; limit the query to {most} rows, \
         or {remedy}"
    );
    UsageError::Option { option: "order", what }.into()
}

/// The pipeline of a query in the order of a column.
pub(in crate::query) struct ColumnOrder {
    dataset: Arc<Catalog>,
    resolved: Arc<ResolvedQuery>,
    column: usize,
    counters: Arc<Counters>,
    epochs: VecDeque<u64>,
    /// The walk whose rows are returned as they come, and the number of row groups that are done at its end.
    walk: Option<(Walk, u64)>,
    ready: VecDeque<PackedRows>,
    /// Whether it is known that all epochs can be brought into order.
    is_checked: bool,
    /// Number of rows that the limit still allows.
    open: u64,
}

impl ColumnOrder {
    /// Creates the pipeline of some epochs, by a column of the schema.
    pub(in crate::query) fn new(
        dataset: Arc<Catalog>,
        resolved: Arc<ResolvedQuery>,
        column: usize,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
    ) -> Self {
        let (open, ready) = (resolved.limit, VecDeque::new());
        Self { dataset, resolved, column, counters, epochs: epochs.into(), walk: None, ready, is_checked: false, open }
    }

    /// Checks that the rows of all epochs can be brought into order.
    fn check(&self) -> Result<()> {
        let (dataset, resolved, column) = (&*self.dataset, &*self.resolved, self.column);
        let most = most_kept(resolved, column);
        let mut open = resolved.limit;
        for &epoch in &self.epochs {
            // The rows of the other epochs fit into memory. Few rows may need no other epoch.
            if open <= most {
                return Ok(());
            }
            self.counters.check()?;
            let manifest = dataset.scan_manifest(epoch, resolved.predicate_columns())?.manifest;
            let has_epoch = |(_, bytes): (_, Result<Option<u64>>)| matches!(bytes, Ok(Some(_)));
            if open.min(manifest.rows()) > most && !ordering(dataset, resolved, column, &manifest).any(has_epoch) {
                return Err(unordered(dataset, resolved, column, &manifest));
            }
            let chosen = choose(dataset, resolved, &manifest);
            let sure = chosen.iter().filter(|choice| choice.is_exact);
            let sure: u64 = sure.map(|choice| manifest.row_groups[choice.entry].rows).sum();
            open = open.saturating_sub(sure);
        }
        Ok(())
    }

    /// Begins an epoch: reads its rows, or starts a walk that returns them.
    fn begin(&mut self, epoch: u64) -> Result<()> {
        let (dataset, counters) = (self.dataset.clone(), self.counters.clone());
        let manifest = dataset.scan_manifest(epoch, self.resolved.predicate_columns())?.manifest;
        let way = Way::of(&dataset, &self.resolved, self.column, &manifest, self.open, &counters)?;
        if let Way::Walk { path, most, .. } = way {
            let started = Walk::start(&dataset, &self.resolved, path, epoch, self.open);
            let chosen = choose(&dataset, &self.resolved, &manifest).len() as u64;
            if most.is_none() {
                let walk = started?.ok_or_else(|| unordered(&dataset, &self.resolved, self.column, &manifest))?;
                self.walk = Some((walk, chosen));
                return Ok(());
            }
            let walked = started.and_then(|walk| match walk {
                Some(walk) => self.gather(walk, most.unwrap_or(u64::MAX)),
                None => Ok(None),
            });
            if let Some(rows) = readable(&counters, walked, || dataset.ignore_corruption(1))? {
                self.advance(chosen);
                self.ready = rows;
                return Ok(());
            }
        }
        let rows = self.first(epoch)?;
        self.ready.push_back(rows);
        Ok(())
    }

    /// Counts row groups as done.
    fn advance(&self, row_groups: u64) {
        if let Some(progress) = &self.counters.progress {
            progress.advance(row_groups);
        }
    }

    /// Returns the rows of a walk up to the limit. `None` if they need more than `most` entries.
    fn gather(&self, mut walk: Walk, most: u64) -> Result<Option<VecDeque<PackedRows>>> {
        let (mut gathered, mut rows) = (VecDeque::new(), 0);
        while rows < self.open {
            if walk.taken >= most {
                return Ok(None);
            }
            let Some(piece) = walk.next(&self.counters)? else { break };
            rows += piece.rows as u64;
            gathered.push_back(piece);
        }
        add(&self.counters.rows_matched, rows);
        Ok(Some(gathered))
    }

    /// Returns the first rows of an epoch by a scan of all matching rows.
    fn first(&self, epoch: u64) -> Result<PackedRows> {
        let resolved = &self.resolved;
        let mut stored = resolved.stored.clone();
        let slot = stored.iter().position(|read| *read == self.column).unwrap_or_else(|| {
            stored.push(self.column);
            stored.len() - 1
        });
        let data_type = resolved.schema.columns()[self.column].data_type;
        let order = KeyOrder::new(data_type).ok_or_else(|| Error::internal("rows are ordered by no number"))?;
        let columns = resolved.stored.len();
        let wanted = Arc::new(resolved.unordered(stored));
        let widths = wanted.stored_widths().collect();
        // The rows of the limit, or all rows of the epoch, fit into memory.
        let mut first = FirstRows::new(order, slot, widths, usize::try_from(self.open).unwrap_or(usize::MAX));
        let mut scan = Scan::new(self.dataset.clone(), wanted, self.counters.clone(), vec![epoch]);
        while let Some(piece) = scan.next_piece()? {
            first.add(&piece);
        }
        Ok(first.finish(columns, epoch, &self.counters))
    }
}

impl Pieces for ColumnOrder {
    fn announce(&self) -> Result<()> {
        announce_chosen(&self.dataset, &self.resolved, self.epochs.iter().copied(), &self.counters, 1)
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                self.open = self.open.saturating_sub(piece.rows as u64);
                return Ok(Some(piece));
            }
            if let Some((walk, chosen)) = &mut self.walk {
                let chosen = *chosen;
                match walk.next(&self.counters)? {
                    Some(piece) => {
                        add(&self.counters.rows_matched, piece.rows as u64);
                        self.ready.push_back(piece);
                    }
                    None => {
                        self.walk = None;
                        self.advance(chosen);
                    }
                }
                continue;
            }
            self.counters.check()?;
            if !self.is_checked {
                self.check()?;
                self.is_checked = true;
            }
            let Some(epoch) = self.epochs.pop_front() else { return Ok(None) };
            self.begin(epoch)?;
        }
    }
}

/// Adds to the explanation of an epoch's scan how its rows are brought into the order of a column.
///
/// # Errors
/// A usage error if they cannot be.
pub(in crate::query) fn explain(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    column: usize,
    explanation: &mut EpochExplanation,
) -> Result<()> {
    let manifest = dataset.scan_manifest(explanation.epoch, resolved.predicate_columns())?.manifest;
    let way = Way::of(dataset, resolved, column, &manifest, resolved.limit, &Counters::default())?;
    let Way::Walk { path, bytes, most } = way else {
        explanation.order = Some("a scan of all matching rows, of which the first are kept".to_owned());
        return Ok(());
    };
    let is_covered = path.has_columns(&columns(resolved));
    let note = if is_covered { ", which has all columns: no records are read" } else { ", until the limit" };
    explanation.order = Some(format!("the entries of index {}{note}", path.name()));
    let wanted = match &resolved.predicate {
        None => resolved.limit.min(manifest.rows()),
        Some(_) => manifest.rows().min(most.unwrap_or(u64::MAX)),
    };
    // Each step reads each page at most once.
    let mut left = wanted;
    let taken = steps(resolved, resolved.limit).take_while(|rows| {
        let goes_on = left > 0;
        left = left.saturating_sub(*rows);
        goes_on
    });
    let of_records = if is_covered { 0 } else { manifest.page_bytes().saturating_mul(taken.count() as u64) };
    let of_scan = if most.is_some_and(|most| most < manifest.rows()) { explanation.bytes_most } else { 0 };
    explanation.bytes_most = bytes.saturating_add(of_records).saturating_add(of_scan);
    explanation.bytes_least = 0;
    explanation.rows_most = explanation.rows_most.min(resolved.limit);
    explanation.rows_least = explanation.rows_least.min(resolved.limit);
    Ok(())
}
