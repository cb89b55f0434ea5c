//! One writer per dataset: a lock file that names its holder.
//!
//! The file appears whole, by a rename that never replaces, so every process that sees it can read its holder. A lock
//! whose holder is a dead process of this host is taken over. A takeover removes another process' file, and two
//! concurrent takeovers must not remove each other's lock: only the holder of a second lock, named after the first
//! one's token, may remove the first, after checking that the token is unchanged. That second lock is of the same kind,
//! so a crash during a takeover is taken over as well.
//!
//! A lock may be broken by request when its holder's state cannot be determined from here. The lock of a process of the
//! same job, or of this process, is never broken: two writers that share a folder by mistake would mix their records.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::files::{create_dir_synced, write_synced};
use super::paths::DatasetPaths;
use crate::error::{Error, IoContext, Result};
use crate::storage::{Storage, read_all};

/// Maximum nesting of takeovers. They nest only when one writer after the other dies within a few file operations. Each
/// adds a token to the file's name, which must stay below 255 bytes.
const MAX_DEPTH: u32 = 5;
/// Maximum number of attempts at a lock that changes hands between reading and taking it.
const MAX_ATTEMPTS: u32 = 64;
/// A lock file is a few hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Environment variables in which batch systems pass the job.
const JOBS: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
/// Environment variables that launchers set for processes of a group: MPICH and Intel MPI, Open MPI, MVAPICH.
const LAUNCHERS: [&str; 3] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"];

/// The tokens of the locks that this process holds. A lock of this process that is not listed is a leftover of a
/// failure.
static HELD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<String>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Unique token of this lock.
    pub(super) token: String,
    /// Name of the host.
    pub host: String,
    /// The host's current boot: a process number is valid only within one boot.
    pub(super) boot: String,
    /// The process number's namespace: a number of another container cannot be looked up here.
    pub(super) namespace: String,
    /// Process number.
    pub process: u32,
    /// Start time of the process, in clock ticks since boot: unlike the number alone, number and start time are never
    /// reused.
    pub(super) started: Option<u64>,
    /// The batch job, if any.
    pub job: Option<String>,
    /// An identity shared by the processes of one `mpiexec` on one host, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) launch: Option<String>,
}

/// The state of a process, as reported by the system.
enum Process {
    Gone,
    /// Running since this many clock ticks after boot, if known.
    Running(Option<u64>),
}

fn look_up_process(process: u32) -> Process {
    // Miri has no `kill`; it interprets one process.
    if cfg!(miri) {
        return Process::Running(None);
    }
    let Some(id) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) else {
        return Process::Gone;
    };
    if rustix::process::test_kill_process(id) == Err(rustix::io::Errno::SRCH) {
        return Process::Gone;
    }
    // The name in parentheses may hold spaces and parentheses; state and the other fields follow the last one.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return Process::Running(None);
    };
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    // A zombie no longer runs; its parent has not waited for it yet.
    if fields.next() == Some("Z") {
        return Process::Gone;
    }
    // Field 22 of the file; the state was field 3.
    Process::Running(fields.nth(18).and_then(|ticks| ticks.parse().ok()))
}

/// Returns an environment variable that is not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the identity shared with the other processes that the same `mpiexec` has started on this host.
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
    /// Describes this process.
    fn this_process() -> Self {
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
        }
    }

    /// Returns whether the holder, which is not known to be dead, belongs to the observer's own job: it is the same
    /// process, or one of the same batch job or the same `mpiexec`.
    fn is_of_own_job(&self, observer: &Self) -> bool {
        let machine = |holder: &Self| (holder.host.clone(), holder.boot.clone());
        let process = |holder: &Self| (machine(holder), holder.namespace.clone(), holder.process, holder.started);
        if process(self) == process(observer) {
            return held().contains(&self.token);
        }
        let same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
        same(&self.job, &observer.job) || (same(&self.launch, &observer.launch) && machine(self) == machine(observer))
    }

    /// Returns whether the holder is certainly dead, as far as this process can tell: the next writer takes its lock
    /// over.
    pub fn has_ended(&self) -> bool {
        self.is_gone(&Self::this_process())
    }

    /// Returns whether the holder is certainly dead, from the view of the process `observer`.
    fn is_gone(&self, observer: &Self) -> bool {
        if self.host != observer.host {
            return false;
        }
        if self.boot != observer.boot {
            return !(self.boot.is_empty() || observer.boot.is_empty());
        }
        if self.namespace != observer.namespace {
            return false;
        }
        match look_up_process(self.process) {
            Process::Gone => true,
            Process::Running(started) => started.zip(self.started).is_some_and(|(now, then)| now != then),
        }
    }

    /// Returns whether this holder's lock, or its takeover of one, may be broken by request. A takeover by another
    /// process of this host may not: that process runs and will be done at once. A takeover by this process is a
    /// leftover of an earlier failure.
    fn may_be_broken(&self, observer: &Self, depth: u32) -> bool {
        match depth {
            0 => !self.is_of_own_job(observer),
            _ => self.host != observer.host || self.process == observer.process,
        }
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.process, self.host)?;
        match &self.job {
            Some(job) => write!(f, " ({job})"),
            None => Ok(()),
        }
    }
}

/// A notice to the user about an acquired lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockNotice {
    /// The previous holder died without releasing the lock.
    TakenOver(LockHolder),
    /// The lock was broken by request; its holder's state was unknown, or the file was unreadable.
    Broken(Option<LockHolder>),
}

impl std::fmt::Display for LockNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TakenOver(holder) => write!(f, "took over the lock of {holder}, which is gone"),
            Self::Broken(Some(holder)) => write!(f, "broke the lock of {holder}"),
            Self::Broken(None) => write!(f, "broke a lock whose holder could not be read"),
        }
    }
}

/// The contents of a lock file.
enum Found {
    Nothing,
    Held(LockHolder),
    /// The file does not name a holder.
    Unreadable(Vec<u8>),
}

impl Found {
    /// Returns the lock's token; the token of an unreadable lock derives from its content.
    fn token(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Held(holder) => holder.token.clone(),
            Self::Unreadable(bytes) => format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes)),
        }
    }
}

fn look(storage: &dyn Storage, path: &Path) -> Result<Found> {
    match read_all(storage, path, MAX_BYTES) {
        // The token becomes part of a file name, so it must be valid as one.
        Ok(bytes) => Ok(match serde_json::from_slice::<LockHolder>(&bytes) {
            Ok(holder) if holder.token.len() == 32 && holder.token.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Found::Held(holder)
            }
            _ => Found::Unreadable(bytes),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            Ok(Found::Unreadable(Vec::new()))
        }
        Err(error) => Err(error).at("read", path),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Writes the lock file unless there is one. Returns false if there is.
fn place(storage: &dyn Storage, path: &Path, holder: &LockHolder) -> Result<bool> {
    let draft = with_suffix(path, &format!("new-{}", holder.token));
    let content = serde_json::to_vec(holder).map_err(io::Error::from).at("encode", path)?;
    write_synced(storage, &draft, &content)?;
    match storage.rename(&draft, path) {
        Ok(()) => Ok(true),
        Err(error) => {
            // An error of the cleanup must not hide why the lock was not acquired.
            let _ = storage.remove_file(&draft);
            match error.kind() {
                // The holder of the lock removes drafts, so ours may be gone as well.
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound => Ok(false),
                _ => Err(error).at("create", path),
            }
        }
    }
}

fn locked(path: &Path, holder: impl std::fmt::Display) -> Error {
    Error::Locked { path: path.to_owned(), holder: holder.to_string(), by_own_job: false }
}

fn locked_by(path: &Path, holder: &LockHolder, me: &LockHolder) -> Error {
    Error::Locked { path: path.to_owned(), holder: holder.to_string(), by_own_job: holder.is_of_own_job(me) }
}

/// Acquires the lock at `path` for `me`. With `force`, any holder is treated as dead, unless it belongs to the same
/// job.
fn acquire(storage: &dyn Storage, path: &Path, me: &LockHolder, force: bool, depth: u32) -> Result<Option<LockNotice>> {
    let mut notice = None;
    for _ in 0..MAX_ATTEMPTS {
        let found = look(storage, path)?;
        match &found {
            Found::Nothing if place(storage, path, me)? => return Ok(notice),
            Found::Nothing => continue,
            Found::Held(holder) if holder.is_gone(me) => notice = Some(LockNotice::TakenOver(holder.clone())),
            Found::Held(holder) if force && holder.may_be_broken(me, depth) => {
                notice = Some(LockNotice::Broken(Some(holder.clone())));
            }
            Found::Held(holder) => return Err(locked_by(path, holder, me)),
            Found::Unreadable(_) if force => notice = Some(LockNotice::Broken(None)),
            Found::Unreadable(_) => return Err(locked(path, "an unknown process (the lock file cannot be read)")),
        }
        if !remove_as(storage, path, me, &found.token(), force, depth)? {
            // Another process was faster.
            notice = None;
        }
    }
    Err(locked(path, "several processes that keep taking it over from each other"))
}

/// Removes the lock at `path` if its token is still `token`. Returns whether it did.
fn remove_as(
    storage: &dyn Storage,
    path: &Path,
    me: &LockHolder,
    token: &str,
    force: bool,
    depth: u32,
) -> Result<bool> {
    if depth >= MAX_DEPTH {
        return Err(locked(path, "writers that died while taking it over; remove the lock files by hand"));
    }
    let claim = with_suffix(path, token);
    acquire(storage, &claim, me, force, depth + 1)?;
    let removed = match look(storage, path) {
        Ok(found) if found.token() == token => storage.remove_file(path).at("remove", path).map(|()| true),
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    };
    remove_if_present(storage, &claim)?;
    removed
}

/// Removes a file that the holder of the lock may have removed already.
fn remove_if_present(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("remove", path),
    }
}

/// The right to write to a dataset. Dropping it releases the lock as well, but cannot report an error.
#[derive(Debug)]
pub struct WriterLock {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    holder: LockHolder,
    released: bool,
}

impl WriterLock {
    /// Acquires the lock of a dataset, and creates its folder if needed. A lock of a dead process of this host is taken
    /// over, which the notice reports; with `break_lock` so is any lock that no process of the same job holds.
    ///
    /// # Errors
    /// [`Error::Locked`] when another writer holds it or may hold it; I/O errors.
    pub fn acquire(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        break_lock: bool,
    ) -> Result<(Self, Option<LockNotice>)> {
        Self::acquire_as(LockHolder::this_process(), storage, paths, break_lock)
    }

    pub(super) fn acquire_as(
        holder: LockHolder,
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        break_lock: bool,
    ) -> Result<(Self, Option<LockNotice>)> {
        let path = paths.lock();
        create_dir_synced(&**storage, &paths.control())?;
        let notice = acquire(&**storage, &path, &holder, break_lock, 0)?;
        held().insert(holder.token.clone());
        let lock = Self { storage: Arc::clone(storage), path, holder, released: false };
        lock.clean_up()?;
        Ok((lock, notice))
    }

    /// Removes the drafts and claims of dead writers. Those of living writers are removed too: all of them have lost,
    /// and detect that by reading the lock again. Claims on our own lock stay, since they may be about to be used.
    fn clean_up(&self) -> Result<()> {
        let folder = super::files::parent(&self.path);
        let own = format!("lock.{}", self.holder.token);
        for entry in self.storage.list(&folder).at("list", &folder)? {
            if entry.name.starts_with("lock.") && !entry.name.starts_with(&own) {
                remove_if_present(&*self.storage, &folder.join(&entry.name))?;
            }
        }
        Ok(())
    }

    /// Checks that this process still holds the lock: a user may have broken it.
    ///
    /// # Errors
    /// [`Error::Locked`] when it does not.
    pub fn check(&self) -> Result<()> {
        match look(&*self.storage, &self.path)? {
            Found::Held(holder) if holder == self.holder => Ok(()),
            Found::Held(holder) => Err(locked(&self.path, format!("{holder}, which broke this writer's lock"))),
            Found::Nothing | Found::Unreadable(_) => {
                Err(locked(&self.path, "an unknown process, which broke this writer's lock"))
            }
        }
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// When the file cannot be removed. A broken lock is not an error: there is nothing left to release.
    pub fn release(mut self) -> Result<()> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        let token = self.holder.token.clone();
        held().remove(&token);
        match remove_as(&*self.storage, &self.path, &self.holder, &token, false, 0) {
            // Another process is breaking it at this moment.
            Err(Error::Locked { .. }) => return Ok(()),
            other => other?,
        };
        // A power failure must not restore the lock, which users of other hosts would have to break.
        let folder = super::files::parent(&self.path);
        self.storage.sync_dir(&folder).at("sync", &folder)
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // The error has no recipient; the lock stays, and names a process that will be dead.
        let _ = self.give_back();
    }
}

/// Returns the holder of the dataset's lock, if any: a running writer, or a dead one.
///
/// # Errors
/// When the lock file cannot be read.
pub fn lock_holder(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Option<LockHolder>> {
    match look(storage, &paths.lock())? {
        Found::Held(holder) => Ok(Some(holder)),
        Found::Nothing | Found::Unreadable(_) => Ok(None),
    }
}

/// Lock holders forged by tests.
#[cfg(test)]
pub(crate) mod forged {
    use super::*;

    pub(in super::super) type Holder = LockHolder;

    impl LockHolder {
        /// Returns this process, with a token of its own.
        pub(in super::super) fn this() -> Self {
            Self::this_process()
        }
    }

    /// Breaks a dataset's lock as `holder` would.
    pub(crate) fn break_lock(
        holder: LockHolder,
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
    ) -> Result<(WriterLock, Option<LockNotice>)> {
        WriterLock::acquire_as(holder, storage, paths, true)
    }

    /// Returns a process of another host.
    pub(crate) fn elsewhere() -> LockHolder {
        LockHolder { host: "elsewhere".to_owned(), ..LockHolder::this_process() }
    }

    /// Puts a lock in place as `holder` would.
    pub(in super::super) fn place(storage: &dyn Storage, path: &Path, holder: &LockHolder) {
        assert!(super::place(storage, path, holder).unwrap());
    }

    /// Acquires a lock as `holder` would.
    pub(in super::super) fn acquire(storage: &dyn Storage, path: &Path, holder: &LockHolder) -> Result<()> {
        super::acquire(storage, path, holder, false, 0).map(|_| ())
    }
}
