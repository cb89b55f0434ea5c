//! Recovers an unfinished part: copies its sealed runs into a complete part.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, IoContext, Result};
use crate::format::manifest::entries::{ColumnStatistics, PartEntry, PartId};
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::parquet::footer::{PartIdentity, WrittenRowGroup};
use crate::format::parquet::page_header::decode_page_header;
use crate::format::parquet::page_layout::PageLayout;
use crate::format::parquet::physical::{physical_width, summarize_column};
use crate::format::parquet::thrift::Malformed;
use crate::format::part::part_options::PartOptions;
use crate::format::part::part_writer::{PartWriter, RunContext};
use crate::format::part::seal::SealedRun;
use crate::format::row_group::key_filter::KeyFilterBuilder;
use crate::format::row_group::pages::ChunkBuilder;
use crate::schema::{Clustering, Schema};
use crate::storage::{ReadableFile, Storage};

/// The result of recovering a part.
#[derive(Debug)]
pub struct RecoveredPart {
    /// Manifest entry of the new part.
    pub entry: PartEntry,
    /// Manifest entries of the recovered row groups.
    pub runs: Vec<RowGroupEntry>,
    /// Number and error of each run that was not recovered.
    pub corrupt: Vec<(u32, Error)>,
}

/// A page in the content of a row group.
struct FoundPage {
    range: Range<usize>,
    rows: u32,
    summary: ColumnStatistics,
}

/// A verified row group: its content and its pages by column.
struct FoundRowGroup {
    content: Vec<u8>,
    rows: u64,
    columns: Vec<Vec<FoundPage>>,
}

impl FoundRowGroup {
    /// Returns the rows per page from which the places of all pages follow, or 0 if they do not.
    fn page_rows(&self, run: &SealedRun, schema: &Schema) -> u32 {
        let rows = usize::try_from(self.rows).unwrap_or(usize::MAX).min(self.content.len());
        let layout = PageLayout::new(schema, rows, run.page_rows, run.kind.is_sorted(schema));
        let follows = |(column, found): (usize, &Vec<FoundPage>)| {
            let ranges = found.iter().map(|page| (page.range.start as u64, page.range.len() as u32, page.rows));
            layout.locations(column, 0).iter().map(|page| (page.offset, page.bytes, page.rows)).eq(ranges)
        };
        if run.page_rows > 0 && self.columns.iter().enumerate().all(follows) { run.page_rows } else { 0 }
    }
}

/// Copies sealed runs of the file `source` into a new, complete part in `directory`.
///
/// All bytes are verified with the seal's checksums before they are copied. A corrupt run is skipped and reported. The
/// new part has the identity `identity`, regardless of the identity in the seals.
///
/// # Errors
/// If the source cannot be read or the new part cannot be written.
pub fn recover_part(
    storage: &Arc<dyn Storage>,
    source: &Path,
    runs: &[SealedRun],
    directory: &Path,
    (part, level): (PartId, u8),
    schema: &Arc<Schema>,
    identity: PartIdentity,
) -> Result<RecoveredPart> {
    let file = storage.open(source).at("open", source)?;
    let options = PartOptions::default();
    let (storage, schema) = (Arc::clone(storage), Arc::clone(schema));
    let mut writer = PartWriter::create_at(storage, directory, (part, level), Arc::clone(&schema), options, identity)?;
    let schema = &schema;
    let mut write = None;
    let has_filter = schema.clustering() == Clustering::Hash;
    let mut entries = Vec::new();
    let mut corrupt = Vec::new();
    for run in runs {
        let groups = match read_run(&*file, source, run, schema) {
            Ok(groups) => groups,
            Err(error @ Error::Corruption { .. }) => {
                corrupt.push((run.run, error));
                continue;
            }
            Err(error) => return Err(error),
        };
        let context = RunContext { run: run.run, kind: run.kind, table_version: run.table_version, bounds: run.bounds };
        entries.extend(writer.write_run((context, run.intervals), 0, &mut write, |stream, tail| {
            let mut written = Vec::with_capacity(groups.len());
            let sorted = run.kind.is_sorted(schema);
            for group in &groups {
                let mut columns = Vec::with_capacity(group.columns.len());
                let mut first_keys = None;
                for (pages, column) in group.columns.iter().zip(schema.columns()) {
                    let mut chunk = ChunkBuilder::new(column.data_type, stream.position());
                    for page in pages {
                        stream.append(&group.content[page.range.clone()])?;
                        chunk.push(stream.position(), page.rows, page.summary);
                    }
                    if sorted && columns.len() == schema.key_index() {
                        first_keys = chunk.first_keys(schema.key_order());
                    }
                    columns.push(chunk.finish(&mut tail.indexes));
                }
                if has_filter {
                    columns[schema.key_index()].filter = append_filter(group, schema, &mut tail.filters)
                        .map_err(|malformed| Error::corruption_at(source, "page header", malformed.0))?;
                }
                let (keys, page_rows) = (Vec::new(), group.page_rows(run, schema));
                let group = WrittenRowGroup { rows: group.rows, sorted, columns, keys, page_rows, first_keys };
                written.push((group, stream.take_checksum()));
            }
            Ok(written)
        })?);
    }
    Ok(RecoveredPart { entry: writer.finish()?, runs: entries, corrupt })
}

/// Appends the filter of a row group's keys to `filters`. Returns its range.
fn append_filter(group: &FoundRowGroup, schema: &Schema, filters: &mut Vec<u8>) -> Result<Range<usize>, Malformed> {
    // The rows of the pages are no more than their bytes.
    let mut filter = KeyFilterBuilder::new(schema, group.rows as usize);
    for column in schema.key_columns() {
        for page in &group.columns[*column] {
            let page = &group.content[page.range.clone()];
            let (_, header_bytes) = decode_page_header(page)?;
            filter.add_values(*column, &page[header_bytes..]);
        }
    }
    Ok(filter.finish(filters))
}

/// Reads and verifies all row groups of a run.
fn read_run(file: &dyn ReadableFile, path: &Path, run: &SealedRun, schema: &Schema) -> Result<Vec<FoundRowGroup>> {
    let corruption = |what: &str| Error::corruption_at(path, format!("run {}", run.run), what);
    let mut groups = Vec::with_capacity(run.row_groups.len());
    for group in &run.row_groups {
        let bytes = group
            .offset
            .checked_add(group.bytes)
            .filter(|end| *end <= file.bytes())
            .and_then(|_| usize::try_from(group.bytes).ok())
            .ok_or_else(|| corruption("it ends beyond the end of the file"))?;
        let mut content = vec![0; bytes];
        file.read_at(group.offset, &mut content).at("read", path)?;
        if xxh3_64(&content) != group.checksum {
            return Err(corruption("checksum mismatch"));
        }
        let columns = find_pages(&content, group.rows, schema).map_err(|malformed| corruption(malformed.0))?;
        groups.push(FoundRowGroup { content, rows: group.rows, columns });
    }
    Ok(groups)
}

/// Locates the pages of a row group by their headers.
fn find_pages(content: &[u8], rows: u64, schema: &Schema) -> Result<Vec<Vec<FoundPage>>, Malformed> {
    let mut position = 0;
    let mut columns = Vec::with_capacity(schema.columns().len());
    for column in schema.columns() {
        let mut pages = Vec::new();
        let mut found_rows = 0u64;
        while found_rows < rows {
            let (header, header_bytes) = decode_page_header(&content[position..])?;
            let end = (position + header_bytes)
                .checked_add(header.body_bytes)
                .filter(|end| *end <= content.len())
                .ok_or(Malformed("a page is longer than its row group"))?;
            let body = &content[position + header_bytes..end];
            let fits = (header.rows as usize).checked_mul(physical_width(column.data_type)) == Some(body.len());
            if !fits || header.rows == 0 || crc32fast::hash(body) != header.crc {
                return Err(Malformed("a page does not match its header"));
            }
            let summary = summarize_column(schema, columns.len(), body);
            pages.push(FoundPage { range: position..end, rows: header.rows, summary });
            found_rows += u64::from(header.rows);
            position = end;
        }
        if found_rows != rows {
            return Err(Malformed("its columns have different numbers of rows"));
        }
        columns.push(pages);
    }
    if position != content.len() {
        return Err(Malformed("its pages do not cover it"));
    }
    Ok(columns)
}
