//! The cost of exact numbers, and its limit.
//!
//! Manifests bound the columns that exact numbers read. Indexes may make it less, so plans are made and bins are counted
//! before a request is refused, but only then.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::query::analytics::axes::Columns;
use crate::query::analytics::matching::MatchingRows;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::plan::epoch_plan::{Planner, Sources};
use crate::query::plan::explain::explain_epoch;
use crate::query::scan::epoch_scan::choose;

/// Default budget: what is read from memory or a fast disk within about a second.
pub(in crate::query) const DEFAULT_BUDGET_BYTES: u64 = 1_000_000_000;

/// Rows that may be read, and the size of their columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Cost {
    /// Returns the cost of reading some bytes of each row.
    pub(super) fn of_rows(rows: u64, row_bytes: usize) -> Self {
        Self { rows, bytes: rows.saturating_mul(row_bytes as u64) }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { rows: self.rows.saturating_add(other.rows), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// The most that exact numbers may read.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    bytes: u64,
    /// The sources that the same request may have instead.
    others: Vec<&'static str>,
    /// Whether rows are read in the order of the records, so that no spatial index replaces them.
    is_in_order: bool,
}

impl Budget {
    /// Creates the budget of a histogram.
    pub(super) fn of_histogram(bytes: u64, rows: &MatchingRows<'_>, columns: &Columns<'_>) -> Self {
        let is_stored = columns.computed.is_empty() && rows.query.piece.is_none();
        let has_bounds = is_stored && columns.weights.is_none();
        let has_levels = is_stored && has_levels(rows.dataset);
        let others = [("bounds", has_bounds), ("levels", has_levels)];
        let others = others.into_iter().filter(|(_, is_one)| *is_one).map(|(name, _)| name).collect();
        Self { bytes, others, is_in_order: columns.weights.is_some() }
    }

    /// Creates the budget of quantiles, which no level estimates.
    pub(super) fn of_quantiles(bytes: u64) -> Self {
        Self { bytes, others: vec!["bounds"], is_in_order: true }
    }

    /// Returns whether a cost is within the budget.
    pub(super) fn covers(&self, cost: Cost) -> bool {
        cost.bytes <= self.bytes
    }

    /// Refuses a cost beyond the budget.
    ///
    /// # Errors
    /// A usage error that states the cost, a budget that suffices, and the other sources.
    pub(super) fn check(&self, cost: Cost) -> Result<()> {
        if self.covers(cost) {
            return Ok(());
        }
        let sources: Vec<String> = self.others.iter().map(|name| format!("'{name}'")).collect();
        let otherwise = match sources.is_empty() {
            true => "select fewer rows or epochs".to_owned(),
            false => format!("ask for the source {}, which approximates", sources.join(" or ")),
        };
        let (needed, budget) = (size_text(cost.bytes), size_text(self.bytes));
        let what = format!(
            "exact numbers would read up to {needed} of columns ({} rows), and the budget is {budget}; raise it to {} \
             bytes, or {otherwise}",
            cost.rows,
            rounded_up(cost.bytes)
        );
        Err(UsageError::Option { option: "budget", what }.into())
    }

    /// Refuses scans of some columns beyond the budget: one scan for each list.
    ///
    /// # Errors
    /// The error of [`Budget::check`]; usage errors for an invalid query; corrupt manifests; I/O errors.
    pub(super) fn check_scans(&self, rows: &MatchingRows<'_>, scans: &[&[usize]]) -> Result<()> {
        let sum = |is_planned: bool| {
            scans.iter().try_fold(Cost::default(), |sum, columns| {
                let cost = match is_planned {
                    true => rows.most_planned(columns, self.is_in_order),
                    false => rows.most_read(columns),
                };
                cost.map(|cost| sum.plus(cost))
            })
        };
        let most = sum(false)?;
        let may_be_less = rows.query.is_filtered() || rows.dataset.spatial_indexes().next().is_some();
        if self.covers(most) || !may_be_less {
            return self.check(most);
        }
        let planned = sum(true)?;
        // Plans read whole pages.
        self.check(if planned.bytes < most.bytes { planned } else { most })
    }
}

/// Returns whether there are levels of detail to estimate from.
fn has_levels(dataset: &IndexedCatalog) -> bool {
    dataset.schema.levels().is_some() || dataset.spatial_indexes().next().is_some()
}

impl MatchingRows<'_> {
    /// Returns the most that a scan of some columns reads, by manifests.
    ///
    /// # Errors
    /// Usage errors for an invalid query; missing epochs; corrupt manifests.
    pub(super) fn most_read(&self, columns: &[usize]) -> Result<Cost> {
        let (resolved, _) = self.resolve(columns)?;
        let mut rows = 0u64;
        for &epoch in self.epochs {
            self.counters.check()?;
            let manifest = self.dataset.scan_manifest(epoch, resolved.predicate_columns())?.manifest;
            for choice in choose(self.dataset, &resolved, &manifest) {
                let of_group = resolved.rows_of(choice.entry, manifest.row_groups[choice.entry].rows);
                rows = rows.saturating_add(of_group.end.saturating_sub(of_group.start));
            }
        }
        Ok(Cost::of_rows(rows, resolved.row_bytes()))
    }

    /// Returns the most that a scan of some columns reads, by its plan. What planning reads is not that of the request.
    ///
    /// # Errors
    /// The errors of plans.
    fn most_planned(&self, columns: &[usize], is_in_order: bool) -> Result<Cost> {
        let (resolved, _) = self.resolve(columns)?;
        let counters = Arc::new(Counters::default());
        let planner = Planner::new(self.dataset.clone(), resolved, counters.clone(), self.epochs.len());
        let planner = if is_in_order { planner } else { planner.in_any_order() };
        let mut cost = Cost::default();
        for &epoch in self.epochs {
            self.counters.check()?;
            let plan = explain_epoch(self.dataset, &planner, epoch, &counters, Sources::ALL)?;
            cost = cost.plus(Cost { rows: plan.rows_most, bytes: plan.bytes_most });
        }
        Ok(cost)
    }
}

/// Returns a size in decimal units, with three digits.
fn size_text(bytes: u64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    // 999.5 would be printed as 1000.
    while value >= 999.5 && unit + 1 < units.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        below if below < 9.995 => 2,
        below if below < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

/// Rounds a size up to two digits.
fn rounded_up(bytes: u64) -> u64 {
    let step = 10u64.pow(bytes.max(1).ilog10().saturating_sub(1));
    bytes.div_ceil(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_beyond_the_budget_is_refused_with_a_budget_that_suffices() {
        let cost = Cost::of_rows(1_052_500_000, 4);
        let budget = |bytes, others| Budget { bytes, others, is_in_order: false };
        let refused = budget(DEFAULT_BUDGET_BYTES, vec!["bounds", "levels"]).check(cost).unwrap_err().to_string();
        assert_eq!(
            refused,
            "budget: exact numbers would read up to 4.21 GB of columns (1052500000 rows), and the budget is 1.00 GB; \
             raise it to 4300000000 bytes, or ask for the source 'bounds' or 'levels', which approximates"
        );
        for bytes in [4_300_000_000, cost.bytes] {
            budget(bytes, Vec::new()).check(cost).unwrap();
        }
        let refused = budget(cost.bytes - 1, Vec::new()).check(cost).unwrap_err().to_string();
        assert!(refused.ends_with("or select fewer rows or epochs"), "{refused}");
    }

    #[test]
    fn sizes_are_rounded_up_to_two_digits() {
        for (bytes, rounded) in
            [(0, 0), (1, 1), (99, 99), (101, 110), (4_210_000_000, 4_300_000_000), (u64::MAX, u64::MAX)]
        {
            assert_eq!(rounded_up(bytes), rounded, "{bytes}");
        }
        assert_eq!(size_text(0), "0 bytes");
        assert_eq!(size_text(999_600), "1.00 MB");
        assert_eq!(size_text(12_340_000), "12.3 MB");
    }
}
