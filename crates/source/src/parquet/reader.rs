//! Decodes the row groups of one rank, one batch at a time.

use std::collections::VecDeque;

use arrow_array::{Array, ArrayRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;

use super::columns::{Chosen, ParquetForm, same_columns};
use super::decoded::{DecodedColumns, fill_with_nan, widen};
use super::file::PagedFile;
use super::footer::{guarded, load};
use crate::chunk::{Chunk, Values};
use crate::error::SourceError;
use crate::inventory::RecordFile;
use crate::shares::{RowGroup, row_groups};

/// Target size of a decoded batch, in bytes.
const BATCH_BYTES: usize = 512 << 10;

/// Maximum number of rows in a batch.
const MAX_BATCH_ROWS: usize = 1 << 13;

/// A reader of one rank's row groups of an epoch.
pub(crate) struct ParquetReader<'a> {
    form: &'a ParquetForm,
    batch_rows: usize,
    files: &'a [RecordFile],
    waiting: VecDeque<RowGroup>,
    /// Index and footer of the most recent file.
    footer: Option<(usize, ArrowReaderMetadata)>,
    open: Option<OpenGroup>,
}

/// A row group that is being decoded.
struct OpenGroup {
    group: RowGroup,
    file: PagedFile,
    chosen: Chosen,
    decoder: ParquetRecordBatchReader,
    /// Columns of the batch, in the requested order. The rows from `next` on have not been returned yet.
    batch: Vec<ArrayRef>,
    rows: usize,
    next: usize,
    /// Number of rows decoded so far, including the current batch.
    decoded: u64,
}

impl<'a> ParquetReader<'a> {
    /// Returns one reader per rank.
    pub(crate) fn of_files(
        form: &'a ParquetForm,
        record_bytes: usize,
        files: &'a [RecordFile],
        ranks: u32,
    ) -> Vec<Self> {
        let groups: Vec<&[u64]> = files.iter().map(|file| &*file.row_groups).collect();
        let batch_rows = (BATCH_BYTES / record_bytes.max(1)).clamp(1, MAX_BATCH_ROWS);
        let reader =
            |share: Vec<RowGroup>| Self { form, batch_rows, files, waiting: share.into(), footer: None, open: None };
        row_groups(&groups, ranks).into_iter().map(reader).collect()
    }

    /// Returns at most `limit` records, or `None` at the end.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<Chunk<'a>>, SourceError> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(group) = self.waiting.pop_front() else { return Ok(None) };
                self.open = Some(self.open_group(group)?);
                continue;
            };
            let file = &self.files[open.group.file];
            if open.next == open.rows && !open.advance(file, self.form.nulls_as_nan)? {
                self.open = None;
                continue;
            }
            let records = limit.clamp(1, open.rows - open.next);
            let arrays = open.batch.iter().map(|array| array.slice(open.next, records)).collect();
            let first = open.group.first + open.decoded - (open.rows - open.next) as u64;
            open.next += records;
            let types = self.form.columns.iter().map(|column| column.data_type).collect();
            return Ok(Some(Chunk { file, first, records, values: Values::Columns(DecodedColumns { arrays, types }) }));
        }
    }

    /// Closes the current file. The next read opens it again.
    pub(crate) fn release(&mut self) {
        if let Some(open) = &self.open {
            open.file.close();
        }
    }

    fn open_group(&mut self, group: RowGroup) -> Result<OpenGroup, SourceError> {
        let path = &self.files[group.file].path;
        let file = PagedFile::open(path)?;
        let footer = match self.footer.take() {
            Some((of, footer)) if of == group.file => footer,
            _ => load(&file, path)?,
        };
        let columns = &self.form.columns;
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let chosen = Chosen::of(path, &footer, Some(&names))?;
        // `Source::open` has checked the columns, but the file may have been replaced since.
        same_columns(path, &chosen.columns, path, columns)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), footer.clone())
            .with_projection(chosen.mask(&footer))
            .with_row_groups(vec![group.index])
            .with_batch_size(self.batch_rows);
        let decoder = guarded(path, format_args!("row group {}", group.index), || builder.build())?;
        self.footer = Some((group.file, footer));
        Ok(OpenGroup { group, file, chosen, decoder, batch: Vec::new(), rows: 0, next: 0, decoded: 0 })
    }
}

impl OpenGroup {
    /// Decodes the next batch. Returns `false` at the end.
    fn advance(&mut self, file: &RecordFile, nulls_as_nan: bool) -> Result<bool, SourceError> {
        let next = || self.decoder.next().transpose().map_err(ParquetError::from);
        let Some(batch) = guarded(&file.path, format_args!("row group {}", self.group.index), next)? else {
            let (found, stated) = (self.decoded, self.group.records);
            return if found == stated {
                Ok(false)
            } else {
                Err(self.wrong(file, format!("it has {found} records where the footer states {stated}")))
            };
        };
        self.batch = self.chosen.decoded_places().into_iter().map(|place| batch.column(place).clone()).collect();
        self.batch.iter_mut().for_each(widen);
        if nulls_as_nan {
            self.batch.iter_mut().for_each(fill_with_nan);
        }
        for (column, array) in self.chosen.columns.iter().zip(&self.batch) {
            if let Some(row) =
                (array.null_count() > 0).then(|| (0..array.len()).find(|row| array.is_null(*row))).flatten()
            {
                let record = self.group.first + self.decoded + row as u64;
                return Err(self.chosen.null(&file.path, column, format_args!("record {record}")));
            }
        }
        (self.rows, self.next) = (batch.num_rows(), 0);
        self.decoded += self.rows as u64;
        if self.decoded > self.group.records {
            return Err(
                self.wrong(file, format!("it has more than the {} records that the footer states", self.group.records))
            );
        }
        Ok(true)
    }

    fn wrong(&self, file: &RecordFile, what: String) -> SourceError {
        let place = format!("row group {}", self.group.index);
        SourceError::Undecodable { path: file.path.clone(), place, what }
    }
}
