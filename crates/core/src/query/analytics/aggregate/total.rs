//! The states of all groups, to which pieces are added.

use crate::error::{Error, Result};
use crate::query::analytics::aggregate::groups::FoundGroups;
use crate::query::analytics::aggregate::plan::Plan;
use crate::query::analytics::aggregate::states::{Piece, State};
use crate::query::analytics::aggregate::values;

/// All groups and their states.
#[derive(Debug, Clone)]
pub(super) struct Total {
    pub(super) groups: FoundGroups,
    /// Number of rows of each group.
    pub(super) counts: Vec<u64>,
    pub(super) states: Vec<State>,
    /// Number of rows that are in no bin.
    pub(super) outside: u64,
    /// Number of all rows.
    pub(super) rows: u64,
    /// Size of the values that are kept.
    pub(super) value_bytes: u64,
}

impl Total {
    /// Creates the total of no rows.
    ///
    /// # Errors
    /// A usage error for too many groups.
    pub(super) fn new(plan: &Plan, epochs: usize) -> Result<Self> {
        let groups = FoundGroups::new(&plan.groups, epochs)?;
        let states = plan.states.iter().map(|kind| kind.none(|expression| plan.expressions[expression].is_whole()));
        let states = states.collect();
        let mut total = Self { groups, counts: Vec::new(), states, outside: 0, rows: 0, value_bytes: 0 };
        total.grow(plan);
        Ok(total)
    }

    /// Adds the groups that have been found since.
    fn grow(&mut self, plan: &Plan) {
        let groups = self.groups.count();
        if groups > self.counts.len() {
            self.counts.resize(groups, 0);
            plan.states.iter().zip(&mut self.states).for_each(|(kind, state)| kind.grow(state, groups));
        }
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// A usage error for too many groups, and for values that are too large.
    pub(super) fn add(&mut self, plan: &Plan, epochs: &[u64], piece: Piece) -> Result<()> {
        if piece.rows == 0 {
            return Ok(());
        }
        let unknown = |_| Error::internal("a piece of an epoch that was not requested");
        let of_epoch = || epochs.binary_search(&piece.epoch).map_err(unknown);
        let number = if plan.groups.has_epoch() { of_epoch()? } else { 0 };
        let groups = self.groups.add(number, &piece.located)?;
        self.grow(plan);
        self.rows += piece.rows as u64;
        self.outside += piece.counts[0];
        let of_place = piece.counts.iter().zip(groups.iter()).enumerate().skip(1);
        let with_rows = of_place.filter(|(_, (rows, _))| **rows > 0);
        let places: Vec<(u32, u32)> = with_rows.map(|(place, (_, group))| (place as u32, *group)).collect();
        for (place, group) in &places {
            self.counts[*group as usize] += piece.counts[*place as usize];
        }
        for ((kind, all), state) in plan.states.iter().zip(&mut self.states).zip(piece.states) {
            self.value_bytes += state.value_bytes();
            values::check_bytes(self.value_bytes)?;
            kind.merge(all, state, &places, &groups)?;
        }
        Ok(())
    }
}
