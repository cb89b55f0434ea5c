//! Reads rows from Arrow's objects by the PyCapsule interface, without a copy.

use std::ffi::CStr;

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, StructArray};
use arrow_schema::{ArrowError, DataType as ArrowType, Fields, Schema as ArrowSchema};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use turbidite::{Column, ColumnView, DataType};

use crate::errors::{exception, failed, usage};
use crate::types::with_primitives;

/// The rows of an Arrow object, batch by batch.
pub(crate) struct ArrowRows {
    fields: Fields,
    source: Source,
    /// Number of rows of the batches before.
    before: usize,
}

enum Source {
    Stream(FFI_ArrowArrayStream),
    /// `None` once it is read.
    Array(Option<FFI_ArrowArray>),
}

impl ArrowRows {
    /// Opens an object that has Arrow's interface; `None` for others.
    pub(crate) fn open(py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        // pandas needs pyarrow for its stream. Its columns are NumPy's, which are views as well.
        if rows.hasattr("iloc")? {
            return Ok(None);
        }
        if rows.hasattr("__arrow_c_stream__")? {
            let capsule = rows.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
            let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
            // SAFETY: a capsule of this name has a stream, which `from_raw` takes over: the capsule's own is then
            // released.
            let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
            let schema = schema_of(&mut stream).map_err(|reason| stream_failed(py, &reason))?;
            return Ok(Some(Self { fields: fields(py, &schema)?, source: Source::Stream(stream), before: 0 }));
        }
        if rows.hasattr("__arrow_c_array__")? {
            let pair = rows.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
            let (schema, array) = pair.extract::<(Bound<'_, PyCapsule>, Bound<'_, PyCapsule>)>()?;
            let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
            // SAFETY: a capsule of this name has an array, which `from_raw` takes over.
            let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
            let fields = fields(py, schema_in(&schema)?)?;
            return Ok(Some(Self { fields, source: Source::Array(Some(array)), before: 0 }));
        }
        Ok(None)
    }

    /// Returns the index of each of `columns` in the batches.
    ///
    /// # Errors
    /// Columns that are missing, surplus or of another type.
    pub(crate) fn find(&self, py: Python<'_>, columns: &[Column]) -> PyResult<Vec<usize>> {
        let fields = &self.fields;
        if let Some(surplus) = fields.iter().find(|field| columns.iter().all(|column| column.name != *field.name())) {
            return Err(usage(py, format!("the dataset has no column '{}'", surplus.name())));
        }
        let place = |column: &Column| {
            let mut places = (0..fields.len()).filter(|place| fields[*place].name() == &column.name);
            let Some(place) = places.next() else {
                return Err(usage(py, format!("column '{}' is missing", column.name)));
            };
            if places.next().is_some() {
                return Err(usage(py, format!("column '{}' occurs twice", column.name)));
            }
            let given = fields[place].data_type();
            if *given != column.data_type.arrow() {
                return Err(usage(
                    py,
                    format!(
                        "column '{}': Arrow's {given} is given, but the column is {}; cast it to {}",
                        column.name,
                        column.data_type,
                        column.data_type.arrow()
                    ),
                ));
            }
            Ok(place)
        };
        columns.iter().map(place).collect()
    }

    /// Returns the next batch, and the number of rows before it. A producer that needs the interpreter's lock takes it
    /// itself.
    ///
    /// # Errors
    /// Missing rows, and the errors of the producer.
    pub(crate) fn next(&mut self, py: Python<'_>) -> PyResult<Option<(StructArray, usize)>> {
        py.check_signals()?;
        let next = match &mut self.source {
            Source::Array(array) => array.take(),
            Source::Stream(stream) => match py.detach(|| next_of(stream)) {
                Ok(array) => array,
                Err(reason) => {
                    py.check_signals()?;
                    return Err(stream_failed(py, &reason));
                }
            },
        };
        let Some(array) = next else { return Ok(None) };
        // SAFETY: the producer's schema, which has these fields, describes its arrays.
        let data = unsafe { from_ffi_and_data_type(array, ArrowType::Struct(self.fields.clone())) };
        let data = data.and_then(|data| data.validate().map(|()| data)).map_err(|error| unreadable(py, &error))?;
        let batch = StructArray::from(data);
        let before = self.before;
        if let Some(row) = missing(&batch) {
            return Err(usage(py, format!("row {}: missing rows cannot be stored: fill them first", before + row)));
        }
        self.before += batch.len();
        Ok(Some((batch, before)))
    }
}

/// Asks a stream for its schema. Returns the producer's reason if there is none.
fn schema_of(stream: &mut FFI_ArrowArrayStream) -> Result<FFI_ArrowSchema, String> {
    // A consumer that has taken the stream over has released it here, and may leave its functions.
    let get_schema = stream.release.and(stream.get_schema).ok_or_else(|| "it was read already".to_owned())?;
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: the function is the stream's own, and the stream has not been released.
    if unsafe { get_schema(&raw mut *stream, &raw mut schema) } == 0 { Ok(schema) } else { Err(reason_of(stream)) }
}

/// Asks a stream for its next array; `None` at the end. Returns the producer's reason if it has failed.
fn next_of(stream: &mut FFI_ArrowArrayStream) -> Result<Option<FFI_ArrowArray>, String> {
    let get_next = stream.get_next.ok_or_else(|| "it has no batches".to_owned())?;
    let mut array = FFI_ArrowArray::empty();
    // SAFETY: the function is the stream's own, and the stream was not released when it was opened.
    if unsafe { get_next(&raw mut *stream, &raw mut array) } != 0 {
        return Err(reason_of(stream));
    }
    Ok((!array.is_released()).then_some(array))
}

/// Returns a producer's text for its last error. It need not have one.
fn reason_of(stream: &mut FFI_ArrowArrayStream) -> String {
    // SAFETY: the function is the stream's own. Its text is valid until the stream's next call.
    let text = stream.get_last_error.map(|get_last_error| unsafe { get_last_error(&raw mut *stream) });
    match text.filter(|text| !text.is_null()) {
        // SAFETY: by the interface, the text ends with a null character.
        Some(text) => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        None => "its producer gives no reason".to_owned(),
    }
}

/// Returns the exception of a stream whose producer has failed.
///
/// The interface passes texts only. An interrupt within a producer that is written in Python is a traceback, and is an
/// interrupt again here: a program that repeats what has failed must not swallow it.
fn stream_failed(py: Python<'_>, reason: &str) -> PyErr {
    let is_interrupt = |line: &str| {
        let raised = line.rsplit_once("Python exception: ").map_or(line, |(_, raised)| raised);
        raised.split(':').next() == Some("KeyboardInterrupt")
    };
    if reason.lines().any(is_interrupt) {
        return PyKeyboardInterrupt::new_err("in the producer of an Arrow stream");
    }
    failed(py, format!("the Arrow stream has failed: {reason}"))
}

fn unreadable(py: Python<'_>, error: &ArrowError) -> PyErr {
    failed(py, format!("the Arrow rows cannot be read: {error}"))
}

/// Returns the columns of arrays with a schema.
fn fields(py: Python<'_>, schema: &FFI_ArrowSchema) -> PyResult<Fields> {
    match ArrowType::try_from(schema).map_err(|error| unreadable(py, &error))? {
        ArrowType::Struct(fields) => Ok(fields),
        other => Err(usage(py, format!("an Arrow array of {other} has no named columns, and cannot be stored"))),
    }
}

/// Returns the index of the first missing value.
fn missing(array: &dyn Array) -> Option<usize> {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    (0..nulls.len()).find(|index| nulls.is_null(*index))
}

/// Returns the values of one column of a batch, with `before` rows before it.
pub(crate) fn view<'a>(
    py: Python<'_>,
    column: &Column,
    array: &'a dyn Array,
    before: usize,
) -> PyResult<ColumnView<'a>> {
    if let Some(row) = missing(array) {
        let place = format!("column '{}', row {}", column.name, before + row);
        let advice = if column.data_type.is_float() {
            "; Arrow tables of pandas have null for NaN, so pass {name: frame[name].to_numpy() for name in frame}"
        } else {
            ": fill them first"
        };
        return Err(usage(py, format!("{place}: missing values cannot be stored{advice}")));
    }
    macro_rules! values {
        ($(($own:ident, $arrow:ident, $native:ident, $numpy:literal)),* $(,)?) => {
            match column.data_type {
                $(DataType::$own => {
                    array.as_primitive::<arrow_array::types::$native>().values().inner().as_slice()
                })*
                DataType::FixedBytes(_) => array.as_fixed_size_binary().value_data(),
            }
        };
    }
    let bytes = with_primitives!(values);
    ColumnView::new(bytes, column.data_type.width(), array.len(), column.data_type)
        .map_err(|error| exception(py, &error.into()))
}

fn schema_in<'a>(capsule: &'a Bound<'_, PyCapsule>) -> PyResult<&'a FFI_ArrowSchema> {
    let schema = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name has a schema, which lives as long as the capsule.
    Ok(unsafe { schema.as_ref() })
}

/// Returns the columns of an object with an Arrow schema, as names and types of the core.
#[pyfunction]
pub(crate) fn arrow_columns(py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let capsule = schema.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
    let schema = ArrowSchema::try_from(schema_in(&capsule)?)
        .map_err(|error| usage(py, format!("the Arrow schema cannot be read: {error}")))?;
    let column = |(name, given): (&String, &ArrowType)| match stored_type(given) {
        Some(data_type) => Ok((name.clone(), data_type.to_string())),
        None => {
            Err(usage(py, format!("column '{name}': Arrow's {given} cannot be stored; numbers and fixed bytes can")))
        }
    };
    schema.fields().iter().map(|field| column((field.name(), field.data_type()))).collect()
}

/// Returns the type that stores an Arrow type.
fn stored_type(given: &ArrowType) -> Option<DataType> {
    macro_rules! stored {
        ($(($own:ident, $arrow:ident, $native:ident, $numpy:literal)),* $(,)?) => {
            match given {
                $(ArrowType::$arrow => Some(DataType::$own),)*
                ArrowType::FixedSizeBinary(bytes) => u32::try_from(*bytes).ok().map(DataType::FixedBytes),
                _ => None,
            }
        };
    }
    with_primitives!(stored)
}
