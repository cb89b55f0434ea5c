//! Aggregates that manifests state: extremes and numbers of NaN of columns, over whole epochs.

use crate::error::Result;
use crate::query::analytics::aggregate::groups::{GroupKind, Located};
use crate::query::analytics::aggregate::plan::Plan;
use crate::query::analytics::aggregate::states::{State, StateKind};
use crate::query::analytics::aggregate::total::Total;
use crate::query::analytics::matching::MatchingRows;
use crate::schema::Value;

/// Returns the column that each state is of, if manifests state all of them.
fn columns(rows: &MatchingRows<'_>, plan: &Plan) -> Option<Vec<usize>> {
    let of_state = |kind: &StateKind| match *kind {
        StateKind::Least(value) | StateKind::Greatest(value) | StateKind::Nan(value) => {
            plan.expressions[value].column()
        }
        _ => None,
    };
    let columns: Option<Vec<usize>> = plan.states.iter().map(of_state).collect();
    let by_epoch = plan.groups.terms.iter().all(|(_, kind)| matches!(kind, GroupKind::Epoch | GroupKind::Time));
    // Without states, the scan reads no record, either.
    columns.filter(|columns| by_epoch && !columns.is_empty() && rows.are_whole_epochs())
}

/// Returns the total from manifests alone, or nothing if records have to be read.
///
/// # Errors
/// Missing epochs; corrupt manifests.
pub(super) fn total(rows: &MatchingRows<'_>, plan: &Plan) -> Result<Option<Total>> {
    let Some(columns) = columns(rows, plan) else { return Ok(None) };
    let mut total = Total::new(plan, rows.epochs.len())?;
    for (number, &epoch) in rows.epochs.iter().enumerate() {
        rows.counters.check()?;
        let manifest = rows.dataset.manifest(epoch)?;
        let number = if plan.groups.has_epoch() { number } else { 0 };
        let group = total.groups.add(number, &Located::in_one_group(0))?[1] as usize;
        for entry in &manifest.row_groups {
            total.rows += entry.rows;
            total.counts[group] += entry.rows;
            for ((kind, state), column) in plan.states.iter().zip(&mut total.states).zip(&columns) {
                let Some(statistics) = entry.columns.one(*column) else { return Ok(None) };
                if statistics.range.is_none() && statistics.nan_count < entry.rows {
                    return Ok(None);
                }
                let is_least = matches!(kind, StateKind::Least(_));
                let end = statistics.range.map(|(least, most)| if is_least { least } else { most });
                match (state, end) {
                    (State::Counts(counts), _) => counts[group] += statistics.nan_count,
                    (State::Floats(all), Some(Value::Float(end))) => kind.add_extreme(&mut all[group], end),
                    (State::Integers(all), Some(Value::Int(end))) => {
                        all[group] = if is_least { end.min(all[group]) } else { end.max(all[group]) };
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(Some(total))
}
