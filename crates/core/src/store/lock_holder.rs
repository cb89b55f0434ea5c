//! The holder of a writer lock: a process, and whether another process may take its lock.
//!
//! [`LockHolder::status`] decides for every lock and every option:
//!
//! - The lock of a process that has ended is taken over. So is a lock that this process could not remove when it
//!   released it.
//! - The lock of a running process is never broken. Its epochs would be lost.
//! - The lock of the own job is never broken. Otherwise two writers that share a folder by mistake would mix their
//!   records.
//! - The lock of a process that cannot be checked from here is broken on request.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Error;

/// Environment variables in which batch systems pass the job's identifier.
const JOBS: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
/// Environment variables set by the launchers of MPICH and Intel MPI, Open MPI, and MVAPICH.
const LAUNCHERS: [&str; 3] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"];

/// Tokens of the locks that this copy of the library holds, is acquiring or is releasing.
static HELD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the identity of this copy of the library within the process: where its locks are. A process may have several
/// copies, such as the preload library and the C library, and each knows only the locks that it holds itself.
fn this_copy() -> String {
    format!("{:x}", (&raw const HELD).addr())
}

pub(super) fn held() -> MutexGuard<'static, BTreeSet<String>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Unique token of the lock.
    pub(super) token: String,
    /// Name of the holder's host.
    pub host: String,
    /// Identifier of the host's boot. A process number is valid only within one boot.
    pub(super) boot: String,
    /// Identifier of the process number's namespace. Process numbers of other containers cannot be looked up.
    pub(super) namespace: String,
    /// Process number of the holder.
    pub process: u32,
    /// Start time of the process, in clock ticks since boot. Process numbers are reused, but never with the same start
    /// time.
    pub(super) started: Option<u64>,
    /// Batch job of the process, if there is one.
    pub job: Option<String>,
    /// Identity shared by the processes that one `mpiexec` started on this host, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) launch: Option<String>,
    /// Copy of the library within the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) copy: Option<String>,
    /// Time at which the holder asked for the lock, in seconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<u64>,
}

/// The status of a lock's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderStatus {
    /// The process has ended, or has released the lock without being able to remove its file.
    Gone,
    /// The holder may run, and belongs to the observer's own job: the same process, batch job or `mpiexec`.
    OwnJob,
    /// The process runs.
    Running,
    /// The process cannot be checked, for this reason.
    Unknown(&'static str),
}

/// The state of a process, according to the operating system.
enum Process {
    Gone,
    /// The process runs. The value is its start time in clock ticks after boot, if known.
    Running(Option<u64>),
}

fn look_up_process(process: u32) -> Process {
    // Miri runs one process and does not support `kill`.
    if cfg!(miri) {
        return Process::Running(None);
    }
    let Some(id) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) else {
        return Process::Gone;
    };
    if rustix::process::test_kill_process(id) == Err(rustix::io::Errno::SRCH) {
        return Process::Gone;
    }
    // The name in parentheses may contain spaces and parentheses. The state and the other fields follow the last
    // closing parenthesis.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return Process::Running(None);
    };
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    // A zombie has ended, but its parent has not waited for it.
    if fields.next() == Some("Z") {
        return Process::Gone;
    }
    // The start time is field 22 of the file. The state was field 3.
    Process::Running(fields.nth(18).and_then(|ticks| ticks.parse().ok()))
}

/// Returns the value of an environment variable. Returns `None` if it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns an identity that all processes share which the same `mpiexec` started on this host.
fn launch() -> Option<String> {
    if let Some(namespace) = variable("PMIX_NAMESPACE") {
        return Some(format!("PMIX_NAMESPACE {namespace}"));
    }
    LAUNCHERS.iter().find_map(|name| variable(name))?;
    let parent = rustix::process::getppid()?.as_raw_nonzero().get().unsigned_abs();
    match look_up_process(parent) {
        Process::Running(Some(started)) => Some(format!("process {parent} of {started}")),
        Process::Running(None) | Process::Gone => None,
    }
}

impl LockHolder {
    /// Returns the description of this process, with a new token.
    pub(super) fn this_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid");
        let process = std::process::id();
        let started = match look_up_process(process) {
            Process::Running(started) => started,
            Process::Gone => None,
        };
        let job = JOBS.iter().find_map(|name| variable(name).map(|id| format!("{name} {id}")));
        // Miri's `uname` leaves parts of its result uninitialised.
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            token: Uuid::new_v4().simple().to_string(),
            host: if cfg!(miri) { "miri".to_owned() } else { host() },
            boot: read("/proc/sys/kernel/random/boot_id"),
            namespace: namespace.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            process,
            started,
            job,
            launch: launch(),
            copy: Some(this_copy()),
            taken: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs()),
        }
    }

    /// Returns whether the next writer takes over the lock, as far as this process can determine.
    pub fn has_ended(&self) -> bool {
        self.status(&Self::this_process()) == HolderStatus::Gone
    }

    /// Returns the status of the holder of a dataset's lock, as far as the process `observer` can determine.
    pub(super) fn status(&self, observer: &Self) -> HolderStatus {
        let same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
        let is_launched = || same(&self.launch, &observer.launch) && self.machine() == observer.machine();
        match self.status_of_process(observer) {
            HolderStatus::Running | HolderStatus::Unknown(_) if same(&self.job, &observer.job) || is_launched() => {
                HolderStatus::OwnJob
            }
            status => status,
        }
    }

    /// Returns the status of the holder apart from its job.
    ///
    /// A running process is recognized by its start time, since process numbers are reused.
    pub(super) fn status_of_process(&self, observer: &Self) -> HolderStatus {
        if self.is_same_process(observer) {
            // Another copy of the library does not tell which locks it holds.
            let is_released = self.copy == observer.copy && !held().contains(&self.token);
            return if is_released { HolderStatus::Gone } else { HolderStatus::OwnJob };
        }
        if self.host != observer.host {
            return HolderStatus::Unknown("it is on another host");
        }
        if self.boot != observer.boot {
            let is_known = !(self.boot.is_empty() || observer.boot.is_empty());
            return if is_known {
                HolderStatus::Gone
            } else {
                HolderStatus::Unknown("the boot of its host is unknown")
            };
        }
        if self.namespace != observer.namespace {
            return HolderStatus::Unknown("it is in another PID namespace");
        }
        match look_up_process(self.process) {
            Process::Gone => HolderStatus::Gone,
            Process::Running(started) => match started.zip(self.started) {
                Some((now, then)) if now == then => HolderStatus::Running,
                Some(_) => HolderStatus::Gone,
                None => HolderStatus::Unknown("a process with its number runs, but the start time is unknown"),
            },
        }
    }

    pub(super) fn is_same_process(&self, other: &Self) -> bool {
        self.process() == other.process()
    }

    fn machine(&self) -> (&str, &str) {
        (&self.host, &self.boot)
    }

    fn process(&self) -> ((&str, &str), &str, u32, Option<u64>) {
        (self.machine(), &self.namespace, self.process, self.started)
    }

    /// Returns the error of the process `observer`, which may not take the lock at `path`.
    pub(super) fn refuse(&self, path: &Path, observer: &Self) -> Error {
        let since = self.taken.map(|taken| format!(", since {}", utc(taken))).unwrap_or_default();
        let (holder, may_be_broken) = match self.status(observer) {
            HolderStatus::OwnJob => (
                format!(
                    "{self}, of this job; if two datasets have the same folder, give each its own; if ranks write one \
                         dataset, open it with a transport between them"
                ),
                false,
            ),
            HolderStatus::Unknown(reason) => {
                (format!("{self}{since}, which cannot be checked from here: {reason}"), true)
            }
            // A second lock of a process that has just ended is as good as that of one that is about to end.
            HolderStatus::Running | HolderStatus::Gone => {
                let Self { process, host, .. } = self;
                let job = self.job_in_words();
                (
                    format!(
                        "a writer that is running: pid {process} on {host}{job}{since}; wait until it ends, or end it"
                    ),
                    false,
                )
            }
        };
        Error::Locked { path: path.to_owned(), holder, may_be_broken }
    }

    fn job_in_words(&self) -> String {
        self.job.as_ref().map(|job| format!(" ({job})")).unwrap_or_default()
    }
}

/// Formats seconds since 1970 as a date and a time of day.
fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Counts from 1 March of the year 0, so that a leap day is the last of its year. An era has 400 years.
    let since_era = days + 719_468;
    let (era, day_of_era) = (since_era / 146_097, since_era % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}{}", self.process, self.host, self.job_in_words())
    }
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_formatted_as_by_date() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_798_761_600, "2027-01-01 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
