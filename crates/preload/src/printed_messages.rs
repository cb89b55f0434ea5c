//! Which messages ranks of this node have printed. Ranks that end without each other cannot agree on one of them that
//! prints, so they share a page of memory.
//!
//! Safety: the page is never unmapped, and all processes access it through atomics only.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::World;

/// Number of messages that are remembered. Each rank prints further ones.
const MESSAGES: usize = 512;

type Page = [AtomicU64; MESSAGES];

/// Hashes of the printed messages, followed by zeros. Not set if there is one rank, or no memory to share.
static PAGE: OnceLock<&'static Page> = OnceLock::new();

/// Shares a page with the other ranks of this node. `job` is a number that no other job has. Collective.
pub(crate) fn share(world: &World, job: u64) {
    if world.ranks() < 2 {
        return;
    }
    let path = format!("/dev/shm/turbidite-messages-{job:016x}");
    if let Ok(page) = map(Path::new(&path)) {
        let _ = PAGE.set(page);
    }
    // After this, every rank has opened the file. If ranks cannot agree, some of them print more.
    world.minimum(&mut [0]);
    let _ = fs::remove_file(path);
}

fn map(path: &Path) -> io::Result<&'static Page> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file: File = options.open(path)?;
    file.set_len(size_of::<Page>() as u64)?;
    // SAFETY: the file has the length of the mapping, and its name is known to this job only.
    let at = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), size_of::<Page>(), access, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mappings are aligned to pages, zeros are valid, and the mapping stays until the process ends.
    Ok(unsafe { &*at.cast::<Page>() })
}

/// Returns whether no rank of this node has printed the message, and records it as printed.
pub(crate) fn is_first(message: &str) -> bool {
    PAGE.get().is_none_or(|page| record(page, message))
}

fn record(page: &Page, message: &str) -> bool {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    let hash = hasher.finish().max(1);
    for slot in page {
        match slot.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(printed) if printed == hash => return false,
            Err(_) => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_see_what_the_others_have_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let [one, other] = [(); 2].map(|()| map(&path).unwrap());
        assert!(!std::ptr::eq(one, other));
        assert!(record(one, "a") && record(other, "b"));
        assert!(!record(other, "a") && !record(one, "b"));
        for number in 2..MESSAGES {
            assert!(record(one, &number.to_string()));
        }
        assert!(record(other, "one more") && record(other, "one more"), "what has no place is printed");
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [link, victim] = ["link", "victim"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(map(&link).is_err() && !victim.exists());
    }
}
