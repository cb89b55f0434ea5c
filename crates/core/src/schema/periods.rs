//! Periods of the coordinates of a dataset that is clustered by space: those of its domain, in the order of the key.

use std::fmt;
use std::str::FromStr;

use super::columns::{DataType, SchemaError};

/// Whole numbers below this one are printed without a point or an exponent.
const EXACT: f64 = (1u64 << 53) as f64;

/// The periods of coordinates: at least one coordinate is periodic.
///
/// ```
/// use turbidite::Periods;
/// let periods: Periods = "128,,64".parse()?;
/// assert_eq!((periods.as_slice(), periods.to_string().as_str()), (&[Some(128.0), None, Some(64.0)][..], "128,,64"));
/// # Ok::<(), turbidite::SchemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Periods(Vec<Option<f64>>);

/// Periods are never NaN.
impl Eq for Periods {}

impl Periods {
    /// Creates periods: one for each coordinate, `None` where the domain is not periodic.
    ///
    /// # Errors
    /// [`SchemaError::Periods`] if a period is not finite and above zero, or no coordinate has one.
    pub fn new(periods: Vec<Option<f64>>) -> Result<Self, SchemaError> {
        let periods = Self(periods);
        if let Some(wrong) = periods.0.iter().flatten().find(|period| !is_period(**period)) {
            return Err(periods.wrong(format!("a period is finite and above zero, not {wrong}")));
        }
        if periods.0.iter().all(Option::is_none) {
            return Err(periods.wrong("no coordinate has a period; leave the periods out".to_owned()));
        }
        Ok(periods)
    }

    /// Returns the period of each coordinate, as stated.
    pub fn as_slice(&self) -> &[Option<f64>] {
        &self.0
    }

    /// Returns the periods of coordinates, of which some may have periods of a dataset.
    pub(crate) fn inherited(periods: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let periods: Vec<_> = periods.collect();
        periods.iter().any(Option::is_some).then_some(Self(periods))
    }

    /// Checks that coordinates of these types, and no others, have the periods.
    pub(super) fn check(&self, types: impl ExactSizeIterator<Item = DataType>) -> Result<(), SchemaError> {
        if types.len() != self.0.len() {
            let what = format!(
                "the key has {} coordinates, not {}; give a period for each, or nothing between the commas",
                types.len(),
                self.0.len()
            );
            return Err(self.wrong(what));
        }
        let rounded = |(period, data_type): (&Option<f64>, DataType)| period.map(|period| in_type(data_type, period));
        match self.0.iter().zip(types).filter_map(rounded).find(|period| !is_period(*period)) {
            Some(wrong) => Err(self.wrong(format!("a period is {wrong} when rounded to the type of its coordinate"))),
            None => Ok(()),
        }
    }

    /// Returns the error for periods that a dataset cannot have.
    pub(super) fn wrong(&self, what: String) -> SchemaError {
        SchemaError::Periods { text: self.to_string(), what }
    }
}

fn is_period(period: f64) -> bool {
    period.is_finite() && period > 0.0
}

/// Returns a period as values of a coordinate are compared with it: rounded to the type of a float column.
pub(super) fn in_type(data_type: DataType, period: f64) -> f64 {
    if data_type == DataType::F32 { f64::from(period as f32) } else { period }
}

impl FromStr for Periods {
    type Err = SchemaError;

    /// Parses one number for each coordinate, separated by commas, and nothing where the domain is not periodic.
    fn from_str(text: &str) -> Result<Self, SchemaError> {
        let parse = |stated: &str| match stated.trim() {
            "" => Ok(None),
            number => number.parse().map(Some).map_err(|_| SchemaError::Periods {
                text: text.to_owned(),
                what: format!("'{number}' is not a number"),
            }),
        };
        Self::new(text.split(',').map(parse).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Periods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, period) in self.0.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "," })?;
            match period {
                None => {}
                Some(whole) if whole.fract() == 0.0 && *whole < EXACT => write!(f, "{whole}")?,
                Some(period) => write!(f, "{period:?}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, Schema};

    #[test]
    fn periods_are_printed_as_they_are_parsed() {
        for text in ["128", "128,,64", ",0.1", ",,1.7976931348623157e308"] {
            let periods: Periods = text.parse().unwrap();
            assert_eq!(periods.to_string().parse::<Periods>().unwrap(), periods);
        }
        assert_eq!(" 128 , ,6.4e1".parse::<Periods>().unwrap().to_string(), "128,,64");
    }

    #[test]
    fn each_mistake_has_its_message() {
        let schema = || {
            let columns = [("x", DataType::F32), ("y", DataType::F64), ("z", DataType::I32)];
            let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
            Schema::new(columns, "space:x,y,z").unwrap()
        };
        let asked = |text: &str| text.parse::<Periods>().and_then(|periods| schema().with_periods(periods));
        for (text, expected) in [
            ("", "'' are not possible: no coordinate has a period; leave"),
            (",,", "',,' are not possible: no coordinate has a period"),
            ("a,,", "'a,,' are not possible: 'a' is not a number"),
            ("none,,1", "'none,,1' are not possible: 'none' is not a number"),
            ("0,,", "'0,,' are not possible: a period is finite and above zero, not 0"),
            ("1,-2,", "a period is finite and above zero, not -2"),
            ("1,nan,", "a period is finite and above zero, not NaN"),
            ("1,,1e999", "a period is finite and above zero, not inf"),
            ("1,1", "the key has 3 coordinates, not 2; give a period for each, or nothing between the commas"),
            ("1,1,1,1", "the key has 3 coordinates, not 4"),
            ("1e-60,1,1", "a period is 0 when rounded to the type of its coordinate"),
            ("1e60,1,1", "a period is inf when rounded"),
        ] {
            let error = asked(text).unwrap_err().to_string();
            assert!(error.starts_with("the periods '") && error.contains(expected), "{text}: {error}");
        }
        for text in ["1,1,1", "0.1,1e-60,", ",,2.5"] {
            assert_eq!(asked(text).unwrap().periods().unwrap().to_string(), text);
        }
        for key in ["x", "hash:z"] {
            let schema = Schema::new(schema().columns().to_vec(), key).unwrap();
            let error = schema.with_periods("1".parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains("only a key by space has periods"), "{error}");
        }
    }

    #[test]
    fn periods_are_those_of_their_columns_as_rounded() {
        let columns = [("x", DataType::F32), ("w", DataType::F32), ("y", DataType::F64)];
        let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
        let schema = Schema::new(columns, "space:y,x").unwrap();
        assert_eq!([0, 1, 2].map(|column| schema.period_of(column)), [None; 3]);
        let schema = schema.with_periods("0.1,0.1".parse().unwrap()).unwrap();
        let expected = [Some(f64::from(0.1f32)), None, Some(0.1)];
        assert_eq!([0, 1, 2].map(|column| schema.period_of(column)), expected);
    }
}
