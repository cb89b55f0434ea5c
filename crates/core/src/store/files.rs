//! Creates small files and folders, and makes them durable.

use std::path::{Path, PathBuf};

use crate::error::{IoContext, Result};
use crate::storage::Storage;

/// Creates a file, writes it, and makes its content durable. The caller makes its name durable by syncing the folder.
pub(super) fn write_synced(storage: &dyn Storage, path: &Path, content: &[u8]) -> Result<()> {
    let mut file = storage.create(path).at("create", path)?;
    file.write_at(0, content).at("write", path)?;
    file.sync().at("sync", path)
}

/// Returns the folder that contains a path. Returns `.` for a relative path with one name.
pub(super) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

/// Creates a folder and its missing ancestors, and makes the new names durable.
pub(super) fn create_dir_synced(storage: &dyn Storage, path: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut above = path.to_owned();
    while storage.kind(&above).at("look up", &above)?.is_none() {
        missing.push(above.clone());
        above = parent(&above);
    }
    if missing.is_empty() {
        return Ok(());
    }
    storage.create_dir_all(path).at("create", path)?;
    for folder in &missing {
        let above = parent(folder);
        match storage.sync_dir(&above) {
            // A folder with write permission but no read permission cannot be opened for a sync.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            other => other.at("sync", &above)?,
        }
    }
    Ok(())
}
