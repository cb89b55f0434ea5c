//! Streaming writes of whole aligned blocks, so that direct I/O applies.

use std::path::Path;
use std::time::Instant;

use xxhash_rust::xxh3::Xxh3;

use crate::error::{IoContext, Result};
use crate::storage::{ALIGNMENT, WritableFile};

/// Memory whose start is aligned for direct I/O: a window in a somewhat larger allocation.
#[derive(Debug)]
pub(super) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl AlignedBuffer {
    /// A zeroed buffer of `bytes`, rounded up to whole blocks. The system hands out its pages when they are touched.
    pub(super) fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let memory = vec![0u8; bytes + ALIGNMENT];
        // The allocation never moves: `memory` is not resized. `align_offset` may give up (it never does outside
        // constant evaluation); then writes are merely not direct.
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start, bytes }
    }

    /// Length in bytes, a multiple of [`ALIGNMENT`].
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    fn window(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// Appends to a file from an aligned offset on, in writes of one size.
pub(super) struct AlignedStream<'a> {
    file: &'a mut dyn WritableFile,
    path: &'a Path,
    buffer: &'a mut AlignedBuffer,
    /// Bytes per write, a multiple of [`ALIGNMENT`] and at most the buffer's length.
    write_bytes: usize,
    /// Where the buffer's content goes in the file.
    offset: u64,
    filled: usize,
    hash: Xxh3,
    write_s: f64,
}

impl<'a> AlignedStream<'a> {
    /// A stream that continues `file` at `offset`, a multiple of [`ALIGNMENT`].
    ///
    /// About `expected_bytes` will come: they are cut into equal writes, so that no small one is left over.
    pub(super) fn new(
        file: &'a mut dyn WritableFile,
        path: &'a Path,
        offset: u64,
        buffer: &'a mut AlignedBuffer,
        expected_bytes: usize,
    ) -> Self {
        let writes = expected_bytes.div_ceil(buffer.len()).max(1);
        let write_bytes = expected_bytes.div_ceil(writes).max(1).next_multiple_of(ALIGNMENT).min(buffer.len());
        Self { file, path, buffer, write_bytes, offset, filled: 0, hash: Xxh3::new(), write_s: 0.0 }
    }

    /// Position in the file of the next byte appended.
    pub(super) fn position(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// Seconds spent in writes.
    pub(super) fn write_s(&self) -> f64 {
        self.write_s
    }

    /// Appends bytes that count towards the checksum.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.append_plain(bytes)
    }

    /// Appends bytes that no checksum covers.
    pub(super) fn append_plain(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let taken = bytes.len().min(self.write_bytes - self.filled);
            let filled = self.filled;
            self.buffer.window()[filled..filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == self.write_bytes {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Appends zeros up to the position where `bytes` more end a block.
    pub(super) fn pad_before(&mut self, bytes: usize) -> Result<()> {
        let end = self.position() + bytes as u64;
        let padding = (end.next_multiple_of(ALIGNMENT as u64) - end) as usize;
        self.append_plain(&[0; ALIGNMENT][..padding])
    }

    /// The xxh3-64 of what was appended since the last call.
    pub(super) fn take_checksum(&mut self) -> u64 {
        let checksum = self.hash.digest();
        self.hash.reset();
        checksum
    }

    /// Writes what is buffered; the position must be a whole block unless the file ends here.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.filled > 0 {
            let filled = self.filled;
            let begun = Instant::now();
            self.file.write_at(self.offset, &self.buffer.window()[..filled]).at("write", self.path)?;
            self.write_s += begun.elapsed().as_secs_f64();
            self.offset += filled as u64;
            self.filled = 0;
        }
        Ok(())
    }
}
