//! Finds the files that killed processes left in a spool.

use std::path::{Path, PathBuf};

use super::folder::{self, FILES, OwnerNote, note_of, user_folder};
use super::listing::gather;

/// The files left by one dead process.
#[derive(Debug)]
pub(crate) struct Leftover {
    /// The process's folder in the spool.
    pub(crate) folder: PathBuf,
    pub(crate) owner: Option<OwnerNote>,
    /// The original paths of the files.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) bytes: u64,
}

impl Leftover {
    /// Returns whether two processes are known to be ranks of one job.
    pub(crate) fn is_of_one_job(&self, other: &Self) -> bool {
        let job = |leftover: &Self| leftover.owner.as_ref().and_then(|owner| owner.job);
        job(self).is_some() && job(self) == job(other)
    }
}

/// Returns the files that dead processes of this host left in a spool. Removes folders without files.
pub(crate) fn leftovers(root: &Path) -> Vec<Leftover> {
    let mut found = Vec::new();
    for folder in folder::list(&user_folder(root)) {
        if folder::is_alive(&folder) {
            continue;
        }
        let files = folder.join(FILES);
        let mut places = Vec::new();
        gather(&files, &mut places);
        let bytes = places.iter().filter_map(|place| place.metadata().ok()).map(|about| about.len()).sum();
        let paths = places.iter().filter_map(|place| Some(Path::new("/").join(place.strip_prefix(&files).ok()?)));
        let mut leftover = Leftover { owner: note_of(&folder), folder, paths: paths.collect(), bytes };
        if leftover.paths.is_empty() {
            // The folders hold no files. If the removal fails, a later run retries it.
            let _ = std::fs::remove_dir_all(&files);
            folder::remove_if_empty(root, &leftover.folder);
        } else {
            leftover.paths.sort_unstable();
            found.push(leftover);
        }
    }
    found
}
