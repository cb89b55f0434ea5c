//! Lists folders and returns the lengths of files.

use std::path::Path;

use crate::error::{SourceContext, SourceError};

/// Returns the names in a folder in byte order, without hidden files and names that are not UTF-8.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, SourceError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).of("list", folder)? {
        let entry = entry.of("list", folder)?;
        if let Ok(name) = entry.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the length of a file, which must be a regular file.
pub(crate) fn file_bytes(path: &Path) -> Result<u64, SourceError> {
    let metadata = std::fs::metadata(path).of("read", path)?;
    if !metadata.is_file() {
        return Err(SourceError::Unfit { path: path.to_owned(), what: "not a regular file".into() });
    }
    Ok(metadata.len())
}
