//! The storage interface: the file operations of the store.
//!
//! One test suite, `contract`, tests the contract of all implementations:
//!
//! - `create` never opens an existing file. `rename` never replaces an existing target. `exchange` swaps two existing
//!   folders atomically or returns `Unsupported`.
//! - A write is durable after `sync` on its file has returned. A name is durable after `sync_dir` on its folder has
//!   returned.
//! - `write_at` may use direct I/O if offset, length and memory are multiples of [`ALIGNMENT`]. It must also accept
//!   other ranges.
//! - After an error, the target is unchanged or partly written.

#[cfg(test)]
mod contract;
mod descriptors;
mod fault;
mod file_size_limit;
mod filesystem;
mod interface;
mod memory;
mod scratch;

pub use fault::{Fault, FaultStorage, ReadEvent, StorageCounters};
#[doc(hidden)]
pub use file_size_limit::check_length as check_file_length;
pub use filesystem::FileSystem;
pub use interface::{ALIGNMENT, DirEntry, FileKind, ReadableFile, Storage, WritableFile};
pub(crate) use interface::{read_all, read_whole};
pub use memory::MemoryStorage;
pub(crate) use scratch::ScratchFile;
