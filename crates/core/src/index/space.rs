//! The definition of a spatial index: its coordinates, and its number of levels of detail.

use std::fmt;
use std::str::FromStr;

use super::columns::{check_names, position};
use super::entry::IndexedValues;
use crate::error::{Error, Result, UsageError};
use crate::schema::{ClusterKey, Clustering, Levels, MAX_LEVELS, Periods, Schema};
use crate::store::DatasetDescriptor;

/// Number of levels of detail above level 0, by default.
const DEFAULT_LEVELS: u8 = 3;

/// Maximum length of a definition's columns in bytes, since the index is a folder with their names.
const MAX_NAME_BYTES: usize = 200;

/// Text before the number of levels in a definition.
const LEVELS: &str = "levels=";

/// A spatial index: a copy of all records of an epoch, clustered by the place that two or three columns of numbers
/// state, with levels of detail. Cursors read it, and queries for boxes do where it is less to read.
///
/// ```
/// use turbidite::SpaceDefinition;
/// let places: SpaceDefinition = "space:x,y,z".parse()?;
/// assert_eq!((places.name().as_str(), places.columns().len()), ("space:x,y,z", 3));
/// assert_eq!("space:x,y,levels=2".parse::<SpaceDefinition>()?.levels(), Some(2));
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceDefinition {
    columns: Vec<String>,
    levels: Option<u8>,
}

/// The columns of a copy, which are those of the records in their order, and the values to copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyLayout {
    pub(crate) schema: Schema,
    pub(crate) values: IndexedValues,
}

impl SpaceDefinition {
    /// The beginning of a definition.
    const PREFIX: &str = "space:";

    /// Defines the index of two or three coordinates.
    ///
    /// # Errors
    /// A usage error if there are fewer or more, or one is listed twice or cannot be part of a folder's name.
    pub fn new(columns: Vec<String>) -> Result<Self> {
        let wrong = |what: String| Err(UsageError::Option { option: "index", what }.into());
        if !(2..=3).contains(&columns.len()) {
            return wrong(format!("a spatial index has two or three columns, not {}: space:x,y,z", columns.len()));
        }
        check_names(&columns, "a spatial index")?;
        let definition = Self { columns, levels: None };
        if definition.name().len() > MAX_NAME_BYTES {
            return wrong(format!("the name of a spatial index has at most {MAX_NAME_BYTES} bytes"));
        }
        Ok(definition)
    }

    /// Sets the number of levels of detail above level 0. The default is that of the index if it exists, or else 3.
    ///
    /// # Errors
    /// A usage error if it is not 1 to 6.
    pub fn with_levels(self, levels: u8) -> Result<Self> {
        if (1..=MAX_LEVELS).contains(&levels) {
            return Ok(Self { levels: Some(levels), ..self });
        }
        let what = format!("a spatial index has 1 to {MAX_LEVELS} levels of detail, not {levels}");
        Err(UsageError::Option { option: "index", what }.into())
    }

    /// Returns whether a text is meant as the definition of a spatial index.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(Self::PREFIX)
    }

    /// Returns the name of the index: its definition without the number of levels.
    pub fn name(&self) -> String {
        format!("{}{}", Self::PREFIX, self.columns.join(","))
    }

    /// Returns the names of the coordinates.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the number of levels of detail above level 0, if it is stated.
    pub fn levels(&self) -> Option<u8> {
        self.levels
    }

    /// Returns the definition of the index that has a copy with this schema. `None` if it is no copy.
    pub(crate) fn of_copy(copy: &Schema) -> Option<Self> {
        let levels = copy.levels().filter(|_| copy.clustering() == Clustering::Space)?.count;
        Self::new(copy.cluster_key().columns).ok()?.with_levels(levels).ok()
    }

    /// Returns the positions of the coordinates in a schema.
    ///
    /// # Errors
    /// A usage error if there is no such column.
    pub(crate) fn positions(&self, records: &Schema) -> Result<Vec<usize>> {
        let found = self.columns.iter().map(|name| position(records, name));
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Checks that records with a schema can be copied.
    ///
    /// # Errors
    /// A usage error if there is no such column; a schema error if a coordinate has no numbers.
    pub fn check(&self, records: &Schema) -> Result<()> {
        self.positions(records)?;
        Schema::clustered(records.columns().to_vec(), &self.key()).map(drop).map_err(Error::from)
    }

    fn key(&self) -> ClusterKey {
        ClusterKey { clustering: Clustering::Space, columns: self.columns.clone() }
    }
}

impl CopyLayout {
    /// Returns the layout of the copy of `records`. `existing` is the schema of the copy if it exists, whose levels are
    /// kept.
    ///
    /// # Errors
    /// As for [`SpaceDefinition::check`].
    pub(crate) fn new(
        definition: &SpaceDefinition,
        records: &DatasetDescriptor,
        existing: Option<&Schema>,
    ) -> Result<Self> {
        let coordinates = definition.positions(&records.schema)?;
        let known = existing.and_then(Schema::levels).map(|levels| levels.count);
        let count = definition.levels.or(known).unwrap_or(DEFAULT_LEVELS);
        let columns = records.schema.columns();
        let schema = Schema::clustered(columns.to_vec(), &definition.key())?;
        // All processes that make the copy choose the same rows.
        let schema = schema.with_levels(Levels::seeded(count, records.uuid))?;
        // A box of the copy wraps where one of the records does.
        let periods = coordinates.iter().map(|column| records.schema.stated_period(*column));
        let schema = match Periods::inherited(periods) {
            Some(periods) => schema.with_periods(periods)?,
            None => schema,
        };
        Ok(Self { schema, values: IndexedValues::of_all(columns) })
    }
}

impl FromStr for SpaceDefinition {
    type Err = Error;

    /// Parses `space:COLUMN,COLUMN[,COLUMN][,levels=N]`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::from(UsageError::Option { option: "index", what });
        let listed = text.strip_prefix(Self::PREFIX);
        let listed =
            listed.ok_or_else(|| wrong(format!("'{text}' is not the definition of a spatial index: space:x,y,z")))?;
        let mut columns: Vec<String> = listed.split(',').map(|name| name.trim().to_owned()).collect();
        let Some(levels) = columns.last().and_then(|last| last.strip_prefix(LEVELS)).map(str::to_owned) else {
            return Self::new(columns);
        };
        columns.pop();
        let count = levels.parse().map_err(|_| wrong(format!("'{levels}' is not a number of levels")))?;
        Self::new(columns)?.with_levels(count)
    }
}

impl fmt::Display for SpaceDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        self.levels.map_or(Ok(()), |levels| write!(f, ",{LEVELS}{levels}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, DataType};

    #[test]
    fn definitions_are_printed_as_they_are_parsed() {
        for text in ["space:x,y", "space:x,y,z", "space:ux,uy,uz,levels=1", "space:a b,c:d,levels=6"] {
            assert_eq!(text.parse::<SpaceDefinition>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_space_is_refused() {
        for text in [
            "space:",
            "space:x",
            "space:x,x",
            "space:x,y,z,w",
            "space:x,",
            "space:x,y/z",
            "space:x,y,levels=0",
            "space:x,y,levels=7",
            "space:x,y,levels=many",
            "space:levels=2,x,y",
            "x,y",
        ] {
            assert!(text.parse::<SpaceDefinition>().is_err(), "{text}");
        }
        let long = format!("space:{},y", "x".repeat(MAX_NAME_BYTES));
        assert!(long.parse::<SpaceDefinition>().is_err());
    }

    #[test]
    fn copies_have_the_columns_of_the_records() {
        let columns = vec![
            Column::new("energy", DataType::F32),
            Column::new("x", DataType::F32),
            Column::new("tag", DataType::FixedBytes(5)),
            Column::new("y", DataType::I16),
        ];
        let records = DatasetDescriptor::new(Schema::new(columns, "energy").unwrap().into());
        let layout = |text: &str, existing: Option<&Schema>| {
            CopyLayout::new(&text.parse().unwrap(), &records, existing).map(|layout| layout.schema)
        };
        let copy = layout("space:y,x", None).unwrap();
        assert_eq!((copy.columns(), copy.key_columns()), (records.schema.columns(), [3, 1].as_slice()));
        let definition = SpaceDefinition::of_copy(&copy).unwrap();
        assert_eq!(definition.to_string(), "space:y,x,levels=3");
        // Completing an index keeps its levels, and the rows of each.
        let other = layout("space:y,x,levels=2", None).unwrap();
        assert_eq!(layout("space:y,x", Some(&other)).unwrap().levels(), other.levels());
        assert_eq!(SpaceDefinition::of_copy(&records.schema), None);
        assert_eq!(copy.periods(), None);
        for text in ["space:x,tag", "space:x,z"] {
            assert!(layout(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn copies_have_the_periods_of_their_coordinates() {
        let columns = ["x", "y", "z", "ux"].map(|name| Column::new(name, DataType::F32)).to_vec();
        let schema = Schema::new(columns, "space:x,y,z").unwrap().with_periods("0.1,,64".parse().unwrap()).unwrap();
        let records = DatasetDescriptor::new(schema.into());
        let periods = |text: &str| {
            let layout = CopyLayout::new(&text.parse().unwrap(), &records, None).unwrap();
            layout.schema.rounded_periods().collect::<Vec<_>>()
        };
        let tenth = f64::from(0.1f32);
        assert_eq!(periods("space:x,y,z"), [Some(tenth), None, Some(64.0)]);
        assert_eq!(periods("space:z,x"), [Some(64.0), Some(tenth)]);
        assert_eq!(periods("space:ux,z"), [None, Some(64.0)]);
        assert_eq!(periods("space:y,ux"), [None; 2]);
    }
}
