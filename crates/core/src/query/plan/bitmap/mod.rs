//! The choice of row groups whose rows bitmap indexes select (`choice`), and counts of rows by bins (`tables`).

pub(in crate::query) mod choice;
pub(in crate::query) mod tables;
