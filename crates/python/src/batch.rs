//! Record batches of a query, whose memory NumPy and Arrow use without a copy.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi::to_ffi;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, make_array};
use arrow_schema::DataType;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::errors::usage;
use crate::types::with_primitives;

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

    /// Returns a column, which `numpy.asarray` views without a copy if no value is missing.
    fn column(&self, name: &str) -> PyResult<BatchColumn> {
        let column = self.batch.column_by_name(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(BatchColumn::new(Arc::clone(column)))
    }

    /// Returns a column as a NumPy array, without a copy; as a masked array if values are missing.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (numpy, BatchColumn { column }) = (py.import("numpy")?, self.column(name)?);
        let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else {
            return numpy.call_method1("asarray", (BatchColumn::new(column),));
        };
        let mask: Vec<bool> = nulls.iter().map(|is_valid| !is_valid).collect();
        let data = column.to_data().into_builder().nulls(None).build();
        let values = make_array(data.map_err(|error| usage(py, error.to_string()))?);
        let values = numpy.call_method1("array", (BatchColumn::new(values),))?;
        numpy.getattr("ma")?.call_method1("MaskedArray", (values, mask))
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

impl BatchColumn {
    pub(crate) fn new(column: ArrayRef) -> Self {
        Self { column }
    }
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
            let what = if self.column.null_count() > 0 { " with missing values" } else { "" };
            usage(py, format!("a column of type {}{what} has no counterpart in NumPy", self.column.data_type()))
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

/// Returns NumPy's name of an Arrow type; `None` for types that no dataset has.
pub(crate) fn type_string(data_type: &DataType) -> Option<String> {
    macro_rules! name {
        ($(($own:ident, $arrow:ident, $native:ident, $numpy:literal)),* $(,)?) => {
            match data_type {
                $(DataType::$arrow => Some($numpy.to_owned()),)*
                DataType::FixedSizeBinary(width) => Some(format!("|V{width}")),
                _ => None,
            }
        };
    }
    with_primitives!(name)
}

/// Returns NumPy's type and the address of the values of a column without nulls.
fn memory(column: &dyn Array) -> Option<(String, usize)> {
    if column.null_count() > 0 {
        return None;
    }
    macro_rules! address {
        ($(($own:ident, $arrow:ident, $native:ident, $numpy:literal)),* $(,)?) => {
            match column.data_type() {
                $(DataType::$arrow => {
                    column.as_primitive::<arrow_array::types::$native>().values().as_ptr() as usize
                })*
                DataType::FixedSizeBinary(_) => column.as_fixed_size_binary().value_data().as_ptr() as usize,
                _ => return None,
            }
        };
    }
    Some((type_string(column.data_type())?, with_primitives!(address)))
}

/// Exports an array as the pair of capsules that the Arrow PyCapsule interface defines.
fn export<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyTuple>> {
    let (array, schema) = to_ffi(&array.to_data()).map_err(|error| usage(py, error.to_string()))?;
    // A capsule's destructor drops its value, and with it calls the release function of a structure not taken.
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
    PyTuple::new(py, [schema, array])
}
