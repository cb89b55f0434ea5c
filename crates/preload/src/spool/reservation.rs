//! The space that is reserved in the spool for an open file.
//!
//! A write is made in the spool only after space for its bytes and a margin has been reserved, so that the write cannot
//! fail for lack of space.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{free_space, retained, system};

/// Bytes reserved beyond the end of a call's data, for writes of the C library that cannot be intercepted.
const MARGIN_BYTES: u64 = 64 << 10;

/// Minimum step by which a reservation grows. A step is half of the reserved bytes, within its bounds.
const MIN_STEP_BYTES: u64 = 256 << 10;

/// Maximum step by which a reservation grows.
const MAX_STEP_BYTES: u64 = 8 << 20;

/// The reserved bytes of a file, counted from its beginning.
#[derive(Debug)]
pub(super) struct Reservation {
    bytes: u64,
}

impl Reservation {
    /// Returns the reservation of an existing file: its length, or 0 if the file has holes.
    pub(super) fn of(about: &Metadata) -> Self {
        Self { bytes: if about.blocks() * 512 >= about.len() { about.len() } else { 0 } }
    }

    /// Returns whether the bytes up to `end` plus a margin are reserved.
    pub(super) fn covers(&self, end: u64) -> bool {
        end.saturating_add(MARGIN_BYTES) <= self.bytes
    }

    /// Reserves a file's bytes up to `end` plus a margin, in steps.
    ///
    /// # Errors
    /// Returns the reason if the spool at `root` has no room.
    pub(super) fn extend(&mut self, file: &File, root: &Path, end: u64) -> Result<(), String> {
        if self.covers(end) {
            return Ok(());
        }
        let least = end.saturating_add(MARGIN_BYTES);
        let step = (self.bytes / 2).clamp(MIN_STEP_BYTES, MAX_STEP_BYTES);
        let ample = least.max(self.bytes.saturating_add(step));
        if self.extend_to(file, root, ample).is_ok() {
            return Ok(());
        }
        self.extend_to(file, root, least)
    }

    fn extend_to(&mut self, file: &File, root: &Path, end: u64) -> Result<(), String> {
        let bytes = end - self.bytes;
        let reserve = || {
            free_space::has_room(root, bytes)?;
            system::reserve(file, self.bytes, bytes).map_err(|error| free_space::unusable(&error))
        };
        reserve().or_else(|why| if retained::remove_all() { reserve() } else { Err(why) })?;
        self.bytes = end;
        Ok(())
    }

    /// Records that no space is reserved beyond `length`, since the file was truncated or closed.
    pub(super) fn shrink(&mut self, length: u64) {
        self.bytes = self.bytes.min(length);
    }
}
