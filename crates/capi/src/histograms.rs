//! Exports histograms of one and two columns.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use turbidite::query::{BinScale, Bins, Bounded, Dataset, Histogram, Histogram2d, Histogram2dBounds, Query};
use turbidite::{Error, Value};

use crate::reading::{self, CReader};
use crate::status::{OK, answer, argument};
use crate::structs::{self, CRequest, Request};
use crate::text;

/// Mirror of `turbidite_bins`.
#[repr(C)]
pub struct CBins {
    pub(crate) struct_size: u32,
    pub(crate) is_log: i32,
    pub(crate) column: *const c_char,
    pub(crate) count: u64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) edges: *mut f64,
    pub(crate) errors: *mut f64,
    pub(crate) level: u32,
    pub(crate) reserved: u32,
}

// SAFETY: the struct is numbers and pointers.
unsafe impl Request for CBins {
    const NAME: &str = "turbidite_bins";
}

/// Mirror of `turbidite_histogram_metrics`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CHistogramMetrics {
    pub(crate) struct_size: u32,
    pub(crate) epochs: u32,
    pub(crate) rows: [u64; 2],
    pub(crate) nan: [u64; 2],
    pub(crate) infinite: [u64; 2],
    pub(crate) outside: [u64; 2],
    pub(crate) bins: [u64; 2],
    pub(crate) bytes_read: u64,
}

/// Default number of bins of a column.
const DEFAULT_BINS: usize = 64;

/// An axis of a histogram.
struct Axis {
    column: String,
    bins: Bins,
    /// The caller's memory for one more number than bins, or NULL.
    edges: *mut f64,
    /// The caller's memory for a standard error of each bin, and the level to estimate from.
    errors: Option<(*mut f64, u8)>,
}

impl Axis {
    /// Reads an axis. `None` for NULL.
    ///
    /// # Safety
    /// `bins` is NULL or points to a `turbidite_bins`, whose column is NULL or a C string.
    unsafe fn read(name: &'static str, bins: *const CBins) -> Result<Option<Self>, Error> {
        // SAFETY: guaranteed by the caller.
        let Some(stated) = unsafe { structs::request(bins) }? else { return Ok(None) };
        // SAFETY: as above.
        let column = unsafe { text::required("column", stated.column) }?;
        let count = match usize::try_from(stated.count) {
            Ok(0) => DEFAULT_BINS,
            Ok(count) => count,
            Err(_) => return Err(argument(name, format!("has {} bins", stated.count))),
        };
        // The core checks the number of bins and the range.
        let has_range = stated.low != 0.0 || stated.high != 0.0;
        let range = has_range.then_some((Value::Float(stated.low), Value::Float(stated.high)));
        let scale = if stated.is_log != 0 { BinScale::Log } else { BinScale::Linear };
        let bins = Bins { count, range, scale };
        let errors = match (stated.errors.is_null(), u8::try_from(stated.level)) {
            (true, Ok(0)) => None,
            (true, _) => {
                return Err(argument(name, format!("states the level {}, but no room for errors", stated.level)));
            }
            (false, Ok(level)) => Some((stated.errors, level)),
            (false, Err(_)) => return Err(argument(name, format!("states the level {}", stated.level))),
        };
        Ok(Some(Self { column: column.to_owned(), bins, edges: stated.edges, errors }))
    }

    /// Hands the edges over to the caller.
    ///
    /// # Safety
    /// The caller's memory has room for one more number than bins were requested, of which there are no more.
    unsafe fn hand_over(&self, edges: &[Value]) {
        if !self.edges.is_null() {
            for (place, edge) in edges.iter().enumerate().take(self.bins.count + 1) {
                // SAFETY: guaranteed by the caller.
                unsafe { self.edges.add(place).write(edge.as_f64()) };
            }
        }
    }
}

/// Counts of a histogram, in the order of the caller's memory.
struct Counts {
    metrics: CHistogramMetrics,
    edges: Vec<Vec<Value>>,
    bins: Vec<Bounded>,
    /// Standard errors of the bins, if these are estimates from a level.
    errors: Option<Vec<f64>>,
}

impl Counts {
    /// Counts the rows of a query, or bounds or estimates their numbers.
    fn of(dataset: &Dataset, query: &Query, x: &Axis, y: Option<&Axis>, has_most: bool) -> Result<Self, Error> {
        let of_x = (x.column.as_str(), &x.bins);
        Ok(match (y.map(|y| ((y.column.as_str(), &y.bins), y.errors)), x.errors) {
            (None, Some((_, level))) if !has_most => {
                dataset.histogram_from_level(query, &x.column, &x.bins, level)?.into()
            }
            (None, None) if has_most => dataset.histogram_bounds(query, &x.column, &x.bins)?.into(),
            (None, None) => dataset.histogram_of(query, &x.column, &x.bins)?.into(),
            (Some((of_y, None)), None) if has_most => dataset.histogram_2d_bounds(query, of_x, of_y)?.into(),
            (Some((of_y, None)), None) => dataset.histogram_2d(query, of_x, of_y, None)?.into(),
            _ => return Err(argument("errors", "are those of estimates of x alone; y and most must be NULL")),
        })
    }
}

/// Returns the sum of two counts as bounds.
fn sum(one: Bounded, other: Bounded) -> [u64; 2] {
    [one.least + other.least, one.most + other.most]
}

fn bounds(count: Bounded) -> [u64; 2] {
    [count.least, count.most]
}

impl From<Histogram> for Counts {
    fn from(found: Histogram) -> Self {
        let metrics = CHistogramMetrics {
            // A folder has fewer than 2^32 epochs.
            epochs: found.epochs as u32,
            rows: bounds(found.rows),
            nan: bounds(found.nan),
            infinite: sum(found.negative_infinity, found.positive_infinity),
            outside: sum(found.below, found.above),
            bins: [found.bins.len() as u64, 0],
            bytes_read: found.metrics.bytes_read,
            ..CHistogramMetrics::default()
        };
        let errors = found.errors.map(|errors| errors.bins);
        Self { metrics, edges: vec![found.edges], bins: found.bins, errors }
    }
}

/// Returns the numbers of bins between edges.
fn bins_between(edges: &[Vec<Value>; 2]) -> [u64; 2] {
    edges.each_ref().map(|edges| edges.len().saturating_sub(1) as u64)
}

impl From<Histogram2d> for Counts {
    fn from(found: Histogram2d) -> Self {
        let metrics = CHistogramMetrics {
            epochs: found.epochs as u32,
            rows: [found.rows; 2],
            nan: [found.nan; 2],
            infinite: [found.infinite; 2],
            outside: [found.outside; 2],
            bins: bins_between(&found.edges),
            bytes_read: found.metrics.bytes_read,
            ..CHistogramMetrics::default()
        };
        let bins = found.bins.into_iter().map(Bounded::exactly).collect();
        Self { metrics, edges: found.edges.into(), bins, errors: None }
    }
}

impl From<Histogram2dBounds> for Counts {
    fn from(found: Histogram2dBounds) -> Self {
        let metrics = CHistogramMetrics {
            epochs: found.epochs as u32,
            rows: bounds(found.rows),
            nan: bounds(found.nan),
            infinite: bounds(found.infinite),
            outside: bounds(found.outside),
            bins: bins_between(&found.edges),
            bytes_read: found.metrics.bytes_read,
            ..CHistogramMetrics::default()
        };
        Self { metrics, edges: found.edges.into(), bins: found.bins, errors: None }
    }
}

/// Counts the rows of a request in bins of one column, or of two.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_histogram(
    reader: *mut CReader,
    request: *const CRequest,
    x: *const CBins,
    y: *const CBins,
    least: *mut u64,
    most: *mut u64,
    metrics: *mut CHistogramMetrics,
) -> i32 {
    answer(|| {
        // SAFETY: the header requires a handle or NULL.
        let reader = unsafe { reader.as_ref() }.ok_or_else(|| argument("reader", "is NULL"))?;
        if least.is_null() {
            return Err(argument("least", "is NULL"));
        }
        // SAFETY: the header requires valid structs, strings and names, or NULL.
        let (query, x, y) = unsafe {
            structs::check_size(metrics, "metrics", "turbidite_histogram_metrics")?;
            (reading::whole_query("turbidite_histogram", request)?, Axis::read("x", x)?, Axis::read("y", y)?)
        };
        let x = x.ok_or_else(|| argument("x", "is NULL"))?;
        let counts = Counts::of(&reader.dataset, &query, &x, y.as_ref(), !most.is_null())?;
        let requested = [x.bins.count as u64, y.as_ref().map_or(0, |y| y.bins.count as u64)];
        if metrics.is_null() && counts.metrics.bins != requested {
            let [found, of_y] = counts.metrics.bins;
            let what =
                format!("is NULL, but tells the number of bins: {found} of x and {of_y} of y, fewer than requested");
            return Err(argument("metrics", what));
        }
        reader.bytes_read.fetch_add(counts.metrics.bytes_read, Ordering::Relaxed);
        // SAFETY: the header requires room for as many bins as are requested, and the core returns no more. `metrics`
        // has been checked.
        unsafe {
            for (place, count) in counts.bins.iter().enumerate() {
                least.add(place).write(if counts.errors.is_some() { count.estimate } else { count.least });
                if !most.is_null() {
                    most.add(place).write(count.most);
                }
            }
            if let Some((place, _)) = x.errors {
                let errors = counts.errors.unwrap_or_default();
                std::ptr::copy_nonoverlapping(errors.as_ptr(), place, errors.len());
            }
            for (axis, edges) in [Some(&x), y.as_ref()].into_iter().flatten().zip(&counts.edges) {
                axis.hand_over(edges);
            }
            let struct_size = size_of::<CHistogramMetrics>() as u32;
            structs::copy_sized(&CHistogramMetrics { struct_size, ..counts.metrics }, metrics);
        }
        Ok(OK)
    })
}
