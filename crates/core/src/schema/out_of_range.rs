//! Counts of values that a column's type cannot represent.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts of values of a derived `f32` column that lie beyond the range of `f32`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutOfRange {
    /// Name of the column.
    pub column: String,
    /// Number of finite values that are too large. Infinities are stored instead.
    pub overflows: u64,
    /// Number of values other than zero that are too small: `f32` represents them as zero, or with a relative error of
    /// more than 2^-24, its usual maximum.
    pub underflows: u64,
}

impl OutOfRange {
    /// Adds counts to those of the same columns. The sum is sorted by column.
    pub fn add(sum: &mut Vec<Self>, more: &[Self]) {
        for counts in more {
            match sum.binary_search_by(|known| known.column.cmp(&counts.column)) {
                Ok(place) => {
                    let known = &mut sum[place];
                    known.overflows = known.overflows.saturating_add(counts.overflows);
                    known.underflows = known.underflows.saturating_add(counts.underflows);
                }
                Err(place) => sum.insert(place, counts.clone()),
            }
        }
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, overflows, underflows } = self;
        let counted = |count: u64| format!("{count} value{}", if count == 1 { "" } else { "s" });
        let large = format!("{} too large for f32 (stored as infinity)", counted(*overflows));
        let small = format!("{} too small for f32 (stored as 0 or with fewer digits)", counted(*underflows));
        let counts = [(*overflows, large), (*underflows, small)];
        let found: Vec<String> = counts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        write!(f, "column '{column}': {}; derive it as '{column}:f64=…'", found.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_by_column() {
        let of = |column: &str, overflows, underflows| OutOfRange { column: column.to_owned(), overflows, underflows };
        let mut sum = Vec::new();
        OutOfRange::add(&mut sum, &[of("uy", 1, 2)]);
        OutOfRange::add(&mut sum, &[of("ux", 0, 7), of("uy", 3, u64::MAX)]);
        assert_eq!(sum, [of("ux", 0, 7), of("uy", 4, u64::MAX)]);
    }

    #[test]
    fn a_line_names_the_column_and_what_to_do() {
        let of = |column: &str, overflows, underflows| OutOfRange { column: column.to_owned(), overflows, underflows };
        let texts = [
            "column 'ux': 7 values too small for f32 (stored as 0 or with fewer digits); derive it as 'ux:f64=…'",
            "column 'uy': 1 value too large for f32 (stored as infinity), 2 values too small for f32 (stored as 0 or with \
             fewer digits); derive it as 'uy:f64=…'",
        ];
        assert_eq!([of("ux", 0, 7), of("uy", 1, 2)].map(|counts| counts.to_string()), texts);
    }
}
