//! The descriptors of our own files. The program knows nothing of them: its calls neither close nor replace them, and
//! the numbers that it expects to receive stay free for it.
//!
//! Our descriptors are above the limit of the program's (`RLIMIT_NOFILE`), which is raised for the moment in which one
//! is created. A call of the program with such a number fails as it would without this library.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::descriptor_set::DescriptorSet;

/// Maximum number of the first of our descriptors. The kernel's table is as long as the largest number demands.
const MAX: u64 = 1 << 14;

/// Number of descriptors that are free for ours above the program's limit, or below it if the limit cannot be raised.
const OURS: u64 = 1 << 10;

static OWN: DescriptorSet = DescriptorSet::new();

/// Duplicates a descriptor of ours to a number that the program does not use, and records the number.
///
/// # Errors
/// Returns an error if all of these numbers are in use.
pub(crate) fn duplicate(descriptor: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // The limit is raised by one thread at a time.
    static RAISED: Mutex<()> = Mutex::new(());
    let _raised = RAISED.lock();
    let limits = getrlimit(Resource::Nofile);
    let (current, most) = (limits.current.unwrap_or(MAX), limits.maximum.unwrap_or(u64::MAX));
    let needs_more = current <= MAX && current < most;
    let first = if needs_more || current > MAX { current.min(MAX) } else { current - current.min(OURS) / 3 };
    if needs_more {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most.min(current + OURS)), ..limits })?;
    }
    let high = rustix::io::fcntl_dupfd_cloexec(descriptor, i32::try_from(first).unwrap_or(i32::MAX));
    if needs_more {
        setrlimit(Resource::Nofile, limits)?;
    }
    let high = high?;
    mark(high.as_raw_fd());
    Ok(high)
}

/// Records that a descriptor belongs to one of our own files.
pub(crate) fn mark(descriptor: i32) {
    OWN.insert(descriptor);
}

/// Records that our own code has closed a descriptor.
pub(crate) fn unmark(descriptor: i32) {
    OWN.remove(descriptor);
}

/// Returns whether a descriptor belongs to one of our own files.
pub(crate) fn contains(descriptor: i32) -> bool {
    OWN.contains(descriptor)
}

/// Returns our own descriptors from `first` to `last`, in ascending order.
pub(crate) fn within(first: u32, last: u32) -> Vec<i32> {
    OWN.within(first, last)
}
