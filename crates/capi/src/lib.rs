//! libturbidite.so: the C interface. `include/turbidite.h` is its documentation.
//!
//! Every exported function turns what it is given into the core's types, calls the core, and answers a status. A panic ends at
//! this border as `TURBIDITE_FAILED`. All `unsafe` of this crate trusts what the header demands of a caller: pointers
//! are valid or NULL where NULL is allowed, and a handle is used by one thread at a time.
//!
//! Map: `status` answers and keeps the last error, `text` reads C strings, `layout` mirrors the header's structs,
//! `writing` and `reading` are the functions, `tests` calls them.

pub mod layout;
pub mod reading;
pub mod status;
#[cfg(test)]
mod tests;
mod text;
pub mod writing;
