//! One row group of an open part: its pages, reads of them, and their names in errors.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::format::{EpochManifest, PageLocation, PartReader, RowGroupEntry, RowGroupPages};
use crate::query::progress::QueryProgress;
use crate::query::request::ResolvedQuery;
use crate::query::rows::pages::{PageIndex, check_pages};
use crate::schema::{Schema, Value};

/// One row group of an open part.
#[derive(Debug)]
pub(crate) struct Group {
    manifest: Arc<EpochManifest>,
    entry: usize,
    part: Arc<PartReader>,
    pages: Arc<RowGroupPages>,
    schema: Arc<Schema>,
    touched: AtomicBool,
    progress: Option<Arc<QueryProgress>>,
}

impl Drop for Group {
    /// Counts the row group as done: nothing will be read from it.
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.advance(1);
        }
    }
}

impl Group {
    /// Creates the row group at position `entry` of a manifest, in an open part.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the page lists of the columns that a query uses are not those of the row group.
    pub(in crate::query) fn new(
        manifest: &Arc<EpochManifest>,
        entry: usize,
        (part, pages): (Arc<PartReader>, Arc<RowGroupPages>),
        resolved: &ResolvedQuery,
        progress: Option<Arc<QueryProgress>>,
    ) -> Result<Self> {
        let (manifest, schema) = (manifest.clone(), resolved.schema.clone());
        let group = Self { manifest, entry, part, pages, schema, touched: AtomicBool::new(false), progress };
        group.check_columns(resolved)?;
        Ok(group)
    }

    /// Returns the pages of the key that may contain a key with this ordinal, by the first keys in the manifest. `None`
    /// if the page index has other bounds, or there are none.
    pub(in crate::query) fn pages_with_key(&self, ordinal: u64) -> Option<Range<usize>> {
        self.pages.pages_with_key(self.entry(), self.schema.key_index(), ordinal)
    }

    /// Returns the manifest's entry of the row group.
    pub(crate) fn entry(&self) -> &RowGroupEntry {
        &self.manifest.row_groups[self.entry]
    }

    /// Returns the epoch's label.
    pub(in crate::query) fn epoch(&self) -> u64 {
        self.manifest.epoch
    }

    /// Records that pages are about to be read. Returns whether this is the first call.
    pub(in crate::query) fn touch(&self) -> bool {
        !self.touched.swap(true, Ordering::Relaxed)
    }

    fn path(&self) -> &Path {
        self.part.path()
    }

    /// Returns a corruption error at a place in this row group.
    pub(crate) fn corruption(&self, place: impl std::fmt::Display, what: impl Into<String>) -> Error {
        let entry = self.entry();
        let place = format!("run {}, row group {}, {place}", entry.run, entry.row_group);
        Error::corruption_at(self.path(), place, what)
    }

    /// Checks the page lists of all columns that a query uses. Later code relies on them.
    fn check_columns(&self, resolved: &ResolvedQuery) -> Result<()> {
        for &column in resolved.predicate_columns().iter().chain(&resolved.stored) {
            if self.pages.is_checked(column) {
                continue;
            }
            check_pages(self.entry(), self.pages(column)?)
                .map_err(|what| self.corruption(format_args!("page list of {}", self.column_name(column)), what))?;
            self.pages.set_checked(column);
        }
        Ok(())
    }

    /// Returns a column's name for messages.
    pub(crate) fn column_name(&self, column: usize) -> String {
        format!("column '{}'", self.schema.columns()[column].name)
    }

    /// Fills buffers, one after another, with consecutive bytes of the file.
    pub(crate) fn read(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.check_read(offset, self.part.file().read_vectored_at(offset, buffers))
    }

    /// Fills buffers as [`Group::read`] does if the bytes are in memory. Otherwise returns false.
    pub(in crate::query) fn read_cached(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<bool> {
        self.check_read(offset, self.part.file().read_cached_at(offset, buffers))
    }

    /// Adds the place to the error of a read.
    fn check_read<T>(&self, offset: u64, outcome: io::Result<T>) -> Result<T> {
        match outcome {
            Ok(read) => Ok(read),
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.corruption(format_args!("bytes from {offset}"), "the file is too short"))
            }
            Err(source) => Err(Error::Io { operation: "read", path: self.path().to_owned(), source }),
        }
    }

    /// Returns whether the byte at `offset` of the file is in memory.
    pub(in crate::query) fn is_cached(&self, offset: u64) -> bool {
        self.part.file().is_cached(offset)
    }

    /// Announces the ranges of the file (offset, length) that will be read next.
    pub(in crate::query) fn announce(&self, ranges: &[(u64, u64)]) {
        self.part.file().announce(ranges);
    }

    /// Returns the width of a column's values in memory, in bytes.
    pub(in crate::query) fn width(&self, column: usize) -> usize {
        self.schema.columns()[column].data_type.width()
    }

    /// Returns the width of a column's values in its pages, in bytes.
    pub(in crate::query) fn value_bytes(&self, column: usize) -> usize {
        self.part.value_bytes(column)
    }

    /// Checks one page whose values were read directly into the output column.
    pub(in crate::query) fn check_page(
        &self,
        header: &[u8],
        body: &[u8],
        column: usize,
        page: usize,
        check: bool,
    ) -> Result<()> {
        self.judge_page(column, page, self.part.check_page(header, body, column, check))
    }

    /// Decodes one page and appends its values to `out`.
    pub(crate) fn decode(&self, raw: &[u8], column: usize, page: usize, check: bool, out: &mut Vec<u8>) -> Result<()> {
        self.judge_page(column, page, self.part.decode_page(raw, column, check, out))
    }

    /// Compares the number of rows of a page with the index. Adds the page's location to errors.
    fn judge_page(&self, column: usize, page: usize, found: Result<usize>) -> Result<()> {
        let expected = self.pages(column)?.get(page).map_or(0, |page| page.rows as usize);
        match found {
            Ok(rows) if rows == expected => Ok(()),
            Ok(rows) => {
                let what = format!("it has {rows} rows where {expected} were expected");
                Err(self.corruption(self.page_name(column, page), what))
            }
            Err(Error::Corruption { what, .. }) => Err(self.corruption(self.page_name(column, page), what)),
            Err(other) => Err(other),
        }
    }

    /// Returns a page's name for messages, with the numbers of its rows within the part.
    pub(in crate::query) fn page_name(&self, column: usize, page: usize) -> String {
        let name = format!("{}, page {page}", self.column_name(column));
        let location = self.pages(column).ok().and_then(|pages| pages.get(page).copied());
        match location {
            Some(location) if location.rows > 0 => {
                let first = self.first_row().saturating_add(location.first_row);
                format!("{name} (rows {first} to {} of the file)", first + u64::from(location.rows) - 1)
            }
            _ => name,
        }
    }

    /// Returns the number of the row group's first row in the part, which counts rows from 0 in file order, as DuckDB's
    /// `file_row_number` does.
    fn first_row(&self) -> u64 {
        let entry = self.entry();
        let others = self.manifest.row_groups.iter();
        let before = others.filter(|other| other.part == entry.part && other.row_group < entry.row_group);
        before.map(|other| other.rows).fold(0, u64::saturating_add)
    }
}

impl PageIndex for Group {
    fn pages(&self, column: usize) -> Result<&[PageLocation]> {
        self.part.locations(&self.pages, self.entry().row_group, column)
    }

    fn range(&self, column: usize, page: usize) -> Option<(Value, Value)> {
        self.pages.range(column, page)
    }
}
