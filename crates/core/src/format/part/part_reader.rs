//! Reads parts: the tail of the file once, then any page by its location.
//!
//! All input is checked before use: the tail against the manifest's checksum, locations against the length of the file,
//! pages against their own checksums. The page index of a column chunk is parsed on first access.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, IoContext, Result};
use crate::format::manifest::entries::PartEntry;
use crate::format::parquet::footer::{
    FORMAT_VERSION, PARQUET_MAGIC, ParsedChunk, ParsedFooter, PartIdentity, decode_footer,
};
use crate::format::parquet::page_header::{PageHeader, decode_page_header};
use crate::format::parquet::page_index::{PageLocation, decode_column_index, decode_offset_index};
use crate::format::parquet::physical::{narrow, physical_width};
use crate::format::parquet::thrift::Malformed;
use crate::schema::{Schema, Value};
use crate::storage::{ReadableFile, Storage};

/// Length of the end of a Parquet file: the length of the footer and the closing magic number.
const CLOSING_BYTES: usize = 8;

/// A column chunk, with its page indexes once they have been parsed.
#[derive(Debug)]
struct Chunk {
    place: ParsedChunk,
    pages: OnceLock<Vec<PageLocation>>,
    ranges: OnceLock<Option<Vec<(Value, Value)>>>,
}

#[derive(Debug)]
struct RowGroup {
    rows: u64,
    columns: Vec<Chunk>,
}

/// An open part. Threads may share a reader.
#[derive(Debug)]
pub struct PartReader {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    schema: Arc<Schema>,
    identity: PartIdentity,
    footer_offset: u64,
    /// Content of the file from `footer_offset`.
    tail: Vec<u8>,
    row_groups: Vec<RowGroup>,
}

impl PartReader {
    /// Opens the part at `path` and reads its tail. `entry` is the part's entry in the manifest of commit `commit`.
    ///
    /// # Errors
    /// - [`Error::Corruption`] if length, checksum, commit, schema or any location in the footer is wrong
    /// - [`Error::Version`] if a newer release wrote the part
    /// - I/O errors
    pub fn open(
        storage: &dyn Storage,
        path: &Path,
        entry: &PartEntry,
        commit: Uuid,
        schema: Arc<Schema>,
    ) -> Result<Self> {
        let file = storage.open(path).at("open", path)?;
        let corruption = |what: String| Error::corruption_at(path, "footer", what);
        if file.bytes() != entry.bytes {
            return Err(Error::corruption(
                path,
                format!("it has {} bytes, the manifest states {}", file.bytes(), entry.bytes),
            ));
        }
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
        check_version(path, &footer)?;
        if footer.identity.commit != commit || footer.part != entry.part {
            return Err(corruption(format!(
                "it is {} of commit {}, not {} of {commit}",
                footer.part.file_name(),
                footer.identity.commit,
                entry.part.file_name()
            )));
        }
        if !footer.fits(&schema) {
            return Err(corruption("its columns differ from the dataset's".to_owned()));
        }
        let indexes = entry.footer_offset..entry.footer_offset + index_bytes as u64;
        let identity = footer.identity;
        let row_groups = take_row_groups(footer, indexes).map_err(|malformed| corruption(malformed.to_string()))?;
        Ok(Self { file, path: path.to_owned(), schema, identity, footer_offset: entry.footer_offset, tail, row_groups })
    }

    /// Returns the dataset, commit and epoch of a part. Reads only the footer.
    ///
    /// # Errors
    /// - [`Error::Corruption`] if the file has no complete footer written by Turbidite
    /// - [`Error::Version`] if a newer release wrote the part
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
        check_version(path, &footer)?;
        Ok(footer.identity)
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

    /// Returns the number of row groups.
    pub fn row_groups(&self) -> u32 {
        self.row_groups.len() as u32
    }

    /// Returns the number of rows of a row group.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the row group does not exist.
    pub fn rows(&self, row_group: u32) -> Result<u64> {
        self.row_group(row_group).map(|group| group.rows)
    }

    /// Returns the row number of a row group's first row. The rows of a part are numbered from 0 in file order, as in
    /// DuckDB's `file_row_number`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the row group does not exist.
    pub fn first_row(&self, row_group: u32) -> Result<u64> {
        self.row_group(row_group)?;
        // A footer may contain any row counts, so the sum saturates.
        Ok(self.row_groups[..row_group as usize].iter().fold(0, |sum, group| group.rows.saturating_add(sum)))
    }

    fn row_group(&self, row_group: u32) -> Result<&RowGroup> {
        self.row_groups.get(row_group as usize).ok_or_else(|| {
            let what = format!("it has {} row groups and no number {row_group}", self.row_groups.len());
            Error::corruption_at(&self.path, "footer", what)
        })
    }

    fn chunk(&self, row_group: u32, column: usize) -> Result<&Chunk> {
        let group = self.row_group(row_group)?;
        group.columns.get(column).ok_or_else(|| {
            Error::corruption_at(&self.path, "footer", format!("row group {row_group} has no column {column}"))
        })
    }

    fn index_bytes(&self, range: &Range<u64>) -> &[u8] {
        // `take_row_groups` checked that every index lies in the tail.
        &self.tail[(range.start - self.footer_offset) as usize..(range.end - self.footer_offset) as usize]
    }

    /// Returns the byte range of a column chunk in the file.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the row group or column does not exist.
    pub fn chunk_range(&self, row_group: u32, column: usize) -> Result<Range<u64>> {
        self.chunk(row_group, column).map(|chunk| chunk.place.pages.clone())
    }

    /// Returns the locations of a column chunk's pages, in row order. The pages have no gaps between them.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the offset index is malformed, or the row group or column does not exist.
    pub fn pages(&self, row_group: u32, column: usize) -> Result<&[PageLocation]> {
        let chunk = self.chunk(row_group, column)?;
        if let Some(pages) = chunk.pages.get() {
            return Ok(pages);
        }
        let rows = self.row_group(row_group)?.rows;
        let pages = decode_offset_index(self.index_bytes(&chunk.place.offset_index), chunk.place.pages.clone(), rows)
            .map_err(|malformed| {
            let place = format!("page index of column '{}' of row group {row_group}", self.column_name(column));
            Error::corruption_at(&self.path, place, malformed.0)
        })?;
        Ok(chunk.pages.get_or_init(|| pages))
    }

    /// Returns the smallest and largest value of a page. Returns `None` if they are unknown; such a page cannot be
    /// pruned.
    pub fn page_range(&self, row_group: u32, column: usize, page: usize) -> Option<(Value, Value)> {
        let chunk = self.chunk(row_group, column).ok()?;
        if let Some(ranges) = chunk.ranges.get() {
            return ranges.as_ref()?.get(page).copied();
        }
        let pages = self.pages(row_group, column).ok()?.len();
        let data_type = self.schema.columns().get(column)?.data_type;
        let ranges = chunk.ranges.get_or_init(|| {
            let bytes = self.index_bytes(chunk.place.column_index.as_ref()?);
            decode_column_index(bytes, data_type, pages).ok()
        });
        ranges.as_ref()?.get(page).copied()
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

fn check_version(path: &Path, footer: &ParsedFooter) -> Result<()> {
    match footer.format_version {
        found if found > FORMAT_VERSION => {
            Err(Error::Version { path: path.to_owned(), found, supported: FORMAT_VERSION })
        }
        _ => Ok(()),
    }
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
fn take_row_groups(footer: ParsedFooter, indexes: Range<u64>) -> Result<Vec<RowGroup>, Malformed> {
    let within = |range: &Range<u64>| range.start >= indexes.start && range.end <= indexes.end;
    let mut position = PARQUET_MAGIC.len() as u64;
    let mut row_groups = Vec::with_capacity(footer.row_groups.len());
    for group in footer.row_groups {
        let mut next = None;
        let mut columns = Vec::with_capacity(group.columns.len());
        for place in group.columns {
            let follows = next.map_or(place.pages.start >= position, |next| place.pages.start == next);
            if !follows || place.pages.end > indexes.start {
                return Err(Malformed("a column chunk is at an invalid offset"));
            }
            if !within(&place.offset_index) || !place.column_index.as_ref().is_none_or(within) {
                return Err(Malformed("a page index is at an invalid offset"));
            }
            next = Some(place.pages.end);
            columns.push(Chunk { place, pages: OnceLock::new(), ranges: OnceLock::new() });
        }
        position = next.unwrap_or(position);
        row_groups.push(RowGroup { rows: group.rows, columns });
    }
    Ok(row_groups)
}
