//! Reads one rank's blocks of an epoch.

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::{Block, BlockRows};
use super::messages::Read;
use super::pool::BlockForm;
use crate::chunk::{Chunk, Values};
use crate::error::SourceError;
use crate::inventory::RecordFile;
use crate::shares::{RowGroup, row_groups};

/// A reader of one rank's blocks of an epoch.
pub(crate) struct BlockReader<'a> {
    form: &'a BlockForm,
    epoch: u64,
    files: &'a [RecordFile],
    waiting: VecDeque<RowGroup>,
    current: Option<(RowGroup, Arc<Block>)>,
    /// Number of rows of the current block that have been returned.
    returned: usize,
}

impl<'a> BlockReader<'a> {
    /// Returns one reader per rank.
    pub(crate) fn of_epoch(form: &'a BlockForm, epoch: u64, files: &'a [RecordFile], ranks: u32) -> Vec<Self> {
        let blocks: Vec<&[u64]> = files.iter().map(|file| &*file.row_groups).collect();
        let reader =
            |share: Vec<RowGroup>| Self { form, epoch, files, waiting: share.into(), current: None, returned: 0 };
        row_groups(&blocks, ranks).into_iter().map(reader).collect()
    }

    /// Returns at most `limit` records, or `None` at the end.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<Chunk<'a>>, SourceError> {
        loop {
            let Some((group, block)) = &self.current else {
                if !self.advance(Arc::default())? {
                    return Ok(None);
                }
                continue;
            };
            if self.returned == block.rows {
                let used = block.clone();
                self.current = None;
                if !self.advance(used)? {
                    return Ok(None);
                }
                continue;
            }
            let rows = limit.clamp(1, block.rows - self.returned);
            let slice = BlockRows { columns: &self.form.columns, block: block.clone(), first: self.returned, rows };
            let first = group.first + self.returned as u64;
            let file = &self.files[group.file];
            self.returned += rows;
            return Ok(Some(Chunk { file, first, records: rows, values: Values::Block(slice) }));
        }
    }

    /// Reads the next block into the memory of one that is no longer used. Returns `false` at the end.
    fn advance(&mut self, used: Arc<Block>) -> Result<bool, SourceError> {
        let Some(group) = self.waiting.pop_front() else { return Ok(false) };
        let mut block = Arc::try_unwrap(used).unwrap_or_default();
        let row_bytes: usize = self.form.columns.iter().map(|column| column.data_type.width()).sum();
        // At most MAX_BLOCK_BYTES, checked when the source was opened.
        block.rows = group.records as usize;
        block.values.resize(block.rows * row_bytes, 0);
        let rank = self.files[group.file].rank;
        let wanted = Read { epoch: self.epoch, rank, first: group.first, rows: group.records };
        self.form.read(wanted, &mut block.values)?;
        self.returned = 0;
        self.current = Some((group, Arc::new(block)));
        Ok(true)
    }
}
