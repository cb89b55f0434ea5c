//! Reads fixed-size records, in the order of [`blocks`].

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::catalogue::{RecordFile, RecordForm};
use crate::chunk::{Chunk, Values};
use crate::error::{SourceContext, SourceError};
use crate::slices::{Slice, blocks, slices};

/// Maximum size of a block, in bytes: large enough for hard disks and parallel file systems, small enough for a CPU
/// cache.
const BLOCK_BYTES: usize = 1 << 20;

/// A reader of fixed-size records.
#[derive(Debug)]
pub(crate) struct RecordReader<'a> {
    form: &'a RecordForm,
    record_bytes: usize,
    files: &'a [RecordFile],
    blocks: VecDeque<Slice>,
    open: Option<(usize, File)>,
}

impl<'a> RecordReader<'a> {
    /// Returns a reader for each rank.
    pub(crate) fn of_files(
        form: &'a RecordForm,
        record_bytes: usize,
        files: &'a [RecordFile],
        ranks: u32,
    ) -> Vec<Self> {
        let records: Vec<u64> = files.iter().map(|file| file.records).collect();
        let limit = (BLOCK_BYTES / record_bytes).max(1) as u64;
        let reader =
            |share: Vec<Slice>| Self { form, record_bytes, files, blocks: blocks(&share, limit).into(), open: None };
        slices(&records, ranks).into_iter().map(reader).collect()
    }

    /// Replaces `buffer` by at most `limit` records. Returns `None` at the end.
    pub(crate) fn next(&mut self, limit: usize, buffer: &mut Vec<u8>) -> Result<Option<Chunk<'a>>, SourceError> {
        while self.blocks.front().is_some_and(|block| block.records == 0) {
            self.blocks.pop_front();
        }
        let Some(block) = self.blocks.front_mut() else { return Ok(None) };
        let file = &self.files[block.file];
        let records = block.records.min(limit.max(1) as u64) as usize;
        let first = block.first;
        let record_bytes = self.record_bytes;
        // `Source::open` has checked that the file's length is the sum of its header and records, so offsets fit u64.
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

    /// Closes the current file. The next read opens it again.
    pub(crate) fn release(&mut self) {
        self.open = None;
    }
}
