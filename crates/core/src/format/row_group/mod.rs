//! Collects rows in memory and encodes them as row groups.
//!
//! `memtable` and `column_table` collect rows. `sort` orders them by key, `space_order` by place. For levels of detail,
//! `neighbours` orders those of a page, and `level_sample` chooses among them, or `level_intervals` in proportion to a
//! column. `drain` and `row_group_builder` split them into columns. `pages` encodes row groups, and `key_filter` builds
//! their filters. `tap` passes values on to indexes.

pub(super) mod column_table;
pub(super) mod drain;
pub(super) mod key_filter;
pub(super) mod level_intervals;
pub(super) mod level_sample;
pub(super) mod memtable;
mod neighbours;
pub(super) mod pages;
pub(super) mod row_group_builder;
pub(super) mod sort;
pub(super) mod space_order;
mod space_points;
pub(super) mod tap;
