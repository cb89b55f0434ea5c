//! Raises the package's exceptions, one class per error class of the core.

use pyo3::prelude::*;
use pyo3::types::PyType;
use turbidite::{Error, ErrorClass, Refusal};

/// Returns the Python exception of an error, with the fields of its class.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    raise(py, error).unwrap_or_else(|failed| failed)
}

/// Returns the message of an error, with advice if the program can avoid the error.
fn in_words(error: &Error) -> String {
    match error.refusal() {
        Some(Refusal::EpochExists) => format!("{error}; if_exists='replace' rewrites it, if_exists='skip' keeps it"),
        Some(Refusal::Locked) => format!("{error}; if that process is certainly gone, delete this file"),
        _ => error.to_string(),
    }
}

fn raise(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let message = in_words(error);
    let raised = match error {
        Error::Corruption { path, place, .. } => {
            class(py, "CorruptionError")?.call1((message, path.display().to_string(), place.as_deref()))?
        }
        other => {
            let name = match other.class() {
                ErrorClass::Usage => "UsageError",
                ErrorClass::Corruption => "CorruptionError",
                ErrorClass::Failed => "OperationError",
            };
            class(py, name)?.call1((message,))?
        }
    };
    Ok(PyErr::from_value(raised))
}

/// Returns the exception of a wrong argument.
pub(crate) fn usage(py: Python<'_>, message: impl Into<String>) -> PyErr {
    let raised = class(py, "UsageError").and_then(|class| class.call1((message.into(),)));
    raised.map_or_else(|failed| failed, PyErr::from_value)
}

/// Returns the exception of an operation that failed.
pub(crate) fn failed(py: Python<'_>, message: String) -> PyErr {
    let raised = class(py, "OperationError").and_then(|class| class.call1((message,)));
    raised.map_or_else(|failed| failed, PyErr::from_value)
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("turbidite.errors")?.getattr(name)?.cast_into::<PyType>()?)
}
