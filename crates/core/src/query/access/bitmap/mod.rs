//! The access path by bitmap indexes: which rows of a row group are surely, possibly or not in an answer.
//!
//! A comparison is judged for each bin of its column by the rules that judge statistics, or for each pair of bins of
//! two columns (`bin_truths`). The bins of rows then tell the truth for each row, as a pair of bitmaps (`row_truths`),
//! and connectives join these pairs. Columns without an index are judged by their statistics. So an answer never
//! depends on an index: rows that are only possibly in it are tested.
//!
//! `index` reads the sidecars of an index, `group` judges a row group by them, and `choice` decides for each row group
//! of an epoch whether reading the bins of its rows pays. `tables` counts the rows of a row group by the bins of one or
//! two columns, for histograms.

mod bin_truths;
pub(in crate::query) mod choice;
mod group;
pub(in crate::query) mod index;
mod row_truths;
pub(in crate::query) mod tables;
