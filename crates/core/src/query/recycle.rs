//! Memory of columns that nobody uses any more, for columns to come.
//!
//! A batch of a few columns is megabytes that its user soon drops. Given back to the system and asked for anew, each of
//! its pages would be cleared by the system and mapped again, which takes longer than filling it. So a query keeps a
//! handle to each buffer it hands out, and takes back those to which it has the only one left.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use arrow_buffer::Buffer;

/// Most bytes to which handles are kept: what is in flight and a few batches.
const MOST_KEPT_BYTES: usize = 16 << 20;

/// Buffers looked at before new memory is asked for; those in use go to the end of the queue.
const MOST_TRIES: usize = 8;

/// Shorter buffers are not worth the trouble.
const LEAST_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
struct Kept {
    buffers: VecDeque<Buffer>,
    bytes: usize,
}

/// The buffers of one query.
#[derive(Debug, Default)]
pub(super) struct Recycler {
    kept: Mutex<Kept>,
}

impl Recycler {
    /// Memory of this many bytes, whatever they are: the caller overwrites all of them.
    pub(super) fn take(&self, bytes: usize) -> Vec<u8> {
        match self.reuse(bytes) {
            Some(mut memory) => {
                memory.resize(bytes, 0);
                memory
            }
            None => vec![0; bytes],
        }
    }

    fn reuse(&self, bytes: usize) -> Option<Vec<u8>> {
        if bytes < LEAST_BYTES {
            return None;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MOST_TRIES.min(kept.buffers.len()) {
            let buffer = kept.buffers.pop_front()?;
            // Much larger ones would be wasted on it.
            if buffer.strong_count() > 1 || buffer.capacity() < bytes || buffer.capacity() / 2 > bytes {
                kept.buffers.push_back(buffer);
                continue;
            }
            kept.bytes = kept.bytes.saturating_sub(buffer.capacity());
            if let Ok(memory) = buffer.into_vec() {
                return Some(memory);
            }
        }
        None
    }

    /// A buffer whose memory comes back once nobody else has a handle to it.
    pub(super) fn lend(&self, memory: Vec<u8>) -> Buffer {
        let buffer = Buffer::from_vec(memory);
        if buffer.len() >= LEAST_BYTES {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.bytes += buffer.capacity();
            kept.buffers.push_back(buffer.clone());
            while kept.bytes > MOST_KEPT_BYTES
                && let Some(oldest) = kept.buffers.pop_front()
            {
                kept.bytes = kept.bytes.saturating_sub(oldest.capacity());
            }
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_once_nobody_uses_it() {
        let recycler = Recycler::default();
        let first = recycler.lend(vec![7; 8192]);
        let slice = first.slice_with_length(10, 5);
        let place = first.as_ptr();
        drop(first);
        assert_ne!(recycler.take(8192).as_ptr(), place, "a slice is still in use");
        assert_eq!(slice.as_slice(), [7; 5]);
        drop(slice);
        let again = recycler.take(5000);
        assert_eq!((again.as_ptr(), again.len()), (place, 5000));
        assert_ne!(recycler.take(5000).as_ptr(), place, "it is handed out once");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let recycler = Recycler::default();
        for _ in 0..40 {
            drop(recycler.lend(vec![0; 1 << 20]));
        }
        assert!(recycler.kept.lock().unwrap().bytes <= MOST_KEPT_BYTES);
        assert_eq!(recycler.take(1 << 21).len(), 1 << 21, "none is large enough");
        drop(recycler.lend(vec![0; 10]));
        assert_eq!(recycler.take(10).len(), 10);
        assert!(recycler.kept.lock().unwrap().buffers.iter().all(|buffer| buffer.len() > 10));
    }
}
