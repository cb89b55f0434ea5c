//! Files in memory, which several tests read and corrupt.

use std::path::{Path, PathBuf};

use turbidite::storage::{FileKind, MemoryStorage, Storage};

/// Returns the files below a folder with their contents.
pub(crate) fn files(storage: &MemoryStorage, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in storage.list(folder).unwrap() {
        let path = folder.join(&entry.name);
        if entry.kind == FileKind::Directory {
            found.extend(files(storage, &path));
            continue;
        }
        let file = storage.open(&path).unwrap();
        let mut content = vec![0; file.bytes() as usize];
        file.read_at(0, &mut content).unwrap();
        found.push((path, content));
    }
    found
}

/// Replaces the content of a file.
pub(crate) fn overwrite(storage: &MemoryStorage, path: &Path, content: &[u8]) {
    storage.remove_file(path).unwrap();
    storage.create(path).unwrap().write_at(0, content).unwrap();
}
