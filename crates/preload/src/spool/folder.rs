//! The folder of one process in a spool, and its owner.
//!
//! A process holds a lock on `.owner` throughout its life, which distinguishes the files of a killed process from those
//! of a running one. Each process has its own folder, so that it overwrites no file of a killed one.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use super::system::high;

const OWNER: &str = ".owner";
const MOVES: &str = ".moves";

/// The subfolder of a process's folder that holds the files.
pub(super) const FILES: &str = "files";

/// Maximum number of attempts to create a folder that other processes remove meanwhile.
const ATTEMPTS: u32 = 100;

/// The content of `.owner`, for a process that finds the folder after its owner has died.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OwnerNote {
    pub(crate) version: u32,
    pub(crate) host: String,
    pub(crate) process: u32,
    /// The start time of the process, in clock ticks after boot.
    pub(crate) started: Option<u64>,
    /// The configuration under which the files were written.
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

/// Keeps the configuration that `.owner` will name.
pub(crate) fn describe_owner(config: &Path, datasets: Vec<DatasetNote>) {
    let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    // Set once: there is one configuration.
    let _ = DESCRIPTION.set((config, datasets));
}

/// This process's folder in one spool.
#[derive(Debug)]
pub(super) struct OwnFolder {
    root: PathBuf,
    path: PathBuf,
    /// Locked: the lock ends with the process.
    _owner: File,
    moves: File,
}

/// One for each spool of the configuration.
static OWN: Mutex<Vec<Arc<OwnFolder>>> = Mutex::new(Vec::new());

impl OwnFolder {
    /// Returns this process's folder, and creates it if necessary.
    pub(super) fn get(root: &Path) -> io::Result<Arc<Self>> {
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
        let all = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        // A forked child has its parent's memory, but is another process.
        all.iter().find(|own| own.root == root && own.path == own_path(root)).map(Arc::clone)
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
            // Locked before its content is written: an unlocked note belongs to a dead process. Other processes hold
            // the lock only for a moment, to find out whether this process lives.
            owner.lock()?;
            // A process that held the lock before may have removed the folder as that of a dead process.
            if path.join(OWNER).metadata()?.ino() != owner.metadata()?.ino() {
                return Err(io::ErrorKind::NotFound.into());
            }
            write_note(&owner)?;
            Ok(Self { root: root.to_owned(), path: path.clone(), _owner: high(owner), moves: high(create(MOVES)?) })
        };
        // Another process may remove folders that look empty at any moment, until this process has its lock.
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

    /// Returns the file that has a lock for each of the folder's files.
    pub(super) fn moves(&self) -> &File {
        &self.moves
    }
}

/// Opens another process's lock file.
pub(super) fn moves_of(folder: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(folder.join(MOVES))
}

fn write_note(mut file: &File) -> io::Result<()> {
    let (config, datasets) = DESCRIPTION.get().cloned().unwrap_or_default();
    let (host, process, started) = identity();
    let note = OwnerNote { version: 1, host, process, started, config, datasets };
    file.set_len(0)?;
    serde_json::to_writer(&mut file, &note).map_err(io::Error::from)
}

/// Returns the host name, the process id and the start time of the process.
fn identity() -> (String, u32, Option<u64>) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain anything; field 22 of the file is the twentieth after it.
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

/// Returns whether a folder belongs to this user. Spools are shared: a folder of our name may be another user's.
pub(super) fn is_own(folder: &Path) -> bool {
    folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user())
}

pub(super) fn is_writable(folder: &Path) -> bool {
    use rustix::fs::Access;
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Returns the folders of this host's processes in a user's folder; none if it is another user's.
pub(super) fn list(user_folder: &Path) -> Vec<PathBuf> {
    if !is_own(user_folder) {
        return Vec::new();
    }
    let prefix = format!("{}-", identity().0);
    let entries = std::fs::read_dir(user_folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).map(|entry| entry.path()).collect()
}

/// Returns whether the process of a folder lives: it holds the lock on `.owner`.
pub(super) fn is_alive(folder: &Path) -> bool {
    let Ok(owner) = File::open(folder.join(OWNER)) else { return false };
    owner.try_lock_shared().is_err()
}

/// Returns the content of the folder's `.owner`, or `None` if it cannot be read.
pub(super) fn note_of(folder: &Path) -> Option<OwnerNote> {
    serde_json::from_slice(&std::fs::read(folder.join(OWNER)).ok()?).ok()
}

/// Removes a process's folder that has no files, and the user's folder if it is empty then.
pub(super) fn remove_if_empty(root: &Path, folder: &Path) {
    if folder.join(FILES).exists() {
        return;
    }
    let mut all = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = all.iter().position(|own| own.path == folder);
    // A living process removes its own folder. No process can begin to live in this folder while its lock is held here.
    let owner = File::open(folder.join(OWNER));
    if own.is_none() && owner.as_ref().is_ok_and(|owner| owner.try_lock().is_err()) {
        return;
    }
    discard(folder);
    drop(owner);
    if let Some(own) = own {
        all.swap_remove(own);
    }
    drop(all);
    // Other processes of the user may have theirs in it.
    let _ = std::fs::remove_dir(user_folder(root));
}

fn discard(folder: &Path) {
    // The next run finds leftovers, which are empty.
    for name in [OWNER, MOVES] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let _ = std::fs::remove_dir(folder);
}
