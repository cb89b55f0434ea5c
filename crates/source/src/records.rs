//! Reads fixed-size records, in the order of [`blocks`].

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::chunk::{Chunk, Values};
use crate::error::{SourceContext, SourceError};
use crate::inventory::{RecordFile, RecordForm};
use crate::slices::{Slice, blocks, slices};

/// Maximum size of a block, in bytes: large enough for hard disks and parallel file systems, small enough for a CPU
/// cache.
const BLOCK_BYTES: usize = 1 << 20;

/// Number of files that the readers of an epoch keep open, for all ranks together.
const OPEN_FILES: usize = 256;

/// Memory for shares that are read at once, in bytes, for all ranks together. Small shares have small blocks: reading
/// each by itself would cost more than all that follows (64 epochs of 8 MB by 16 ranks: 225,000 reads).
pub(crate) const SHARE_BYTES: usize = 64 << 20;

/// A reader of fixed-size records.
#[derive(Debug)]
pub(crate) struct RecordReader<'a> {
    form: &'a RecordForm,
    record_bytes: usize,
    files: &'a [RecordFile],
    blocks: VecDeque<Slice>,
    share: Share,
    /// The files read last, by index.
    open: VecDeque<(usize, File)>,
    open_limit: usize,
}

/// A rank's share of the records.
#[derive(Debug)]
enum Share {
    /// Too large to be read at once.
    Large,
    /// To be read at once, in ascending order of files.
    Unread(Vec<Slice>),
    Read(Vec<(Slice, Vec<u8>)>),
}

impl<'a> RecordReader<'a> {
    /// Returns a reader for each rank. Shares are read at once if those of all ranks together fit `share_bytes`.
    pub(crate) fn of_files(
        form: &'a RecordForm,
        record_bytes: usize,
        files: &'a [RecordFile],
        ranks: u32,
        share_bytes: usize,
    ) -> Vec<Self> {
        let records: Vec<u64> = files.iter().map(|file| file.records).collect();
        let block_limit = (BLOCK_BYTES / record_bytes).max(1) as u64;
        let share_limit = (share_bytes / record_bytes) as u64 / u64::from(ranks.max(1));
        let open_limit = (OPEN_FILES / (ranks as usize).max(1)).max(1);
        let reader = |slices: Vec<Slice>| {
            let blocks = blocks(&slices, block_limit).into();
            let is_small = slices.iter().map(|slice| slice.records).sum::<u64>() <= share_limit;
            let share = if is_small { Share::Unread(slices) } else { Share::Large };
            Self { form, record_bytes, files, blocks, share, open: VecDeque::new(), open_limit }
        };
        slices(&records, ranks).into_iter().map(reader).collect()
    }

    /// Replaces `buffer` by at most `limit` records. Returns `None` at the end.
    pub(crate) fn next(&mut self, limit: usize, buffer: &mut Vec<u8>) -> Result<Option<Chunk<'a>>, SourceError> {
        while self.blocks.front().is_some_and(|block| block.records == 0) {
            self.blocks.pop_front();
        }
        if let Share::Unread(slices) = &self.share {
            let slices = slices.clone();
            self.share = Share::Read(self.read_all(&slices)?);
        }
        let Some(block) = self.blocks.front_mut() else { return Ok(None) };
        let records = block.records.min(limit.max(1) as u64);
        let chunk = Slice { records, ..*block };
        block.first += records;
        block.records -= records;
        buffer.resize(records as usize * self.record_bytes, 0);
        match &self.share {
            Share::Read(pieces) => buffer.copy_from_slice(held(pieces, chunk, self.record_bytes)),
            Share::Large | Share::Unread(_) => self.read(chunk, buffer)?,
        }
        let values = Values::Records { fields: &self.form.fields, record_bytes: self.record_bytes };
        Ok(Some(Chunk { file: &self.files[chunk.file], first: chunk.first, records: records as usize, values }))
    }

    fn read_all(&mut self, slices: &[Slice]) -> Result<Vec<(Slice, Vec<u8>)>, SourceError> {
        let read = |slice: &Slice| {
            let mut bytes = vec![0; slice.records as usize * self.record_bytes];
            self.read(*slice, &mut bytes).map(|()| (*slice, bytes))
        };
        let pieces = slices.iter().filter(|slice| slice.records > 0).map(read).collect();
        self.release();
        pieces
    }

    /// Fills `bytes` with the records of a slice.
    fn read(&mut self, slice: Slice, bytes: &mut [u8]) -> Result<(), SourceError> {
        let path = &self.files[slice.file].path;
        // `Source::open` has checked that the file's length is the sum of its header and records, so offsets fit u64.
        let offset = self.form.header_bytes + slice.first * self.record_bytes as u64;
        let place = match self.open.iter().position(|(index, _)| *index == slice.file) {
            Some(place) => place,
            None => {
                self.open.truncate(self.open_limit - 1);
                self.open.push_front((slice.file, File::open(path).of("open", path)?));
                0
            }
        };
        self.open[place].1.read_exact_at(bytes, offset).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                SourceError::Shrunk { path: path.clone(), end: offset + bytes.len() as u64 }
            }
            _ => SourceError::Io { operation: "read", path: path.clone(), source },
        })
    }

    /// Closes the open files. The next read opens them again.
    pub(crate) fn release(&mut self) {
        self.open.clear();
    }
}

/// Returns the bytes of the records of a chunk, which is part of one of `pieces`.
fn held(pieces: &[(Slice, Vec<u8>)], chunk: Slice, record_bytes: usize) -> &[u8] {
    let after = pieces.partition_point(|(piece, _)| (piece.file, piece.first) <= (chunk.file, chunk.first));
    let (piece, bytes) = &pieces[after - 1];
    let start = (chunk.first - piece.first) as usize * record_bytes;
    &bytes[start..start + chunk.records as usize * record_bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 5] = [0xAA; 5];
    const RECORD_BYTES: usize = 8;

    fn form() -> RecordForm {
        RecordForm { fields: Vec::new(), filler: None, header_bytes: HEADER.len() as u64, constants: Vec::new() }
    }

    /// Writes files of numbered records.
    fn files(folder: &std::path::Path, counts: &[u64]) -> Vec<RecordFile> {
        let mut number = 0u64;
        let file = |(rank, &records): (usize, &u64)| {
            let mut bytes = HEADER.to_vec();
            for _ in 0..records {
                bytes.extend_from_slice(&number.to_le_bytes());
                number += 1;
            }
            let path = folder.join(rank.to_string());
            std::fs::write(&path, bytes).unwrap();
            RecordFile { path, rank: rank as u32, records, constants: Box::default(), row_groups: Box::default() }
        };
        counts.iter().enumerate().map(file).collect()
    }

    /// Records are the same whether shares are read at once or by blocks, and whether or not files stay open.
    #[test]
    fn shares_and_blocks_hold_every_record_once() {
        let folder = tempfile::tempdir().unwrap();
        let (form, files) = (form(), files(folder.path(), &[700, 0, 3000, 1, 0, 299]));
        for share_bytes in [0, 4096, SHARE_BYTES] {
            for (ranks, limit) in [(1, 5000), (2, 100), (6, 64), (7, 3), (OPEN_FILES as u32 / 2, 100)] {
                let mut numbers = Vec::new();
                let mut buffer = Vec::new();
                for mut reader in RecordReader::of_files(&form, RECORD_BYTES, &files, ranks, share_bytes) {
                    while let Some(chunk) = reader.next(limit, &mut buffer).unwrap() {
                        assert!(chunk.records <= limit && buffer.len() == chunk.records * RECORD_BYTES);
                        assert!(reader.open.len() <= reader.open_limit, "{} files are open", reader.open.len());
                        let first = files[..chunk.file.rank as usize].iter().map(|file| file.records).sum::<u64>();
                        for (record, bytes) in (first + chunk.first..).zip(buffer.as_chunks().0) {
                            assert_eq!(u64::from_le_bytes(*bytes), record, "{ranks} ranks, {share_bytes} bytes");
                            numbers.push(record);
                        }
                        if numbers.len().is_multiple_of(3) {
                            reader.release();
                        }
                    }
                }
                numbers.sort_unstable();
                assert_eq!(numbers, Vec::from_iter(0..4000), "{ranks} ranks, {share_bytes} bytes");
            }
        }
    }

    /// A share is read again from its beginning after an error, and no record is lost.
    #[test]
    fn a_share_that_cannot_be_read_stays_unread() {
        let folder = tempfile::tempdir().unwrap();
        let (form, files) = (form(), files(folder.path(), &[50, 50]));
        let moved = folder.path().join("moved");
        std::fs::rename(&files[1].path, &moved).unwrap();
        let mut readers = RecordReader::of_files(&form, RECORD_BYTES, &files, 1, SHARE_BYTES);
        let (reader, mut buffer) = (&mut readers[0], Vec::new());
        for _ in 0..2 {
            assert!(reader.next(1000, &mut buffer).unwrap_err().to_string().contains("open"));
        }
        std::fs::rename(&moved, &files[1].path).unwrap();
        let mut records = 0;
        while let Some(chunk) = reader.next(1000, &mut buffer).unwrap() {
            records += chunk.records;
        }
        assert_eq!(records, 100);
    }
}
