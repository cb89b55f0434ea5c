//! Waits until the files of a source change. Files are compared by name, length and time, since many parallel file
//! systems report no changes that other hosts make.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::interrupt;

/// Interval at which signals are noticed.
const TICK: Duration = Duration::from_millis(50);

/// Minimum and maximum interval between two looks at the files.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Share of the time that is spent on looking, as a divisor.
const SHARE: u32 = 4;

/// Interval after which files are read again although they seem unchanged, if some were not whole: the process that has
/// closed one may have changed only its lock.
const LOCK_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum depth of folders below a source.
const MAX_DEPTH: usize = 6;

/// The state of a source's files when they were last read.
pub(super) struct FileWatch {
    root: PathBuf,
    seen: u64,
}

impl FileWatch {
    /// Notes the state of the files of a path or pattern. To be called before they are read.
    pub(super) fn begin(source: &Path) -> Self {
        let is_pattern = |path: &Path| path.to_string_lossy().contains(['*', '?', '%', '{']) && !path.exists();
        let root = source.ancestors().find(|path| !is_pattern(path)).unwrap_or(source);
        let root = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root.to_owned() };
        Self { seen: state(&root), root }
    }

    /// Blocks until the files have changed, or may have become whole if `some_left_out`, or a signal requests the end.
    /// `cost` is the time that a look at the files and their headers takes.
    pub(super) fn wait(self, cost: Duration, some_left_out: bool) {
        let interval = (cost * SHARE).clamp(INTERVALS.0, INTERVALS.1);
        let begun = Instant::now();
        loop {
            let until = Instant::now() + interval;
            while Instant::now() < until {
                if interrupt::is_requested() {
                    return;
                }
                std::thread::sleep(TICK);
            }
            if state(&self.root) != self.seen || some_left_out && begun.elapsed() > LOCK_INTERVAL {
                return;
            }
        }
    }
}

/// Returns a number that changes with the files below a path.
fn state(root: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut paths = vec![(root.to_owned(), 0)];
    while let Some((path, depth)) = paths.pop() {
        let Ok(found) = std::fs::metadata(&path) else { continue };
        let changed = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        (&path, found.len(), changed).hash(&mut hasher);
        if found.is_dir() && depth < MAX_DEPTH {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            below.sort_unstable();
            paths.extend(below.into_iter().map(|path| (path, depth + 1)));
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_files() {
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("run").join("s_%T.{rank}.h5");
        let begun = FileWatch::begin(&source);
        assert_eq!(begun.root, root.path().join("run"));
        assert_eq!(state(&begun.root), begun.seen);
        std::fs::create_dir(root.path().join("run")).unwrap();
        let created = state(&begun.root);
        std::fs::write(root.path().join("run/s_1.0.h5"), b"1").unwrap();
        let written = state(&begun.root);
        std::fs::write(root.path().join("run/s_1.0.h5"), b"12").unwrap();
        let states = [begun.seen, created, written, state(&begun.root)];
        assert!(states.windows(2).all(|pair| pair[0] != pair[1]), "{states:?}");
    }
}
