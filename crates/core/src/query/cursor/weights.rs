//! The weights of rows: the number of rows that each row of a cursor stands for.
//!
//! Rows of level k and above are a sample with known probabilities, of which the weights are the inverses. In the
//! middle of level k, a part of its units has been read. There, a row has the weight of level k; elsewhere, rows of the
//! higher levels have that of level k + 1. Which is the case follows from the position of the row and the boxes of the
//! units of its run, so the weights of a region add up to its rows wherever it is.
//!
//! In the middle of the highest level, no rows stand for those of units that have not been read. The weights are then
//! unbiased over the seeds, but not in each region.

use crate::query::cursor::batch::CursorBatch;
use crate::query::cursor::level::LevelPlan;
use crate::query::cursor::places::ReadPlaces;

/// How much of its levels a cursor has returned.
#[derive(Debug)]
pub(super) enum Progress<'a> {
    /// Nothing from which weights follow.
    Unknown,
    /// All rows of a level and above.
    Whole(u8),
    /// Rows of the highest level, and their share of it if units were visited by their turns.
    Begun(u8, Option<f64>),
    /// All rows above a level, and those of the level in some of its units.
    Within(&'a LevelPlan),
}

impl Progress<'_> {
    /// Returns the weights of the rows of some batches, before they are normalised. Rows with a NaN coordinate have the
    /// weight 1.
    pub(super) fn weights(&self, batches: &[CursorBatch]) -> Vec<f64> {
        let read = match self {
            Self::Within(plan) => plan.read_rows(),
            _ => Vec::new(),
        };
        let places = match self {
            Self::Within(plan) => Some(ReadPlaces::new(plan.places(), &read)),
            _ => None,
        };
        let mut weights = Vec::with_capacity(batches.iter().map(|batch| batch.rows.num_rows()).sum());
        for batch in batches {
            let rows = batch.rows.num_rows();
            if !batch.has_places() {
                weights.extend(std::iter::repeat_n(1.0, rows));
                continue;
            }
            let found = match (self, &places) {
                (Self::Whole(level), _) => batch.stand_for(*level),
                (Self::Begun(level, Some(share)), _) => {
                    batch.stand_for(*level).map(|found| found.iter().map(|weight| weight / share).collect())
                }
                (Self::Within(plan), Some(places)) => within(batch, plan, places),
                (Self::Unknown | Self::Begun(..) | Self::Within(_), _) => None,
            };
            weights.extend(found.unwrap_or_else(|| vec![f64::NAN; rows]));
        }
        weights
    }

    /// Returns the ratio of the highest to the lowest share of rows that regions have returned. Infinite if regions
    /// have returned none.
    pub(super) fn density_ratio(&self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Whole(_) => Some(1.0),
            Self::Begun(..) => Some(f64::INFINITY),
            Self::Within(plan) => Some(plan.density_ratio()),
        }
    }
}

/// Returns the weights of the rows of a batch in the middle of a level. `None` if the rows' coordinates are unknown.
fn within(batch: &CursorBatch, plan: &LevelPlan, places: &ReadPlaces<'_>) -> Option<Vec<f64>> {
    let fine = batch.stand_for(plan.level)?;
    let Some(coarse) = batch.stand_for(plan.level + 1) else { return Some(fine) };
    let positions = batch.sampled.positions.as_deref()?;
    let of_row = |((fine, coarse), position): ((f64, f64), &[f64])| {
        let share = places.share_at(position, batch.run).unwrap_or_else(|| plan.share());
        share * fine + (1.0 - share) * coarse
    };
    let coordinates = plan.places().coordinates();
    Some(fine.into_iter().zip(coarse).zip(positions.chunks_exact(coordinates)).map(of_row).collect())
}
