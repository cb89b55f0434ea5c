//! Rows in memory, and how they become row groups.
//!
//! `memtable` and `column_table` collect rows, `sort` orders them by key, `drain` and `gather` take them apart into columns,
//! `pages` encodes a row group.

pub(super) mod column_table;
pub(super) mod drain;
pub(super) mod gather;
pub(super) mod memtable;
pub(super) mod pages;
pub(super) mod sort;
