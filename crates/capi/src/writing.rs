//! Exports the functions that write an open dataset.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use turbidite::{Column, ColumnView, EpochMetrics, EpochStart, Error, RankJob, Schema, UsageError};

use crate::launch;
use crate::messages::Messages;
use crate::process::{TransportInUse, failed_opens};
use crate::status::{Call, OK, SKIPPED, argument};
use crate::structs::{self, CEpochMetrics, CView};
use crate::text;

/// A dataset that is open for writing: `turbidite_dataset` of turbidite.h.
pub struct CDataset {
    pub(crate) job: RankJob,
    pub(crate) schema: Schema,
    messages: Arc<Messages>,
    /// The epoch that was begun last, and how far it is.
    epoch: u64,
    phase: Phase,
    /// Whether an append has failed. Its message is printed once, since the end of the epoch repeats it.
    append_has_failed: bool,
    /// Whether records were appended outside an epoch, so that the next one lacks them.
    has_missed: bool,
    has_warned: bool,
    /// The transports, which no other dataset may use while this one is open.
    _transports: Vec<TransportInUse>,
}

/// How far the last epoch of a dataset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has ended, or there was none.
    Ended,
    Begun,
    /// `turbidite_end_epoch_start` has returned, and `turbidite_end_epoch_wait` has not.
    Ending,
    /// It exists and is kept.
    Skipped,
    /// It could not begin. Calls that need it then say nothing new.
    Refused,
}

impl CDataset {
    pub(crate) fn new(job: RankJob, schema: Schema, messages: Arc<Messages>, transports: Vec<TransportInUse>) -> Self {
        Self {
            job,
            schema,
            messages,
            epoch: 0,
            phase: Phase::Ended,
            append_has_failed: false,
            has_missed: false,
            has_warned: false,
            _transports: transports,
        }
    }

    /// Returns whether an epoch was begun and has not ended.
    fn is_in_epoch(&self) -> bool {
        matches!(self.phase, Phase::Begun | Phase::Ending)
    }

    fn misuse(&self, what: String) -> Error {
        UsageError::Epoch { epoch: self.epoch, rank: self.messages.rank(), what }.into()
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<EpochStart, Error> {
        if self.phase == Phase::Begun {
            // Further records belong to the other epoch.
            self.job.refuse(format!("turbidite_begin_epoch was called for epoch {epoch} before it had ended"))?;
        }
        self.expect_between(&format!("epoch {epoch} cannot begin"))?;
        self.warn_of_replacement(epoch);
        let started = self.job.begin_epoch(epoch);
        self.epoch = epoch;
        self.phase = match started {
            Ok(EpochStart::Started) => Phase::Begun,
            Ok(EpochStart::Skipped) => Phase::Skipped,
            Err(_) => Phase::Refused,
        };
        if self.phase == Phase::Begun && std::mem::take(&mut self.has_missed) {
            self.job.refuse("records were appended before turbidite_begin_epoch".to_owned())?;
        }
        started
    }

    /// Warns once if ranks seem to write one dataset one after the other, each alone.
    fn warn_of_replacement(&mut self, epoch: u64) {
        if !self.has_warned
            && let Some(advice) = self.messages.advice()
            && launch::is_new(self.messages.path().as_ref(), epoch)
        {
            self.has_warned = true;
            self.messages.print(format!("epoch {epoch} has been written since this program started; {advice}"));
        }
    }

    /// Returns the error of a call that the phase does not allow.
    fn misplaced(&self) -> Error {
        let what = match self.phase {
            Phase::Begun => "its end has not started; call turbidite_end_epoch_start first",
            Phase::Ending => "it is ending; call turbidite_end_epoch_wait first",
            Phase::Skipped => "it exists and is kept; append no records to it, and do not end it",
            Phase::Refused => "it could not begin",
            Phase::Ended => return argument("epoch", "none has begun; call turbidite_begin_epoch first"),
        };
        self.misuse(what.to_owned())
    }

    /// Returns an error if an epoch has not ended, and what the program cannot do before.
    fn expect_between(&self, obstructed: &str) -> Result<(), Error> {
        if !self.is_in_epoch() {
            return Ok(());
        }
        Err(self.misuse(format!("it has not ended, so that {obstructed}; call turbidite_end_epoch first")))
    }

    fn expect(&self, phase: Phase) -> Result<(), Error> {
        if self.phase == phase { Ok(()) } else { Err(self.misplaced()) }
    }

    /// Makes the epoch fail on all ranks, since `rows` records cannot be appended. Returns the error.
    fn refuse(&mut self, rows: usize, what: String) -> Error {
        self.append_has_failed = true;
        match self.phase {
            Phase::Begun => {
                // The error of the epoch states it and the rank.
                self.job.refuse(what.clone()).ok();
                return self.misuse(what);
            }
            // Without records, none are missed.
            Phase::Ended | Phase::Ending => self.has_missed |= rows > 0,
            Phase::Skipped | Phase::Refused => {}
        }
        self.misplaced()
    }

    /// Appends `rows` records that `views` describes, or makes the epoch fail.
    fn append<'v>(
        &mut self,
        rows: usize,
        views: impl FnOnce(&Schema) -> Result<Vec<ColumnView<'v>>, String>,
    ) -> Result<i32, Error> {
        let views = views(&self.schema);
        if self.phase != Phase::Begun {
            return Err(self.refuse(rows, String::new()));
        }
        match views {
            Ok(views) => self.job.append(&views).map(|()| OK),
            Err(what) => Err(self.refuse(rows, what)),
        }
    }
}

/// Returns the dataset behind a handle.
///
/// # Safety
/// `dataset` is NULL or an open handle that no other thread uses.
unsafe fn handle<'a>(dataset: *mut CDataset) -> Result<&'a mut CDataset, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { dataset.as_mut() }.ok_or_else(|| argument("dataset", "is NULL: it is closed, or was not opened"))
}

/// Runs a call on an open dataset, of which `tells` says whether it prints its message.
///
/// # Safety
/// As for [`handle`].
unsafe fn on_dataset(
    name: &'static str,
    dataset: *mut CDataset,
    tells: impl FnOnce(&CDataset) -> bool,
    body: impl FnOnce(&mut CDataset) -> Result<i32, Error>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    let (prints, messages) = match unsafe { dataset.as_ref() } {
        Some(dataset) => (tells(dataset), Some(Arc::clone(&dataset.messages))),
        None => (failed_opens().is_empty(), None),
    };
    if let Some(messages) = &messages {
        messages.begin(name);
    }
    let path = messages.as_ref().map(|messages| messages.path());
    // SAFETY: as above.
    Call { name, prints, dataset: path }.answer(|| body(unsafe { handle(dataset) }?))
}

/// Returns whether a call that needs an epoch prints its message.
fn in_epoch(dataset: &CDataset) -> bool {
    dataset.phase != Phase::Refused
}

/// Returns whether an append prints its message.
fn in_append(dataset: &CDataset) -> bool {
    in_epoch(dataset) && !dataset.append_has_failed
}

/// Begins an epoch.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_begin_epoch(dataset: *mut CDataset, epoch: u64) -> i32 {
    let begin =
        |dataset: &mut CDataset| Ok(if dataset.begin_epoch(epoch)? == EpochStart::Skipped { SKIPPED } else { OK });
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_begin_epoch", dataset, |_| true, begin) }
}

/// Appends records from one view per column.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h: each view has `rows` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_append(
    dataset: *mut CDataset,
    columns: *const CView,
    column_count: usize,
    rows: usize,
) -> i32 {
    let views = |schema: &Schema| {
        let count = schema.columns().len();
        if column_count != count {
            return Err(format!("{column_count} views were given, but the schema has {count} columns"));
        }
        if columns.is_null() {
            return Err("columns is NULL".to_owned());
        }
        // SAFETY: `columns` is not NULL, and the caller guarantees `column_count` views.
        let given = unsafe { std::slice::from_raw_parts(columns, column_count) };
        let resolve = |(view, column): (&CView, &Column)| {
            // SAFETY: the caller guarantees `rows` values, `stride` bytes apart.
            let resolved = unsafe { view.resolve(rows, column.data_type) };
            resolved.map_err(|what| format!("column '{}': {what}", column.name))
        };
        given.iter().zip(schema.columns()).map(resolve).collect()
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_append", dataset, in_append, |dataset| dataset.append(rows, views)) }
}

/// Appends packed records.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h: there are `count` records of `row_bytes` bytes at `rows`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_append_rows(
    dataset: *mut CDataset,
    rows: *const c_void,
    row_bytes: usize,
    count: usize,
) -> i32 {
    let views = |schema: &Schema| {
        let packed_bytes = schema.row_bytes();
        if row_bytes != packed_bytes {
            return Err(format!(
                "row_bytes is {row_bytes}, but the columns of a record have {packed_bytes}; append structs with gaps by \
                 turbidite_append"
            ));
        }
        // SAFETY: the caller guarantees `count` records without gaps.
        let bytes = unsafe { structs::strided(rows, row_bytes, row_bytes, count) }?;
        schema.views(bytes).map_err(|error| error.to_string())
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_append_rows", dataset, in_append, |dataset| dataset.append(count, views)) }
}

/// Fails as an append does, for a reason that a binding has found.
///
/// # Safety
/// `dataset` is as in turbidite.h, and `why` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_refuse_append(dataset: *mut CDataset, why: *const c_char) -> i32 {
    let refuse = |dataset: &mut CDataset| {
        // SAFETY: guaranteed by the caller.
        let why = unsafe { text::required("why", why) }?;
        dataset.append(1, |_| Err(why.to_owned()))
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_append", dataset, in_append, refuse) }
}

/// Sets a number that describes the epoch.
///
/// # Safety
/// `dataset` is as in turbidite.h, `name` is NULL or a C string, and so is `unit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_epoch_attribute(
    dataset: *mut CDataset,
    name: *const c_char,
    value: f64,
    unit: *const c_char,
) -> i32 {
    let set = |dataset: &mut CDataset| {
        dataset.expect(Phase::Begun)?;
        // SAFETY: guaranteed by the caller.
        let (name, unit) = unsafe { (text::required("name", name)?, text::optional("unit", unit)?) };
        dataset.job.set_attribute(name, value, unit).map(|()| OK)
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_epoch_attribute", dataset, in_epoch, set) }
}

/// Requests a new partition table.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_renegotiate(dataset: *mut CDataset) -> i32 {
    let call = "turbidite_renegotiate";
    let renegotiate = |dataset: &mut CDataset| {
        dataset.expect(Phase::Begun)?;
        dataset.job.renegotiate().map(|()| OK)
    };
    // SAFETY: required by the header.
    unsafe { on_dataset(call, dataset, in_epoch, renegotiate) }
}

/// Progresses the shuffle: sends and receives messages.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_progress(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_progress", dataset, |_| true, |dataset| dataset.job.progress().map(|()| OK)) }
}

/// Ends an epoch in this phase by `end`, and hands out its metrics.
///
/// # Safety
/// `dataset` and `metrics` as in turbidite.h.
unsafe fn end_epoch(
    call: &'static str,
    phase: Phase,
    dataset: *mut CDataset,
    metrics: *mut CEpochMetrics,
    end: impl FnOnce(&mut RankJob) -> Result<EpochMetrics, Error>,
) -> i32 {
    let end = |dataset: &mut CDataset| {
        // The struct is checked first, since a committed epoch must not return an error.
        // SAFETY: required by the header.
        unsafe { CEpochMetrics::check(metrics) }?;
        dataset.expect(phase)?;
        // Whether it is committed or fails.
        dataset.phase = Phase::Ended;
        let ended = end(&mut dataset.job)?;
        // SAFETY: as above.
        unsafe { CEpochMetrics::hand_over(metrics, &ended, dataset.job.exchange_metrics()) };
        Ok(OK)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { on_dataset(call, dataset, in_epoch, end) }
}

/// Ends the epoch and commits it.
///
/// # Safety
/// `dataset` and `metrics` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch(dataset: *mut CDataset, metrics: *mut CEpochMetrics) -> i32 {
    // SAFETY: required by the header.
    unsafe { end_epoch("turbidite_end_epoch", Phase::Begun, dataset, metrics, RankJob::end_epoch) }
}

/// Starts ending the epoch.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch_start(dataset: *mut CDataset) -> i32 {
    let call = "turbidite_end_epoch_start";
    let start = |dataset: &mut CDataset| {
        dataset.expect(Phase::Begun)?;
        dataset.phase = Phase::Ending;
        dataset.job.start_end_epoch().map(|()| OK)
    };
    // SAFETY: required by the header.
    unsafe { on_dataset(call, dataset, in_epoch, start) }
}

/// Blocks until the epoch has ended and is committed.
///
/// # Safety
/// `dataset` and `metrics` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch_wait(dataset: *mut CDataset, metrics: *mut CEpochMetrics) -> i32 {
    // SAFETY: required by the header.
    unsafe { end_epoch("turbidite_end_epoch_wait", Phase::Ending, dataset, metrics, RankJob::wait_end_epoch) }
}

/// Removes all epochs after `epoch`.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_truncate_after(dataset: *mut CDataset, epoch: u64) -> i32 {
    let truncate = |dataset: &mut CDataset| {
        dataset.expect_between("no epoch can be removed")?;
        dataset.job.truncate_after(epoch).map(|_| OK)
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_truncate_after", dataset, |_| true, truncate) }
}

/// Closes the dataset and frees the handle.
///
/// # Safety
/// `dataset` is NULL or an open handle, which the caller does not use afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_close(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    let Some(messages) = unsafe { dataset.as_ref() }.map(|dataset| Arc::clone(&dataset.messages)) else {
        failed_opens().pop();
        return OK;
    };
    let call = "turbidite_close";
    messages.begin(call);
    Call { name: call, prints: true, dataset: Some(messages.path()) }.answer(|| {
        // SAFETY: `turbidite_open` created the handle from a box, and the caller does not use it afterwards.
        let dataset = *unsafe { Box::from_raw(dataset) };
        let open =
            dataset.is_in_epoch().then(|| dataset.misuse("it has not ended, and its records are discarded".to_owned()));
        let closed = dataset.job.close();
        open.map_or(Ok(()), Err).and(closed).map(|()| OK)
    })
}
