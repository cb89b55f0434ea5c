//! The program's open spooled files, by descriptor. Forked children do not use this table, which another thread may
//! have locked.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{OpenFile, Spooled};
use crate::descriptor_set::DescriptorSet;

/// Descriptors of spooled files. Calls with any other descriptor take no lock.
static SPOOLED: DescriptorSet = DescriptorSet::new();

static FILES: Mutex<Option<HashMap<i32, Arc<OpenFile>>>> = Mutex::new(None);

fn files() -> MutexGuard<'static, Option<HashMap<i32, Arc<OpenFile>>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a descriptor may be that of a spooled file.
#[inline]
pub(crate) fn is_spooled(descriptor: i32) -> bool {
    SPOOLED.contains(descriptor)
}

/// Returns the descriptors from `first` to `last` that may be those of spooled files.
pub(crate) fn within(first: u32, last: u32) -> Vec<i32> {
    SPOOLED.within(first, last)
}

/// Returns the spooled file of a descriptor.
pub(crate) fn lookup(descriptor: i32) -> Option<Arc<OpenFile>> {
    is_spooled(descriptor).then(|| files().as_ref()?.get(&descriptor).cloned())?
}

/// Returns the open file of a place in the spool, if this process has that file open.
pub(crate) fn find_open(spooled: &Spooled) -> Option<Arc<OpenFile>> {
    files().as_ref()?.values().find(|file| file.is(spooled)).cloned()
}

/// Moves a file to its original path, whether or not this process has it open.
///
/// # Errors
/// Returns an error if the file cannot be moved. It then stays in the spool.
pub(crate) fn put_in_place(spooled: &Spooled) -> io::Result<()> {
    match find_open(spooled) {
        Some(file) => file.move_to_own_place(),
        None => spooled.put_in_place(),
    }
}

/// Adds a file that the program has opened in the spool, and reserves its first bytes. If the spool is full, the file
/// is moved to its original path and the descriptor refers to it there.
///
/// # Errors
/// Returns an error if neither the spool nor the original path can hold the file.
pub(crate) fn open(spooled: &Spooled, descriptor: i32) -> io::Result<()> {
    // If the descriptor number is in the table, its previous file was closed by a call that is not intercepted.
    close(descriptor);
    let mut all = files();
    let known = all.as_ref().and_then(|all| all.values().find(|file| file.is(spooled)).cloned());
    let file = match known {
        Some(file) => {
            file.join(descriptor);
            file
        }
        None => Arc::new(OpenFile::new(spooled.clone(), descriptor)?),
    };
    if !SPOOLED.insert(descriptor) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    all.get_or_insert_default().insert(descriptor, Arc::clone(&file));
    drop(all);
    let ready = file.write(descriptor, 0, 0).map(drop);
    if ready.is_err() {
        close(descriptor);
    }
    ready
}

/// Removes a descriptor from the table before it is closed. The number may be reused as soon as the descriptor is
/// closed.
pub(crate) fn take(descriptor: i32) -> Option<Arc<OpenFile>> {
    if !is_spooled(descriptor) {
        return None;
    }
    let mut all = files();
    SPOOLED.remove(descriptor);
    all.as_mut()?.remove(&descriptor)
}

fn close(descriptor: i32) {
    if let Some(file) = take(descriptor) {
        file.leave(descriptor);
    }
}

/// Returns the descriptors of all spooled files.
pub(crate) fn open_descriptors() -> Vec<i32> {
    files().as_ref().map_or_else(Vec::new, |all| all.keys().copied().collect())
}
