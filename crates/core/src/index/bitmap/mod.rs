//! Bitmap indexes: which columns they have, and how the values of a row group are divided into bins.

mod binning;
mod definition;

pub(crate) use binning::{BinnedColumn, bin_column};
pub use definition::BitmapDefinition;
