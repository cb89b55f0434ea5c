//! Decides when epochs are indexed, in agreement of all ranks.
//!
//! An epoch of a dataset is complete when no rank has a file of it open and one of three conditions holds: as many
//! files were closed as an epoch has, a rank has begun a later epoch, or the program ends. Ranks determine this
//! together, inside calls that all of them make. The number of such calls between two questions is derived from agreed
//! values, so it is the same on all ranks.
//!
//! Map: `state` is the state of a process, `files` follows the files that the program opens and closes, `naming` those
//! that it renames and removes, `placement` is the path at which a file is opened; `agreement` asks the ranks, `ending`
//! handles the end of MPI or of the process; `current` holds the session of this process.

mod agreement;
mod current;
mod ending;
mod files;
mod naming;
mod placement;
mod state;

pub(crate) use current::{of_original, session, session_at_exit};
pub(crate) use placement::{Placement, Removal};
