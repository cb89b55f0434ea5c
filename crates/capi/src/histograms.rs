//! Exports histograms of one and two columns.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use turbidite::query::{BinScale, Binned, Bins, Estimate, Histogram, HistogramRequest, Query, Source, Unbinned};
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
    pub(crate) budget_bytes: u64,
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
    /// The most bytes of columns that exact counts read; 0 for the default.
    budget_bytes: u64,
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
        let bins = Bins { range, scale, ..Bins::new(count) };
        let errors = match (stated.errors.is_null(), u8::try_from(stated.level)) {
            (true, Ok(0)) => None,
            (true, _) => {
                return Err(argument(name, format!("states the level {}, but no room for errors", stated.level)));
            }
            (false, Ok(level)) => Some((stated.errors, level)),
            (false, Err(_)) => return Err(argument(name, format!("states the level {}", stated.level))),
        };
        let (column, budget_bytes) = (column.to_owned(), stated.budget_bytes);
        Ok(Some(Self { column, bins, edges: stated.edges, errors, budget_bytes }))
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

/// Returns the request for a histogram. Bounds have two numbers for each bin.
fn request_of(query: Query, x: &Axis, y: Option<&Axis>, has_most: bool) -> Result<HistogramRequest, Error> {
    let source = match (x.errors, y.map(|y| y.errors)) {
        (None, None | Some(None)) if has_most => Source::Bounds,
        (None, None | Some(None)) => Source::Exact,
        (Some((_, level)), None) if !has_most => Source::Level(level),
        _ => return Err(argument("errors", "are those of estimates of x alone; y and most must be NULL")),
    };
    let mut request = HistogramRequest::new(query, &x.column, x.bins.clone()).source(source);
    if x.budget_bytes > 0 {
        request = request.budget(x.budget_bytes);
    }
    Ok(match y {
        Some(y) => request.by(&y.column, y.bins.clone()),
        None => request,
    })
}

/// Returns the metrics of a histogram.
fn metrics_of(found: &Histogram) -> CHistogramMetrics {
    let Binned { all, unbinned, .. } = &found.rows;
    let sum = |reasons: &[Unbinned]| {
        let numbers = unbinned.iter().filter(|(reason, _)| reasons.contains(reason)).map(|(_, rows)| *rows);
        bounds(numbers.fold(Estimate::default(), Estimate::plus))
    };
    let bins = |axis: usize| found.axes.get(axis).map_or(0, |axis| axis.edges.len().saturating_sub(1) as u64);
    CHistogramMetrics {
        struct_size: size_of::<CHistogramMetrics>() as u32,
        // A folder has fewer than 2^32 epochs.
        epochs: found.epochs as u32,
        rows: bounds(*all),
        nan: sum(&[Unbinned::Nan]),
        infinite: sum(&[Unbinned::Infinite, Unbinned::NegativeInfinity, Unbinned::PositiveInfinity]),
        outside: sum(&[Unbinned::Outside, Unbinned::Below, Unbinned::Above]),
        bins: [bins(0), bins(1)],
        bytes_read: found.metrics.bytes_read,
    }
}

fn bounds(count: Estimate<u64>) -> [u64; 2] {
    [count.least, count.most]
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
        let requested = [x.bins.count as u64, y.as_ref().map_or(0, |y| y.bins.count as u64)];
        let found = reader.dataset.histogram(&request_of(query, &x, y.as_ref(), !most.is_null())?)?;
        let stated = metrics_of(&found);
        if metrics.is_null() && stated.bins != requested {
            let [found, of_y] = stated.bins;
            let what =
                format!("is NULL, but tells the number of bins: {found} of x and {of_y} of y, fewer than requested");
            return Err(argument("metrics", what));
        }
        reader.bytes_read.fetch_add(stated.bytes_read, Ordering::Relaxed);
        let bins = &found.rows.bins;
        let counts = if bins.errors().is_some() { bins.estimates() } else { bins.least() };
        // SAFETY: the header requires room for as many bins as are requested, and the core returns no more. `metrics`
        // has been checked.
        unsafe {
            least.copy_from_nonoverlapping(counts.as_ptr(), counts.len());
            if !most.is_null() {
                most.copy_from_nonoverlapping(bins.most().as_ptr(), bins.len());
            }
            if let (Some((place, _)), Some(errors)) = (x.errors, bins.errors()) {
                place.copy_from_nonoverlapping(errors.as_ptr(), errors.len());
            }
            for (axis, stated) in [Some(&x), y.as_ref()].into_iter().flatten().zip(&found.axes) {
                axis.hand_over(&stated.edges);
            }
            structs::copy_sized(&stated, metrics);
        }
        Ok(OK)
    })
}
