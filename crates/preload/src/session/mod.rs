//! Decides when epochs are indexed, in agreement of all ranks.
//!
//! An epoch of a dataset is complete when no rank has one of its files open and one of three conditions holds: the
//! program has closed as many files as an epoch has, a rank has begun a later epoch, or the program ends. Ranks
//! determine this together, in calls that all ranks make. The number of such calls between two questions is computed
//! from agreed values, so it is the same on all ranks.
//!
//! Map: `state` is the state of a process. `files` tracks the files that the program opens and closes, `mapping` those
//! that it maps, and `naming` and `folders` the names that it gives, changes and removes. `placement` is the path at
//! which a file is opened. `agreement` asks the ranks, `shares` divides the files that several ranks wrote. `ending`
//! handles the end of MPI or of the process, and `overlooked` names files that were not indexed. `current` holds the
//! session of this process.

mod agreement;
mod current;
mod ending;
mod files;
mod folders;
mod mapping;
mod naming;
mod overlooked;
mod placement;
mod shares;
mod state;

pub(crate) use current::{is_begun, of_original, session, session_at_exit};
pub(crate) use mapping::{has_mappings, remapped, unmapped};
pub(crate) use placement::{Moved, Placement, Removal};
