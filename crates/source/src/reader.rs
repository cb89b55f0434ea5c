//! Reads one rank's share of an epoch in chunks of bounded size, for all file formats.

use crate::chunk::Chunk;
use crate::error::SourceError;
use crate::inventory::{Form, Source};
#[cfg(feature = "package")]
use crate::package::BlockReader;
#[cfg(feature = "parquet")]
use crate::parquet::ParquetReader;
use crate::records::{RecordReader, SHARE_BYTES};

/// A reader of one rank's share of an epoch.
pub struct RankReader<'a> {
    reader: Reader<'a>,
}

/// A reader for each file format.
enum Reader<'a> {
    Records(RecordReader<'a>),
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetReader<'a>>),
    #[cfg(feature = "package")]
    Blocks(BlockReader<'a>),
}

impl<'a> RankReader<'a> {
    /// Returns a reader for each rank of a job of `ranks` ranks.
    pub fn of_epoch(source: &'a Source, epoch: u64, ranks: u32) -> Vec<Self> {
        let files = source.files(epoch);
        match &source.form {
            Form::Records(form) => {
                let readers = RecordReader::of_files(form, source.record_bytes, files, ranks, SHARE_BYTES);
                readers.into_iter().map(|reader| Self { reader: Reader::Records(reader) }).collect()
            }
            #[cfg(feature = "parquet")]
            Form::Parquet(form) => {
                let readers = ParquetReader::of_files(form, source.record_bytes, files, ranks);
                readers.into_iter().map(|reader| Self { reader: Reader::Parquet(Box::new(reader)) }).collect()
            }
            #[cfg(feature = "package")]
            Form::Blocks(form) => {
                let readers = BlockReader::of_epoch(form, epoch, files, ranks);
                readers.into_iter().map(|reader| Self { reader: Reader::Blocks(reader) }).collect()
            }
        }
    }

    /// Returns at most `limit` records, or `None` at the end. Fixed-size records replace the content of `buffer`;
    /// decoded columns leave it unchanged.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has changed since the source was opened.
    pub fn next(&mut self, limit: usize, buffer: &mut Vec<u8>) -> Result<Option<Chunk<'a>>, SourceError> {
        match &mut self.reader {
            Reader::Records(reader) => reader.next(limit, buffer),
            #[cfg(feature = "parquet")]
            Reader::Parquet(reader) => reader.next(limit),
            #[cfg(feature = "package")]
            Reader::Blocks(reader) => reader.next(limit),
        }
    }

    /// Closes the current file. The next read opens it again. Used by jobs with more ranks than a process may have open
    /// files.
    pub fn release(&mut self) {
        match &mut self.reader {
            Reader::Records(reader) => reader.release(),
            #[cfg(feature = "parquet")]
            Reader::Parquet(reader) => reader.release(),
            // The package's readers are shared: no rank has a file of its own.
            #[cfg(feature = "package")]
            Reader::Blocks(_) => {}
        }
    }
}
