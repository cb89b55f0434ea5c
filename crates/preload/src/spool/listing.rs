//! Lists the spooled files of living processes.

use std::path::{Path, PathBuf};

use super::Spooled;
use super::folder::{self, FILES, OwnFolder, user_folder};

/// Returns this process's spooled files whose original paths lie in `folder`.
pub(crate) fn own_copies(root: &Path, folder: &Path) -> Vec<Spooled> {
    OwnFolder::existing(root).map_or_else(Vec::new, |own| copies_in(root, own.path(), folder))
}

/// Returns the spooled files of all processes of this job that run on this host.
pub(crate) fn copies_of_job(root: &Path) -> Vec<Spooled> {
    let Some(job) = folder::job() else { return Vec::new() };
    let folders = folder::list(&user_folder(root)).into_iter();
    let of_job = folders.filter(|folder| folder::note_of(folder).is_some_and(|note| note.job == Some(job)));
    of_job.flat_map(|folder| copies_in(root, &folder, Path::new("/"))).collect()
}

fn copies_in(root: &Path, process: &Path, folder: &Path) -> Vec<Spooled> {
    let files = process.join(FILES);
    let mut paths = Vec::new();
    gather(&files.join(folder.strip_prefix("/").unwrap_or(folder)), &mut paths);
    let own = paths.iter().filter_map(|path| Some(Path::new("/").join(path.strip_prefix(&files).ok()?)));
    own.map(|path| Spooled::of(root, process, &path)).collect()
}

/// Collects the files in a folder and below it.
pub(super) fn gather(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => gather(&entry.path(), paths),
            Ok(_) => paths.push(entry.path()),
            Err(_) => {}
        }
    }
}
