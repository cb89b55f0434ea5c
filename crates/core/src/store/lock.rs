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
//! On request, a writer also breaks the lock of a process that cannot be checked, such as one on another host
//! (`lock_holder`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{create_dir_synced, write_synced};
pub use super::lock_holder::LockHolder;
use super::lock_holder::{HolderStatus, held};
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

/// A notice for the user about an acquired lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockNotice {
    /// The previous holder died without releasing the lock.
    TakenOver(LockHolder),
    /// This process released the lock before, but could not remove its file.
    LeftOver(LockHolder),
    /// The lock was broken on request. Contains the holder, or `None` if the lock file was unreadable.
    Broken(Option<LockHolder>),
}

impl std::fmt::Display for LockNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LeftOver(holder) => write!(f, "took over a lock that {holder} could not remove"),
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

/// Returns the error for a lock that no option breaks.
fn locked(path: &Path, holder: impl std::fmt::Display) -> Error {
    Error::Locked { path: path.to_owned(), holder: holder.to_string(), may_be_broken: false }
}

/// Acquires the lock at `path` for `me`. If `force` is true, the lock of a holder that cannot be checked is broken.
/// `depth` is 0 for a dataset's lock, and larger for the second lock of a takeover. Takeovers by processes of the own
/// job have no folder to mix up.
fn acquire(storage: &dyn Storage, path: &Path, me: &LockHolder, force: bool, depth: u32) -> Result<Option<LockNotice>> {
    let mut notice = None;
    for _ in 0..MAX_ATTEMPTS {
        let found = look(storage, path)?;
        notice = match &found {
            Found::Nothing if place(storage, path, me)? => return Ok(notice),
            Found::Nothing => continue,
            Found::Held(holder) => {
                let status = if depth == 0 { holder.status(me) } else { holder.status_of_process(me) };
                match status {
                    HolderStatus::Gone if holder.is_same_process(me) => Some(LockNotice::LeftOver(holder.clone())),
                    HolderStatus::Gone => Some(LockNotice::TakenOver(holder.clone())),
                    HolderStatus::Unknown(_) if force => Some(LockNotice::Broken(Some(holder.clone()))),
                    HolderStatus::OwnJob | HolderStatus::Running | HolderStatus::Unknown(_) => {
                        return Err(holder.refuse(path, me));
                    }
                }
            }
            Found::Unreadable(_) if force => Some(LockNotice::Broken(None)),
            Found::Unreadable(_) => {
                let holder = "an unknown process (the lock file cannot be read)".to_owned();
                return Err(Error::Locked { path: path.to_owned(), holder, may_be_broken: true });
            }
        };
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
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
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
    /// The lock of a dead process of this host is taken over. If `break_lock` is true, the lock of a process that
    /// cannot be checked from here is broken. The lock of a running process, or of a process of the same job, never is.
    /// The notice reports either case.
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
        let removed = self.remove();
        // Only now may another thread take the file for a leftover.
        held().remove(&self.holder.token);
        removed
    }

    fn remove(&self) -> Result<()> {
        let token = &self.holder.token;
        match remove_as(&*self.storage, &self.path, &self.holder, token, false, 0) {
            // Another process is breaking the lock.
            Err(Error::Locked { .. }) => return Ok(()),
            Err(error) if is_full(&error) => remove_without_writing(&*self.storage, &self.path, token)?,
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
