//! Numbers that describe an epoch, such as its physical time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, UsageError};

/// Name of the attribute that is the physical time of an epoch.
pub const TIME_ATTRIBUTE: &str = "time";

/// Maximum number of attributes of an epoch. The directory of a manifest, which has them, is read by every query.
const MAX_ATTRIBUTES: usize = 256;

/// Maximum length of a name, and of a unit, in bytes.
const MAX_TEXT_BYTES: usize = 128;

/// The units in which a time may be stated, and how many make a second. These numbers are exact, so quotients are
/// rounded once.
const UNITS_PER_SECOND: [(&str, f64); 8] =
    [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("µs", 1e6), ("ns", 1e9), ("ps", 1e12), ("fs", 1e15), ("as", 1e18)];

/// A number that describes an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attribute {
    /// The value, which is finite.
    pub value: f64,
    /// The unit, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// The numbers that describe an epoch, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochAttributes(BTreeMap<String, Attribute>);

impl EpochAttributes {
    /// Sets an attribute. A `time` in one of the units s, ms, us, ns, ps, fs and as is kept in seconds.
    ///
    /// # Errors
    /// Usage errors: a value that is not finite, an empty or long name or unit, too many attributes.
    pub fn set(&mut self, name: &str, value: f64, unit: Option<&str>) -> Result<()> {
        let unit = unit.filter(|unit| !unit.is_empty());
        if name.is_empty() || name.len() > MAX_TEXT_BYTES || unit.is_some_and(|unit| unit.len() > MAX_TEXT_BYTES) {
            let what = format!("names have 1 to {MAX_TEXT_BYTES} bytes, and units at most {MAX_TEXT_BYTES}");
            return Err(refused(name, &what));
        }
        if !value.is_finite() {
            return Err(refused(name, &format!("{value} is not finite; omit an attribute that is not known")));
        }
        if self.0.len() >= MAX_ATTRIBUTES && !self.0.contains_key(name) {
            return Err(refused(name, &format!("an epoch has at most {MAX_ATTRIBUTES}")));
        }
        let known = UNITS_PER_SECOND.iter().find(|(known, _)| name == TIME_ATTRIBUTE && unit == Some(known));
        let (value, unit) = match known {
            Some((_, per_second)) => (value / per_second, Some("s")),
            None => (value, unit),
        };
        self.0.insert(name.to_owned(), Attribute { value, unit: unit.map(str::to_owned) });
        Ok(())
    }

    /// Returns the physical time of the epoch, in seconds if its unit was known; NaN if there is none.
    pub fn time(&self) -> f64 {
        self.0.get(TIME_ATTRIBUTE).map_or(f64::NAN, |time| time.value)
    }

    /// Returns an attribute.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.get(name)
    }

    /// Returns the attributes in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.0.iter().map(|(name, attribute)| (name.as_str(), attribute))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn refused(name: &str, what: &str) -> Error {
    UsageError::Option { option: "attribute", what: format!("'{name}': {what}") }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_in_seconds_and_other_attributes_as_stated() {
        let mut attributes = EpochAttributes::default();
        assert!(attributes.is_empty() && attributes.time().is_nan());
        for (value, unit, expected) in [
            (1.5, Some("fs"), (1.5e-15, Some("s"))),
            (3.0, Some("Myr"), (3.0, Some("Myr"))),
            (2.0, None, (2.0, None)),
            (2.0, Some(""), (2.0, None)),
        ] {
            attributes.set("time", value, unit).unwrap();
            let Attribute { value, unit } = attributes.get("time").unwrap();
            assert_eq!((*value, unit.as_deref()), expected);
        }
        attributes.set("dt", 1.5, Some("fs")).unwrap();
        assert_eq!(attributes.get("dt"), Some(&Attribute { value: 1.5, unit: Some("fs".to_owned()) }));
        assert_eq!((attributes.iter().count(), attributes.time()), (2, 2.0));
    }

    #[test]
    fn attributes_that_no_manifest_can_have_are_refused_by_name() {
        let mut attributes = EpochAttributes::default();
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        for (name, value, unit) in [
            ("a", f64::NAN, None),
            ("a", f64::INFINITY, None),
            ("", 1.0, None),
            (&*long, 1.0, None),
            ("a", 1.0, Some(&*long)),
        ] {
            let error = attributes.set(name, value, unit).unwrap_err().to_string();
            assert!(error.starts_with(&format!("attribute: '{name}': ")), "{error}");
        }
        for number in 0..MAX_ATTRIBUTES {
            attributes.set(&number.to_string(), 1.0, None).unwrap();
        }
        attributes.set("7", 2.0, None).unwrap();
        attributes.set("one more", 1.0, None).unwrap_err();
        assert_eq!(attributes.iter().count(), MAX_ATTRIBUTES);
    }
}
