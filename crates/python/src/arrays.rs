//! Views of the caller's NumPy arrays, without a copy.

use std::collections::HashSet;
use std::str::FromStr;

use pyo3::exceptions::PyKeyError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use turbidite::{Column as Stated, ColumnView, DataType};

use crate::batch::type_string;
use crate::errors::{exception, usage};
use crate::types::with_primitives;

/// One column of an append: an array, and its values in memory.
#[derive(Debug)]
pub(crate) struct Column {
    /// Keeps the memory while the values are read.
    _array: Py<PyAny>,
    address: usize,
    stride: usize,
    len: usize,
    /// From the first byte of the first value to the last byte of the last one.
    bytes: usize,
    data_type: DataType,
}

impl Column {
    /// Views an array of one dimension whose type is the column's: nothing is converted.
    fn new(py: Python<'_>, name: &str, array: &Bound<'_, PyAny>, data_type: DataType) -> PyResult<Self> {
        let refuse = |what: String| usage(py, format!("column '{name}': {what}"));
        let mut array = if array.get_type().is(ndarray(py)?) {
            array.clone()
        } else {
            let numpy = py.import("numpy")?;
            if numpy.getattr("ma")?.call_method1("isMaskedArray", (array,))?.is_truthy()? {
                return Err(refuse("a masked array cannot be stored: fill its gaps, array.filled(...)".into()));
            }
            if let Some(row) = first_missing(array)? {
                let place = format!("column '{name}', row {row}");
                return Err(usage(py, format!("{place}: missing values cannot be stored: fill them first")));
            }
            numpy.call_method1("asarray", (array,))?
        };
        let interface = interface(&array)?;
        let given: String = item(&interface, intern!(py, "typestr"))?.extract()?;
        let wanted = type_string(&data_type.arrow()).unwrap_or_default();
        // The type of a structure does not tell whether a field is an object.
        let may_hold_objects = given != wanted || given.starts_with("|V");
        if may_hold_objects && array.getattr("dtype")?.getattr("hasobject")?.is_truthy()? {
            return Err(refuse("an array of Python objects cannot be stored".into()));
        }
        if given != wanted {
            let dtype = array.getattr("dtype")?.str()?;
            return Err(refuse(format!(
                "an array of {dtype} is given, but the column is {data_type}; convert it: array.astype('{wanted}')"
            )));
        }
        let shape: Vec<usize> = item(&interface, intern!(py, "shape"))?.extract()?;
        let [len] = shape[..] else {
            return Err(refuse(format!("an array of one dimension is needed, not of {}", shape.len())));
        };
        let width = data_type.width();
        let stride = |interface: &Bound<'_, PyDict>| -> PyResult<isize> {
            let strides = item(interface, intern!(py, "strides"))?;
            if strides.is_none() {
                Ok(width as isize)
            } else {
                Ok(strides.cast::<PyTuple>()?.get_item(0)?.extract()?)
            }
        };
        let mut step = stride(&interface)?;
        let mut interface = interface;
        if len > 1 && step < width as isize {
            // Backward or broadcast arrays have no stride that the core reads: they are the only ones that are copied.
            array = py.import("numpy")?.call_method1("ascontiguousarray", (array,))?;
            interface = self::interface(&array)?;
            step = stride(&interface)?;
        }
        let (address, _): (usize, bool) = item(&interface, intern!(py, "data"))?.extract()?;
        let stride = step.unsigned_abs().max(width);
        let bytes = len.saturating_sub(1).checked_mul(stride).and_then(|bytes| bytes.checked_add(width));
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| refuse("its strides reach beyond the memory of a machine".into()))?;
        Ok(Self { _array: array.unbind(), address, stride, len, bytes: if len == 0 { 0 } else { bytes }, data_type })
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the values as the core reads them.
    pub(crate) fn view(&self, py: Python<'_>) -> PyResult<ColumnView<'_>> {
        let memory = if self.bytes == 0 {
            &[][..]
        } else {
            // SAFETY: NumPy's interface describes `len` values `stride` bytes apart from `address` on, which are the
            // next `bytes` bytes. The array that this struct holds keeps them allocated. That no other thread writes to
            // the array meanwhile is the caller's duty, as for every function of NumPy that releases the interpreter's
            // lock.
            unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
        };
        ColumnView::new(memory, self.stride, self.len, self.data_type).map_err(|error| exception(py, &error.into()))
    }
}

/// Returns NumPy's type of arrays.
fn ndarray(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    NDARRAY.import(py, "numpy", "ndarray")
}

fn interface<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    Ok(array.getattr(intern!(array.py(), "__array_interface__"))?.cast_into::<PyDict>()?)
}

fn item<'py>(interface: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    interface.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.to_string()))
}

/// Returns the index of the first missing value of an array of pandas, Polars or Arrow. NumPy would turn it into NaN.
fn first_missing(array: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let mask = if array.hasattr("null_count")? {
        let count = array.getattr("null_count")?;
        let count = if count.is_callable() { count.call0()? } else { count };
        if !count.gt(0)? {
            return Ok(None);
        }
        array.call_method0("is_null")?
    } else {
        // Of pandas' types, those of NumPy hold NaN as a value; the others have a mask.
        let is_extension =
            array.hasattr("isna")? && array.hasattr("dtype")? && array.getattr("dtype")?.hasattr("na_value")?;
        if !is_extension {
            return Ok(None);
        }
        array.call_method0("isna")?
    };
    let places = array.py().import("numpy")?.call_method1("flatnonzero", (mask,))?;
    if places.len()? == 0 { Ok(None) } else { places.get_item(0)?.extract().map(Some) }
}

/// Returns the type of a column: the core's name of it, or whatever `numpy.dtype` takes.
pub(crate) fn data_type(py: Python<'_>, name: &str, stated: &Bound<'_, PyAny>) -> PyResult<DataType> {
    if let Ok(text) = stated.extract::<String>() {
        if let "u8" | "i8" = text.as_str() {
            let kind = if text == "u8" { "uint" } else { "int" };
            return Err(usage(
                py,
                format!(
                    "column '{name}': '{text}' is 8 bits in Turbidite but 8 bytes in NumPy: state '{kind}8' or '{kind}64'"
                ),
            ));
        }
        if let Ok(data_type) = DataType::from_str(&text) {
            return Ok(data_type);
        }
    }
    if stated.is_none() {
        return Err(usage(py, format!("column '{name}': a type is missing")));
    }
    let dtype = py.import("numpy")?.call_method1("dtype", (stated,));
    let dtype = dtype.map_err(|error| usage(py, format!("column '{name}': {}", error.value(py))))?;
    let type_string: String = dtype.getattr("str")?.extract()?;
    let is_opaque = !dtype.getattr("hasobject")?.is_truthy()?;
    stored_type(&type_string, is_opaque).ok_or_else(|| {
        usage(
            py,
            format!("column '{name}': the type {dtype} cannot be stored; little-endian integers, f4, f8 and V can"),
        )
    })
}

/// Returns the type that NumPy calls `type_string`: byte order, kind and bytes, such as `<f4`.
fn stored_type(type_string: &str, is_opaque: bool) -> Option<DataType> {
    macro_rules! stored {
        ($(($own:ident, $arrow:ident, $native:ident, $numpy:literal)),* $(,)?) => {
            match type_string {
                $($numpy => Some(DataType::$own),)*
                other => other.strip_prefix("|V").filter(|_| is_opaque)?.parse().ok().map(DataType::FixedBytes),
            }
        };
    }
    with_primitives!(stored)
}

/// Returns the names of the columns of one append.
fn names(py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let given = rows.get_type().name()?.to_string();
    let refuse = || {
        usage(
            py,
            format!("rows are a dict of arrays, a structured array, a data frame or an Arrow stream, not {given}"),
        )
    };
    let listed = if rows.is_exact_instance_of::<PyDict>() {
        rows.call_method0("keys")?
    } else if rows.is_instance(ndarray(py)?)? {
        let names = rows.getattr("dtype")?.getattr("names")?;
        if names.is_none() {
            return Err(usage(py, "an array without named fields has no columns: give a dict of arrays"));
        }
        names
    } else if rows.hasattr("column_names")? {
        // A table of an old pyarrow.
        rows.getattr("column_names")?
    } else if rows.hasattr("columns")? {
        rows.getattr("columns")?
    } else if rows.hasattr("keys")? {
        rows.call_method0("keys")?
    } else {
        return Err(refuse());
    };
    let name = |one: PyResult<Bound<'_, PyAny>>| one?.extract::<String>().map_err(|_| refuse());
    listed.try_iter().map_err(|_| refuse())?.map(name).collect()
}

/// Views the columns of one append: a mapping from names to arrays, a structured array, or a data frame.
///
/// # Errors
/// Names that are not the known ones, and whatever [`Column::new`] refuses.
pub(crate) fn columns(py: Python<'_>, known: &[Stated], rows: &Bound<'_, PyAny>) -> PyResult<Vec<Column>> {
    let names = names(py, rows)?;
    let given: HashSet<&str> = names.iter().map(String::as_str).collect();
    if let Some(missing) = known.iter().find(|column| !given.contains(column.name.as_str())) {
        return Err(usage(py, format!("column '{}' is missing", missing.name)));
    }
    if let Some(surplus) = names.iter().find(|name| known.iter().all(|column| column.name != **name)) {
        return Err(usage(py, format!("the dataset has no column '{surplus}'")));
    }
    let is_table = !rows.is_exact_instance_of::<PyDict>() && rows.hasattr("column_names")?;
    let views: Vec<Column> = known
        .iter()
        .map(|column| {
            let values = match is_table {
                true => rows.call_method1("column", (&column.name,))?,
                false => rows.get_item(&column.name)?,
            };
            Column::new(py, &column.name, &values, column.data_type)
        })
        .collect::<PyResult<_>>()?;
    if let Some(other) = views.iter().position(|view| view.len() != views[0].len()) {
        let (first, second) = (&known[0].name, &known[other].name);
        return Err(usage(
            py,
            format!(
                "columns differ in length: '{first}' has {} values, '{second}' {}",
                views[0].len(),
                views[other].len()
            ),
        ));
    }
    Ok(views)
}
