//! The writer of one receiver: converts delivered records to sealed parts.
//!
//! The writer is a state machine without I/O. A driver passes records in, runs the writer's [`Task`]s on a background
//! thread or inline, and returns their [`Completion`]s. The writer determines the next task. Regular records have two
//! memtables: one is filled while the other is flushed. Entries of indexes have one, which is larger: entries that
//! arrive while it is flushed are held in a small one, and moved back to it afterwards. Strays, spills and NaN keys
//! have small memtables of their own, so regular runs keep narrow key ranges. In a dataset with levels of detail, a
//! task divides the rows of a memtable into one run for each level.
//!
//! Invariants:
//!
//! - At most one task is in progress. The runs of a part are therefore in the order of their flushes, and their offsets
//!   are known.
//! - At most one full memtable waits for that task. [`Writer::accepts`] then returns false, and the driver stops
//!   polling. A writer with one memtable accepts no more than a share of a memtable while it is flushed.
//! - After an error, the writer continues to accept records and discards them. An epoch that cannot be stored must
//!   still end on all ranks, with an error ([`Outcome`]).

mod factory;
mod open_parts;
mod state;
mod task;

pub use factory::PartFactory;
pub use open_parts::OpenParts;
pub(crate) use state::{HELD_FRACTION, MEMTABLES};
pub use state::{MAX_RUN_ROWS, Outcome, THREADS_PER_CORE, Writer, WriterOptions};
pub use task::{Completion, Task};
