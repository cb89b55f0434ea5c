//! A storage backend that discards parts, to separate processor time from device time.

use std::io;
use std::path::Path;
use std::sync::Arc;

use turbidite::Schema;
use turbidite::format::{EncodeBuffers, Memtable, PartId, PartIdentity, PartOptions, PartWriter, RunContext, RunKind};
use turbidite::storage::{DirEntry, FileKind, FileSystem, ReadableFile, Storage, WritableFile};

/// A file that accepts all writes and discards them.
#[derive(Debug)]
struct Nowhere;

impl WritableFile for Nowhere {
    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file system, except that parts have no content.
#[derive(Debug, Default)]
pub(crate) struct PartsNowhere {
    files: FileSystem,
}

impl Storage for PartsNowhere {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        if path.extension().is_some_and(|extension| extension == "parquet") {
            // The file is created, since a commit checks that it exists.
            self.files.create(path)?;
            return Ok(Box::new(Nowhere));
        }
        self.files.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        self.files.open(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.files.kind(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.files.list(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.files.exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.files.sync_dir(path)
    }
}

/// Writes one part of `rows` to `folder`, in runs of `memtable_bytes`, without another rank. Unless `keep` is set, only
/// the file is created.
pub(crate) fn sort_and_encode(
    folder: &Path,
    keep: bool,
    schema: &Arc<Schema>,
    rows: &[u8],
    rank: u32,
    memtable_bytes: usize,
) -> turbidite::Result<()> {
    let storage: Arc<dyn Storage> = if keep { Arc::new(FileSystem::new()) } else { Arc::new(PartsNowhere::default()) };
    let (dataset, commit) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    let identity = PartIdentity { dataset, commit, epoch: 0 };
    let part = PartId { rank, roll: 0 };
    let mut writer = PartWriter::create(storage, folder, part, Arc::clone(schema), PartOptions::default(), identity)?;
    let mut buffers = EncodeBuffers::new();
    let mut table = Memtable::new(Arc::clone(schema), memtable_bytes);
    let (mut rest, mut run) = (rows, 0);
    while !rest.is_empty() {
        table.clear_for(buffers.bucket_bounds());
        rest = &rest[table.push_fitting(rest)..];
        let context = RunContext { run, kind: RunKind::Regular, table_version: 0, bounds: None };
        writer.append_run_with(&table, context, &mut buffers)?;
        run += 1;
    }
    writer.finish().map(drop)
}
