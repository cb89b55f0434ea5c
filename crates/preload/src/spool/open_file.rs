//! A spooled file that the program has open.
//!
//! Space is reserved in the spool before each write (`fallocate` with FALLOC_FL_KEEP_SIZE). The file system enforces
//! the reservation against all processes of the node, so they need not communicate. Closing the last descriptor
//! releases the unused space. If the space cannot be reserved, the file is copied to its original path. The program's
//! descriptors then refer to the copy, with the same offset, status flags and close-on-exec flag, so that the program
//! sees only errors of the original path.
//!
//! Invariants
//! - Other processes cannot take reserved space. Only truncating the file releases it.
//! - Every write and every move locks the state: within the process by the mutex, between processes by the move lock.
//! - A file that another process has moved no longer has a name in the spool. Each write first checks this, and makes
//!   the descriptors refer to the moved file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::folder::OwnFolder;
use super::free_space::{self, note_full};
use super::reservation::Reservation;
use super::system::{self, ByteLock, Identity};
use super::{Spooled, moving};

#[derive(Debug)]
pub(crate) struct OpenFile {
    spooled: Spooled,
    /// Our own open file description of the file, readable and writable.
    handle: File,
    folder: Arc<OwnFolder>,
    number: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    reservation: Reservation,
    descriptors: Vec<i32>,
    /// The file that the descriptors refer to, as long as the program has not closed them by a call that cannot be
    /// intercepted.
    identity: Identity,
    place: Place,
}

impl State {
    /// Forgets the descriptors that refer to another file now. We must not exchange those.
    fn drop_strangers(&mut self) {
        let identity = Some(self.identity);
        self.descriptors.retain(|&descriptor| Identity::of_descriptor(descriptor) == identity);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Spool,
    /// The file is at its original path.
    Own,
    /// The file has no name, since the program has removed it.
    Nowhere,
}

/// A guard that keeps the file from being moved, and its reservation from being used by other writes, until it is
/// dropped.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    _state: MutexGuard<'a, State>,
    _lock: Option<ByteLock<'a>>,
    in_spool: bool,
}

impl Writing<'_> {
    /// Returns whether the file is still in the spool.
    pub(crate) fn is_in_spool(&self) -> bool {
        self.in_spool
    }
}

impl OpenFile {
    /// Creates the state of a file that was opened as `descriptor`.
    pub(super) fn new(spooled: Spooled, descriptor: i32) -> io::Result<Self> {
        let folder = OwnFolder::existing(&spooled.root).ok_or(io::ErrorKind::NotFound)?;
        let handle = system::high(system::reopen(descriptor)?);
        let about = handle.metadata()?;
        let state = State {
            reservation: Reservation::of(&about),
            descriptors: vec![descriptor],
            identity: Identity::of(&about),
            place: Place::Spool,
        };
        Ok(Self { spooled, folder, number: about.ino(), handle, state: Mutex::new(state) })
    }

    pub(super) fn is(&self, spooled: &Spooled) -> bool {
        // A moved file is not the file that has since been created at its place in the spool.
        self.spooled == *spooled && self.state().place == Place::Spool
    }

    /// Records that the program has opened the file again, perhaps truncating it.
    pub(super) fn join(&self, descriptor: i32) {
        let mut state = self.state();
        let length = self.handle.metadata().map_or(0, |about| about.len());
        state.reservation.shrink(length);
        state.descriptors.push(descriptor);
    }

    /// Records that the program has closed a descriptor. Closing the last descriptor releases the unused reservation.
    pub(crate) fn leave(&self, descriptor: i32) {
        let mut state = self.state();
        state.descriptors.retain(|&one| one != descriptor);
        if state.descriptors.is_empty() && state.place == Place::Spool {
            // If this fails, the space is released when the file is removed.
            let _ = self.handle.metadata().and_then(|about| self.handle.set_len(about.len()));
            state.reservation.shrink(0);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares a call that may write `bytes` at `offset`, or without `offset` at the descriptor's offset or the end of
    /// the file.
    ///
    /// # Errors
    /// Returns the error of the original path, if the spool is full and the file cannot be moved there.
    pub(crate) fn write(&self, descriptor: i32, bytes: u64, offset: impl Into<Option<u64>>) -> io::Result<Writing<'_>> {
        let (mut state, lock) = self.lock()?;
        if state.place == Place::Spool {
            let length = self.handle.metadata()?.len();
            let begin = offset.into().unwrap_or_else(|| system::offset_of(descriptor).unwrap_or(length).max(length));
            let end = begin.saturating_add(bytes);
            if !state.reservation.covers(end) {
                if Identity::of_descriptor(descriptor) != Some(state.identity) {
                    state.descriptors.retain(|&one| one != descriptor);
                    return Ok(Writing { in_spool: false, _state: state, _lock: lock });
                }
                if let Err(why) = state.reservation.extend(&self.handle, &self.spooled.root, end) {
                    self.move_out(&mut state, &why)?;
                }
            }
        }
        Ok(Writing { in_spool: state.place == Place::Spool, _state: state, _lock: lock })
    }

    /// Moves the file to its original path, before a use that cannot be intercepted.
    pub(crate) fn move_to_own_place(&self) -> io::Result<()> {
        let (mut state, _lock) = self.lock()?;
        if state.place == Place::Spool { self.move_now(&mut state) } else { Ok(()) }
    }

    /// Moves the file to its original path after a call failed in the spool.
    pub(crate) fn recover(&self, error: &io::Error) -> io::Result<Writing<'_>> {
        let (mut state, lock) = self.lock()?;
        if state.place == Place::Spool {
            self.move_out(&mut state, &free_space::unusable(error))?;
        }
        Ok(Writing { in_spool: state.place == Place::Spool, _state: state, _lock: lock })
    }

    /// Runs a call that writes a stream's buffer to a descriptor, if neither the spool nor the original path has room
    /// for the buffer.
    pub(crate) fn while_full<T>(&self, descriptor: i32, closes: bool, call: impl FnOnce() -> T) -> T {
        system::while_full(descriptor, closes, call)
    }

    /// Records that the program has changed the file's length.
    pub(crate) fn truncated(&self, length: u64) {
        let mut state = self.state();
        state.reservation.shrink(length);
    }

    /// Records that the program has removed the file. The program may continue to use its descriptors.
    pub(crate) fn removed(&self) {
        self.state().place = Place::Nowhere;
    }

    /// Returns the file's place in the spool.
    pub(crate) fn spooled(&self) -> &Spooled {
        &self.spooled
    }

    /// Locks the file against other threads and processes, and checks whether another process has moved it.
    fn lock(&self) -> io::Result<(MutexGuard<'_, State>, Option<ByteLock<'_>>)> {
        let mut state = self.state();
        if state.place != Place::Spool {
            return Ok((state, None));
        }
        let lock = ByteLock::take(self.folder.moves(), self.number)?;
        if self.handle.metadata()?.nlink() > 0 {
            return Ok((state, Some(lock)));
        }
        drop(lock);
        state.drop_strangers();
        // If no file exists at the original path, the file was removed.
        state.place = match moving::exchange(&state.descriptors, self.spooled.path()) {
            Ok(identity) => {
                state.identity = identity;
                Place::Own
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Place::Nowhere,
            Err(error) => return Err(error),
        };
        Ok((state, None))
    }

    fn move_out(&self, state: &mut State, why: &str) -> io::Result<()> {
        note_full(&self.spooled.root, why);
        self.move_now(state)
    }

    fn move_now(&self, state: &mut State) -> io::Result<()> {
        state.drop_strangers();
        state.identity = moving::move_open(&self.spooled, &self.handle, &state.descriptors)?;
        state.place = Place::Own;
        state.reservation.shrink(0);
        Ok(())
    }
}
