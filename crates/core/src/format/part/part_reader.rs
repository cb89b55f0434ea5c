//! Reads parts: the places of pages once, then any page by its location.
//!
//! The places come from the manifest, or from the footer and the page indexes, which are the tail of the file. All
//! input is checked before use: the tail and page indexes against the manifest's checksums, locations against the
//! length of the file, pages against their own checksums. The page index of a column chunk is parsed on first access.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, IoContext, Result};
use crate::format::manifest::entries::{PartEntry, PartId};
use crate::format::manifest::page_directory::PageDirectory;
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::parquet::footer::{PARQUET_MAGIC, ParsedFooter, PartIdentity, decode_footer};
use crate::format::parquet::page_header::{PageHeader, decode_page_header};
use crate::format::parquet::page_index::PageLocation;
use crate::format::parquet::physical::{narrow, physical_width};
use crate::format::parquet::thrift::Malformed;
use crate::format::part::row_group_pages::RowGroupPages;
use crate::format::part::seal::{OwnerMark, last_commit};
use crate::schema::{Schema, Value};
use crate::storage::{ReadableFile, Storage};

/// Maximum gap between the page indexes of two row groups that are read together, in bytes.
const INDEX_GAP_BYTES: u64 = 64 << 10;

/// Length of the end of a Parquet file: the length of the footer and the closing magic number.
const CLOSING_BYTES: usize = 8;

/// The row groups of an open part.
#[derive(Debug)]
enum RowGroups {
    /// All row groups, by the footer.
    Footer(Vec<Arc<RowGroupPages>>),
    /// The row groups used so far, by their manifest entries, of the part with this entry.
    Manifest { part: PartEntry, used: Mutex<HashMap<u32, Arc<RowGroupPages>>> },
}

/// A read of neighbouring page indexes, each with its offset in the file.
struct IndexRead<'a> {
    start: u64,
    bytes: u64,
    places: Vec<(u64, &'a RowGroupEntry, &'a PageDirectory)>,
}

/// An open part. Threads may share a reader.
#[derive(Debug)]
pub struct PartReader {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    schema: Arc<Schema>,
    identity: PartIdentity,
    row_groups: RowGroups,
    /// Set once the file is known to be the part of the commit.
    confirmed: OnceLock<()>,
}

/// Opens the file of a part, and compares its length with the manifest.
fn open_file(storage: &dyn Storage, path: &Path, entry: &PartEntry) -> Result<Arc<dyn ReadableFile>> {
    let file = storage.open(path).at("open", path)?;
    if file.bytes() == entry.bytes {
        return Ok(file);
    }
    Err(Error::corruption(path, format!("it has {} bytes, the manifest states {}", file.bytes(), entry.bytes)))
}

impl PartReader {
    /// Opens the part at `path` and reads its footer. `entry` is the part's entry in the manifest of commit `commit`.
    ///
    /// # Errors
    /// - [`Error::Corruption`] if length, checksum, commit, schema or any location in the footer is wrong
    /// - [`Error::Version`] if another release wrote the part
    /// - I/O errors
    pub fn open(
        storage: &dyn Storage,
        path: &Path,
        entry: &PartEntry,
        commit: Uuid,
        schema: Arc<Schema>,
    ) -> Result<Self> {
        let file = open_file(storage, path, entry)?;
        let corruption = |what: String| Error::corruption_at(path, "footer", what);
        let tail_bytes = entry
            .bytes
            .checked_sub(entry.footer_offset)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .filter(|bytes| *bytes > CLOSING_BYTES)
            .ok_or_else(|| corruption("its offset in the manifest is outside the file".to_owned()))?;
        let mut tail = vec![0; tail_bytes];
        file.read_at(entry.footer_offset, &mut tail).at("read", path)?;
        if xxh3_64(&tail) != entry.footer_checksum {
            return Err(corruption("checksum mismatch with the manifest".to_owned()));
        }
        let (footer, index_bytes) = split_footer(&tail).map_err(|malformed| corruption(malformed.to_string()))?;
        let identity = footer.identity.checked(path)?;
        if identity.commit != commit || footer.part != entry.part {
            return Err(other_part(path, entry.part, commit, footer.part, identity.commit));
        }
        if !footer.fits(&schema) {
            return Err(corruption("its columns differ from the dataset's".to_owned()));
        }
        let indexes = entry.footer_offset..entry.footer_offset + index_bytes as u64;
        check_locations(&footer, indexes).map_err(|malformed| corruption(malformed.to_string()))?;
        let tail = Arc::new(tail);
        let pages = |group| Arc::new(RowGroupPages::of_footer(group, &schema, &tail, entry.footer_offset));
        let row_groups = RowGroups::Footer(footer.row_groups.into_iter().map(pages).collect());
        Ok(Self { file, path: path.to_owned(), schema, identity, row_groups, confirmed: OnceLock::from(()) })
    }

    /// Opens the part at `path`, whose manifest states the places of its pages, without reading. `identity` is that of
    /// the manifest's commit. Nothing that is read may be used before [`PartReader::confirm`] has succeeded.
    ///
    /// # Errors
    /// - [`Error::Corruption`] if the length is another
    /// - I/O errors
    pub fn open_sealed(
        storage: &dyn Storage,
        path: &Path,
        entry: &PartEntry,
        identity: PartIdentity,
        schema: Arc<Schema>,
    ) -> Result<Self> {
        let file = open_file(storage, path, entry)?;
        let mark_offset = entry.seals_end().checked_sub(OwnerMark::CLOSING_BYTES as u64);
        let Some(mark_offset) = mark_offset.filter(|_| entry.footer_offset < entry.bytes) else {
            // A part without runs has no seal. Its footer is short.
            return Self::open(storage, path, entry, identity.commit, schema);
        };
        file.announce(&[(mark_offset, OwnerMark::CLOSING_BYTES as u64)]);
        let row_groups = RowGroups::Manifest { part: *entry, used: Mutex::default() };
        Ok(Self { file, path: path.to_owned(), schema, identity, row_groups, confirmed: OnceLock::new() })
    }

    /// Checks that the file is the part of the commit that it was opened for. Reads the mark at the end of the last
    /// seal, unless the check has succeeded before.
    ///
    /// # Errors
    /// [`Error::Corruption`] if commit or part are others; I/O errors.
    pub fn confirm(&self) -> Result<()> {
        let RowGroups::Manifest { part, .. } = &self.row_groups else { return Ok(()) };
        if self.confirmed.get().is_some() {
            return Ok(());
        }
        let mut closing = [0; OwnerMark::CLOSING_BYTES];
        self.file
            .read_at(part.seals_end().saturating_sub(closing.len() as u64), &mut closing)
            .at("read", &self.path)?;
        let corruption = || Error::corruption_at(&self.path, "last seal", "it is missing");
        let mark = OwnerMark::find(&closing).ok_or_else(corruption)?;
        if (mark.commit, mark.part) != (self.identity.commit, part.part) {
            return Err(other_part(&self.path, part.part, self.identity.commit, mark.part, mark.commit));
        }
        if mark.level != u32::from(part.level) {
            let what = format!("it is of level {}, the manifest states {}", mark.level, part.level);
            return Err(Error::corruption_at(&self.path, "last seal", what));
        }
        let _ = self.confirmed.set(());
        Ok(())
    }

    /// Returns the commit to which a part belongs, by its last seal. Reads little of the file.
    ///
    /// # Errors
    /// - [`Error::Corruption`] if the file has neither a seal where the manifest's `entry` says nor a complete footer
    /// - [`Error::Version`] if another release wrote the part
    /// - I/O errors
    pub fn commit_of(storage: &dyn Storage, path: &Path, entry: &PartEntry) -> Result<Uuid> {
        let file = open_file(storage, path, entry)?;
        match last_commit(&*file, entry.seals_end()).at("read", path)? {
            Some(commit) => Ok(commit),
            None => Self::identify(storage, path).map(|identity| identity.commit),
        }
    }

    /// Returns the dataset, commit and epoch of a part. Reads only the footer.
    ///
    /// # Errors
    /// - [`Error::Corruption`] if the file has no complete footer written by Turbidite
    /// - [`Error::Version`] if another release wrote the part
    /// - I/O errors
    pub fn identify(storage: &dyn Storage, path: &Path) -> Result<PartIdentity> {
        let file = storage.open(path).at("open", path)?;
        let corruption = |what: &str| Error::corruption_at(path, "footer", what);
        let mut closing = [0; CLOSING_BYTES];
        let closing_offset = file
            .bytes()
            .checked_sub(CLOSING_BYTES as u64)
            .ok_or_else(|| corruption("the file is too short for a footer"))?;
        file.read_at(closing_offset, &mut closing).at("read", path)?;
        let footer_bytes = closing_footer_bytes(closing).map_err(|malformed| corruption(malformed.0))?;
        let footer_offset = closing_offset
            .checked_sub(footer_bytes as u64)
            .ok_or_else(|| corruption("its length exceeds the file's"))?;
        let mut footer = vec![0; footer_bytes];
        file.read_at(footer_offset, &mut footer).at("read", path)?;
        let footer = decode_footer(&footer).map_err(|malformed| corruption(malformed.0))?;
        footer.identity.checked(path)
    }

    /// Returns the part's file, from which callers may read pages.
    pub fn file(&self) -> &Arc<dyn ReadableFile> {
        &self.file
    }

    /// Returns the part's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the dataset, commit and epoch of the part.
    pub fn identity(&self) -> PartIdentity {
        self.identity
    }

    /// Returns the number of row groups in the footer. Returns 0 if the footer was not read.
    pub fn row_groups(&self) -> u32 {
        match &self.row_groups {
            RowGroups::Footer(groups) => groups.len() as u32,
            RowGroups::Manifest { .. } => 0,
        }
    }

    /// Returns the number of rows of a row group.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the row group does not exist.
    pub fn rows(&self, row_group: u32) -> Result<u64> {
        self.in_footer(row_group).map(|group| group.rows())
    }

    /// Returns a row group by the footer.
    fn in_footer(&self, row_group: u32) -> Result<&Arc<RowGroupPages>> {
        let RowGroups::Footer(groups) = &self.row_groups else {
            return Err(Error::corruption_at(&self.path, "footer", "it was not read"));
        };
        groups.get(row_group as usize).ok_or_else(|| {
            let what = format!("it has {} row groups and no number {row_group}", groups.len());
            Error::corruption_at(&self.path, "footer", what)
        })
    }

    /// Returns the pages of a row group. With `by_index`, the statistics of all columns' pages are known, as far as the
    /// file has them. Otherwise, only those of the key may be known, unless the page index had to be read already.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the row group does not exist, or its page indexes are corrupt; I/O errors.
    pub fn row_group(&self, entry: &RowGroupEntry, by_index: bool) -> Result<Arc<RowGroupPages>> {
        let RowGroups::Manifest { used, .. } = &self.row_groups else {
            return self.in_footer(entry.row_group).cloned();
        };
        if let Some(found) = lock(used).get(&entry.row_group).filter(|found| found.has_index() || !by_index) {
            return Ok(Arc::clone(found));
        }
        let computed = if by_index { None } else { RowGroupPages::of_entry(entry, &self.schema) };
        match computed {
            Some(pages) => Ok(keep(used, entry.row_group, pages)),
            None => {
                self.read_indexes(&[entry])?;
                self.row_group(entry, false)
            }
        }
    }

    /// Returns whether the page indexes of these row groups have been read.
    pub fn has_indexes(&self, entries: &[&RowGroupEntry]) -> bool {
        let RowGroups::Manifest { used, .. } = &self.row_groups else { return true };
        entries.is_empty() || {
            let used = lock(used);
            entries.iter().all(|entry| used.get(&entry.row_group).is_some_and(|found| found.has_index()))
        }
    }

    /// Announces the page indexes of row groups that have not been read yet.
    pub fn announce_indexes(&self, entries: &[&RowGroupEntry]) {
        // Reading reports errors.
        for near in self.unread_indexes(entries).unwrap_or_default() {
            self.file.announce(&[(near.start, near.bytes)]);
        }
    }

    /// Reads the page indexes of row groups that have not been read yet, in few reads.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a page index is corrupt; I/O errors.
    pub fn read_indexes(&self, entries: &[&RowGroupEntry]) -> Result<()> {
        let RowGroups::Manifest { used, .. } = &self.row_groups else { return Ok(()) };
        for IndexRead { start, bytes, places } in self.unread_indexes(entries)? {
            // `unread_indexes` has checked that the indexes lie in the file.
            let mut content = vec![0; bytes as usize];
            self.file.read_at(start, &mut content).at("read", &self.path)?;
            for (at, entry, directory) in places {
                let index = &content[(at - start) as usize..][..directory.index_bytes as usize];
                if xxh3_64(index) != directory.index_checksum {
                    return Err(self.index_corruption(entry, "checksum mismatch with the manifest"));
                }
                let pages = RowGroupPages::of_index(entry, &self.schema, index.to_vec())
                    .map_err(|malformed| self.index_corruption(entry, malformed.0))?;
                keep(used, entry.row_group, pages);
            }
        }
        Ok(())
    }

    /// Returns the reads of the page indexes of row groups that have not been read yet.
    fn unread_indexes<'a>(&self, entries: &[&'a RowGroupEntry]) -> Result<Vec<IndexRead<'a>>> {
        let RowGroups::Manifest { part, used } = &self.row_groups else { return Ok(Vec::new()) };
        let mut places = Vec::new();
        for &entry in entries {
            if lock(used).get(&entry.row_group).is_some_and(|found| found.has_index()) {
                continue;
            }
            let directory = &entry.pages;
            let place = part.footer_offset.checked_add(directory.index_offset).and_then(|start| {
                start.checked_add(u64::from(directory.index_bytes)).filter(|end| *end <= self.file.bytes())?;
                Some((start, entry, directory))
            });
            places.push(place.ok_or_else(|| self.index_corruption(entry, "its place in the manifest is wrong"))?);
        }
        places.sort_unstable_by_key(|(start, ..)| *start);
        let mut reads: Vec<IndexRead<'a>> = Vec::new();
        for place in places {
            let (start, bytes) = (place.0, u64::from(place.2.index_bytes));
            match reads.last_mut() {
                Some(last) if start <= last.start.saturating_add(last.bytes).saturating_add(INDEX_GAP_BYTES) => {
                    last.bytes = last.bytes.max(start + bytes - last.start);
                    last.places.push(place);
                }
                _ => reads.push(IndexRead { start, bytes, places: vec![place] }),
            }
        }
        Ok(reads)
    }

    fn index_corruption(&self, entry: &RowGroupEntry, what: &str) -> Error {
        Error::corruption_at(&self.path, format!("page index of row group {}", entry.row_group), what)
    }

    /// Returns the byte range of a column chunk in the file, by the footer.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the row group or column does not exist.
    pub fn chunk_range(&self, row_group: u32, column: usize) -> Result<Range<u64>> {
        self.in_footer(row_group)?.chunk(column).cloned().ok_or_else(|| {
            Error::corruption_at(&self.path, "footer", format!("row group {row_group} has no column {column}"))
        })
    }

    /// Returns the byte range of a column chunk's Bloom filter in the file, by the footer. `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the row group does not exist.
    pub(crate) fn filter_range(&self, row_group: u32, column: usize) -> Result<Option<Range<u64>>> {
        Ok(self.in_footer(row_group)?.filter(column).cloned())
    }

    /// Returns the locations of a column chunk's pages by the footer, in row order. The pages have no gaps between
    /// them.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the offset index is malformed, or the row group or column does not exist.
    pub fn pages(&self, row_group: u32, column: usize) -> Result<&[PageLocation]> {
        self.locations(self.in_footer(row_group)?, row_group, column)
    }

    /// Returns the locations of a column's pages in a row group of this part, in row order.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the offset index is malformed, or the column does not exist.
    pub fn locations<'a>(&self, pages: &'a RowGroupPages, row_group: u32, column: usize) -> Result<&'a [PageLocation]> {
        pages.locations(column).map_err(|malformed| {
            let place = format!("page index of column '{}' of row group {row_group}", self.column_name(column));
            Error::corruption_at(&self.path, place, malformed.0)
        })
    }

    /// Returns the smallest and largest value of a page by the footer. Returns `None` if they are unknown; such a page
    /// cannot be pruned.
    pub fn page_range(&self, row_group: u32, column: usize, page: usize) -> Option<(Value, Value)> {
        self.in_footer(row_group).ok()?.range(column, page)
    }

    /// Decodes a page from its bytes, header included. Appends the values to `out`: packed, little-endian, in the
    /// stored width of the column. Returns the number of rows.
    ///
    /// Sizes are always checked. The page's CRC32 is verified if `check` is true.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the bytes are not a page of this column, or on a checksum mismatch.
    pub fn decode_page(&self, raw: &[u8], column: usize, check: bool, out: &mut Vec<u8>) -> Result<usize> {
        let data_type = self
            .schema
            .columns()
            .get(column)
            .ok_or_else(|| Error::corruption(&self.path, format!("it has no column {column}")))?
            .data_type;
        let (header, header_bytes) = self.page_header(raw, column)?;
        let body = &raw[header_bytes..];
        self.judge_page(header, body, column, check)?;
        narrow(data_type, body, out);
        Ok(header.rows as usize)
    }

    /// Checks a page like [`PartReader::decode_page`], with header and body in separate slices. Returns the number of
    /// rows.
    ///
    /// If [`PartReader::value_bytes`] equals the stored width of the column, `body` contains the values as they are
    /// stored.
    ///
    /// # Errors
    /// As for [`PartReader::decode_page`], and if the length of the header differs from the page index.
    pub fn check_page(&self, header: &[u8], body: &[u8], column: usize, check: bool) -> Result<usize> {
        let (parsed, header_bytes) = self.page_header(header, column)?;
        if header_bytes != header.len() {
            return Err(self.page_corruption(column, "the length of its header differs from the page index"));
        }
        self.judge_page(parsed, body, column, check)?;
        Ok(parsed.rows as usize)
    }

    /// Returns the width of a column's values in pages, in bytes. Integers below 32 bits are widened in pages.
    pub fn value_bytes(&self, column: usize) -> usize {
        self.schema.columns().get(column).map_or(0, |column| physical_width(column.data_type))
    }

    fn page_header(&self, raw: &[u8], column: usize) -> Result<(PageHeader, usize)> {
        decode_page_header(raw).map_err(|malformed| self.page_corruption(column, malformed.0))
    }

    fn judge_page(&self, header: PageHeader, body: &[u8], column: usize, check: bool) -> Result<()> {
        let expected = (header.rows as usize).checked_mul(self.value_bytes(column));
        if body.len() != header.body_bytes || expected != Some(body.len()) {
            return Err(self.page_corruption(column, "its length differs from its header"));
        }
        if check && crc32fast::hash(body) != header.crc {
            return Err(self.page_corruption(column, "checksum mismatch"));
        }
        Ok(())
    }

    fn page_corruption(&self, column: usize, what: &str) -> Error {
        Error::corruption_at(&self.path, format!("a page of column '{}'", self.column_name(column)), what)
    }

    /// Reads and decodes a page, like [`PartReader::decode_page`].
    ///
    /// # Errors
    /// [`Error::Corruption`] with the row group and page in the message; I/O errors.
    pub fn read_page(
        &self,
        row_group: u32,
        column: usize,
        page: usize,
        check: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let place = || format!("row group {row_group}, column '{}', page {page}", self.column_name(column));
        let location = *self
            .pages(row_group, column)?
            .get(page)
            .ok_or_else(|| Error::corruption_at(&self.path, place(), "no such page"))?;
        // The checks of footer and page index ensure that pages lie within the file.
        let mut raw = vec![0; location.bytes as usize];
        self.file.read_at(location.offset, &mut raw).at("read", &self.path)?;
        let rows = self.decode_page(&raw, column, check, out).map_err(|error| match error {
            Error::Corruption { path, what, .. } => Error::Corruption { path, place: Some(place()), what },
            other => other,
        })?;
        if rows != location.rows as usize {
            return Err(Error::corruption_at(&self.path, place(), "its number of rows differs from the page index"));
        }
        Ok(rows)
    }

    fn column_name(&self, column: usize) -> &str {
        self.schema.columns().get(column).map_or("?", |column| &column.name)
    }
}

/// Returns the error for a file that is another part than the manifest's.
fn other_part(path: &Path, expected: PartId, commit: Uuid, part: PartId, found: Uuid) -> Error {
    let (expected, part) = (expected.file_name(), part.file_name());
    let what = format!("it is {part} of commit {found}, not {expected} of {commit}");
    Error::corruption_at(path, "footer", what)
}

/// Locks the row groups in use, even if another thread panicked: they are always consistent.
fn lock(used: &Mutex<HashMap<u32, Arc<RowGroupPages>>>) -> MutexGuard<'_, HashMap<u32, Arc<RowGroupPages>>> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the pages of a row group, and returns them.
fn keep(used: &Mutex<HashMap<u32, Arc<RowGroupPages>>>, row_group: u32, pages: RowGroupPages) -> Arc<RowGroupPages> {
    let pages = Arc::new(pages);
    lock(used).insert(row_group, Arc::clone(&pages));
    pages
}

fn closing_footer_bytes(closing: [u8; CLOSING_BYTES]) -> Result<usize, Malformed> {
    let [a, b, c, d, magic @ ..] = closing;
    if magic != *PARQUET_MAGIC {
        return Err(Malformed("the file does not end with the Parquet magic"));
    }
    Ok(u32::from_le_bytes([a, b, c, d]) as usize)
}

/// Decodes the footer at the end of a tail. Returns the footer, and the size of the page indexes before it in bytes.
fn split_footer(tail: &[u8]) -> Result<(ParsedFooter, usize), Malformed> {
    let (rest, closing) = tail.split_last_chunk::<CLOSING_BYTES>().ok_or(Malformed("it is too short"))?;
    let footer_bytes = closing_footer_bytes(*closing)?;
    let index_bytes = rest.len().checked_sub(footer_bytes).ok_or(Malformed("it is shorter than its stated length"))?;
    Ok((decode_footer(&rest[index_bytes..])?, index_bytes))
}

/// Checks all locations in the footer: pages must precede the tail, without gaps in a row group, and page indexes must
/// lie in the index section.
fn check_locations(footer: &ParsedFooter, indexes: Range<u64>) -> Result<(), Malformed> {
    let within = |range: &Range<u64>| range.start >= indexes.start && range.end <= indexes.end;
    let mut position = PARQUET_MAGIC.len() as u64;
    for group in &footer.row_groups {
        let mut next = None;
        for place in &group.columns {
            let follows = next.map_or(place.pages.start >= position, |next| place.pages.start == next);
            if !follows || place.pages.end > indexes.start {
                return Err(Malformed("a column chunk is at an invalid offset"));
            }
            if !within(&place.offset_index) || !place.column_index.as_ref().is_none_or(within) {
                return Err(Malformed("a page index is at an invalid offset"));
            }
            next = Some(place.pages.end);
        }
        position = next.unwrap_or(position);
    }
    Ok(())
}
