//! `turbidite._core`: the extension module of the Python package.
//!
//! The module holds what must be fast or shares memory with NumPy and Arrow; the package's classes are Python
//! (`python/turbidite`). Map: `errors` raises the package's exceptions, `dataset` reads, `batch` lends the memory of
//! query results to NumPy and Arrow, `stream` runs queries, `cursor` runs them step by step, `histogram` counts, `aggregates` sums,
//! `clustering` describes row groups, `types` lists the primitive types, `values` passes numbers and ranges, `version` the package's version,
//! `watch` lets Ctrl-C end a call and tells its progress, `owned` keeps forked processes from its threads, `writer`
//! writes from one process and `rank_writer` from the ranks of a parallel program, `opening` checks their arguments,
//! `appends` keeps appends within their epoch, `arrays` views the caller's arrays and `arrow_rows` Arrow's batches,
//! `recipe` derives columns.
//!
//! Invariants
//! - The interpreter's lock is released while the core works.
//! - No column is copied on its way to Arrow or NumPy.

mod aggregates;
mod appends;
mod arrays;
mod arrow_rows;
mod batch;
mod clustering;
mod cursor;
mod dataset;
mod errors;
mod histogram;
mod opening;
mod owned;
mod rank_writer;
mod recipe;
mod stream;
mod types;
mod values;
mod version;
mod watch;
mod writer;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::aggregates::Aggregates;
    #[pymodule_export]
    use crate::arrow_rows::arrow_columns;
    #[pymodule_export]
    use crate::batch::{Batch, BatchColumn};
    #[pymodule_export]
    use crate::cursor::{Cursor, CursorStep};
    #[pymodule_export]
    use crate::dataset::Dataset;
    #[pymodule_export]
    use crate::rank_writer::RankWriter;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::values::{check_epochs, split_list};
    #[pymodule_export]
    use crate::version::version;
    #[pymodule_export]
    use crate::writer::Writer;
}
