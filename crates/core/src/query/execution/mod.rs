//! Reading what a plan leaves, and answering in batches.
//!
//! `fetch` reads pages, `read` tests and picks the rows of one chunk, `column` hands them to Arrow; `stream` and `order` make
//! batches, in the order of the files or of the key, which `merge` decides. `pool` has the threads, `recycle` the memory.
//! `groups` is an epoch for one who reads all of it.

pub(super) mod column;
pub(super) mod fetch;
pub(super) mod groups;
pub(super) mod merge;
pub(super) mod order;
pub(super) mod pool;
pub(super) mod read;
pub(super) mod recycle;
pub(super) mod stream;
