//! The folder of one process in a spool, and its owner.
//!
//! A process holds a lock on `.owner` throughout its life, which distinguishes the files of a killed process from those
//! of a running one. Each process has its own folder, so that it overwrites no file of a killed one.

use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use super::system::high;

const OWNER: &str = ".owner";
const MOVES: &str = ".moves";

/// Name of the subfolder of a process's folder that holds the files.
pub(super) const FILES: &str = "files";

/// Maximum number of attempts to create a folder, which other processes may remove meanwhile.
const ATTEMPTS: u32 = 100;

/// The content of `.owner`, for a process that finds the folder after its owner has died.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OwnerNote {
    pub(crate) version: u32,
    pub(crate) host: String,
    pub(crate) process: u32,
    /// Start time of the process, in clock ticks since boot.
    pub(crate) started: Option<u64>,
    /// A number that the ranks of one job share.
    #[serde(default)]
    pub(crate) job: Option<u64>,
    /// Path of the configuration file of the run.
    pub(crate) config: PathBuf,
    pub(crate) datasets: Vec<DatasetNote>,
}

/// One dataset of that configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DatasetNote {
    pub(crate) files: String,
    pub(crate) out: PathBuf,
}

static DESCRIPTION: OnceLock<(PathBuf, Vec<DatasetNote>)> = OnceLock::new();

/// Stores the path of the configuration and its datasets, for `.owner`.
pub(crate) fn describe_owner(config: &Path, datasets: Vec<DatasetNote>) {
    let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    // A process has one configuration, so the description is set once.
    let _ = DESCRIPTION.set((config, datasets));
}

/// The number that the ranks of this job share, or 0 before it is known.
static JOB: AtomicU64 = AtomicU64::new(0);

/// Stores the number that the ranks of this job share, for `.owner`.
pub(crate) fn describe_job(job: u64) {
    JOB.store(job, Ordering::Release);
    for own in own().iter().flat_map(|all| all.iter()) {
        // Without the number, the folder is one of another job.
        let _ = write_note(&own.owner);
    }
}

/// Returns the number that the ranks of this job share.
pub(super) fn job() -> Option<u64> {
    Some(JOB.load(Ordering::Acquire)).filter(|&job| job != 0)
}

/// This process's folder in one spool.
#[derive(Debug)]
pub(super) struct OwnFolder {
    root: PathBuf,
    path: PathBuf,
    /// The locked `.owner`. The lock ends with the process.
    owner: File,
    moves: File,
}

/// This process's folders, one for each spool of the configuration.
static OWN: Mutex<Vec<Arc<OwnFolder>>> = Mutex::new(Vec::new());

/// The process that has these folders, or 0 if there are none. A forked child inherits the list, perhaps locked, but
/// its parent's folders are not its own.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Locks the list of this process's folders. Returns `None` if there are none.
fn own() -> Option<MutexGuard<'static, Vec<Arc<OwnFolder>>>> {
    let is_own = PROCESS.load(Ordering::Acquire) == std::process::id();
    is_own.then(|| OWN.lock().unwrap_or_else(PoisonError::into_inner))
}

impl OwnFolder {
    /// Returns this process's folder, and creates it if necessary.
    pub(super) fn get(root: &Path) -> io::Result<Arc<Self>> {
        PROCESS.store(std::process::id(), Ordering::Release);
        let mut all = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.iter().find(|own| own.root == root) {
            return Ok(Arc::clone(own));
        }
        let own = Arc::new(Self::make(root)?);
        all.push(Arc::clone(&own));
        Ok(own)
    }

    /// Returns this process's folder if it exists.
    pub(super) fn existing(root: &Path) -> Option<Arc<Self>> {
        own()?.iter().find(|own| own.root == root).map(Arc::clone)
    }

    fn make(root: &Path) -> io::Result<Self> {
        let folder = |path: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        let user = user_folder(root);
        folder(&user)?;
        if !is_own(&user) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let path = own_path(root);
        let create =
            |name: &str| File::options().read(true).write(true).create(true).truncate(false).open(path.join(name));
        let make = || -> io::Result<Self> {
            folder(&path)?;
            let owner = create(OWNER)?;
            // The file is locked before its content is written, since an unlocked `.owner` belongs to a dead process.
            // Other processes hold the lock only briefly, to determine whether this process is alive.
            owner.lock()?;
            // Another process that held the lock before may have taken this process for dead and removed the folder.
            if path.join(OWNER).metadata()?.ino() != owner.metadata()?.ino() {
                return Err(io::ErrorKind::NotFound.into());
            }
            write_note(&owner)?;
            Ok(Self { root: root.to_owned(), path: path.clone(), owner: high(owner), moves: high(create(MOVES)?) })
        };
        // Until this process holds its lock, another process may remove the folder, which has no files.
        let mut made = make();
        for _ in 0..ATTEMPTS {
            if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            made = make();
        }
        if made.is_err() {
            discard(&path);
            let _ = std::fs::remove_dir(&user);
        }
        made
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `.moves`, which has a lock for each of the folder's files.
    pub(super) fn moves(&self) -> &File {
        &self.moves
    }
}

/// Opens `.moves` of another process's folder.
pub(super) fn moves_of(folder: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(folder.join(MOVES))
}

fn write_note(mut file: &File) -> io::Result<()> {
    let (config, datasets) = DESCRIPTION.get().cloned().unwrap_or_default();
    let (host, process, started) = identity();
    let note = OwnerNote { version: 1, host, process, started, job: job(), config, datasets };
    file.set_len(0)?;
    file.rewind()?;
    serde_json::to_writer(&mut file, &note).map_err(io::Error::from)
}

/// Returns the host name, the process id and the start time of the process.
fn identity() -> (String, u32, Option<u64>) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process name in parentheses may contain any character. The start time, field 22 of the file, is the twentieth
    // field after the name.
    let started = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok());
    (host, std::process::id(), started)
}

fn own_path(root: &Path) -> PathBuf {
    let (host, process, started) = identity();
    user_folder(root).join(format!("{host}-{process}-{}", started.unwrap_or(0)))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(super) fn user_folder(root: &Path) -> PathBuf {
    root.join(format!("turbidite-{}", user()))
}

/// Returns whether a folder belongs to this user. Spools are shared, so another user may have created the folder.
pub(super) fn is_own(folder: &Path) -> bool {
    folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user())
}

pub(super) fn is_writable(folder: &Path) -> bool {
    use rustix::fs::Access;
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Returns the folders of this host's processes in a user's folder, or none if the folder belongs to another user.
pub(super) fn list(user_folder: &Path) -> Vec<PathBuf> {
    if !is_own(user_folder) {
        return Vec::new();
    }
    let prefix = format!("{}-", identity().0);
    let entries = std::fs::read_dir(user_folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).map(|entry| entry.path()).collect()
}

/// Returns whether the process of a folder is alive, which means that it holds the lock on `.owner`.
pub(super) fn is_alive(folder: &Path) -> bool {
    let Ok(owner) = File::open(folder.join(OWNER)) else { return false };
    owner.try_lock_shared().is_err()
}

/// Returns the content of the folder's `.owner`, or `None` if it cannot be read.
pub(super) fn note_of(folder: &Path) -> Option<OwnerNote> {
    serde_json::from_slice(&std::fs::read(folder.join(OWNER)).ok()?).ok()
}

/// Removes a process's folder if it has no files, and then the user's folder if that is empty.
pub(super) fn remove_if_empty(root: &Path, folder: &Path) {
    if folder.join(FILES).exists() {
        return;
    }
    let mut all = own();
    let own = all.as_ref().and_then(|all| all.iter().position(|own| own.path == folder));
    // A living process removes its folder itself. No process can start using this folder while its lock is held here.
    let owner = File::open(folder.join(OWNER));
    if own.is_none() && owner.as_ref().is_ok_and(|owner| owner.try_lock().is_err()) {
        return;
    }
    discard(folder);
    drop(owner);
    if let Some((all, own)) = all.as_mut().zip(own) {
        all.swap_remove(own);
    }
    drop(all);
    // The removal fails if other processes of the user have folders there.
    let _ = std::fs::remove_dir(user_folder(root));
}

/// Removes this process's folders that have no files. A child may have moved the last file of one.
pub(crate) fn remove_own_if_empty() {
    let all: Vec<Arc<OwnFolder>> = own().map_or_else(Vec::new, |all| all.clone());
    all.into_iter().for_each(|own| remove_if_empty(&own.root, &own.path));
}

fn discard(folder: &Path) {
    // If a removal fails, the next run removes the folder, which has no files.
    for name in [OWNER, MOVES] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let _ = std::fs::remove_dir(folder);
}
