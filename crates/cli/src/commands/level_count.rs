//! The number of levels of detail of a new dataset: stated, or by the size of its largest epoch.

use std::path::Path;

use turbidite::{Dataset, LevelForecast, MAX_LEVELS, WriteOptions};

use crate::failure::Failure;
use crate::text;

/// A number of levels of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LevelCount {
    Stated(u8),
    /// As many as suit the largest epoch.
    Auto,
}

impl std::str::FromStr for LevelCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count| (1..=MAX_LEVELS).contains(count));
        count.map(Self::Stated).ok_or_else(|| format!("'{text}' is neither 1 to {MAX_LEVELS} nor 'auto'"))
    }
}

impl LevelCount {
    /// Returns the number that is stated, or 0.
    pub(super) fn stated(self) -> u8 {
        if let Self::Stated(count) = self { count } else { 0 }
    }

    /// Returns the levels for epochs of up to `rows` records of `row_bytes` bytes, if none are stated.
    pub(super) fn forecast(self, options: &WriteOptions, rows: u64, row_bytes: usize) -> Option<LevelForecast> {
        (self == Self::Auto).then(|| options.forecast_levels(rows, row_bytes))
    }
}

/// Returns the number of levels of a dataset that has been opened with this forecast, and the reason.
pub(super) fn note(dataset: &Path, forecast: LevelForecast) -> Result<String, Failure> {
    let found = Dataset::open(dataset)?.schema().top_level();
    if found != forecast.levels {
        return Ok(format!(
            "levels of detail: {found}, which the dataset has; a new one would have {}",
            forecast.levels
        ));
    }
    Ok(format!(
        "levels of detail: {found}; the highest has about {} of each of {} in the largest epoch",
        text::counted(forecast.highest_rows, "row", "rows"),
        text::counted(forecast.receivers.into(), "receiver", "receivers"),
    ))
}
