//! Reads rows from Arrow's objects by the PyCapsule interface, without a copy.

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType as ArrowType, Schema as ArrowSchema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use turbidite::{Column, ColumnView, DataType};

use crate::errors::{exception, failed, usage};

/// The batches of an Arrow object.
pub(crate) struct Batches {
    schema: SchemaRef,
    source: Source,
}

enum Source {
    Stream(ArrowArrayStreamReader),
    /// `None` once it is read.
    Batch(Option<RecordBatch>),
}

impl Batches {
    /// Opens an object that has Arrow's interface; `None` for others.
    pub(crate) fn open(py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        // pandas needs pyarrow for its stream. Its columns are NumPy's, which are views as well.
        if rows.hasattr("iloc")? {
            return Ok(None);
        }
        let failed = |error: ArrowError| failed(py, format!("the Arrow rows cannot be read: {error}"));
        if rows.hasattr("__arrow_c_stream__")? {
            let capsule = rows.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
            let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
            // SAFETY: a capsule of this name has a stream, which `from_raw` takes over: the capsule's own is then
            // released.
            let reader = unsafe { ArrowArrayStreamReader::from_raw(stream.as_ptr()) }.map_err(failed)?;
            return Ok(Some(Self { schema: reader.schema(), source: Source::Stream(reader) }));
        }
        if rows.hasattr("__arrow_c_array__")? {
            let pair = rows.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
            let (schema, array) = pair.extract::<(Bound<'_, PyCapsule>, Bound<'_, PyCapsule>)>()?;
            let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
            // SAFETY: a capsule of this name has an array, which `from_raw` takes over.
            let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
            // SAFETY: the producer's schema describes its array.
            let data = unsafe { from_ffi(array, schema_in(&schema)?) }.map_err(failed)?;
            if !matches!(data.data_type(), ArrowType::Struct(_)) || data.null_count() > 0 {
                return Err(usage(py, "an Arrow array without named columns, or with missing rows, cannot be stored"));
            }
            let batch = RecordBatch::from(StructArray::from(data));
            return Ok(Some(Self { schema: batch.schema(), source: Source::Batch(Some(batch)) }));
        }
        Ok(None)
    }

    /// Returns the index of each of `columns` in the batches.
    ///
    /// # Errors
    /// Columns that are missing, surplus or of another type.
    pub(crate) fn find(&self, py: Python<'_>, columns: &[Column]) -> PyResult<Vec<usize>> {
        let fields = self.schema.fields();
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

    /// Returns the next batch. The producer may need the interpreter's lock, and takes it itself.
    pub(crate) fn next(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        py.check_signals()?;
        let next = match &mut self.source {
            Source::Batch(batch) => batch.take().map(Ok),
            Source::Stream(reader) => py.detach(|| reader.next()),
        };
        match next.transpose() {
            Ok(batch) => Ok(batch),
            Err(error) => {
                py.check_signals()?;
                Err(failed(py, format!("the Arrow stream has failed: {error}")))
            }
        }
    }
}

/// Returns the values of one column of a batch.
pub(crate) fn view<'a>(py: Python<'_>, column: &Column, array: &'a dyn Array) -> PyResult<ColumnView<'a>> {
    let missing = array.logical_null_count();
    if missing > 0 {
        let what = format!("column '{}': {missing} values are missing, which cannot be stored", column.name);
        return Err(usage(py, format!("{what}: fill them first")));
    }
    macro_rules! values {
        ($($own:ident => $native:ident),* $(,)?) => {
            match column.data_type {
                $(DataType::$own => {
                    array.as_primitive::<arrow_array::types::$native>().values().inner().as_slice()
                })*
                DataType::FixedBytes(_) => array.as_fixed_size_binary().value_data(),
            }
        };
    }
    let bytes = values! {
        I8 => Int8Type,
        I16 => Int16Type,
        I32 => Int32Type,
        I64 => Int64Type,
        U8 => UInt8Type,
        U16 => UInt16Type,
        U32 => UInt32Type,
        U64 => UInt64Type,
        F32 => Float32Type,
        F64 => Float64Type,
    };
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
    use DataType::{F32, F64, FixedBytes, I8, I16, I32, I64, U8, U16, U32, U64};
    if let ArrowType::FixedSizeBinary(bytes) = given {
        return u32::try_from(*bytes).ok().map(FixedBytes);
    }
    [I8, I16, I32, I64, U8, U16, U32, U64, F32, F64].into_iter().find(|data_type| data_type.arrow() == *given)
}
