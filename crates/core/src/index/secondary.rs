//! The definition of an index of any family.

use std::fmt;
use std::str::FromStr;

use super::bitmap::BitmapDefinition;
use super::definition::IndexDefinition;
use super::overview::Overview;
use super::space::SpaceDefinition;
use crate::error::{Error, Result, UsageError};
use crate::schema::Schema;

/// An index that is made of records: of entries, by bitmaps, a spatial copy of them, or an overview of their levels.
///
/// ```
/// use turbidite::SecondaryIndex;
/// assert!(matches!("hash:id".parse()?, SecondaryIndex::Entries(_)));
/// assert!(matches!("bitmap:ux,uy".parse()?, SecondaryIndex::Bitmap(_)));
/// assert!(matches!("space:x,y,z".parse()?, SecondaryIndex::Space(_)));
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecondaryIndex {
    /// Entries of one column, in a dataset of their own.
    Entries(IndexDefinition),
    /// Bins of several columns, in a sidecar of each part.
    Bitmap(BitmapDefinition),
    /// A copy of the records by their place, in a dataset of its own.
    Space(SpaceDefinition),
    /// A copy of the highest level of detail, in a dataset of its own.
    Overview(Overview),
}

impl SecondaryIndex {
    /// Returns the name of the index.
    pub fn name(&self) -> String {
        match self {
            Self::Entries(definition) => definition.name().to_owned(),
            Self::Bitmap(definition) => definition.name(),
            Self::Space(definition) => definition.name(),
            Self::Overview(_) => Overview::NAME.to_owned(),
        }
    }

    /// Returns the definition of an index of entries.
    pub(crate) fn of_entries(&self) -> Option<&IndexDefinition> {
        if let Self::Entries(definition) = self { Some(definition) } else { None }
    }

    /// Returns the definition of a bitmap index.
    pub(crate) fn by_bitmaps(&self) -> Option<&BitmapDefinition> {
        if let Self::Bitmap(definition) = self { Some(definition) } else { None }
    }

    /// Checks that records with a schema can be indexed.
    ///
    /// # Errors
    /// A usage error if there is no such column, or its type cannot be indexed.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        match self {
            Self::Entries(definition) => definition.check(schema),
            Self::Bitmap(definition) => definition.positions(schema).map(drop),
            Self::Space(definition) => definition.check(schema),
            Self::Overview(overview) => overview.check(schema),
        }
    }

    /// Checks that the index can be made while records are written.
    ///
    /// # Errors
    /// A usage error for a spatial index, and for an overview.
    pub fn check_in_situ(&self) -> Result<(), UsageError> {
        let name = match self {
            Self::Entries(_) | Self::Bitmap(_) => return Ok(()),
            Self::Space(_) | Self::Overview(_) => self.name(),
        };
        let what = format!("'{name}' is made of whole epochs: 'turbidite index add DS {name}' after they are written");
        Err(UsageError::Option { option: "index", what })
    }
}

impl From<IndexDefinition> for SecondaryIndex {
    fn from(definition: IndexDefinition) -> Self {
        Self::Entries(definition)
    }
}

impl From<BitmapDefinition> for SecondaryIndex {
    fn from(definition: BitmapDefinition) -> Self {
        Self::Bitmap(definition)
    }
}

impl From<SpaceDefinition> for SecondaryIndex {
    fn from(definition: SpaceDefinition) -> Self {
        Self::Space(definition)
    }
}

impl From<Overview> for SecondaryIndex {
    fn from(overview: Overview) -> Self {
        Self::Overview(overview)
    }
}

impl FromStr for SecondaryIndex {
    type Err = Error;

    /// Parses `bitmap:COLUMN,…[,precision=DIGITS]` as [`BitmapDefinition`], `space:COLUMN,COLUMN,…[,levels=N]` as
    /// [`SpaceDefinition`], `overview` as [`Overview`], and any other text as [`IndexDefinition`].
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            text if BitmapDefinition::is_meant(text) => text.parse().map(Self::Bitmap),
            text if SpaceDefinition::is_meant(text) => text.parse().map(Self::Space),
            Overview::NAME => Ok(Self::Overview(Overview)),
            text => text.parse().map(Self::Entries),
        }
    }
}

impl fmt::Display for SecondaryIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(definition) => definition.fmt(f),
            Self::Bitmap(definition) => definition.fmt(f),
            Self::Space(definition) => definition.fmt(f),
            Self::Overview(_) => f.write_str(Overview::NAME),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, DataType};

    #[test]
    fn definitions_of_all_families_are_printed_as_they_are_parsed() {
        for text in [
            "id",
            "hash:id,with=ux",
            "range:bitmap:x",
            "bitmap:ux,uy",
            "bitmap:ux,precision=3",
            "space:x,y",
            "overview",
            "range:overview",
        ] {
            assert_eq!(text.parse::<SecondaryIndex>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn columns_without_numbers_are_refused() {
        let columns = vec![Column::new("tag", DataType::FixedBytes(4)), Column::new("ux", DataType::F32)];
        let schema = Schema::new(columns, "ux").unwrap();
        let check = |text: &str| text.parse::<SecondaryIndex>().unwrap().check(&schema);
        check("bitmap:ux").unwrap();
        check("ux").unwrap();
        for text in ["overview", "space:ux,tag", "space:ux,uy", "bitmap:tag", "bitmap:uy", "bitmap:ux,uy", "uy"] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
