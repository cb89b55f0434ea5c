//! Tests of hostile key distributions on the whole write path, in one process: no loss, no abort, balanced partitions.
//!
//! `inputs` has all inputs. Each is the first epoch of a job (`first_epochs`, with one million records), and an epoch
//! before and after benign ones in several situations (`situations`). Every record has a unique ID. The tests read each
//! epoch back, which must contain each ID exactly once, with its key.

mod first_epochs;
mod inputs;
mod job;
mod situations;
mod steady_epochs;
mod volume;

/// Number of records of most epochs. Each rank appends 1,000 at a time.
const RECORDS: usize = 1_000_000;
