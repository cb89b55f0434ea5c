//! Writes streams of whole aligned blocks, as direct I/O requires.

use std::path::Path;
use std::time::Instant;

use xxhash_rust::xxh3::Xxh3;

use crate::error::{IoContext, Result};
use crate::storage::{ALIGNMENT, WritableFile};

/// Memory aligned for direct I/O: a window in a slightly larger allocation.
#[derive(Debug)]
pub(in crate::format) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl AlignedBuffer {
    /// Allocates a zeroed buffer of `bytes` bytes, rounded up to whole blocks. The operating system provides its pages
    /// on first use.
    pub(in crate::format) fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let memory = vec![0u8; bytes + ALIGNMENT];
        // `memory` is never resized, so the allocation does not move. `align_offset` is allowed to fail, but does so
        // only in constant evaluation. Writes would then not be direct.
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start, bytes }
    }

    /// Returns the length in bytes, a multiple of [`ALIGNMENT`].
    pub(in crate::format) fn len(&self) -> usize {
        self.bytes
    }

    fn window(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// A stream that appends to a file from an aligned offset, in writes of whole blocks. The buffer holds one or several
/// row groups.
pub(in crate::format) struct AlignedStream<'a> {
    file: &'a mut dyn WritableFile,
    path: &'a Path,
    buffer: &'a mut AlignedBuffer,
    /// File offset of the first buffered byte.
    offset: u64,
    filled: usize,
    hash: Xxh3,
    write_s: f64,
}

/// Free space in the buffer. The caller fills it in any order, then appends it from front to back.
pub(in crate::format) struct Room<'a> {
    pub(in crate::format) memory: &'a mut [u8],
    appended: usize,
    filled: &'a mut usize,
    hash: &'a mut Xxh3,
}

impl Room<'_> {
    /// Returns the number of bytes appended so far.
    pub(in crate::format) fn appended(&self) -> usize {
        self.appended
    }

    /// Appends the bytes up to `end`, and adds them to the checksum.
    pub(in crate::format) fn append_to(&mut self, end: usize) {
        self.hash.update(&self.memory[self.appended..end]);
        *self.filled += end - self.appended;
        self.appended = end;
    }
}

impl<'a> AlignedStream<'a> {
    /// Creates a stream that continues `file` at `offset`, a multiple of [`ALIGNMENT`].
    pub(in crate::format) fn new(
        file: &'a mut dyn WritableFile,
        path: &'a Path,
        offset: u64,
        buffer: &'a mut AlignedBuffer,
    ) -> Self {
        Self { file, path, buffer, offset, filled: 0, hash: Xxh3::new(), write_s: 0.0 }
    }

    /// Returns the file offset at which the next byte is appended.
    pub(in crate::format) fn position(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// Returns the seconds spent in writes.
    pub(in crate::format) fn write_s(&self) -> f64 {
        self.write_s
    }

    /// Returns free space of `bytes` bytes in the buffer. [`Room::append_to`] appends its content.
    ///
    /// # Panics
    /// If the buffer is too short for `bytes` and a partial block.
    pub(in crate::format) fn room(&mut self, bytes: usize) -> Result<Room<'_>> {
        if bytes > self.buffer.len() - self.filled {
            self.write_blocks()?;
        }
        let memory = &mut self.buffer.window()[self.filled..][..bytes];
        Ok(Room { memory, appended: 0, filled: &mut self.filled, hash: &mut self.hash })
    }

    /// Appends bytes, and adds them to the checksum.
    pub(in crate::format) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.append_plain(bytes)
    }

    /// Appends bytes that are not part of the checksum.
    pub(in crate::format) fn append_plain(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let filled = self.filled;
            let taken = bytes.len().min(self.buffer.len() - filled);
            self.buffer.window()[filled..filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == self.buffer.len() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Appends zeros so that `bytes` more bytes end at a block boundary.
    pub(in crate::format) fn pad_before(&mut self, bytes: usize) -> Result<()> {
        let end = self.position() + bytes as u64;
        let padding = (end.next_multiple_of(ALIGNMENT as u64) - end) as usize;
        self.append_plain(&[0; ALIGNMENT][..padding])
    }

    /// Returns the xxh3-64 of the bytes added to the checksum since the last call.
    pub(in crate::format) fn take_checksum(&mut self) -> u64 {
        let checksum = self.hash.digest();
        self.hash.reset();
        checksum
    }

    /// Writes all buffered bytes. They must end at a block boundary unless the file ends here.
    pub(in crate::format) fn flush(&mut self) -> Result<()> {
        self.write(self.filled)
    }

    /// Writes the whole blocks in the buffer, and keeps the partial block.
    fn write_blocks(&mut self) -> Result<()> {
        self.write(self.filled - self.filled % ALIGNMENT)
    }

    fn write(&mut self, bytes: usize) -> Result<()> {
        if bytes > 0 {
            let begun = Instant::now();
            self.file.write_at(self.offset, &self.buffer.window()[..bytes]).at("write", self.path)?;
            self.write_s += begun.elapsed().as_secs_f64();
            self.offset += bytes as u64;
            self.buffer.window().copy_within(bytes..self.filled, 0);
            self.filled -= bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// A file in memory that, like direct I/O, accepts only whole blocks from aligned memory.
    #[derive(Debug, Default)]
    struct Blocks(Vec<u8>);

    impl WritableFile for Blocks {
        fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
            assert!(data.as_ptr().addr().is_multiple_of(ALIGNMENT) && data.len().is_multiple_of(ALIGNMENT));
            assert_eq!(offset, self.0.len() as u64, "writes follow each other, from block to block");
            self.0.extend_from_slice(data);
            Ok(())
        }

        fn truncate(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// One append: through a room of `bytes` bytes, of which some stay unused, or of existing bytes.
    #[derive(Debug, Clone)]
    enum Step {
        Room { bytes: usize, left_out: usize, pieces: usize },
        Counted(usize),
        Plain(usize),
    }

    const BUFFER_BLOCKS: usize = 8;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // A room may need the whole buffer except for the partial block.
        let most = (BUFFER_BLOCKS - 1) * ALIGNMENT;
        let room = (1..=most, 0usize..100, 1usize..4).prop_map(|(bytes, left_out, pieces)| Step::Room {
            bytes,
            left_out: left_out.min(bytes - 1),
            pieces,
        });
        let others = prop_oneof![(0..3 * most).prop_map(Step::Counted), (0..3 * most).prop_map(Step::Plain)];
        prop::collection::vec(prop_oneof![3 => room, 1 => others], 0..12)
    }

    proptest! {
        #[test]
        fn all_bytes_are_written_once_in_whole_blocks(steps in steps(), seal_bytes in 1usize..2 * ALIGNMENT) {
            let (mut file, mut buffer) = (Blocks::default(), AlignedBuffer::new(BUFFER_BLOCKS * ALIGNMENT));
            let (mut expected, mut counted) = (Vec::new(), Vec::new());
            let mut stream = AlignedStream::new(&mut file, Path::new("part"), 0, &mut buffer);
            let mut next = 0u32;
            let mut fill = |bytes: usize| -> Vec<u8> {
                (0..bytes).map(|_| { next = next.wrapping_add(0x9E37_79B9); (next >> 24) as u8 }).collect()
            };
            for step in steps {
                match step {
                    Step::Room { bytes, left_out, pieces } => {
                        let data = fill(bytes - left_out);
                        let mut room = stream.room(bytes).unwrap();
                        prop_assert_eq!(room.memory.len(), bytes);
                        room.memory[..data.len()].copy_from_slice(&data);
                        for piece in 1..=pieces {
                            room.append_to(data.len() * piece / pieces);
                        }
                        prop_assert_eq!(room.appended(), data.len());
                        expected.extend_from_slice(&data);
                        counted.extend(data);
                    }
                    Step::Counted(bytes) => {
                        let data = fill(bytes);
                        stream.append(&data).unwrap();
                        expected.extend_from_slice(&data);
                        counted.extend(data);
                    }
                    Step::Plain(bytes) => {
                        let data = fill(bytes);
                        stream.append_plain(&data).unwrap();
                        expected.extend(data);
                    }
                }
                prop_assert_eq!(stream.position(), expected.len() as u64);
            }
            stream.pad_before(seal_bytes).unwrap();
            stream.append_plain(&vec![0xEE; seal_bytes]).unwrap();
            stream.flush().unwrap();
            prop_assert_eq!(stream.take_checksum(), xxh3_64(&counted));
            let end = (expected.len() + seal_bytes).next_multiple_of(ALIGNMENT);
            expected.resize(end - seal_bytes, 0);
            expected.resize(end, 0xEE);
            prop_assert!(file.0 == expected);
        }
    }
}
