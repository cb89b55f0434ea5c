//! The definition of an index that is a dataset.

use std::fmt::Display;

use crate::error::{Result, UsageError};
use crate::index::{CopyLayout, EntryLayout, IndexDefinition, IndexedValues, Overview, SpaceDefinition};
use crate::runtime::WriteOptions;
use crate::schema::Schema;
use crate::store::DatasetDescriptor;

/// The kind of rows of an index's dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Entries,
    Copies,
    /// Copies of the rows of this level of detail, the highest one.
    Overview(u8),
}

impl Kind {
    /// Returns the lowest level of detail whose rows the index has.
    pub(super) fn least_level(self) -> u8 {
        match self {
            Self::Entries | Self::Copies => 0,
            Self::Overview(level) => level,
        }
    }
}

/// The contents of an index's dataset.
#[derive(Debug, Clone, Copy)]
pub(super) enum Definition<'a> {
    Entries(&'a IndexDefinition),
    /// Copies of the records.
    Space(&'a SpaceDefinition),
    /// Copies of those of the highest level of detail.
    Overview,
}

impl Definition<'_> {
    pub(super) fn name(self) -> String {
        match self {
            Self::Entries(definition) => definition.name().to_owned(),
            Self::Space(definition) => definition.name(),
            Self::Overview => Overview::NAME.to_owned(),
        }
    }

    pub(super) fn kind(self, records: &Schema) -> Kind {
        match self {
            Self::Entries(_) => Kind::Entries,
            Self::Space(_) => Kind::Copies,
            Self::Overview => Kind::Overview(records.top_level()),
        }
    }

    /// Returns the schema of the index of `records`, and the values that it has of them. `existing` is its schema if it
    /// exists.
    ///
    /// # Errors
    /// If the records cannot have this index, or it exists with other columns or levels. Opening its dataset finds
    /// other differences.
    pub(super) fn layout(
        self,
        records: &DatasetDescriptor,
        existing: Option<&Schema>,
    ) -> Result<(Schema, IndexedValues)> {
        let differs = |existing: &dyn Display, wanted: &dyn Display| {
            let what = format!("the index exists as '{existing}'; drop it to make it again as '{wanted}'");
            Err(UsageError::Option { option: "index", what }.into())
        };
        match self {
            Self::Entries(definition) => {
                let EntryLayout { schema, values } = EntryLayout::new(definition, &records.schema)?;
                if let Some(existing) = existing {
                    let existing = IndexDefinition::of_entries(definition.name(), existing)?;
                    if existing.carried() != definition.carried() {
                        return differs(&existing, definition);
                    }
                }
                Ok((schema, values))
            }
            Self::Space(definition) => {
                let CopyLayout { schema, values } = CopyLayout::new(definition, records, existing)?;
                let wanted = definition.levels();
                match existing.and_then(SpaceDefinition::of_copy) {
                    Some(existing) if wanted.is_some() && existing.levels() != wanted => differs(&existing, definition),
                    _ => Ok((schema, values)),
                }
            }
            Self::Overview => {
                let CopyLayout { schema, values } = Overview.layout(records)?;
                Ok((schema, values))
            }
        }
    }

    pub(super) fn writing(self, records: &DatasetDescriptor) -> WriteOptions {
        match self {
            Self::Entries(_) => WriteOptions::of_entries(1, records),
            Self::Space(_) | Self::Overview => WriteOptions::of_copies(records),
        }
    }
}
