//! Finds the files that killed processes left in a spool.

use std::path::{Path, PathBuf};

use super::folder::{self, FILES, OwnerNote, note_of, user_folder};

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

/// Returns the files that dead processes of this host left in a spool. Removes folders without files.
pub(crate) fn leftovers(root: &Path) -> Vec<Leftover> {
    let mut found = Vec::new();
    for folder in folder::list(&user_folder(root)) {
        if folder::is_alive(&folder) {
            continue;
        }
        let files = folder.join(FILES);
        let mut leftover = Leftover { owner: note_of(&folder), folder, paths: Vec::new(), bytes: 0 };
        gather(&files, &files, &mut leftover);
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

fn gather(files: &Path, folder: &Path, leftover: &mut Leftover) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        if kind.is_dir() {
            gather(files, &path, leftover);
        } else if let Ok(relative) = path.strip_prefix(files) {
            leftover.bytes += entry.metadata().map_or(0, |about| about.len());
            leftover.paths.push(Path::new("/").join(relative));
        }
    }
}
