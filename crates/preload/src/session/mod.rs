//! Decides when epochs are indexed, in agreement of all ranks.
//!
//! An epoch of a dataset is complete when no rank has one of its files open and one of three conditions holds: the
//! program has closed as many files as an epoch has, a rank has begun a later epoch, or the program ends. Ranks
//! determine this together, in calls that all ranks make. The number of such calls between two questions is computed
//! from agreed values, so it is the same on all ranks.
//!
//! Map: `state` is the state of a process. `files` tracks the files that the program opens and closes, and `naming` the
//! files that it renames and removes. `placement` is the path at which a file is opened. `agreement` asks the ranks,
//! and `ending` handles the end of MPI or of the process. `current` holds the session of this process.

mod agreement;
mod current;
mod ending;
mod files;
mod naming;
mod placement;
mod state;

pub(crate) use current::{of_original, session, session_at_exit};
pub(crate) use placement::{Placement, Removal};
