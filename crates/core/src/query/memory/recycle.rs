//! Recycling of memory of columns that are no longer in use.
//!
//! A batch of a few columns takes megabytes, and callers soon drop it. If the memory were freed, the system would unmap
//! its pages, and would map and clear new pages for the next batch. This takes longer than filling them. The dataset
//! therefore keeps a handle to each buffer that its queries return, and reclaims a buffer when the handle is the only
//! reference.
//!
//! The columns of a batch share one buffer, so a query takes and returns few of them. A buffer keeps its full length,
//! so it is cleared only once. Sizes are rounded up, so that one query can reuse the buffers of another.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use arrow_buffer::Buffer;

use crate::query::memory::scratch::Scratch;

/// Maximum number of bytes kept, in free memory and in handles to buffers in use. The buffers in flight and a few
/// batches fit.
const MAX_KEPT_BYTES: usize = 14 << 20;

/// Maximum number of kept scratch memories. Each has at most [`SCRATCH_BYTES`].
const MAX_SCRATCHES: usize = 4;

/// Maximum size of a kept scratch memory. That of a merge fits.
const SCRATCH_BYTES: usize = 512 << 10;

/// Maximum number of handles that are examined before new memory is allocated.
const MAX_TRIES: usize = 16;

/// Minimum size of a recycled buffer, in bytes.
const MIN_BYTES: usize = 4 << 10;

/// Alignment of columns within their buffer, in bytes. Suits every type, and no two columns share a cache line.
const COLUMN_ALIGNMENT: usize = 64;

/// Writable columns that share one buffer.
#[derive(Debug)]
pub(in crate::query) struct ColumnBlock {
    memory: Vec<u8>,
    /// Place of each column, ascending.
    places: Vec<Range<usize>>,
}

impl ColumnBlock {
    /// Returns the columns. Their contents are arbitrary at first.
    pub(in crate::query) fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        let mut rest = self.memory.as_mut_slice();
        let mut start = 0;
        let mut columns = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let (_, from_place) = rest.split_at_mut(place.start - start);
            let (column, later) = from_place.split_at_mut(place.len());
            columns.push(column);
            (rest, start) = (later, place.end);
        }
        columns
    }

    /// Returns the shared buffer, and the columns as its slices.
    pub(in crate::query) fn freeze(self) -> (Buffer, Vec<Buffer>) {
        let memory = Buffer::from_vec(self.memory);
        let column = |place: Range<usize>| memory.slice_with_length(place.start, place.len());
        let columns = self.places.into_iter().map(column).collect();
        (memory, columns)
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// Free memory, by its size.
    free: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Handles to buffers that may still be in use.
    lent: VecDeque<Buffer>,
    bytes: usize,
}

impl Kept {
    /// Reclaims the memory of buffers that are no longer in use. Examines a bounded number of handles, the latest
    /// first, since their memory is likely to be in the processor's cache. Moves handles of buffers in use to the other
    /// end of the queue.
    fn reclaim(&mut self) {
        for _ in 0..MAX_TRIES.min(self.lent.len()) {
            let Some(buffer) = self.lent.pop_back() else { return };
            if buffer.strong_count() > 1 {
                self.lent.push_front(buffer);
                continue;
            }
            let bytes = buffer.len();
            match buffer.into_vec() {
                Ok(memory) => self.set_free(memory),
                Err(_) => self.bytes = self.bytes.saturating_sub(bytes),
            }
        }
    }

    fn set_free(&mut self, memory: Vec<u8>) {
        self.free.entry(memory.len()).or_default().push(memory);
    }

    /// Takes the smallest free buffer of at least `size` bytes that wastes at most half of its memory.
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let (size, free) = self.free.range_mut(size..=2 * size).find(|(_, free)| !free.is_empty())?;
        self.bytes = self.bytes.saturating_sub(*size);
        free.pop()
    }

    /// Evicts memory of other sizes, and handles to such memory, until a buffer of this many bytes fits. Memory that an
    /// earlier query used may have a size that this query does not need. Returns whether the buffer fits.
    fn make_room(&mut self, bytes: usize) -> bool {
        while self.bytes.saturating_add(bytes) > MAX_KEPT_BYTES {
            let other = self.free.iter_mut().filter(|(size, _)| **size != bytes).find_map(|(_, free)| free.pop());
            let freed = other.map(|memory| memory.len()).or_else(|| {
                let place = self.lent.iter().position(|buffer| buffer.len() != bytes)?;
                self.lent.remove(place).map(|buffer| buffer.len())
            });
            let Some(freed) = freed else { return false };
            self.bytes = self.bytes.saturating_sub(freed);
        }
        true
    }
}

/// Returns the size of a recycled buffer for this many bytes: a multiple of a power of two, at most a quarter larger.
fn rounded(bytes: usize) -> usize {
    let step = 1 << (bytes.max(MIN_BYTES).ilog2() - 2);
    bytes.max(MIN_BYTES).next_multiple_of(step)
}

/// Memory of columns, shared by all threads and queries of a dataset. It is kept for later queries.
#[derive(Debug, Default)]
pub(in crate::query) struct Recycler {
    kept: Mutex<Kept>,
    scratches: Mutex<Vec<Scratch>>,
}

impl Recycler {
    /// Returns columns of these lengths in bytes, with arbitrary contents. The caller overwrites all bytes.
    pub(in crate::query) fn columns(&self, lengths: impl Iterator<Item = usize>) -> ColumnBlock {
        let mut end = 0usize;
        let place = |bytes: usize| {
            let start = end.next_multiple_of(COLUMN_ALIGNMENT);
            end = start + bytes;
            start..end
        };
        let places = lengths.map(place).collect();
        ColumnBlock { memory: self.take(end), places }
    }

    /// Returns memory of at least this many bytes with arbitrary contents.
    fn take(&self, bytes: usize) -> Vec<u8> {
        if bytes < MIN_BYTES {
            return vec![0; bytes];
        }
        let size = rounded(bytes);
        let reused = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.take(size).or_else(|| {
                kept.reclaim();
                kept.take(size)
            })
        };
        reused.unwrap_or_else(|| vec![0; size])
    }

    /// Returns scratch memory for a thread, which an earlier query may have used.
    pub(in crate::query) fn scratch(&self) -> Scratch {
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Accepts scratch memory for reuse.
    pub(in crate::query) fn give_scratch(&self, scratch: Scratch) {
        let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.bytes() <= SCRATCH_BYTES && scratches.len() < MAX_SCRATCHES {
            scratches.push(scratch);
        }
    }

    /// Accepts a whole buffer for reuse, even if the buffer is still in use elsewhere.
    pub(in crate::query) fn give(&self, buffer: Buffer) {
        let bytes = buffer.len();
        if bytes < MIN_BYTES || bytes != buffer.capacity() || bytes != rounded(bytes) {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.make_room(bytes) {
            return;
        }
        kept.bytes += bytes;
        match buffer.into_vec() {
            Ok(memory) => kept.set_free(memory),
            Err(shared) => kept.lent.push_back(shared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_once_nobody_uses_it() {
        let recycler = Recycler::default();
        let first = Buffer::from_vec(vec![7u8; 8192]);
        let slice = first.slice_with_length(10, 5);
        let place = first.as_ptr();
        recycler.give(first);
        let other = recycler.take(8192);
        assert_ne!(other.as_ptr(), place, "a slice is still in use");
        assert_eq!(slice.as_slice(), [7; 5]);
        drop(slice);
        let again = recycler.take(5000);
        assert_eq!((again.as_ptr(), again.len()), (place, 8192));
        let third = recycler.take(5000);
        assert_ne!(third.as_ptr(), place, "it is handed out once");
        assert_eq!(recycler.kept.lock().unwrap().bytes, 0);
    }

    #[test]
    fn columns_share_a_buffer_and_no_cache_line() {
        let recycler = Recycler::default();
        for lengths in [vec![], vec![0], vec![100, 0, 5000, 3], vec![7, 9]] {
            let mut block = recycler.columns(lengths.iter().copied());
            for (number, column) in (1..).zip(block.columns_mut()) {
                column.fill(number);
            }
            let (memory, columns) = block.freeze();
            assert_eq!(columns.iter().map(Buffer::len).collect::<Vec<_>>(), lengths);
            for (number, column) in (1..).zip(&columns) {
                assert!(column.iter().all(|byte| *byte == number));
                assert_eq!((column.as_ptr().addr() - memory.as_ptr().addr()) % COLUMN_ALIGNMENT, 0);
            }
        }
    }

    #[test]
    fn sizes_are_rounded_up_by_at_most_a_quarter() {
        for bytes in [MIN_BYTES, 5000, 5120, 5121, 1 << 20, (1 << 20) + 1, 36 << 13, 36 << 16] {
            let size = rounded(bytes);
            assert!(size >= bytes && size <= bytes + bytes / 4, "{bytes}: {size}");
            assert_eq!(rounded(size), size);
        }
    }

    /// Regression test: memory of one size left no room for any other size while the dataset was open.
    #[test]
    fn memory_of_one_size_makes_room_for_another() {
        for is_in_use in [false, true] {
            let recycler = Recycler::default();
            let large: Vec<Buffer> = (0..14).map(|_| Buffer::from_vec(vec![0u8; 1 << 20])).collect();
            let held = if is_in_use { large.clone() } else { Vec::new() };
            large.into_iter().for_each(|buffer| recycler.give(buffer));
            let small = Buffer::from_vec(vec![0u8; 8192]);
            let place = small.as_ptr();
            recycler.give(small);
            let again = recycler.take(8192);
            assert_eq!(again.as_ptr(), place, "in use: {is_in_use}");
            let kept = recycler.kept.lock().unwrap();
            assert_eq!(kept.bytes, 13 << 20, "one made room, the others stay");
            assert!(held.iter().all(|buffer| buffer.as_slice().iter().all(|byte| *byte == 0)));
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let recycler = Recycler::default();
        let in_use: Vec<Buffer> = (0..40).map(|_| Buffer::from_vec(vec![0u8; 1 << 20])).collect();
        in_use.iter().for_each(|buffer| recycler.give(buffer.clone()));
        (0..40).for_each(|_| recycler.give(Buffer::from_vec(vec![0u8; 1 << 20])));
        {
            let kept = recycler.kept.lock().unwrap();
            assert!(
                kept.bytes <= MAX_KEPT_BYTES
                    && kept.bytes == (kept.free.get(&(1 << 20)).map_or(0, Vec::len) + kept.lent.len()) << 20
            );
        }
        assert_eq!(recycler.take(1 << 22).len(), 1 << 22, "none is large enough");
        recycler.give(Buffer::from_vec(vec![0u8; 10]));
        assert_eq!(recycler.take(10).len(), 10);
    }
}
