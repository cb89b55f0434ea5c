//! Finds and moves files that killed runs left in the preload library's spool. Only this module of the command depends
//! on the spool's layout.
//!
//! ```text
//! SPOOL/turbidite-<user>/<host>-<process>-<start>/.owner    the owner, as JSON; a living process holds its flock
//! SPOOL/turbidite-<user>/<host>-<process>-<start>/files/…   spooled files below their absolute paths
//! ```
//!
//! Invariants
//! - Files are never touched if their process is alive or its state cannot be determined from this host. The lock on
//!   `.owner` is held while files are moved.
//! - No existing file is overwritten. A file is removed from the spool only once its copy is durable.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The default spool folder of the preload library.
pub(crate) const DEFAULT: &str = "/dev/shm";

const OWNER: &str = ".owner";
const MOVES: &str = ".moves";
const FILES: &str = "files";

/// The owner of a folder. Fields that another release does not write have default values.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Owner {
    pub(crate) host: String,
    pub(crate) process: u32,
    pub(crate) config: Option<PathBuf>,
    pub(crate) datasets: Vec<OwnedDataset>,
}

/// A dataset that the run indexed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OwnedDataset {
    /// The pattern of the dataset's files.
    pub(crate) files: String,
    pub(crate) out: PathBuf,
}

/// A spooled file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SpooledFile {
    pub(crate) spooled: PathBuf,
    /// The original path of the file.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The files left by one dead process.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) folder: PathBuf,
    pub(crate) owner: Owner,
    pub(crate) files: Vec<SpooledFile>,
    /// The lock on `.owner`, which is held so that no other process moves the files.
    _lock: File,
}

/// The content of a spool.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) leftovers: Vec<Leftover>,
    /// Number of living processes.
    pub(crate) living: usize,
    /// Folders of other hosts, or without a readable `.owner`. This host cannot determine whether their processes are
    /// alive.
    pub(crate) unknown: Vec<PathBuf>,
}

/// Finds the files that dead processes of this user left in a spool. Returns an empty result if the user has no folder
/// there.
///
/// # Errors
/// Returns an error if folders cannot be read, or if the user's folder belongs to another user.
pub(crate) fn find(spool: &Path) -> io::Result<Found> {
    // /proc/self belongs to the effective user.
    let user = Path::new("/proc/self").metadata()?.uid();
    let ours = spool.join(format!("turbidite-{user}"));
    let mut found = Found::default();
    match ours.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            spool.metadata()?;
            return Ok(found);
        }
        Err(error) => return Err(error),
        Ok(about) if !about.is_dir() || about.uid() != user => {
            return Err(io::Error::other(format!("{} belongs to another user", ours.display())));
        }
        Ok(_) => {}
    }
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(&ours)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    folders.retain(|folder| folder.symlink_metadata().is_ok_and(|about| about.is_dir()));
    folders.sort_unstable();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    for folder in folders {
        let Some((owner, lock)) = read_owner(&folder).filter(|(owner, _)| owner.host == host.trim()) else {
            found.unknown.push(folder);
            continue;
        };
        if lock.try_lock().is_err() {
            found.living += 1;
            continue;
        }
        let mut files = Vec::new();
        list(&folder.join(FILES), Path::new("/"), &mut files)?;
        found.leftovers.push(Leftover { folder, owner, files, _lock: lock });
    }
    Ok(found)
}

/// Reads the owner of a folder. Also returns `.owner`, whose lock shows whether the owner is alive.
fn read_owner(folder: &Path) -> Option<(Owner, File)> {
    let file = File::open(folder.join(OWNER)).ok()?;
    let owner = serde_json::from_reader(&file).ok()?;
    Some((owner, file))
}

/// Collects the files below `folder`, whose original path is `path`. Links are ignored, since they are not the
/// program's files.
fn list(folder: &Path, path: &Path, files: &mut Vec<SpooledFile>) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut entries: Vec<_> = entries.collect::<io::Result<_>>()?;
    entries.sort_unstable_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (spooled, path) = (entry.path(), path.join(entry.file_name()));
        let about = entry.metadata()?;
        if about.is_dir() {
            list(&spooled, &path, files)?;
        } else if about.is_file() {
            files.push(SpooledFile { spooled, path, bytes: about.len() });
        }
    }
    Ok(())
}

impl Leftover {
    /// Moves one of the files to its original path.
    ///
    /// # Errors
    /// Returns an error if another file exists at that path, or if the path cannot be written. The file then stays in
    /// the spool.
    pub(crate) fn put_in_place(&self, file: &SpooledFile) -> io::Result<()> {
        let folder = file.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder)?;
        // Unlike a rename, a hard link never replaces a file.
        match std::fs::hard_link(&file.spooled, &file.path) {
            Ok(()) => {}
            // The run may have been killed between the two steps of a move.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !are_equal(&file.spooled, &file.path)? {
                    return Err(error);
                }
            }
            // The path is on another file system, or its file system has no hard links.
            Err(_) => copy(&file.spooled, &file.path)?,
        }
        File::open(&file.path)?.sync_all()?;
        File::open(folder)?.sync_all()?;
        std::fs::remove_file(&file.spooled)?;
        // Empty folders are removed, up to the folder that holds all files.
        let top = self.folder.join(FILES);
        for above in file.spooled.ancestors().skip(1).take_while(|above| above.starts_with(&top)) {
            if std::fs::remove_dir(above).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Removes the folder of an owner whose files were all moved.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let files = self.folder.join(FILES);
        remove_empty(&files);
        if files.exists() {
            return Ok(());
        }
        // The process's locks are no longer needed. Older releases created no such file.
        let _ = std::fs::remove_file(self.folder.join(MOVES));
        std::fs::remove_file(self.folder.join(OWNER))?;
        std::fs::remove_dir(&self.folder)?;
        // The user's folder may contain folders of other processes.
        if let Some(ours) = self.folder.parent() {
            let _ = std::fs::remove_dir(ours);
        }
        Ok(())
    }

    /// Returns whether the run indexed files into this dataset.
    pub(crate) fn is_of(&self, dataset: &Path) -> bool {
        let plain = |path: &Path| path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
        self.owner.datasets.iter().any(|owned| plain(&owned.out) == plain(dataset))
    }
}

/// Returns whether two files have the same bytes.
fn are_equal(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let mut bytes = BufReader::new(one).bytes().zip(BufReader::new(other).bytes());
    bytes.try_fold(true, |are_equal, (one, other)| Ok(are_equal && one? == other?))
}

/// Removes the subfolders of a folder, and the folder itself, if they contain no files.
fn remove_empty(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .for_each(|entry| remove_empty(&entry.path()));
    // A folder that is not empty is not removed.
    let _ = std::fs::remove_dir(folder);
}

/// Copies a file to an unused path. The file appears at that path once its content is durable.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".salvaged-{}", std::process::id()));
    let draft = PathBuf::from(name);
    let copied = (|| {
        let (mut source, mut target) = (File::open(from)?, File::create_new(&draft)?);
        io::copy(&mut source, &mut target)?;
        let about = source.metadata()?;
        target.set_permissions(about.permissions())?;
        target.set_modified(about.modified()?)?;
        target.sync_all()?;
        match std::fs::hard_link(&draft, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) => std::fs::remove_file(&draft),
            Err(_) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(&draft, to),
        }
    })();
    if copied.is_err() {
        // After a failure, the spool still has the file, so the incomplete copy is removed.
        let _ = std::fs::remove_file(&draft);
    }
    copied
}
