//! The periods of a dataset: stated, or those of the box in the files of the source.

use std::path::Path;
use std::str::FromStr;

use turbidite::{ClusterKey, Clustering, Dataset, Periods, Schema, SchemaError};
use turbidite_source::{Source, StatedPeriod};

use super::inspect::periods_in_words;
use crate::failure::Failure;

/// The option `--period`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatedPeriods {
    /// No periods, whatever the files state.
    None,
    Periods(Periods),
}

impl FromStr for StatedPeriods {
    type Err = SchemaError;

    fn from_str(text: &str) -> Result<Self, SchemaError> {
        if text.trim() == "none" { Ok(Self::None) } else { text.parse().map(Self::Periods) }
    }
}

/// Returns the schema with the periods that are stated, or else those of the box of the files, and a note on the
/// latter.
pub(super) fn added(
    stated: Option<&StatedPeriods>,
    schema: Schema,
    source: &Source,
    epochs: &[u64],
    dataset: &Path,
) -> Result<(Schema, Option<String>), Failure> {
    match stated {
        Some(StatedPeriods::Periods(periods)) => {
            let schema = schema.with_periods(periods.clone());
            Ok((schema.map_err(|error| Failure::Usage(format!("--period: {error}")))?, None))
        }
        Some(StatedPeriods::None) => Ok((schema, None)),
        None => of_source(schema, source, epochs, dataset),
    }
}

/// Returns the schema of a new dataset with the periods that its coordinates have in all of these epochs of the source,
/// and a note on them. Existing datasets keep their periods.
///
/// # Errors
/// Returns an error if the dataset exists with another period than the box of an epoch has.
fn of_source(
    schema: Schema,
    source: &Source,
    epochs: &[u64],
    dataset: &Path,
) -> Result<(Schema, Option<String>), Failure> {
    let ClusterKey { clustering, columns } = schema.cluster_key();
    if clustering != Clustering::Space || epochs.iter().all(|epoch| source.periods(*epoch).is_none()) {
        return Ok((schema, None));
    }
    // A dataset that cannot be opened is reported when the job opens it.
    let existing = Dataset::open(dataset).ok();
    if let Some(periods) = existing.as_ref().and_then(|dataset| dataset.schema().periods()) {
        return match conflict(source, epochs, &columns, periods) {
            None => Ok((schema, None)),
            Some(what) => Err(Failure::Usage(format!(
                "{}: {what}, so that boxes would wrap at wrong places; --period '{periods}' adds these epochs nevertheless",
                dataset.display()
            ))),
        };
    }
    let found: Vec<_> = columns.iter().map(|column| common(source, epochs, column)).collect();
    let missing = reasons(&columns, &found);
    let Ok(periods) = Periods::new(found.into_iter().map(Result::ok).collect()) else {
        let note = format!("no periods are set from the box of the files: {missing}; --period sets them");
        return Ok((schema, Some(note)));
    };
    if existing.is_some() {
        let note =
            format!("the box of the files has the periods '{periods}', and the dataset was created without periods");
        return Ok((schema, Some(note)));
    }
    let schema = schema.with_periods(periods)?;
    let words = periods_in_words(&schema).unwrap_or_default();
    let rest = if missing.is_empty() { missing } else { format!("; not {missing}") };
    Ok((schema, Some(format!("boxes wrap by the periods of the box of the files: {words}{rest}"))))
}

/// Returns the first difference between the periods of a dataset and the boxes of epochs.
fn conflict(source: &Source, epochs: &[u64], columns: &[String], periods: &Periods) -> Option<String> {
    let differs = |epoch: u64, column: &String, expected: &Option<f64>| {
        let (expected, stated) = ((*expected)?, source.periods(epoch)?.get(column)?);
        match stated {
            StatedPeriod::Length(length) if *length != expected => Some(format!(
                "the dataset has the period {expected} in {column}, and the box of epoch {epoch} has the length {length}"
            )),
            _ => None,
        }
    };
    let mut sides = columns.iter().zip(periods.as_slice());
    sides.find_map(|(column, expected)| epochs.iter().find_map(|epoch| differs(*epoch, column, expected)))
}

/// Returns the period that a column has in all epochs, or the reason why it has none.
fn common(source: &Source, epochs: &[u64], column: &str) -> Result<f64, String> {
    let mut first: Option<(u64, f64)> = None;
    for &epoch in epochs {
        let stated = source.periods(epoch).and_then(|periods| periods.get(column));
        match (stated, first) {
            (None, _) => return Err("not a coordinate of the files".to_owned()),
            (Some(StatedPeriod::Missing(reason)), _) => return Err(reason.clone()),
            (Some(StatedPeriod::Length(period)), None) => first = Some((epoch, *period)),
            (Some(StatedPeriod::Length(period)), Some((before, expected))) if *period != expected => {
                return Err(format!("the box has {expected} at epoch {before} and {period} at epoch {epoch}"));
            }
            _ => {}
        }
    }
    first.map(|(_, period)| period).ok_or_else(|| "no epoch is read".to_owned())
}

/// Returns the reasons why columns have no period. Neighbours among them with the same reason share it.
fn reasons(columns: &[String], found: &[Result<f64, String>]) -> String {
    let mut shared: Vec<(Vec<&str>, &str)> = Vec::new();
    for (column, period) in columns.iter().zip(found) {
        let Err(reason) = period else { continue };
        match shared.last_mut().filter(|(_, known)| known == reason) {
            Some((names, _)) => names.push(column),
            None => shared.push((vec![column], reason)),
        }
    }
    let texts: Vec<String> = shared.iter().map(|(names, reason)| format!("{} ({reason})", names.join(", "))).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_share_their_reasons() {
        let columns = ["x", "y", "z"].map(str::to_owned);
        let found = [Err("scaled".to_owned()), Ok(1.0), Err("scaled".to_owned())];
        assert_eq!(reasons(&columns, &found), "x, z (scaled)");
        let found = [Err("scaled".to_owned()), Err("scaled".to_owned()), Err("ff".to_owned())];
        assert_eq!(reasons(&columns, &found), "x, y (scaled), z (ff)");
        assert_eq!(reasons(&columns, &[Ok(1.0), Ok(1.0), Ok(1.0)]), "");
    }

    #[test]
    fn periods_are_stated_or_turned_off() {
        assert_eq!("none".parse(), Ok(StatedPeriods::None));
        assert_eq!("1,,2".parse::<StatedPeriods>(), Ok(StatedPeriods::Periods("1,,2".parse().unwrap())));
        assert!("none,1".parse::<StatedPeriods>().is_err());
    }
}
