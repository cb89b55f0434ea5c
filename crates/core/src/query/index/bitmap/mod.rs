//! Bitmap indexes: which rows of a row group surely, possibly or never match.
//!
//! A comparison is judged for each bin of its column by the rules that judge statistics, or for each pair of bins of
//! two columns (`bin_truths`). The bins of rows then tell the truth for each row, as a pair of bitmaps (`row_truths`),
//! and connectives join these pairs. Columns without an index are judged by their statistics. So an answer never
//! depends on an index: rows that are only possibly in it are tested.
//!
//! `index` reads the sidecars of an index, and `group` judges a row group by them.

mod bin_truths;
pub(in crate::query) mod group;
pub(in crate::query) mod index;
pub(in crate::query) mod row_truths;
