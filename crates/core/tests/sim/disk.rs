//! One rank's view of the job's storage, with the faults of the launch.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use turbidite::storage::{DirEntry, FileKind, MemoryStorage, ReadableFile, Storage, WritableFile};

use crate::faults::Verdict;
use crate::model::Model;
use crate::reader::SlowReader;
use crate::world::World;

/// The dataset's path.
pub(crate) const ROOT: &str = "/ds";

/// The state of the files, shared by all ranks of a launch.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) world: Arc<World>,
    pub(crate) memory: MemoryStorage,
    pub(crate) model: Arc<Mutex<Model>>,
    pub(crate) reader: Mutex<Option<SlowReader>>,
}

/// One rank's storage.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rank: u32,
}

fn killed() -> io::Error {
    io::Error::other("the process was killed here")
}

/// Returns the purpose of an operation, derived from its kind and its path.
fn step(operation: &'static str, path: &Path, to: Option<&Path>) -> &'static str {
    let below = path.strip_prefix(ROOT).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let target = to.map(|to| to.to_string_lossy().into_owned()).unwrap_or_default();
    let part = below.ends_with(".parquet");
    let manifest = below.starts_with("_turbidite/manifest");
    let bitmap = below.starts_with("_turbidite/index/bitmap:");
    match (operation, below.as_str()) {
        ("create", _) if part => "part create",
        ("write", _) if part => "part write",
        ("cut", _) if part => "part cut",
        ("sync", _) if part => "part sync",
        ("create", _) if manifest => "manifest create",
        ("write", _) if manifest => "manifest write",
        ("sync", _) if manifest => "manifest sync",
        ("write", _) if bitmap => "sidecar write",
        ("sync", _) if bitmap => "sidecar sync",
        ("rename", _) if bitmap => "publish sidecars",
        ("sync folder", "_turbidite/manifest") => "sync manifest/",
        ("sync folder", "_turbidite/tmp") => "sync tmp/",
        ("sync folder", "data") => "sync data/",
        ("sync folder", path) if path.starts_with("_turbidite/tmp/") => "sync attempt",
        ("exchange", _) => "exchange",
        ("rename", path) if path.starts_with("data/") && target.ends_with(".removed") => "truncate",
        ("rename", path) if path.starts_with("data/") => "set aside",
        ("rename", path) if path.ends_with(".replaced") => "take back",
        ("rename", path) if path.starts_with("_turbidite/tmp/") => "publish",
        ("remove folder", _) => "remove old data",
        ("remove", _) if manifest => "remove manifest",
        (_, path) if path.starts_with("_turbidite/lock") => "lock",
        (_, path) if path.starts_with("_turbidite/dataset.json") => "dataset.json",
        ("create folder", _) => "create folder",
        ("sync folder", _) => "sync folder",
        ("look up" | "list" | "open" | "read", _) => "look",
        _ => "other",
    }
}

impl Disk {
    /// Applies the faults to an operation. `Ok` means that the operation is executed completely.
    fn judge(&self, operation: &'static str, path: &Path, to: Option<&Path>, bytes: Option<usize>) -> Result<(), Stop> {
        let world = &self.shared.world;
        world.maybe_pause(self.rank);
        let step = step(operation, path, to);
        let mut name = world.state().trace.name(path);
        // The lengths of other files vary with metrics stored as text.
        if let Some(bytes) = bytes.filter(|_| step.starts_with("part")) {
            name.push_str(&format!(" {bytes}"));
        }
        let share = |written: u64| bytes.map_or(0, |bytes| bytes * written as usize / 256);
        match world.judge(self.rank, step, &name, operation == "write") {
            Verdict::Go => Ok(()),
            Verdict::Stall(length) => {
                world.stall(self.rank, length);
                Ok(())
            }
            Verdict::Fail { kind, written } => Err(Stop { written: share(written), error: kind.into() }),
            Verdict::Crash { written, .. } => Err(Stop { written: share(written), error: killed() }),
            Verdict::Dead => Err(Stop { written: 0, error: killed() }),
        }
    }

    fn pass(&self, operation: &'static str, path: &Path, to: Option<&Path>) -> io::Result<()> {
        self.judge(operation, path, to, None).map_err(|stop| stop.error)
    }

    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.shared.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a reader query the current files: always after changes that are visible to readers, otherwise at random.
    fn look(&self, noticeable: bool) {
        let world = &self.shared.world;
        let mut state = world.state();
        if !noticeable && !state.random.one_in(24) {
            return;
        }
        let mut random = state.random.fork();
        let mut coverage = std::mem::take(&mut state.coverage);
        drop(state);
        coverage.met("reader: between two file operations");
        let storage: Arc<dyn Storage> = Arc::new(self.shared.memory.clone());
        let model = self.model();
        let found = crate::reader::look(&storage, &model, &mut random).and_then(|()| {
            let mut reader = self.shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
            SlowReader::go_on(&mut reader, &storage, &model, &mut random, &mut coverage)
        });
        drop(model);
        let mut state = world.state();
        state.coverage = coverage;
        if let Err(violation) = found {
            state.blame(violation);
        }
    }
}

/// The cause for which an operation has no effect or only a partial effect.
struct Stop {
    written: usize,
    error: io::Error,
}

impl Storage for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.pass("create", path, None)?;
        let file = self.shared.memory.create(path)?;
        Ok(Box::new(Writer { disk: self.clone(), path: path.to_owned(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        self.pass("open", path, None)?;
        let file = self.shared.memory.open(path)?;
        Ok(Arc::new(Reader { disk: self.clone(), path: path.to_owned(), file }))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.pass("look up", path, None)?;
        self.shared.memory.kind(path)
    }

    /// The order of the list must not depend on identities, which are random.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.pass("list", path, None)?;
        let mut entries = self.shared.memory.list(path)?;
        let mut state = self.shared.world.state();
        entries.sort_by_cached_key(|entry| state.trace.name(Path::new(&entry.name)));
        Ok(entries)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.pass("create folder", path, None)?;
        self.shared.memory.create_dir_all(path)?;
        self.model().folder_created(path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass("rename", from, Some(to))?;
        self.shared.memory.rename(from, to)?;
        let noticeable = self.model().renamed(from, to);
        self.look(noticeable);
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.pass("exchange", one, Some(other))?;
        self.shared.memory.exchange(one, other)?;
        self.model().exchanged(one, other);
        self.look(true);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.pass("remove", path, None)?;
        self.shared.memory.remove_file(path)?;
        self.look(false);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.pass("remove folder", path, None)?;
        self.shared.memory.remove_dir_all(path)?;
        self.look(true);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.pass("sync folder", path, None)?;
        self.shared.memory.sync_dir(path)?;
        self.model().folder_synced(path);
        self.look(false);
        Ok(())
    }
}

#[derive(Debug)]
struct Writer {
    disk: Disk,
    path: std::path::PathBuf,
    file: Box<dyn WritableFile>,
}

impl WritableFile for Writer {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.disk.judge("write", &self.path, None, Some(data.len())) {
            Ok(()) => self.file.write_at(offset, data)?,
            Err(Stop { written, error }) => {
                self.file.write_at(offset, &data[..written])?;
                return Err(error);
            }
        }
        self.disk.look(false);
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.pass("cut", &self.path, None)?;
        self.file.truncate(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.pass("sync", &self.path, None)?;
        self.file.sync()
    }
}

#[derive(Debug)]
struct Reader {
    disk: Disk,
    path: std::path::PathBuf,
    file: Arc<dyn ReadableFile>,
}

impl ReadableFile for Reader {
    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.pass("read", &self.path, None)?;
        self.file.read_at(offset, buffer)
    }
}
