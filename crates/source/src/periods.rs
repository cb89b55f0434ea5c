//! The periods that files state.

use serde::Deserialize;

/// The period of a coordinate, as the box of an epoch states it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum StatedPeriod {
    /// The length of the box.
    Length(f64),
    /// The reason why the coordinate has none.
    Missing(String),
}
