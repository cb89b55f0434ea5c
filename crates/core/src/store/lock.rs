//! The writer lock: a file that names its holder. A dataset has at most one writer.
//!
//! A rename creates the complete lock file and never replaces an existing one. Every process that finds the file can
//! therefore read its holder. A writer takes over a lock if its holder is a dead process of the same host.
//!
//! A takeover removes the file of another process. Two concurrent takeovers must not remove each other's lock. A
//! takeover therefore acquires a second lock, named after the token of the first. Its holder checks that the token is
//! unchanged, and then removes the first lock. A second lock can be taken over in the same way, after a crash during a
//! takeover.
//!
//! On request, a writer also breaks the lock of a process that may be running, such as one on another host. The lock of
//! this process, or of a process of the same job, is never broken. Otherwise two writers that share a folder by mistake
//! would mix their records.

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

/// Maximum nesting of takeovers. Nested takeovers occur only if several writers in succession die within a few file
/// operations. Each takeover adds a token to the file name, which is limited to 255 bytes.
const MAX_DEPTH: u32 = 5;
/// Maximum number of attempts to acquire a lock whose holder changes meanwhile.
const MAX_ATTEMPTS: u32 = 64;
/// Maximum size of a lock file in bytes. Lock files usually have a few hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Environment variables in which batch systems pass the job's identifier.
const JOBS: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
/// Environment variables set by the launchers of MPICH and Intel MPI, Open MPI, and MVAPICH.
const LAUNCHERS: [&str; 3] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"];

/// Tokens of the locks that this process holds or is acquiring. A lock file of this process with another token is a
/// leftover of a failure.
static HELD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<String>> {
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

    /// Returns whether the holder belongs to the observer's own job: the same process, batch job or `mpiexec`. The
    /// holder must not be known to be dead.
    fn is_of_own_job(&self, observer: &Self) -> bool {
        let machine = |holder: &Self| (holder.host.clone(), holder.boot.clone());
        let process = |holder: &Self| (machine(holder), holder.namespace.clone(), holder.process, holder.started);
        if process(self) == process(observer) {
            return held().contains(&self.token);
        }
        let same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
        same(&self.job, &observer.job) || (same(&self.launch, &observer.launch) && machine(self) == machine(observer))
    }

    /// Returns whether the holder is certainly dead, as far as this process can determine. The next writer takes over
    /// its lock.
    pub fn has_ended(&self) -> bool {
        self.is_gone(&Self::this_process())
    }

    /// Returns whether the holder is certainly dead, as far as the process `observer` can determine.
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

    /// Returns whether the holder's lock may be broken on request. `depth` is 0 for a dataset's lock, and larger for
    /// the second lock of a takeover.
    ///
    /// A takeover by another process of this host must not be broken, since that process is running and finishes soon.
    /// A takeover by this process is a leftover of an earlier failure.
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

/// A notice for the user about an acquired lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockNotice {
    /// The previous holder died without releasing the lock.
    TakenOver(LockHolder),
    /// The lock was broken on request. Contains the holder, or `None` if the lock file was unreadable.
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

/// The content of a lock file.
enum Found {
    Nothing,
    Held(LockHolder),
    /// The content of a file that does not name a holder.
    Unreadable(Vec<u8>),
}

impl Found {
    /// Returns the token of the lock. The token of an unreadable lock file is derived from its content.
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
        // The token becomes part of a file name, so it must be hexadecimal.
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

/// Writes the lock file. Returns false if the file exists.
fn place(storage: &dyn Storage, path: &Path, holder: &LockHolder) -> Result<bool> {
    let draft = with_suffix(path, &format!("new-{}", holder.token));
    let content = serde_json::to_vec(holder).map_err(io::Error::from).at("encode", path)?;
    if let Err(error) = write_synced(storage, &draft, &content) {
        let _ = storage.remove_file(&draft);
        return Err(error);
    }
    match storage.rename(&draft, path) {
        Ok(()) => Ok(true),
        Err(error) => {
            // Errors of the cleanup are ignored, so that the cause of the failure is returned.
            let _ = storage.remove_file(&draft);
            match error.kind() {
                // The holder of the lock removes all drafts, perhaps including this one.
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

/// Acquires the lock at `path` for `me`. If `force` is true, holders of other jobs are treated as dead.
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
            // Another process has changed the lock file meanwhile.
            notice = None;
        }
    }
    Err(locked(path, "several processes that keep taking it over from each other"))
}

/// Removes the lock at `path` if its token is still `token`. Returns whether the lock was removed.
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

/// Removes the lock at `path` if its token is still `token`, without writing, as a full disk requires. A lock that
/// another process has acquired meanwhile is put back.
fn remove_without_writing(storage: &dyn Storage, path: &Path, token: &str) -> Result<()> {
    if look(storage, path)?.token() != token {
        return Ok(());
    }
    let aside = with_suffix(path, &format!("gone-{token}"));
    storage.rename(path, &aside).at("rename", path)?;
    if look(storage, &aside)?.token() == token {
        return remove_if_present(storage, &aside);
    }
    storage.rename(&aside, path).at("rename", &aside)
}

fn is_full(error: &Error) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    matches!(error, Error::Io { source, .. } if full.contains(&source.kind()))
}

/// Removes a file. A missing file is not an error, since the holder of the lock may have removed it.
fn remove_if_present(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("remove", path),
    }
}

/// The writer lock of a dataset. Dropping it releases the lock, but cannot report an error.
#[derive(Debug)]
pub struct WriterLock {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    holder: LockHolder,
    released: bool,
}

impl WriterLock {
    /// Acquires the lock of a dataset. Creates the dataset's folder if necessary.
    ///
    /// The lock of a dead process of this host is taken over. If `break_lock` is true, any lock is broken unless a
    /// process of the same job holds it. The notice reports either case.
    ///
    /// # Errors
    /// [`Error::Locked`] if another writer holds the lock or may hold it; I/O errors.
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
        // Another thread may find the lock file as soon as it exists, and must not take it for a leftover.
        held().insert(holder.token.clone());
        let acquired = acquire(&**storage, &path, &holder, break_lock, 0);
        if acquired.is_err() {
            held().remove(&holder.token);
        }
        let notice = acquired?;
        let lock = Self { storage: Arc::clone(storage), path, holder, released: false };
        lock.clean_up()?;
        Ok((lock, notice))
    }

    /// Removes drafts and second locks of other writers. Living writers lose theirs too: they have not acquired the
    /// lock, and detect this when they read it again. Second locks for this writer's own lock stay, since another
    /// writer may be using them.
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

    /// Forgets the lock, whose file this process has moved to a folder that is being removed.
    pub(crate) fn forget(mut self) {
        self.released = true;
        held().remove(&self.holder.token);
    }

    /// Checks that this process still holds the lock. A user may have broken it.
    ///
    /// # Errors
    /// [`Error::Locked`] if the process no longer holds the lock.
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
    /// If the file cannot be removed. A broken lock is not an error, since nothing is left to release.
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
            // Another process is breaking the lock.
            Err(Error::Locked { .. }) => return Ok(()),
            Err(error) if is_full(&error) => remove_without_writing(&*self.storage, &self.path, &token)?,
            other => drop(other?),
        }
        // A power failure must not restore the lock. Users of other hosts would have to break it.
        let folder = super::files::parent(&self.path);
        self.storage.sync_dir(&folder).at("sync", &folder)
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // `drop` cannot return the error. The lock file stays, and names a process that will be dead.
        let _ = self.give_back();
    }
}

/// Returns the holder of the dataset's lock, which may be dead. Returns `None` if there is no readable lock file.
///
/// # Errors
/// If the lock file cannot be read.
pub fn lock_holder(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Option<LockHolder>> {
    match look(storage, &paths.lock())? {
        Found::Held(holder) => Ok(Some(holder)),
        Found::Nothing | Found::Unreadable(_) => Ok(None),
    }
}

/// Forged lock holders for tests.
#[cfg(test)]
pub(crate) mod forged {
    use super::*;

    pub(in super::super) type Holder = LockHolder;

    impl LockHolder {
        /// Returns this process as a holder with a new token.
        pub(in super::super) fn this() -> Self {
            Self::this_process()
        }
    }

    /// Acquires the lock of a dataset as `holder`, and breaks existing locks.
    pub(crate) fn break_lock(
        holder: LockHolder,
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
    ) -> Result<(WriterLock, Option<LockNotice>)> {
        WriterLock::acquire_as(holder, storage, paths, true)
    }

    /// Returns a holder on another host.
    pub(crate) fn elsewhere() -> LockHolder {
        LockHolder { host: "elsewhere".to_owned(), ..LockHolder::this_process() }
    }

    /// Writes a lock file that names `holder`.
    pub(in super::super) fn place(storage: &dyn Storage, path: &Path, holder: &LockHolder) {
        assert!(super::place(storage, path, holder).unwrap());
    }

    /// Acquires a lock as `holder`.
    pub(in super::super) fn acquire(storage: &dyn Storage, path: &Path, holder: &LockHolder) -> Result<()> {
        super::acquire(storage, path, holder, false, 0).map(|_| ())
    }
}
