//! Exports the functions that look up and follow particles. Results are Arrow C streams.

use std::sync::atomic::Ordering;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use turbidite::query::{ParticleId, TrackRequest, Use};
use turbidite::{Column, ColumnView, DataType, Error, Query, Schema};

use crate::reading::{self, CReader};
use crate::status::{OK, answer, argument};
use crate::structs::{self, CGetRequest, CTrackMetrics, CTrackRequest, CView};
use crate::text;

/// Returns the rows of listed particles as an Arrow stream.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_get(
    reader: *mut CReader,
    request: *const CGetRequest,
    stream: *mut FFI_ArrowArrayStream,
    metrics: *mut CTrackMetrics,
) -> i32 {
    answer(|| {
        // SAFETY: the header requires valid pointers, or NULL, and a request with valid strings, names and views.
        unsafe {
            let request = structs::request(request)?;
            let request = request.ok_or_else(|| argument("request", "is NULL"))?;
            follow(reader, stream, metrics, |schema| with_options(listed(&request, schema)?, &request))
        }
    })
}

/// Returns the rows of particles that are listed, or match a predicate at an epoch, as an Arrow stream.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_tracks(
    reader: *mut CReader,
    request: *const CTrackRequest,
    stream: *mut FFI_ArrowArrayStream,
    metrics: *mut CTrackMetrics,
) -> i32 {
    answer(|| {
        // SAFETY: the header requires valid pointers, or NULL, and a request with valid strings, names and views.
        unsafe {
            let request = structs::request(request)?;
            let request = request.ok_or_else(|| argument("request", "is NULL"))?;
            follow(reader, stream, metrics, |schema| with_options(particles(&request, schema)?, &request.listed))
        }
    })
}

/// Follows particles, and fills the caller's stream and metrics. `request` makes a request for the dataset's schema.
///
/// # Safety
/// `reader` is NULL or an open handle, `stream` is NULL or may be overwritten, and `metrics` is as in
/// [`CTrackMetrics::check`].
unsafe fn follow(
    reader: *mut CReader,
    stream: *mut FFI_ArrowArrayStream,
    metrics: *mut CTrackMetrics,
    request: impl FnOnce(&Schema) -> Result<TrackRequest, Error>,
) -> Result<i32, Error> {
    if stream.is_null() {
        return Err(argument("stream", "is NULL"));
    }
    // SAFETY: guaranteed by the caller.
    let reader = unsafe {
        CTrackMetrics::check(metrics)?;
        reader.as_ref().ok_or_else(|| argument("reader", "is NULL"))?
    };
    let request = request(reader.dataset.schema())?;
    let tracks = reader.dataset.tracks(&request, &|_| ())?;
    reader.bytes_read.fetch_add(tracks.metrics().read.bytes_read, Ordering::Relaxed);
    // SAFETY: `stream` is not NULL. Its old content is not released, since the Arrow C stream interface passes an
    // unfilled struct. The size of the metrics has been checked.
    unsafe {
        CTrackMetrics::hand_over(metrics, &tracks.metrics());
        stream.write(reading::stream_of(tracks.schema(), tracks));
    }
    Ok(OK)
}

/// Returns a request for the particles of `request`, without its options.
///
/// # Safety
/// Strings are NULL or C strings, and `ids` contains `view_count` views of `id_count` values.
unsafe fn particles(request: &CTrackRequest, schema: &Schema) -> Result<TrackRequest, Error> {
    // SAFETY: guaranteed by the caller.
    let of = unsafe { text::optional("of", request.of) }?;
    let is_listed = !request.listed.ids.is_null();
    if is_listed {
        let others = [("of", request.of), ("box", request.space), ("period", request.period)];
        if let Some((name, _)) = others.iter().find(|(_, text)| !text.is_null()) {
            return Err(argument(name, "excludes ids; set one of them to NULL"));
        }
        // SAFETY: as above.
        return unsafe { listed(&request.listed, schema) };
    }
    if of.is_none() && request.space.is_null() {
        return Err(argument("ids", "is NULL, and so are of and box; state which particles to follow"));
    }
    if of.is_some_and(|of| of.trim().is_empty()) {
        return Err(argument("of", "is empty; state which particles to follow, such as \"energy > 10\""));
    }
    // SAFETY: as above.
    let (of, id) = unsafe {
        let of = text::restricted(Query::new(), ("of", request.of), request.space, request.period)?;
        (of, id_name(&request.listed, schema)?)
    };
    Ok(TrackRequest::of_query(of, request.at, id))
}

/// Returns a request for the particles with the ids of `request`, without its options.
///
/// # Safety
/// As for [`particles`].
unsafe fn listed(request: &CGetRequest, schema: &Schema) -> Result<TrackRequest, Error> {
    // SAFETY: guaranteed by the caller.
    let id = unsafe { id_name(request, schema) }?;
    let Some(columns) = id_columns(&id, schema) else {
        // The core refuses a column that does not exist, or is no id.
        return Ok(TrackRequest::of_ids(Vec::<ParticleId>::new(), id));
    };
    if request.ids.is_null() {
        return Err(argument("ids", "is NULL"));
    }
    if request.view_count != columns.len() {
        let (given, needed) = (request.view_count, columns.len());
        return Err(argument("view_count", format!("is {given}, but the id '{id}' has {needed} columns")));
    }
    // SAFETY: `ids` is not NULL, and the caller guarantees `view_count` views.
    let views = unsafe { std::slice::from_raw_parts(request.ids, request.view_count) };
    let resolve = |(view, column): (&CView, &&Column)| {
        // SAFETY: the caller guarantees `id_count` values.
        let view = unsafe { view.resolve(request.id_count, column.data_type) };
        view.map_err(|what| argument("ids", format!("column '{}': {what}", column.name)))
    };
    let columns = views.iter().zip(&columns).map(resolve).collect::<Result<Vec<_>, _>>()?;
    let ids = (0..request.id_count).map(|row| match columns.as_slice() {
        [column] => particle_id(column, row),
        several => several.iter().map(|column| particle_id(column, row)).collect::<Vec<_>>().into(),
    });
    Ok(TrackRequest::of_ids(ids, id))
}

/// Returns the column that identifies particles, or several, separated by commas.
///
/// # Safety
/// `id` is NULL or a C string.
unsafe fn id_name(request: &CGetRequest, schema: &Schema) -> Result<String, Error> {
    let key = schema.key();
    // SAFETY: guaranteed by the caller.
    match unsafe { text::optional("id", request.id) }? {
        Some(id) => Ok(id.to_owned()),
        None if !schema.has_sorted_runs() => {
            let what = format!(
                "is NULL, and the records are clustered by '{}'; name the column of the ids",
                schema.cluster_key()
            );
            Err(argument("id", what))
        }
        // A key of several columns has no floats.
        None if !key.data_type.is_float() => Ok(schema.cluster_key().columns.join(",")),
        None => {
            let what =
                format!("is NULL, and the key, '{}', is {}; name the column of the ids", key.name, key.data_type);
            Err(argument("id", what))
        }
    }
}

/// Returns the columns of an id, or `None` if one does not exist or is a float.
fn id_columns<'a>(id: &str, schema: &'a Schema) -> Option<Vec<&'a Column>> {
    let names = schema.index_of(id).map_or_else(|| id.split(',').map(str::trim).collect(), |_| vec![id]);
    let columns = names.iter().map(|name| schema.index_of(name).map(|index| &schema.columns()[index]));
    columns.map(|column| column.filter(|column| !column.data_type.is_float())).collect()
}

/// Returns the value of a row as an id.
fn particle_id(column: &ColumnView<'_>, row: usize) -> ParticleId {
    let (value, data_type) = (column.value(row), column.data_type());
    if !data_type.is_integer() {
        return value.to_vec().into();
    }
    let is_signed = matches!(data_type, DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64);
    let is_negative = is_signed && value.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = if is_negative { [0xff; 16] } else { [0; 16] };
    wide[..value.len()].copy_from_slice(value);
    i128::from_le_bytes(wide).into()
}

/// Adds the options to a request.
///
/// # Safety
/// Strings are NULL or C strings, and `columns` contains `column_count` names.
unsafe fn with_options(request: TrackRequest, options: &CGetRequest) -> Result<TrackRequest, Error> {
    // SAFETY: guaranteed by the caller.
    let (epochs, columns, access, scratch) = unsafe {
        let columns = text::columns(options.columns, options.column_count)?;
        let access = text::optional("use", options.access)?;
        (text::epochs(options.epochs)?, columns, access, text::optional("scratch", options.scratch)?)
    };
    let mut rows = Query::new();
    if let Some(epochs) = epochs {
        rows = rows.epochs(epochs);
    }
    if let Some(columns) = columns {
        rows = rows.columns(columns);
    }
    if let Some(access) = access {
        rows = rows.using(Use::named(access));
    }
    if options.threads > 0 {
        rows = rows.threads(options.threads as usize);
    }
    if options.limit > 0 {
        rows = rows.limit(options.limit);
    }
    let request = request.rows(rows);
    Ok(match scratch {
        Some(folder) => request.scratch_folder(folder),
        None => request,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_sign() {
        let id = |value: &[u8], data_type| particle_id(&ColumnView::new(value, value.len(), 1, data_type).unwrap(), 0);
        assert_eq!(id(&[0xfe], DataType::I8), ParticleId::Whole(-2));
        assert_eq!(id(&[0xfe], DataType::U8), ParticleId::Whole(254));
        assert_eq!(id(&(-300_i16).to_le_bytes(), DataType::I16), ParticleId::Whole(-300));
        assert_eq!(id(&u16::MAX.to_le_bytes(), DataType::U16), ParticleId::Whole(65535));
        assert_eq!(id(&i32::MIN.to_le_bytes(), DataType::I32), ParticleId::Whole(i32::MIN.into()));
        assert_eq!(id(&i64::MIN.to_le_bytes(), DataType::I64), ParticleId::Whole(i64::MIN.into()));
        assert_eq!(id(&u64::MAX.to_le_bytes(), DataType::U64), ParticleId::Whole(u64::MAX.into()));
        assert_eq!(id(&[7, 0xff], DataType::FixedBytes(2)), ParticleId::Bytes(vec![7, 0xff]));
    }
}
