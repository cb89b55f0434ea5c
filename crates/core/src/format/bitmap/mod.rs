//! Sidecars of bitmap indexes: for each row group and indexed column, bins of the values, and the bin of each row.
//!
//! `bins` encodes the bins, `bin_numbers` the bin of each row, and `sidecar` the file of one part. FORMAT.md specifies
//! them. Input is checked before use: wild sizes, bins out of order and numbers without a bin are corruption, and
//! nothing is allocated for a size that the file does not have.

pub(crate) mod bin_numbers;
pub(crate) mod bins;
pub(crate) mod sidecar;
