//! The parts that a receiver is writing: one for each level of detail that has records.

use crate::error::Result;
use crate::format::{KeyRangeCounts, MAX_RANK_RANGE_COUNTS, PartId, PartWriter, StageSeconds};
use crate::writer::factory::PartFactory;

/// The open parts of a receiver. They are created when their first records are written, and closed together.
///
/// The parts of all levels share one sequence of numbers, so rank and number still identify a part.
#[derive(Debug)]
pub struct OpenParts {
    rank: u32,
    next_roll: u32,
    /// The part of each level, from level 0.
    levels: Vec<Option<Box<PartWriter>>>,
}

impl OpenParts {
    /// Creates the list of a receiver without parts.
    pub(super) fn new(rank: u32) -> Self {
        Self { rank, next_roll: 0, levels: Vec::new() }
    }

    /// Returns whether no part is open.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(Option::is_none)
    }

    /// Returns the number of row groups of the part with the most.
    pub(super) fn row_groups(&self) -> u32 {
        self.levels.iter().flatten().map(|part| part.row_groups()).max().unwrap_or(0)
    }

    /// Returns the rank that writes the parts.
    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the open part of a level, which is created if there is none.
    ///
    /// # Errors
    /// If the file exists or cannot be created.
    fn get(&mut self, level: u8, factory: &PartFactory) -> Result<&mut PartWriter> {
        let index = usize::from(level);
        if self.levels.len() <= index {
            self.levels.resize_with(index + 1, || None);
        }
        let slot = &mut self.levels[index];
        match slot {
            Some(part) => Ok(part),
            None => {
                let part = factory.create_at(PartId { rank: self.rank, roll: self.next_roll }, level)?;
                self.next_roll += 1;
                Ok(slot.insert(Box::new(part)))
            }
        }
    }

    /// Appends to the part of a level, which is created if there is none. Adds the time and bytes to `metrics`.
    ///
    /// # Errors
    /// If the part cannot be created, and those of `append`.
    pub(super) fn append<T>(
        &mut self,
        level: u8,
        factory: &PartFactory,
        metrics: &mut StageSeconds,
        append: impl FnOnce(&mut PartWriter) -> Result<T>,
    ) -> Result<T> {
        let part = self.get(level, factory)?;
        let before = part.metrics();
        let result = append(part);
        *metrics += part.metrics() - before;
        result
    }

    /// Removes and returns the distribution of the keys written since the last call.
    pub(super) fn take_keys(&mut self) -> KeyRangeCounts {
        let mut parts = self.levels.iter_mut().flatten();
        let mut keys = parts.next().map(|part| part.take_keys()).unwrap_or_default();
        parts.for_each(|part| keys.extend(part.take_keys().take(), MAX_RANK_RANGE_COUNTS));
        keys
    }

    /// Removes the open parts, in the order of their numbers.
    pub(super) fn take(&mut self) -> Vec<PartWriter> {
        let mut parts: Vec<PartWriter> = self.levels.drain(..).flatten().map(|part| *part).collect();
        parts.sort_by_key(PartWriter::part);
        parts
    }
}
