//! Mirrors the structs in turbidite.h, and converts them to core types.
//!
//! A struct that the caller fills contains its size, which shows that the struct was initialised. Statistics are copied
//! up to the size of the struct in the caller's header.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use turbidite::runtime::ExchangeStatistics;
use turbidite::{Column, DataType, EpochStatistics, Error, IfExists, Renegotiation, Schema, WriteOptions};

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
    reserved: u32,
    pub(crate) renegotiate: u64,
    memtable_bytes: u64,
    source: *const c_char,
}

/// Mirror of `turbidite_figures`.
#[repr(C)]
pub struct CStatistics {
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
            reserved: 0,
            renegotiate: 0,
            memtable_bytes: defaults.memtable_bytes as u64,
            source: std::ptr::null(),
        }
    }

    /// Converts the options for a job of `ranks` ranks.
    ///
    /// # Safety
    /// `source` is NULL or a C string.
    pub(crate) unsafe fn resolve(&self, ranks: u32) -> Result<WriteOptions, Error> {
        let if_exists = match self.if_exists {
            0 => IfExists::Error,
            1 => IfExists::Replace,
            2 => IfExists::Skip,
            other => return Err(argument("if_exists", format!("{other} is not one of TURBIDITE_IF_EXISTS_..."))),
        };
        if self.struct_size as usize != size_of::<Self>() {
            return Err(argument(
                "options",
                "struct_size is not sizeof(turbidite_options); call turbidite_options_init first",
            ));
        }
        if self.reserved != 0 {
            return Err(argument("reserved", "is not 0; call turbidite_options_init first"));
        }
        // SAFETY: guaranteed by the caller.
        let source = unsafe { text::optional("source", self.source) }?;
        let mut options = WriteOptions::new(ranks);
        if self.receivers != 0 {
            options.receivers = self.receivers;
            options.part_bytes = Some(0);
        }
        options.pivots = self.pivots;
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
        let data_type = match self.data_type {
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
            11 => DataType::FixedBytes(self.width),
            other => return Err(argument("type", format!("{other} is not one of TURBIDITE_F32 and the other types"))),
        };
        // SAFETY: the caller guarantees both strings.
        let (name, unit) = unsafe { (text::required("name", self.name)?, text::optional("unit", self.unit)?) };
        let column = Column::new(name, data_type);
        Ok(match unit {
            Some(unit) => column.with_unit(unit),
            None => column,
        })
    }
}

/// Returns the schema of the columns.
///
/// # Safety
/// `columns` points to `count` columns whose strings are NULL or C strings; `key` is NULL or a C string.
pub(crate) unsafe fn schema(columns: *const CColumn, count: usize, key: *const c_char) -> Result<Schema, Error> {
    if columns.is_null() || count == 0 {
        return Err(argument("columns", "is NULL or empty"));
    }
    // SAFETY: the caller guarantees `count` columns and valid strings in them.
    let columns = unsafe { std::slice::from_raw_parts(columns, count) };
    // SAFETY: as above.
    let columns = columns.iter().map(|column| unsafe { column.resolve() }).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: as above.
    Ok(Schema::new(columns, unsafe { text::required("key", key) }?)?)
}

impl CStatistics {
    /// Checks that statistics can be copied to the caller's struct.
    ///
    /// # Safety
    /// `target` is NULL or points to a `turbidite_figures`.
    pub(crate) unsafe fn check(target: *const Self) -> Result<(), Error> {
        if target.is_null() {
            return Ok(());
        }
        // SAFETY: `target` is not NULL, and every version of the struct begins with this field.
        let struct_size = unsafe { (*target).struct_size } as usize;
        if (size_of::<u32>()..=size_of::<Self>()).contains(&struct_size) {
            return Ok(());
        }
        Err(argument("figures", format!("struct_size is {struct_size}; set it to sizeof(turbidite_figures)")))
    }

    /// Copies statistics to the caller's struct, up to its size.
    ///
    /// # Safety
    /// As for [`CStatistics::check`], which must have succeeded.
    pub(crate) unsafe fn hand_over(target: *mut Self, statistics: &EpochStatistics, traffic: ExchangeStatistics) {
        if target.is_null() {
            return;
        }
        // SAFETY: as in `check`.
        let struct_size = unsafe { (*target).struct_size } as usize;
        let filled = Self {
            struct_size: struct_size as u32,
            ranks: statistics.ranks,
            rows: statistics.rows,
            strays: statistics.strays,
            spills: statistics.spills,
            nan_keys: statistics.nan_keys,
            renegotiations: u64::from(statistics.renegotiations),
            messages: statistics.messages,
            bytes_written: statistics.bytes_written,
            load_imbalance: statistics.load_imbalance(),
            wall_s: statistics.wall_s,
            recipients: traffic.recipients,
            senders: traffic.senders,
            forwarded: traffic.forwarded,
            open_batch_bytes: traffic.open_batch_bytes,
            batch_bytes: traffic.batch_bytes,
        };
        // SAFETY: the caller's struct has `struct_size` bytes, and is not larger than ours. The two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping((&raw const filled).cast::<u8>(), target.cast(), struct_size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_have_the_sizes_the_header_gives_them() {
        // tests/c/abi.c prints the same sizes from the header on LP64 systems.
        assert_eq!(size_of::<CColumn>(), 24);
        assert_eq!(size_of::<CView>(), 16);
        assert_eq!(size_of::<COptions>(), 56);
        assert_eq!(size_of::<CStatistics>(), 112);
        assert_eq!(size_of::<CRequest>(), 48);
        assert_eq!(size_of::<turbidite::runtime::TransportTable>(), 80);
    }
}
