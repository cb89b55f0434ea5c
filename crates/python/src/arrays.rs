//! Views of the caller's NumPy arrays, without a copy.

use std::collections::HashMap;
use std::str::FromStr;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use turbidite::{ColumnView, DataType, Schema};

use crate::errors::usage;

/// One column of an append: an array, and its values in memory.
#[derive(Debug)]
pub(crate) struct Column {
    /// Keeps the memory while the values are read.
    _array: Py<PyAny>,
    address: usize,
    stride: usize,
    len: usize,
    data_type: DataType,
}

impl Column {
    /// Views an array of one dimension whose type is the column's: nothing is converted.
    fn new(py: Python<'_>, name: &str, array: &Bound<'_, PyAny>, data_type: DataType) -> PyResult<Self> {
        let refuse = |what: String| usage(py, format!("column '{name}': {what}"));
        let numpy = py.import("numpy")?;
        if numpy.getattr("ma")?.call_method1("isMaskedArray", (array,))?.is_truthy()? {
            return Err(refuse("a masked array cannot be stored: fill its gaps, array.filled(...)".into()));
        }
        let mut array = numpy.call_method1("asarray", (array,))?;
        let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
        let type_string: String = item(&interface, "typestr")?.extract()?;
        let wanted = type_string_of(data_type);
        if type_string != wanted {
            let dtype = array.getattr("dtype")?.str()?;
            return Err(refuse(format!(
                "an array of {dtype} is given, but the column is {data_type}; convert it: array.astype('{wanted}')"
            )));
        }
        let shape: Vec<usize> = item(&interface, "shape")?.extract()?;
        let [len] = shape[..] else {
            return Err(refuse(format!("an array of one dimension is needed, not of {}", shape.len())));
        };
        let width = data_type.width();
        let stride = |interface: &Bound<'_, PyDict>| -> PyResult<isize> {
            let strides = item(interface, "strides")?;
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
            array = numpy.call_method1("ascontiguousarray", (array,))?;
            interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
            step = stride(&interface)?;
        }
        let (address, _): (usize, bool) = item(&interface, "data")?.extract()?;
        Ok(Self { _array: array.unbind(), address, stride: step.unsigned_abs().max(width), len, data_type })
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the values as the core takes them.
    pub(crate) fn view(&self) -> ColumnView<'_> {
        let width = self.data_type.width();
        let bytes = if self.len == 0 { 0 } else { (self.len - 1) * self.stride + width };
        let memory = if bytes == 0 {
            &[][..]
        } else {
            // SAFETY: NumPy's interface describes `len` values `stride` bytes apart from `address` on, which the array
            // that this struct holds keeps allocated. A program that writes to them during the call stores either
            // value.
            unsafe { std::slice::from_raw_parts(self.address as *const u8, bytes) }
        };
        match ColumnView::new(memory, self.stride, self.len, self.data_type) {
            Ok(view) => view,
            Err(error) => unreachable!("the slice has {} values: {error}", self.len),
        }
    }
}

fn item<'py>(interface: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    interface.get_item(name)?.ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(name.to_owned()))
}

/// Returns NumPy's name of a type.
fn type_string_of(data_type: DataType) -> String {
    match data_type {
        DataType::I8 => "|i1".into(),
        DataType::I16 => "<i2".into(),
        DataType::I32 => "<i4".into(),
        DataType::I64 => "<i8".into(),
        DataType::U8 => "|u1".into(),
        DataType::U16 => "<u2".into(),
        DataType::U32 => "<u4".into(),
        DataType::U64 => "<u8".into(),
        DataType::F32 => "<f4".into(),
        DataType::F64 => "<f8".into(),
        DataType::FixedBytes(width) => format!("|V{width}"),
    }
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
    let dtype = py.import("numpy")?.call_method1("dtype", (stated,))?;
    let type_string: String = dtype.getattr("str")?.extract()?;
    let known = [
        DataType::I8,
        DataType::I16,
        DataType::I32,
        DataType::I64,
        DataType::U8,
        DataType::U16,
        DataType::U32,
        DataType::U64,
        DataType::F32,
        DataType::F64,
    ];
    if let Some(found) = known.into_iter().find(|data_type| type_string_of(*data_type) == type_string) {
        return Ok(found);
    }
    let opaque = type_string.strip_prefix("|V").or_else(|| type_string.strip_prefix("|S"));
    match opaque.and_then(|width| width.parse().ok()) {
        Some(width) => Ok(DataType::FixedBytes(width)),
        None => Err(usage(
            py,
            format!("column '{name}': the type {dtype} cannot be stored; little-endian integers, f4, f8 and V can"),
        )),
    }
}

/// Views the columns of one append: a mapping from names to arrays, a structured array, or a data frame.
///
/// # Errors
/// Names that are not those of the schema, and whatever [`Column::new`] refuses.
pub(crate) fn columns(py: Python<'_>, schema: &Schema, rows: &Bound<'_, PyAny>) -> PyResult<Vec<Column>> {
    let names: Vec<String> = if rows.hasattr("dtype")? {
        let names = rows.getattr("dtype")?.getattr("names")?;
        if names.is_none() {
            return Err(usage(py, "an array without named fields has no columns: give a dict of arrays"));
        }
        names.extract()?
    } else if rows.hasattr("keys")? {
        rows.call_method0("keys")?.try_iter()?.map(|key| key?.extract()).collect::<PyResult<_>>()?
    } else {
        let given = rows.get_type().name()?.to_string();
        return Err(usage(py, format!("rows are a dict of arrays or a structured array, not {given}")));
    };
    let given: HashMap<&str, ()> = names.iter().map(|name| (name.as_str(), ())).collect();
    let known = schema.columns();
    if let Some(missing) = known.iter().find(|column| !given.contains_key(column.name.as_str())) {
        return Err(usage(py, format!("column '{}' is missing", missing.name)));
    }
    if let Some(surplus) = names.iter().find(|name| schema.index_of(name).is_none()) {
        return Err(usage(py, format!("the dataset has no column '{surplus}'")));
    }
    let views: Vec<Column> = known
        .iter()
        .map(|column| Column::new(py, &column.name, &rows.get_item(&column.name)?, column.data_type))
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
