//! Reading one rank's share of an epoch in bounded chunks: records of a fixed size here, in the order of [`blocks`], Parquet
//! in [`super::parquet`].

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use turbidite::{ColumnView, SchemaError};

use super::error::{SourceContext, SourceError};
use super::parquet::{DecodedColumns, ParquetReader};
use super::slices::{Slice, blocks, slices};
use super::{Field, Form, RecordFile, RecordForm, Source};

/// Most bytes of a block: long enough for a spinning disk or a parallel file system, short enough to keep in a cache.
const BLOCK_BYTES: usize = 1 << 20;

/// Records that lie together; all of them come from one file.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    /// The file they come from.
    pub file: &'a RecordFile,
    /// Position of the first one in it.
    pub first: u64,
    /// How many.
    pub records: usize,
    pub(super) values: Values<'a>,
}

/// Where the values of a chunk are.
#[derive(Debug)]
pub(super) enum Values<'a> {
    /// In the caller's buffer, record after record.
    Records { fields: &'a [Field], record_bytes: usize },
    /// Decoded, column after column.
    Columns(DecodedColumns),
}

/// Reads what one rank of a job has of an epoch.
pub(crate) enum RankReader<'a> {
    Records(RecordReader<'a>),
    Parquet(Box<ParquetReader<'a>>),
}

impl<'a> RankReader<'a> {
    /// One reader per rank of a job of `ranks` ranks.
    pub(crate) fn of_epoch(source: &'a Source, epoch: u64, ranks: u32) -> Vec<Self> {
        let files = source.files(epoch);
        match &source.form {
            Form::Records(form) => {
                let readers = RecordReader::of_files(form, source.record_bytes, files, ranks);
                readers.into_iter().map(Self::Records).collect()
            }
            Form::Parquet(columns) => {
                let readers = ParquetReader::of_files(columns, source.record_bytes, files, ranks);
                readers.into_iter().map(Box::new).map(Self::Parquet).collect()
            }
        }
    }

    /// The next records, at most `limit` of them, some of them perhaps in `buffer`, whose content is replaced; `None` at
    /// the end.
    pub(crate) fn next(&mut self, limit: usize, buffer: &mut Vec<u8>) -> Result<Option<Chunk<'a>>, SourceError> {
        match self {
            Self::Records(reader) => reader.next(limit, buffer),
            Self::Parquet(reader) => reader.next(limit),
        }
    }

    /// Closes the file in hand; the next read opens it again. For jobs of more ranks than a process may open files.
    pub(crate) fn release(&mut self) {
        match self {
            Self::Records(reader) => reader.open = None,
            Self::Parquet(reader) => reader.release(),
        }
    }
}

/// Reads records of a fixed size.
#[derive(Debug)]
pub(crate) struct RecordReader<'a> {
    form: &'a RecordForm,
    record_bytes: usize,
    files: &'a [RecordFile],
    blocks: VecDeque<Slice>,
    open: Option<(usize, File)>,
}

impl<'a> RecordReader<'a> {
    fn of_files(form: &'a RecordForm, record_bytes: usize, files: &'a [RecordFile], ranks: u32) -> Vec<Self> {
        let records: Vec<u64> = files.iter().map(|file| file.records).collect();
        let limit = (BLOCK_BYTES / record_bytes).max(1) as u64;
        let reader =
            |share: Vec<Slice>| Self { form, record_bytes, files, blocks: blocks(&share, limit).into(), open: None };
        slices(&records, ranks).into_iter().map(reader).collect()
    }

    /// Replaces `buffer` by the next records, at most `limit` of them; `None` at the end.
    fn next(&mut self, limit: usize, buffer: &mut Vec<u8>) -> Result<Option<Chunk<'a>>, SourceError> {
        while self.blocks.front().is_some_and(|block| block.records == 0) {
            self.blocks.pop_front();
        }
        let Some(block) = self.blocks.front_mut() else { return Ok(None) };
        let file = &self.files[block.file];
        let records = block.records.min(limit.max(1) as u64) as usize;
        let first = block.first;
        let record_bytes = self.record_bytes;
        // `Source::open` checked that header and records are the file's length, so offsets fit u64.
        let offset = self.form.header_bytes + first * record_bytes as u64;
        buffer.resize(records * record_bytes, 0);
        if self.open.as_ref().is_none_or(|(index, _)| *index != block.file) {
            self.open = Some((block.file, File::open(&file.path).of("open", &file.path)?));
        }
        if let Some((_, handle)) = &self.open {
            handle.read_exact_at(buffer, offset).map_err(|source| match source.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    SourceError::Shrunk { path: file.path.clone(), end: offset + buffer.len() as u64 }
                }
                _ => SourceError::Io { operation: "read", path: file.path.clone(), source },
            })?;
        }
        block.first += records as u64;
        block.records -= records as u64;
        let values = Values::Records { fields: &self.form.fields, record_bytes };
        Ok(Some(Chunk { file, first, records, values }))
    }
}

impl Chunk<'_> {
    /// The records as columns; `buffer` is the one that was given to [`RankReader::next`].
    pub(crate) fn views<'b>(&'b self, buffer: &'b [u8]) -> Result<Vec<ColumnView<'b>>, SchemaError> {
        match &self.values {
            Values::Records { fields, record_bytes } => {
                let view = |field: &Field| {
                    let start = if self.records == 0 { 0 } else { field.offset };
                    ColumnView::new(&buffer[start..], *record_bytes, self.records, field.column.data_type)
                };
                fields.iter().map(view).collect()
            }
            Values::Columns(columns) => columns.views(),
        }
    }
}
