//! The storage interface: the few file operations that the store uses.
//!
//! Contract of every implementation (one suite, `contract`, tests all of them):
//! - `create` never opens an existing file; `rename` never replaces an existing target; `exchange` swaps two existing
//!   folders atomically or returns `Unsupported`.
//! - A write is durable once `sync` on its file returned; a name once `sync_dir` on its folder returned.
//! - `write_at` may use direct I/O when offset, length and memory are multiples of [`ALIGNMENT`]; it must also accept
//!   ranges that are not.
//! - Errors leave the target as it was or partly written, never anything else.

#[cfg(test)]
mod contract;
mod fault;
mod filesystem;
mod interface;
mod memory;
mod scratch;

pub use fault::{Fault, FaultStorage, StorageCounters};
pub use filesystem::FileSystem;
pub(crate) use interface::read_all;
pub use interface::{ALIGNMENT, DirEntry, FileKind, ReadableFile, Storage, WritableFile};
pub use memory::MemoryStorage;
pub(crate) use scratch::ScratchFile;
