//! Files that killed runs left in the preload library's spool: the only module of the command that knows the spool's
//! layout.
//!
//! ```text
//! SPOOL/turbidite-<user>/<host>-<process>-<start>/.owner    who spools, as JSON; a living process holds its flock
//! SPOOL/turbidite-<user>/<host>-<process>-<start>/files/…   spooled files below their absolute paths
//! ```
//!
//! Invariants
//! - Files of a living process, or of one whose state cannot be determined from this host, are never touched. The lock
//!   of the files' owner is held while they are moved.
//! - No existing file is overwritten, and a file leaves the spool only when its copy is durable.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The default spool folder of the preload library.
pub(crate) const DEFAULT: &str = "/dev/shm";

const OWNER: &str = ".owner";
const MOVES: &str = ".moves";
const FILES: &str = "files";

/// The owner of a folder. Fields that another release did not write have defaults.
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
    /// The pattern of its files.
    pub(crate) files: String,
    pub(crate) out: PathBuf,
}

/// A spooled file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SpooledFile {
    pub(crate) spooled: PathBuf,
    /// The path that the program gave.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The files left by one dead process.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) folder: PathBuf,
    pub(crate) owner: Owner,
    pub(crate) files: Vec<SpooledFile>,
    /// Held, so that no other process moves them.
    _lock: File,
}

/// The content of a spool.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) leftovers: Vec<Leftover>,
    /// Number of living processes.
    pub(crate) living: usize,
    /// Folders of other hosts, or without a readable owner: this host cannot determine whether their process lives.
    pub(crate) unknown: Vec<PathBuf>,
}

/// Finds the files that dead processes of this user left in a spool. The result is empty if the user has no folder
/// there.
///
/// # Errors
/// When folders cannot be read, or the user's folder belongs to another user.
pub(crate) fn find(spool: &Path) -> io::Result<Found> {
    // Folders of /proc/self belong to the effective user.
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

/// Reads the owner of a folder, and opens the file whose lock shows whether it lives.
fn read_owner(folder: &Path) -> Option<(Owner, File)> {
    let file = File::open(folder.join(OWNER)).ok()?;
    let owner = serde_json::from_reader(&file).ok()?;
    Some((owner, file))
}

/// Collects the files below `folder`, whose original path is `path`. Links are ignored: they are not the program's
/// files.
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
    /// When a file exists at that path, or it cannot be written; the file then stays in the spool.
    pub(crate) fn put_in_place(&self, file: &SpooledFile) -> io::Result<()> {
        let folder = file.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder)?;
        // Unlike a rename, a link never replaces a file.
        match std::fs::hard_link(&file.spooled, &file.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // Another file system, or one without links.
            Err(_) => copy(&file.spooled, &file.path)?,
        }
        File::open(&file.path)?.sync_all()?;
        File::open(folder)?.sync_all()?;
        std::fs::remove_file(&file.spooled)?;
        // Up to the folder of all files. A folder that is not empty stays.
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
        // The process's locks are no longer needed; older releases had none.
        let _ = std::fs::remove_file(self.folder.join(MOVES));
        std::fs::remove_file(self.folder.join(OWNER))?;
        std::fs::remove_dir(&self.folder)?;
        // Other processes may spool in the user's folder.
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

/// Removes a folder and its subfolders, as far as they hold no file.
fn remove_empty(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .for_each(|entry| remove_empty(&entry.path()));
    // A folder that is not empty stays.
    let _ = std::fs::remove_dir(folder);
}

/// Copies a file to an unused name, which appears when all of its content is durable.
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
        // On any failure, the spool still has the file, and the draft is useless.
        let _ = std::fs::remove_file(&draft);
    }
    copied
}
