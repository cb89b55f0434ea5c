//! Limits the space that a spool may take.
//!
//! One eighth of the file system stays free. If the file system is in memory, one eighth of the machine's memory and of
//! the memory limits of the process's control groups also stays free. The kernel kills a process that exceeds these
//! limits, long before an in-memory file system is full.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::notices::{self, Once};

/// The share of a resource that stays free, as a divisor.
const FREE_SHARE: u64 = 8;

/// Returns whether the spool may take `bytes` more.
///
/// # Errors
/// Returns the reason, as text that follows "the spool …".
pub(super) fn has_room(root: &Path, bytes: u64) -> Result<(), String> {
    let about = rustix::fs::statvfs(root).map_err(|error| unusable(&error.into()))?;
    // A file system without a limit reports zero blocks.
    let total = about.f_blocks.saturating_mul(about.f_frsize);
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    if total > 0 && free < bytes.saturating_add(total / FREE_SHARE) {
        // More room would not help.
        if !root.is_dir() {
            return Err(unusable(&rustix::io::Errno::NOTDIR.into()));
        }
        return Err(format!("is full: less than an eighth of its {} would remain free", megabytes(total)));
    }
    if !is_memory(root) {
        return Ok(());
    }
    let machine = machine_memory().into_iter().map(|memory| (memory, "the machine's memory"));
    let groups = group_memory(Path::new("/")).into_iter().map(|memory| (memory, "the control group's memory limit"));
    for (Memory { limit, available }, what) in machine.chain(groups) {
        if available < bytes.saturating_add(limit / FREE_SHARE) {
            return Err(format!(
                "is full: it is in memory, and less than an eighth of {what}, {}, would remain free",
                megabytes(limit)
            ));
        }
    }
    Ok(())
}

/// Returns the message for an error of a spool, as text that follows "the spool …".
pub(super) fn unusable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("is full: {error}"),
        _ => format!("cannot be used: {error}"),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Returns whether a file system keeps its files in memory.
fn is_memory(root: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::statfs(root).is_ok_and(|about| [TMPFS, RAMFS].contains(&(about.f_type as u64 & 0xffff_ffff)))
}

/// A memory limit, and the memory that is still available below the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    limit: u64,
    available: u64,
}

fn machine_memory() -> Option<Memory> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let bytes = |name: &str| Some(kilobytes(name)?.saturating_mul(1024));
    Some(Memory { limit: bytes("MemTotal")?, available: bytes("MemAvailable")? })
}

/// Returns the memory limits of this process's control groups, of cgroup versions 1 and 2. `root` contains `proc` and
/// `sys`.
fn group_memory(root: &Path) -> Vec<Memory> {
    let Ok(groups) = fs::read_to_string(root.join("proc/self/cgroup")) else { return Vec::new() };
    let system = root.join("sys/fs/cgroup");
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            found.extend(up_from(&system, path, version_2));
        } else if controllers.split(',').any(|one| one == "memory") {
            found.extend(up_from(&system.join("memory"), path, version_1));
        }
    }
    found
}

/// Returns the limits of a group and of all its ancestors. In a container some of these folders may not exist, and are
/// skipped.
fn up_from(system: &Path, path: &str, read: fn(&Path) -> Option<Memory>) -> Vec<Memory> {
    let mut folders: Vec<PathBuf> = vec![system.to_owned()];
    for name in Path::new(path) {
        folders.push(folders[folders.len() - 1].join(name));
    }
    folders.iter().filter_map(|folder| read(folder)).collect()
}

fn version_2(folder: &Path) -> Option<Memory> {
    let limit = number(&folder.join("memory.max"))?;
    let used = number(&folder.join("memory.current"))?;
    Some(memory(limit, used, reclaimable(&folder.join("memory.stat"), ["active_file", "inactive_file"])))
}

fn version_1(folder: &Path) -> Option<Memory> {
    let limit = number(&folder.join("memory.limit_in_bytes"))?;
    let used = number(&folder.join("memory.usage_in_bytes"))?;
    Some(memory(limit, used, reclaimable(&folder.join("memory.stat"), ["total_active_file", "total_inactive_file"])))
}

fn memory(limit: u64, used: u64, reclaimable: u64) -> Memory {
    Memory { limit, available: limit.saturating_sub(used.saturating_sub(reclaimable)) }
}

/// Reads a number from a file. Returns `None` for "max", which means no limit.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the size of the reclaimable page cache, which excludes files in memory.
fn reclaimable(path: &Path, names: [&str; 2]) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        names.contains(&name).then(|| value.parse::<u64>().ok())?
    };
    text.lines().filter_map(value).sum()
}

/// Notes why the spool refused a file.
pub(crate) fn note_full(root: &Path, why: &str) {
    notices::note(Once::Full, || {
        let root = root.display();
        format!(
            "the spool {root} {why}; further files are written to their original paths, and stay there after indexing"
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_file_is_no_spool_however_full_its_file_system_is() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("file", "")]);
        let reason = |path: &Path| has_room(path, u64::MAX).unwrap_err();
        assert!(reason(folder.path()).starts_with("is full: "));
        assert_eq!(reason(&folder.path().join("file")), "cannot be used: Not a directory (os error 20)");
    }

    #[test]
    fn limits_of_all_groups_count() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("proc/self/cgroup", "0::/job/step\n"),
                ("sys/fs/cgroup/job/memory.max", "1000\n"),
                ("sys/fs/cgroup/job/memory.current", "700\n"),
                ("sys/fs/cgroup/job/memory.stat", "anon 600\ninactive_file 30\nactive_file 20\nshmem 50\n"),
                ("sys/fs/cgroup/job/step/memory.max", "max\n"),
                ("sys/fs/cgroup/job/step/memory.current", "700\n"),
            ],
        );
        assert_eq!(group_memory(root.path()), [Memory { limit: 1000, available: 350 }]);
    }

    #[test]
    fn groups_of_version_1_are_known() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
                ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n"),
                ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1200\n"),
                ("sys/fs/cgroup/memory/job/memory.stat", "cache 300\ntotal_inactive_file 100\ntotal_active_file 0\n"),
            ],
        );
        let found = group_memory(root.path());
        assert_eq!(found[1], Memory { limit: 1000, available: 0 });
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn no_groups_are_no_limit() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(group_memory(root.path()), []);
    }
}
