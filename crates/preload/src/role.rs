//! The role of this process: it indexes, or it is a child of a process that indexes.
//!
//! Programs copy, compress and move their dumps by child processes, which load this library, too. A process indexes
//! unless one of its ancestors does: one that has initialised MPI or has written a matching file. Launchers, such as
//! shells and mpiexec, do neither.
//!
//! A process that indexes holds an unnamed file in memory, the ledger. Its descendants find the ledger in /proc, and
//! append the matching files that they write. The environment would not do, since programs start children with
//! environments of their own.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;

use crate::own_descriptors;

const NAME: &str = "turbidite-ledger";

/// The first byte of a ledger whose process indexes. A ledger that was only prepared for forked children is empty
/// there.
const CLAIMED: u8 = b'!';

/// Maximum size of a ledger. Further files of children are counted by nobody.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of ancestors that are searched.
const MAX_ANCESTORS: usize = 64;

static OWN: OnceLock<Option<File>> = OnceLock::new();

fn own() -> Option<&'static File> {
    OWN.get_or_init(|| {
        let created = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).ok()?;
        let file = File::from(own_descriptors::duplicate(created.as_fd()).unwrap_or(created));
        own_descriptors::mark(file.as_raw_fd());
        file.write_all_at(b" ", 0).ok()?;
        Some(file)
    })
    .as_ref()
}

/// Creates the ledger before the program forks, so that its children share it.
pub(crate) fn prepare() {
    own();
}

/// Records that this process indexes.
pub(crate) fn claim() {
    static CLAIM: std::sync::Once = std::sync::Once::new();
    CLAIM.call_once(|| {
        if let Some(file) = own() {
            // If this fails, children count as processes of their own.
            let _ = file.write_all_at(&[CLAIMED], 0);
        }
    });
}

/// Returns whether this process is a child of a process that indexes.
pub(crate) fn is_child() -> bool {
    parents().is_some()
}

/// Returns the ledger of the nearest ancestor that indexes, opened for appending.
fn parents() -> Option<&'static File> {
    static FOUND: OnceLock<Option<File>> = OnceLock::new();
    FOUND.get_or_init(|| ancestors().find_map(|process| ledger_of(process).filter(is_claimed))).as_ref()
}

fn is_claimed(ledger: &File) -> bool {
    let mut first = [0];
    ledger.read_exact_at(&mut first, 0).is_ok() && first[0] == CLAIMED
}

/// Returns the ids of this process's ancestors.
fn ancestors() -> impl Iterator<Item = u32> {
    let parent = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The process name in parentheses may contain any character. The state precedes the parent.
        let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
        (parent > 0).then_some(parent)
    };
    std::iter::successors(parent(&std::process::id()), parent).take(MAX_ANCESTORS)
}

/// Opens the ledger of another process.
fn ledger_of(process: u32) -> Option<File> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let prefix = format!("/memfd:{NAME}");
    let is_ledger =
        |path: &PathBuf| std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with(&prefix));
    let path = entries.flatten().map(|entry| entry.path()).find(is_ledger)?;
    File::options().read(true).append(true).open(path).ok()
}

/// Records that this process, a child or a fork of one that indexes, writes a matching file.
pub(crate) fn record(path: &Path) {
    let append = |mut ledger: &File| -> std::io::Result<()> {
        if ledger.metadata()?.len() < MAX_BYTES {
            let line = [path.as_os_str().as_encoded_bytes(), b"\n"].concat();
            ledger.write_all(&line)?;
        }
        Ok(())
    };
    let forked = || {
        let own = OWN.get()?.as_ref()?;
        File::options().append(true).open(format!("/proc/self/fd/{}", own.as_raw_fd())).ok()
    };
    // A record that cannot be written is missing in a message only.
    let _ = match parents() {
        Some(ledger) => append(ledger),
        None => forked().map_or(Ok(()), |ledger| append(&ledger)),
    };
}

/// Returns the existing matching files that children of this process wrote, each once.
pub(crate) fn written_by_children() -> Vec<PathBuf> {
    let Some(Some(ledger)) = OWN.get() else { return Vec::new() };
    let bytes = ledger.metadata().map_or(0, |about| about.len());
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(0)];
    if ledger.read_exact_at(&mut content, 0).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(content.get(1..).unwrap_or_default()).into_owned();
    let mut paths: Vec<PathBuf> = text.lines().map(PathBuf::from).filter(|path| path.exists()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}
