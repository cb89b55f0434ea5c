//! The version of the package.

use pyo3::prelude::*;

/// Returns the version of the workspace, which is also that of the wheel.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
