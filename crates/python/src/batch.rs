//! Record batches of a query, whose memory NumPy and Arrow use without a copy.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi::to_ffi;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::DataType;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::errors::usage;

/// Some rows of a query's result.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Batch {
    batch: RecordBatch,
}

impl Batch {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

#[pymethods]
impl Batch {
    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Returns a column, which `numpy.asarray` views without a copy.
    fn column(&self, name: &str) -> PyResult<BatchColumn> {
        let column = self.batch.column_by_name(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(BatchColumn { column: Arc::clone(column) })
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<Batch of {} rows: {}>", self.batch.num_rows(), self.column_names().join(", "))
    }

    /// Exports the batch by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // The interface lets a producer ignore the request: the caller casts.
        drop(requested_schema);
        export(py, &StructArray::from(self.batch.clone()))
    }
}

/// One column of a batch.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct BatchColumn {
    column: ArrayRef,
}

#[pymethods]
impl BatchColumn {
    fn __len__(&self) -> usize {
        self.column.len()
    }

    /// The column's memory, for NumPy: read-only, kept by this object.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (type_string, address) = memory(self.column.as_ref()).ok_or_else(|| {
            usage(py, format!("a column of type {} has no counterpart in NumPy", self.column.data_type()))
        })?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.column.len(),))?;
        interface.set_item("typestr", type_string)?;
        interface.set_item("data", (address, true))?;
        Ok(interface)
    }

    /// Exports the column by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        export(py, self.column.as_ref())
    }
}

/// Returns NumPy's type and the address of the values of a column without nulls.
fn memory(column: &dyn Array) -> Option<(String, usize)> {
    if column.null_count() > 0 {
        return None;
    }
    macro_rules! values {
        ($($arrow:ident, $native:ident => $text:literal);* $(;)?) => {
            match column.data_type() {
                $(DataType::$arrow => {
                    let values = column.as_primitive::<arrow_array::types::$native>().values();
                    Some(($text.to_owned(), values.as_ptr() as usize))
                })*
                DataType::FixedSizeBinary(width) => {
                    let values = column.as_fixed_size_binary();
                    Some((format!("|V{width}"), values.value_data().as_ptr() as usize))
                }
                _ => None,
            }
        };
    }
    values! {
        Int8, Int8Type => "|i1";
        Int16, Int16Type => "<i2";
        Int32, Int32Type => "<i4";
        Int64, Int64Type => "<i8";
        UInt8, UInt8Type => "|u1";
        UInt16, UInt16Type => "<u2";
        UInt32, UInt32Type => "<u4";
        UInt64, UInt64Type => "<u8";
        Float32, Float32Type => "<f4";
        Float64, Float64Type => "<f8";
    }
}

/// Exports an array as the pair of capsules that the Arrow PyCapsule interface defines.
fn export<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyTuple>> {
    let (array, schema) = to_ffi(&array.to_data()).map_err(|error| usage(py, error.to_string()))?;
    // A capsule's destructor drops its value, and with it calls the release function of a structure not taken.
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
    PyTuple::new(py, [schema, array])
}
