//! When epochs are indexed, and what all ranks have to agree on for that.
//!
//! An epoch of a dataset is complete when no rank has a file of it open and either as many were closed as an epoch has,
//! or a rank has begun a later epoch, or the program ends. Ranks find that out together, inside of calls that all of them
//! make; how many of those calls pass without asking is decided from what all ranks have agreed on, so that it is the
//! same on all.
//!
//! Map: `state` is what a process knows, `files` follows the files that the program opens and closes, `naming` those that
//! it renames and removes, `placement` is where one is to be opened; `agreement` asks the ranks, `ending` is the end of
//! MPI or of the process; `current` has the session of this process.

mod agreement;
mod current;
mod ending;
mod files;
mod naming;
mod placement;
mod state;

pub(crate) use current::{of_original, session, session_at_exit};
pub(crate) use placement::{Placement, Removal};
