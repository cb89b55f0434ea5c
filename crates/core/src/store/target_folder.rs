//! Checks where a dataset may be created: in a new or empty folder, but not among other files.

use std::path::Path;

use super::listing::list_or_empty;
use super::paths::{DatasetPaths, parse_epoch_folder};
use crate::error::{Error, IoContext, Result};
use crate::storage::{FileKind, Storage};

/// Folder that the operating system creates at the root of a file system.
const OF_THE_SYSTEM: &str = "lost+found";

/// Checks that there is a dataset at `paths`, or that one may be created there. Changes nothing, and needs no lock.
/// Files of an interrupted creation are accepted.
///
/// # Errors
/// [`Error::Occupied`] if the path is a file, or a folder with other files.
pub(crate) fn check_vacant(storage: &dyn Storage, paths: &DatasetPaths) -> Result<()> {
    let root = paths.root();
    let occupied = |what: String| Err(Error::Occupied { path: root.to_owned(), what });
    match storage.kind(root).at("look up", root)? {
        None => match root.ancestors().find(|above| storage.kind(above).is_ok_and(|kind| kind == Some(FileKind::File)))
        {
            Some(file) => occupied(format!("cannot be created, since {} is a file", file.display())),
            None => Ok(()),
        },
        Some(FileKind::File) => occupied("is a file, but a dataset is a folder".to_owned()),
        Some(FileKind::Directory) => {
            let descriptor = paths.descriptor();
            if storage.kind(&descriptor).at("look up", &descriptor)?.is_some() {
                return Ok(());
            }
            match foreign(storage, paths)? {
                Some(name) => occupied(format!("has other files, such as {name}, and is not a dataset")),
                None => Ok(()),
            }
        }
    }
}

/// Returns a file or folder that does not belong to a new dataset, if there is one.
fn foreign(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Option<String>> {
    for entry in storage.list(paths.root()).at("list", paths.root())? {
        let path = paths.root().join(&entry.name);
        let of_ours: fn(&str) -> bool = match entry.kind {
            // Epochs without a dataset.json are accepted here. Opening the dataset reports them as corruption.
            FileKind::Directory if path == paths.data() => |name| parse_epoch_folder(name).is_some(),
            FileKind::Directory if path == paths.control() => is_control,
            FileKind::Directory if entry.name == OF_THE_SYSTEM => continue,
            _ => return Ok(Some(entry.name)),
        };
        let inside = list_or_empty(storage, &path)?;
        if let Some(other) = inside.into_iter().find(|inside| !of_ours(&inside.name)) {
            return Ok(Some(Path::new(&entry.name).join(other.name).display().to_string()));
        }
    }
    Ok(None)
}

/// Returns whether a name may occur in `_turbidite`.
fn is_control(name: &str) -> bool {
    matches!(name, "manifest" | "tmp" | "index") || name.starts_with("dataset.json") || name.starts_with("lock")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::schema::{Column, DataType, Schema};
    use crate::storage::{Fault, FaultStorage, MemoryStorage};
    use crate::store::{DatasetDescriptor, WriterLock};

    fn create_file(storage: &dyn Storage, path: &str) {
        storage.create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        storage.create(Path::new(path)).unwrap();
    }

    #[test]
    fn a_dataset_is_not_created_among_other_files() {
        let paths = DatasetPaths::new("/home/ds");
        for (file, words) in [
            ("/home/ds/notes.txt", "/home/ds has other files, such as notes.txt, and is not a dataset; "),
            ("/home/ds/run/1.dat", "such as run"),
            ("/home/ds/data/energies.csv", "such as data/energies.csv"),
            ("/home/ds/_turbidite/mine", "such as _turbidite/mine"),
            ("/home/ds/data", "such as data"),
            ("/home/ds", "/home/ds is a file, but a dataset is a folder; "),
            ("/home", "/home/ds cannot be created, since /home is a file; "),
        ] {
            let storage = MemoryStorage::new();
            create_file(&storage, file);
            let error = check_vacant(&storage, &paths).unwrap_err().to_string();
            assert!(error.contains(words) && error.ends_with("; use a new or empty folder"), "{file}: {error}");
        }
        let storage = MemoryStorage::new();
        for folder in ["/", "/home/ds", "/home/ds/lost+found", "/home/ds/data/epoch=5"] {
            storage.create_dir_all(Path::new(folder)).unwrap();
            check_vacant(&storage, &paths).unwrap();
        }
    }

    /// The creation is killed before every operation. The remaining files must not prevent the next attempt.
    #[test]
    fn a_creation_that_was_cut_short_can_be_repeated() {
        let paths = DatasetPaths::new("/home/ds");
        let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::F32)], "key").unwrap());
        let mut at = 0;
        loop {
            let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
            let killed: Arc<dyn Storage> =
                Arc::new(FaultStorage::with_fault(Arc::clone(&memory), Fault::Kill { at, torn: true }));
            let create = |storage: &Arc<dyn Storage>| -> Result<()> {
                let (_lock, _) = WriterLock::acquire(storage, &paths, true)?;
                DatasetDescriptor::open_or_create(&**storage, &paths, &DatasetDescriptor::new(Arc::clone(&schema)))?;
                Ok(())
            };
            let done = create(&killed).is_ok();
            check_vacant(&*memory, &paths).unwrap();
            create(&memory).unwrap();
            // Other files beside an existing dataset are ignored.
            create_file(&*memory, "/home/ds/notes.txt");
            check_vacant(&*memory, &paths).unwrap();
            if done {
                break;
            }
            at += 1;
        }
        assert!(at > 10, "the sweep covers something");
    }
}
