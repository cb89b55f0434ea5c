//! Recycling of memory of columns that are no longer in use.
//!
//! A batch of a few columns takes megabytes, and callers soon drop it. If the memory were freed, the system would unmap
//! its pages, and would map and clear new pages for the next batch. This takes longer than filling them. The dataset
//! therefore keeps a handle to each buffer that its queries return, and reclaims a buffer when the handle is the only
//! reference.
//!
//! Capacities are powers of two, so that one column can reuse the buffer of another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use arrow_buffer::Buffer;

/// Maximum number of bytes kept, in free memory and in handles to buffers in use. The buffers in flight and a few
/// batches fit.
const MOST_KEPT_BYTES: usize = 16 << 20;

/// Maximum number of handles that are examined before new memory is allocated.
const MOST_TRIES: usize = 16;

/// Minimum size of a recycled buffer, in bytes.
const LEAST_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
struct Kept {
    /// Free memory, by the logarithm of its capacity.
    free: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Handles to buffers that may still be in use.
    lent: VecDeque<Buffer>,
    bytes: usize,
}

impl Kept {
    /// Reclaims the memory of buffers that are no longer in use. Examines a bounded number of handles, the latest
    /// first, since their memory is likely to be in the processor's cache. Moves handles of buffers in use to the other
    /// end of the queue.
    fn reclaim(&mut self) {
        for _ in 0..MOST_TRIES.min(self.lent.len()) {
            let Some(buffer) = self.lent.pop_back() else { return };
            if buffer.strong_count() > 1 {
                self.lent.push_front(buffer);
                continue;
            }
            let bytes = buffer.capacity();
            match buffer.into_vec() {
                Ok(memory) => self.set_free(memory),
                Err(_) => self.bytes = self.bytes.saturating_sub(bytes),
            }
        }
    }

    fn set_free(&mut self, memory: Vec<u8>) {
        // Every kept buffer has a nonzero capacity.
        self.free.entry(memory.capacity().max(1).ilog2()).or_default().push(memory);
    }

    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let memory = self.free.get_mut(&size.ilog2())?.pop()?;
        self.bytes = self.bytes.saturating_sub(memory.capacity());
        Some(memory)
    }

    /// Evicts memory of other sizes, and handles to such memory, until a buffer of this many bytes fits. Memory that an
    /// earlier query used may have a size that this query does not need. Returns whether the buffer fits.
    fn make_room(&mut self, bytes: usize) -> bool {
        let class = bytes.max(1).ilog2();
        while self.bytes.saturating_add(bytes) > MOST_KEPT_BYTES {
            let other = self.free.iter_mut().filter(|(size, _)| **size != class).find_map(|(_, free)| free.pop());
            let freed = other.map(|memory| memory.capacity()).or_else(|| {
                let place = self.lent.iter().position(|buffer| buffer.capacity().max(1).ilog2() != class)?;
                self.lent.remove(place).map(|buffer| buffer.capacity())
            });
            let Some(freed) = freed else { return false };
            self.bytes = self.bytes.saturating_sub(freed);
        }
        true
    }
}

/// The recycled memory of one dataset's queries.
#[derive(Debug, Default)]
pub(in crate::query) struct Recycler {
    kept: Mutex<Kept>,
}

impl Recycler {
    /// Returns memory of this many bytes with arbitrary contents. The caller overwrites all bytes.
    pub(in crate::query) fn take(&self, bytes: usize) -> Vec<u8> {
        if bytes < LEAST_BYTES {
            return vec![0; bytes];
        }
        let size = bytes.next_power_of_two();
        let reused = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.take(size).or_else(|| {
                kept.reclaim();
                kept.take(size)
            })
        };
        let mut memory = reused.unwrap_or_else(|| Vec::with_capacity(size));
        memory.resize(bytes, 0);
        memory
    }

    /// Accepts a whole buffer for reuse, even if the buffer is still in use elsewhere.
    pub(in crate::query) fn give(&self, buffer: Buffer) {
        let bytes = buffer.capacity();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !bytes.is_power_of_two() || bytes < LEAST_BYTES || !kept.make_room(bytes) {
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
        assert_eq!((again.as_ptr(), again.len()), (place, 5000));
        let third = recycler.take(5000);
        assert_ne!(third.as_ptr(), place, "it is handed out once");
        assert_eq!(recycler.kept.lock().unwrap().bytes, 0);
    }

    /// Regression test: 16 MiB of one size left no room for any other size while the dataset was open.
    #[test]
    fn memory_of_one_size_makes_room_for_another() {
        for is_in_use in [false, true] {
            let recycler = Recycler::default();
            let large: Vec<Buffer> = (0..16).map(|_| Buffer::from_vec(vec![0u8; 1 << 20])).collect();
            let held = if is_in_use { large.clone() } else { Vec::new() };
            large.into_iter().for_each(|buffer| recycler.give(buffer));
            let small = Buffer::from_vec(vec![0u8; 8192]);
            let place = small.as_ptr();
            recycler.give(small);
            let again = recycler.take(8192);
            assert_eq!(again.as_ptr(), place, "in use: {is_in_use}");
            let kept = recycler.kept.lock().unwrap();
            assert_eq!(kept.bytes, 15 << 20, "one made room, the others stay");
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
                kept.bytes <= MOST_KEPT_BYTES
                    && kept.bytes == (kept.free.get(&20).map_or(0, Vec::len) + kept.lent.len()) << 20
            );
        }
        assert_eq!(recycler.take(1 << 22).len(), 1 << 22, "none is large enough");
        recycler.give(Buffer::from_vec(vec![0u8; 10]));
        assert_eq!(recycler.take(10).len(), 10);
    }
}
