//! Row group pruning: selects the row groups of an epoch to read, from the manifest alone and without I/O.

use crate::expr::{Predicate, TruthValue};
use crate::format::EpochManifest;
use crate::query::catalog::key_ranges::KeyRanges;
use crate::query::rows::statistics::judge_run;

/// A row group that may hold matching rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) struct GroupChoice {
    /// Position of the row group in the manifest's list.
    pub(in crate::query) entry: usize,
    /// Whether all rows of the row group match.
    pub(in crate::query) is_exact: bool,
}

/// Returns the row groups of an epoch that may match, in the manifest's order. Without a predicate, all row groups
/// match. `keys` contains the key ranges of the row groups, and the key interval that the predicate allows. With
/// `keys`, the predicate is evaluated only for row groups whose range overlaps the interval.
pub(in crate::query) fn choose_groups(
    manifest: &EpochManifest,
    predicate: Option<&Predicate>,
    keys: Option<(&KeyRanges, (u64, u64))>,
) -> Vec<GroupChoice> {
    match keys {
        Some((keys, range)) => choose_among(manifest, predicate, keys.overlapping(range)),
        None => choose_among(manifest, predicate, 0..manifest.row_groups.len()),
    }
}

/// Returns those of the row groups at some positions that may match.
pub(in crate::query) fn choose_among(
    manifest: &EpochManifest,
    predicate: Option<&Predicate>,
    positions: impl Iterator<Item = usize>,
) -> Vec<GroupChoice> {
    let judge = |entry: usize| {
        let run = manifest.row_groups.get(entry).filter(|run| run.rows > 0)?;
        let truth =
            predicate.map_or(TruthValue::Always, |predicate| judge_run(run, manifest.epoch, predicate, |_| true));
        (truth != TruthValue::Never).then_some(GroupChoice { entry, is_exact: truth == TruthValue::Always })
    };
    positions.filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ColumnStatistics, RowGroupEntry};
    use crate::query::rows::pages::tests::entry;
    use crate::schema::{Column, DataType, Schema};

    fn predicate(text: &str) -> Predicate {
        let schema = Schema::new(vec![Column::new("energy", DataType::F64)], "energy").unwrap();
        Predicate::parse(text, &schema).unwrap()
    }

    /// Checks for any predicate that pruning by its key interval selects the same row groups as evaluating it for all
    /// of them.
    #[test]
    fn the_keys_side_by_side_choose_what_judging_each_does() {
        let schema = Schema::new(vec![Column::new("energy", DataType::F64)], "energy").unwrap();
        let order = schema.key_order();
        let mut runs: Vec<RowGroupEntry> =
            (0..60).map(|at| entry(10, (f64::from(at % 20) - 9.5, f64::from(at % 20 + at % 7) - 9.5), 0)).collect();
        runs[3].columns[0] = ColumnStatistics { range: None, nan_count: 10 };
        runs[9].columns[0].range = None;
        runs[12].columns[0].nan_count = 4;
        runs[14].rows = 0;
        let manifest = EpochManifest {
            partitions: None,
            indexed_commit: None,
            attributes: Default::default(),
            epoch: 5,
            commit: uuid::Uuid::nil(),
            parts: Vec::new(),
            row_groups: runs.into(),
            keys: Default::default(),
            metrics: Default::default(),
        };
        let keys = KeyRanges::of(&manifest, 0, order);
        let (mut narrowed, mut found) = (0, 0);
        for text in [
            "energy > 2",
            "energy >= -0.5 and energy < 3",
            "energy between 1 and 2 or energy < -7",
            "energy in (1.5, -4)",
            "not energy < 3",
            "energy != 1.5",
            "isnan(energy)",
            "energy > 1 or isnan(energy)",
            "energy + 1 > 4",
            "energy > 3 and energy < 2",
            "epoch = 5 and energy <= -9.5",
            "energy = 1e300",
        ] {
            let predicate = predicate(text);
            let plain = choose_groups(&manifest, Some(&predicate), None);
            found += plain.len();
            let Some((low, high)) = predicate.range_of(0) else { continue };
            narrowed += 1;
            let range = (order.ordinal_of(low), order.ordinal_of(high));
            assert_eq!(choose_groups(&manifest, Some(&predicate), Some((&keys, range))), plain, "{text}");
        }
        assert!(narrowed >= 6 && found > 60, "{narrowed}, {found}");
    }
}
