//! One receiver's writer: turns delivered records into sealed parts, without doing I/O itself.
//!
//! A state machine: records in, [`Task`]s out, [`Completion`]s in. A driver runs the tasks, on a background thread or
//! at once, and the writer decides the next one. Regular records have two memtables, one filling while the other is
//! flushed; strays, spills and NaN keys have small ones of their own, so that they widen no regular run.
//!
//! Invariants
//! - At most one task is out at a time, so a part's runs lie in the order they were sealed and its offsets are known.
//! - At most one full memtable waits behind that task: [`Writer::accepts`] returns false then, and the driver stops
//!   polling.
//! - After an error the writer continues to take records and drops them: an epoch that cannot be stored must still end
//!   on all ranks, with the cause ([`Outcome`]).

mod state;
mod task;

pub(crate) use state::MEMTABLES;
pub use state::{MAX_RUN_ROWS, Outcome, THREADS_PER_CORE, Writer, WriterOptions};
pub use task::{Completion, PartFactory, Task};
