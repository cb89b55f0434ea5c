//! Mirrors the structs in turbidite.h, and converts them to core types.
//!
//! A struct that the caller fills contains its size, which shows that the struct was initialised. Metrics and
//! metrics are copied up to the size of the struct in the caller's header.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use turbidite::query::{CursorBatch, TrackMetrics};
use turbidite::runtime::ExchangeMetrics;
use turbidite::{
    Column, ColumnView, DataType, EpochMetrics, Error, IfExists, MAX_LEVELS, Periods, Renegotiation, Schema,
    WriteOptions,
};

use crate::status::argument;
use crate::text;

/// Mirror of `turbidite_column`.
#[repr(C)]
pub struct CColumn {
    pub(crate) name: *const c_char,
    pub(crate) data_type: i32,
    pub(crate) width: u32,
    pub(crate) unit: *const c_char,
}

/// Mirror of `turbidite_view`.
#[repr(C)]
pub struct CView {
    pub(crate) data: *const c_void,
    pub(crate) stride: usize,
    pub(crate) data_type: i32,
    pub(crate) width: u32,
}

/// Mirror of `turbidite_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct COptions {
    pub(crate) struct_size: u32,
    if_exists: i32,
    break_lock: i32,
    receivers: u32,
    pivots: u32,
    patience_ms: u32,
    stall_s: u32,
    levels: u32,
    pub(crate) renegotiate: u64,
    memtable_bytes: u64,
    source: *const c_char,
    pub(crate) period: *const c_char,
    level_weight: *const c_char,
}

/// Mirror of `turbidite_epoch_metrics`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CEpochMetrics {
    struct_size: u32,
    ranks: u32,
    rows: u64,
    strays: u64,
    spills: u64,
    nan_keys: u64,
    renegotiations: u64,
    messages: u64,
    bytes_written: u64,
    load_imbalance: f64,
    wall_s: f64,
    recipients: u32,
    senders: u32,
    forwarded: u64,
    open_batch_bytes: u64,
    batch_bytes: u64,
}

/// Mirror of `turbidite_request`.
#[repr(C)]
pub struct CRequest {
    pub(crate) struct_size: u32,
    pub(crate) ordered: i32,
    pub(crate) filter: *const c_char,
    pub(crate) columns: *const *const c_char,
    pub(crate) column_count: usize,
    pub(crate) epochs: *const c_char,
    pub(crate) limit: u64,
    pub(crate) space: *const c_char,
    pub(crate) period: *const c_char,
    pub(crate) share: u64,
    pub(crate) shares: u64,
    pub(crate) order_by: *const c_char,
}

/// Mirror of `turbidite_get_request`.
#[repr(C)]
pub struct CGetRequest {
    pub(crate) struct_size: u32,
    pub(crate) threads: u32,
    pub(crate) id: *const c_char,
    pub(crate) ids: *const CView,
    pub(crate) view_count: usize,
    pub(crate) id_count: usize,
    pub(crate) columns: *const *const c_char,
    pub(crate) column_count: usize,
    pub(crate) epochs: *const c_char,
    pub(crate) limit: u64,
    pub(crate) access: *const c_char,
    pub(crate) scratch: *const c_char,
}

/// Mirror of `turbidite_track_request`, which begins like `turbidite_get_request`.
#[repr(C)]
pub struct CTrackRequest {
    pub(crate) listed: CGetRequest,
    pub(crate) of: *const c_char,
    pub(crate) at: u64,
    pub(crate) space: *const c_char,
    pub(crate) period: *const c_char,
}

/// Mirror of `turbidite_track_metrics`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CTrackMetrics {
    pub(crate) struct_size: u32,
    pub(crate) epochs: u32,
    pub(crate) ids: u64,
    pub(crate) rows: u64,
    pub(crate) incomplete_ids: u64,
    pub(crate) absent_ids: u64,
    pub(crate) missing: u64,
    pub(crate) duplicates: u64,
    pub(crate) bytes_read: u64,
}

/// Number of coordinates that a batch of a cursor may have.
pub(crate) const COORDINATES: usize = 3;

/// Mirror of `turbidite_batch`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CBatch {
    pub(crate) struct_size: u32,
    pub(crate) level: u32,
    pub(crate) rows: u64,
    pub(crate) receiver: u32,
    pub(crate) run: u32,
    pub(crate) coordinates: u32,
    reserved: u32,
    pub(crate) lower: [f64; COORDINATES],
    pub(crate) upper: [f64; COORDINATES],
}

/// Default timeout of an append for a receiver's credit: long enough for a late rank, short compared with a dump.
const CREDIT_TIMEOUT_MS: u32 = 200;

/// Default stall timeout of collective calls. Ranks may be late by minutes, but not by hours.
const STALL_S: u32 = 1800;

impl COptions {
    /// Returns the defaults.
    pub(crate) fn new() -> Self {
        let defaults = WriteOptions::new(1);
        Self {
            struct_size: size_of::<Self>() as u32,
            if_exists: 0,
            break_lock: 0,
            receivers: 0,
            pivots: defaults.pivots,
            patience_ms: CREDIT_TIMEOUT_MS,
            stall_s: STALL_S,
            levels: 0,
            renegotiate: 0,
            memtable_bytes: defaults.memtable_bytes as u64,
            source: std::ptr::null(),
            period: std::ptr::null(),
            level_weight: std::ptr::null(),
        }
    }

    /// Converts the options for a job of `ranks` ranks.
    ///
    /// # Safety
    /// `source` and `level_weight` are NULL or C strings.
    pub(crate) unsafe fn resolve(&self, ranks: u32) -> Result<WriteOptions, Error> {
        let if_exists = match self.if_exists {
            0 => IfExists::Error,
            1 => IfExists::Replace,
            2 => IfExists::Skip,
            other => return Err(argument("if_exists", format!("{other} is not one of TURBIDITE_IF_EXISTS_..."))),
        };
        let levels = u8::try_from(self.levels).ok().filter(|levels| *levels <= MAX_LEVELS);
        let levels = levels.ok_or_else(|| {
            argument(
                "levels",
                format!("{} is outside 0 to {MAX_LEVELS}; call turbidite_options_init first", self.levels),
            )
        })?;
        // SAFETY: guaranteed by the caller.
        let (source, level_weight) =
            unsafe { (text::optional("source", self.source)?, text::optional("level_weight", self.level_weight)?) };
        let mut options = WriteOptions::new(ranks);
        if self.receivers != 0 {
            options.receivers = self.receivers;
            options.part_bytes = Some(0);
        }
        options.pivots = self.pivots;
        (options.levels, options.level_weight) = (levels, level_weight.map(str::to_owned));
        options.renegotiation = match self.renegotiate {
            0 => Renegotiation::Adaptive,
            u64::MAX => Renegotiation::OnRequest,
            rows => Renegotiation::Every(rows),
        };
        options.memtable_bytes = usize::try_from(self.memtable_bytes).unwrap_or(usize::MAX);
        options.if_exists = if_exists;
        options.break_lock = self.break_lock != 0;
        options.credit_timeout = Duration::from_millis(u64::from(self.patience_ms));
        options.stall_limit = (self.stall_s != 0).then(|| Duration::from_secs(u64::from(self.stall_s)));
        options.source = source.map(str::to_owned);
        Ok(options)
    }
}

impl CColumn {
    /// Converts a column.
    ///
    /// # Safety
    /// `name` and `unit` are NULL or C strings.
    unsafe fn resolve(&self) -> Result<Column, Error> {
        // SAFETY: the caller guarantees both strings.
        let (name, unit) = unsafe { (text::required("name", self.name)?, text::optional("unit", self.unit)?) };
        let data_type = data_type(self.data_type, self.width).ok_or_else(|| {
            let what = format!("{} of column '{name}' is not one of TURBIDITE_F32 and the other types", self.data_type);
            argument("type", what)
        })?;
        let column = Column::new(name, data_type);
        Ok(match unit {
            Some(unit) => column.with_unit(unit),
            None => column,
        })
    }
}

/// Returns the type with a number in turbidite.h.
fn data_type(number: i32, width: u32) -> Option<DataType> {
    Some(match number {
        1 => DataType::F32,
        2 => DataType::F64,
        3 => DataType::I32,
        4 => DataType::I64,
        5 => DataType::U32,
        6 => DataType::U64,
        7 => DataType::I8,
        8 => DataType::I16,
        9 => DataType::U8,
        10 => DataType::U16,
        11 => DataType::FixedBytes(width),
        _ => return None,
    })
}

impl CView {
    /// Returns the view as a column of `rows` values of `column`, or the text of an error.
    ///
    /// # Safety
    /// If the view has the type of the column, the values exist and stay unchanged for `'a`.
    pub(crate) unsafe fn resolve<'a>(&self, rows: usize, column: DataType) -> Result<ColumnView<'a>, String> {
        if self.data_type == 0 {
            return Err("the view has no type; create it with turbidite_values".to_owned());
        }
        let Some(given) = data_type(self.data_type, self.width) else {
            return Err(format!("{} is not one of TURBIDITE_F32 and the other types", self.data_type));
        };
        if given != column {
            let is_decayed = matches!((given, column), (DataType::I8 | DataType::U8, DataType::FixedBytes(_)));
            let advice = if is_decayed { "; give the address of the array, as in &p[0].name" } else { "" };
            return Err(format!("the values are {given}, but the column is {column}{advice}"));
        }
        // SAFETY: guaranteed by the caller, since the types are equal.
        let bytes = unsafe { strided(self.data, self.stride, column.width(), rows) }?;
        ColumnView::new(bytes, self.stride, rows, column).map_err(|error| error.to_string())
    }
}

/// Returns the memory of `rows` values of `width` bytes, `stride` bytes apart, or the text of an error.
///
/// # Safety
/// The values exist and stay unchanged for `'a`.
pub(crate) unsafe fn strided<'a>(
    data: *const c_void,
    stride: usize,
    width: usize,
    rows: usize,
) -> Result<&'a [u8], String> {
    let Some(before_last) = rows.checked_sub(1) else { return Ok(&[]) };
    if data.is_null() {
        return Err("the address of the values is NULL".to_owned());
    }
    if stride < width && stride != 0 {
        return Err(format!("the stride of {stride} bytes is less than the {width} bytes of a value"));
    }
    let bytes = before_last.checked_mul(stride).and_then(|bytes| bytes.checked_add(width));
    let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok());
    let bytes = bytes.ok_or_else(|| format!("{rows} rows exceed the address space"))?;
    // SAFETY: `data` is not NULL, the slice fits the address space, and the caller guarantees the values.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), bytes) })
}

/// A request struct of turbidite.h, which begins with its size.
///
/// # Safety
/// The struct is `repr(C)`, consists of numbers and pointers, and begins with a `u32` that states its size.
pub(crate) unsafe trait Request: Sized {
    /// Name in turbidite.h.
    const NAME: &str;
    /// Name of the argument that points to it.
    const ARGUMENT: &'static str = "request";
    /// Advice for a wrong size, unless the caller states it.
    const ADVICE: Option<&str> = None;
}

// SAFETY: the struct is numbers and pointers.
unsafe impl Request for CRequest {
    const NAME: &str = "turbidite_request";
}

// SAFETY: as above.
unsafe impl Request for COptions {
    const NAME: &str = "turbidite_options";
    const ARGUMENT: &str = "options";
    const ADVICE: Option<&str> = Some("call turbidite_options_init first");
}

// SAFETY: as above.
unsafe impl Request for CGetRequest {
    const NAME: &str = "turbidite_get_request";
}

// SAFETY: as above.
unsafe impl Request for CTrackRequest {
    const NAME: &str = "turbidite_track_request";
}

/// Returns a copy of a request of the caller, or `None` for NULL.
///
/// # Safety
/// `request` is NULL or points to an integer of 32 bits. If that is the size of `T`, it begins a request.
pub(crate) unsafe fn request<T: Request>(request: *const T) -> Result<Option<T>, Error> {
    if request.is_null() {
        return Ok(None);
    }
    // SAFETY: `request` is not NULL, and every request begins with this field.
    let struct_size = unsafe { request.cast::<u32>().read() };
    let (bytes, size) = (struct_size as usize, size_of::<T>());
    if bytes != size {
        let name = T::NAME;
        let set = || format!("set it to sizeof({name}), and compile with the turbidite.h of this release");
        // A larger struct is one of a later header.
        let advice = T::ADVICE.filter(|_| bytes < size).map_or_else(set, str::to_owned);
        return Err(argument(T::ARGUMENT, format!("struct_size is {struct_size}, not {size}; {advice}")));
    }
    // SAFETY: the caller guarantees a request, and by the contract of the trait, copies of it are valid.
    Ok(Some(unsafe { request.read() }))
}

/// Returns the schema of the columns.
///
/// # Safety
/// `columns` points to `count` columns whose strings are NULL or C strings; `key` and the options' strings are NULL or
/// C strings.
pub(crate) unsafe fn schema(
    columns: *const CColumn,
    count: usize,
    key: *const c_char,
    options: &COptions,
) -> Result<Schema, Error> {
    if columns.is_null() || count == 0 {
        return Err(argument("columns", "is NULL or empty"));
    }
    // SAFETY: the caller guarantees `count` columns and valid strings in them.
    let columns = unsafe { std::slice::from_raw_parts(columns, count) };
    // SAFETY: as above.
    let columns = columns.iter().map(|column| unsafe { column.resolve() }).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: as above.
    let (key, period) = unsafe { (text::required("key", key)?, text::optional("period", options.period)?) };
    let schema = Schema::new(columns, key)?;
    let Some(period) = period else { return Ok(schema) };
    let periodic = period.parse().and_then(|periods: Periods| schema.with_periods(periods));
    periodic.map_err(|error| argument("period", format!("is refused: {error}")))
}

/// Checks that numbers can be copied to a struct of the caller. `name` and `type_name` are the names of the argument
/// and of its type in turbidite.h.
///
/// # Safety
/// `target` is NULL or points to an integer of 32 bits.
pub(crate) unsafe fn check_size<T>(target: *const T, name: &'static str, type_name: &str) -> Result<(), Error> {
    if target.is_null() {
        return Ok(());
    }
    // SAFETY: `target` is not NULL, and every version of the struct begins with this field.
    let struct_size = unsafe { target.cast::<u32>().read() } as usize;
    if (size_of::<u32>()..=size_of::<T>()).contains(&struct_size) {
        return Ok(());
    }
    Err(argument(name, format!("struct_size is {struct_size}; set it to sizeof({type_name})")))
}

/// Copies numbers to a struct of the caller, from the field behind its size up to its size.
///
/// # Safety
/// `target` is NULL or begins with its size in bytes, which [`check_size`] has accepted. Both structs are `repr(C)`.
pub(crate) unsafe fn copy_sized<T: Copy>(filled: &T, target: *mut T) {
    if target.is_null() {
        return;
    }
    let (from, to) = (std::ptr::from_ref(filled).cast::<u8>(), target.cast::<u8>());
    let field = size_of::<u32>();
    // SAFETY: the caller's struct has `struct_size` bytes, and is not larger than ours. The two do not overlap.
    unsafe {
        let struct_size = target.cast::<u32>().read() as usize;
        std::ptr::copy_nonoverlapping(from.add(field), to.add(field), struct_size - field);
    }
}

impl CEpochMetrics {
    /// Checks that metrics can be copied to the caller's struct.
    ///
    /// # Safety
    /// `target` is NULL or points to a `turbidite_epoch_metrics`.
    pub(crate) unsafe fn check(target: *const Self) -> Result<(), Error> {
        // SAFETY: guaranteed by the caller.
        unsafe { check_size(target, "metrics", "turbidite_epoch_metrics") }
    }

    /// Copies metrics to the caller's struct, up to its size.
    ///
    /// # Safety
    /// As for [`CEpochMetrics::check`], which must have succeeded.
    pub(crate) unsafe fn hand_over(target: *mut Self, metrics: &EpochMetrics, traffic: ExchangeMetrics) {
        let filled = Self {
            struct_size: size_of::<Self>() as u32,
            ranks: metrics.ranks,
            rows: metrics.rows,
            strays: metrics.strays,
            spills: metrics.spills,
            nan_keys: metrics.nan_keys,
            renegotiations: u64::from(metrics.renegotiations),
            messages: metrics.messages,
            bytes_written: metrics.bytes_written,
            load_imbalance: metrics.load_imbalance(),
            wall_s: metrics.wall_s,
            recipients: traffic.recipients,
            senders: traffic.senders,
            forwarded: traffic.forwarded,
            open_batch_bytes: traffic.open_batch_bytes,
            batch_bytes: traffic.batch_bytes,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { copy_sized(&filled, target) };
    }
}

impl CTrackMetrics {
    /// Checks that metrics can be copied to the caller's struct.
    ///
    /// # Safety
    /// `target` is NULL or points to a `turbidite_track_metrics`.
    pub(crate) unsafe fn check(target: *const Self) -> Result<(), Error> {
        // SAFETY: guaranteed by the caller.
        unsafe { check_size(target, "metrics", "turbidite_track_metrics") }
    }

    /// Copies metrics to the caller's struct, up to its size.
    ///
    /// # Safety
    /// As for [`CTrackMetrics::check`], which must have succeeded.
    pub(crate) unsafe fn hand_over(target: *mut Self, metrics: &TrackMetrics) {
        let filled = Self {
            struct_size: size_of::<Self>() as u32,
            // A folder has fewer than 2^32 epochs.
            epochs: metrics.epochs as u32,
            ids: metrics.ids,
            rows: metrics.rows,
            incomplete_ids: metrics.incomplete_ids,
            absent_ids: metrics.absent_ids,
            missing: metrics.missing,
            duplicates: metrics.duplicates,
            bytes_read: metrics.read.bytes_read,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { copy_sized(&filled, target) };
    }
}

impl CBatch {
    /// Describes a batch.
    pub(crate) fn of(batch: &CursorBatch) -> Self {
        let bounds = batch.bounds.as_deref().unwrap_or_default();
        let (receiver, run) = batch.run.unwrap_or((u32::MAX, u32::MAX));
        let along = |of: fn(&(f64, f64)) -> f64| std::array::from_fn(|axis| bounds.get(axis).map_or(0.0, of));
        Self {
            struct_size: size_of::<Self>() as u32,
            level: batch.level.into(),
            rows: batch.rows.num_rows() as u64,
            receiver,
            run,
            coordinates: bounds.len() as u32,
            reserved: 0,
            lower: along(|(low, _)| *low),
            upper: along(|(_, high)| *high),
        }
    }

    /// Checks that a description can be copied to the caller's struct.
    ///
    /// # Safety
    /// `target` is NULL or points to a `turbidite_batch`.
    pub(crate) unsafe fn check(target: *const Self) -> Result<(), Error> {
        // SAFETY: guaranteed by the caller.
        unsafe { check_size(target, "batch", "turbidite_batch") }
    }

    /// Copies the description to the caller's struct, up to its size.
    ///
    /// # Safety
    /// As for [`CBatch::check`], which must have succeeded.
    pub(crate) unsafe fn hand_over(&self, target: *mut Self) {
        // SAFETY: guaranteed by the caller.
        unsafe { copy_sized(self, target) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_have_the_sizes_the_header_gives_them() {
        // tests/c/abi.c prints the same sizes from the header on LP64 systems.
        assert_eq!(size_of::<CColumn>(), 24);
        assert_eq!(size_of::<CView>(), 24);
        assert_eq!(size_of::<COptions>(), 72);
        assert_eq!(size_of::<CEpochMetrics>(), 112);
        assert_eq!(size_of::<CRequest>(), 88);
        assert_eq!(size_of::<CGetRequest>(), 88);
        assert_eq!(size_of::<CTrackRequest>(), 120);
        assert_eq!(size_of::<CTrackMetrics>(), 64);
        assert_eq!(size_of::<crate::histograms::CBins>(), 72);
        assert_eq!(size_of::<crate::histograms::CHistogramMetrics>(), 96);
        assert_eq!(size_of::<CBatch>(), 80);
        assert_eq!(size_of::<turbidite::runtime::TransportTable>(), 80);
    }
}
