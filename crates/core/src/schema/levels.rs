//! Levels of detail: samples of the records in files of their own, so that a query may begin with few records of every
//! place.

use uuid::Uuid;

use super::columns::{Column, MAX_LEVELS, SchemaError};

/// Bits of a seed. JSON numbers of this size are exact in every language.
const SEED_BITS: u32 = 53;

/// The levels of detail of a dataset: level k and above have one row in 8^k.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Number of levels above level 0.
    pub count: u8,
    /// The seed by which the rows of a level are chosen.
    pub seed: u64,
}

impl Levels {
    /// Creates levels with a random seed.
    pub fn new(count: u8) -> Self {
        Self::seeded(count, Uuid::new_v4())
    }

    /// Creates levels whose seed follows from an identity.
    pub(crate) fn seeded(count: u8, identity: Uuid) -> Self {
        Self { count, seed: identity.as_u64_pair().1 & ((1 << SEED_BITS) - 1) }
    }

    pub(super) fn check(self, key: impl ToString, is_space: bool) -> Result<(), SchemaError> {
        if is_space && (1..=MAX_LEVELS).contains(&self.count) {
            return Ok(());
        }
        Err(SchemaError::Levels { key: key.to_string(), count: self.count })
    }
}

/// Returns the name of the folders of levels, before `=` and the number: a name that no column has, so that engines
/// show it as a column.
pub(super) fn folder_name(columns: &[Column]) -> String {
    let mut name = "level".to_owned();
    while columns.iter().any(|column| column.name.eq_ignore_ascii_case(&name)) {
        name.push('_');
    }
    name
}

/// Parses the name of the folder of a level, such as `level=2`. Returns the level.
pub(crate) fn parse_level_folder(name: &str) -> Option<u8> {
    let (_, level) =
        name.strip_prefix("level")?.trim_start_matches('_').split_once('=').filter(|(rest, _)| rest.is_empty())?;
    let parsed: u8 = level.parse().ok()?;
    (parsed <= MAX_LEVELS && parsed.to_string() == level).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::DataType;

    #[test]
    fn folders_of_levels_hide_no_column() {
        let columns = |names: &[&str]| names.iter().map(|name| Column::new(*name, DataType::F32)).collect::<Vec<_>>();
        assert_eq!(folder_name(&columns(&["x", "y"])), "level");
        assert_eq!(folder_name(&columns(&["x", "Level"])), "level_");
        assert_eq!(folder_name(&columns(&["LEVEL_", "level"])), "level__");
    }

    #[test]
    fn names_of_folders_of_levels_are_canonical() {
        for (name, level) in [("level=0", 0), ("level=6", 6), ("level_=3", 3), ("level__=1", 1)] {
            assert_eq!(parse_level_folder(name), Some(level));
        }
        for name in
            ["level", "level=", "level=07", "level=7", "level=-1", "level=+1", "levels=1", "level_1=1", "epoch=1"]
        {
            assert_eq!(parse_level_folder(name), None, "{name}");
        }
    }
}
