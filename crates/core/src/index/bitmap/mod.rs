//! Bitmap indexes: which columns they have, and how the values of a row group are divided into bins.

mod binning;
mod columns;
mod decimals;
mod definition;
mod division;

#[cfg(test)]
pub(crate) use binning::bin_column;
pub(crate) use columns::BitmapColumns;
pub use definition::BitmapDefinition;
