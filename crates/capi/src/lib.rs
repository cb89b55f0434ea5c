//! libturbidite.so: the C interface, documented in `include/turbidite.h`.
//!
//! Every exported function converts its arguments to core types, calls the core, and returns a status. Panics do not
//! cross the boundary; they return `TURBIDITE_FAILED`. All `unsafe` code of this crate relies on the header's contract:
//! pointers are valid, or NULL where NULL is allowed, and one thread at a time uses a handle.
//!
//! Map: `abi` refuses programs of earlier headers, `status` converts results to statuses and stores the last error,
//! `messages` prints errors before other ranks learn of them, `launch` detects ranks without a transport, `text` reads
//! C strings, `structs` mirrors the header's structs, and `process` is what all datasets share. `opening`, `writing`,
//! `reading`, `cursors`, `trajectories` and `histograms` export the functions, and `tests` calls them.

pub mod abi;
pub mod cursors;
pub mod histograms;
mod launch;
mod messages;
pub mod opening;
mod process;
pub mod reading;
pub mod status;
pub mod structs;
#[cfg(test)]
mod tests;
mod text;
pub mod trajectories;
pub mod writing;
