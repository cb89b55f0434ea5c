//! The definition of an overview: a copy of the highest level of detail of each epoch, in few parts.

use super::entry::IndexedValues;
use super::space::CopyLayout;
use crate::error::{Result, UsageError};
use crate::schema::{Clustering, Schema};
use crate::store::{DatasetDescriptor, OVERVIEW_INDEX};

/// An overview: a copy of the rows of the highest level of detail of each epoch, clustered by the key of the records.
/// It has few parts, whatever the number of receivers. Cursors begin with it.
///
/// ```
/// use turbidite::{Overview, SecondaryIndex};
/// assert_eq!("overview".parse::<SecondaryIndex>()?, SecondaryIndex::Overview(Overview));
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overview;

impl Overview {
    /// The name of the index, and its definition.
    pub const NAME: &'static str = OVERVIEW_INDEX;

    /// Checks that records with a schema can have an overview.
    ///
    /// # Errors
    /// A usage error if they have no levels of detail, levels in proportion to a column, or a column that is called
    /// like the overview.
    pub fn check(self, records: &Schema) -> Result<()> {
        let refused = |what: String| Err(UsageError::Option { option: "index", what }.into());
        if records.levels().is_none() {
            return refused(
                "an overview is a copy of the highest level of detail, and the dataset has none; ingest into a new dataset \
                 with --key space:X,Y,Z and --levels"
                    .to_owned(),
            );
        }
        if let Some(weight) = records.level_weight_name() {
            return refused(format!(
                "the levels of detail are in proportion to '{weight}', in each run by other intervals, which an overview \
                 does not have; cursors read the records"
            ));
        }
        if records.index_of(Self::NAME).is_some() {
            let name = Self::NAME;
            return refused(format!("the dataset has a column '{name}', whose index has the name of the overview"));
        }
        Ok(())
    }

    /// Returns the layout of the overview of `records`: their columns and key, without levels.
    ///
    /// # Errors
    /// As for [`Overview::check`].
    pub(crate) fn layout(self, records: &DatasetDescriptor) -> Result<CopyLayout> {
        self.check(&records.schema)?;
        let columns = records.schema.columns();
        let schema = Schema::clustered(columns.to_vec(), &records.schema.cluster_key())?;
        let schema = match records.schema.periods() {
            Some(periods) => schema.with_periods(periods.clone())?,
            None => schema,
        };
        Ok(CopyLayout { schema, values: IndexedValues::of_all(columns) })
    }

    /// Returns whether the index with this name, whose dataset has this schema, is an overview.
    pub(crate) fn is_called(name: &str, copy: &Schema) -> bool {
        name == Self::NAME && copy.clustering() == Clustering::Space && copy.levels().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, DataType, Levels};

    fn schema(names: &[&str], key: &str) -> Schema {
        Schema::new(names.iter().map(|name| Column::new(*name, DataType::F32)).collect(), key).unwrap()
    }

    #[test]
    fn overviews_have_the_columns_the_key_and_the_periods_of_the_records() {
        let schema = schema(&["x", "e", "y"], "space:y,x").with_periods("2,".parse().unwrap()).unwrap();
        let records = DatasetDescriptor::new(schema.with_levels(Levels::new(3)).unwrap().into());
        let copy = Overview.layout(&records).unwrap().schema;
        assert_eq!((copy.columns(), copy.key_columns()), (records.schema.columns(), [2, 0].as_slice()));
        assert_eq!((copy.levels(), copy.periods()), (None, records.schema.periods()));
        assert!(Overview::is_called("overview", &copy));
        assert!(!Overview::is_called("space:y,x", &copy) && !Overview::is_called("overview", &records.schema));
    }

    #[test]
    fn records_without_even_levels_are_refused() {
        let of_space = || schema(&["x", "y"], "space:x,y");
        let weighted = of_space().with_levels(Levels::new(1)).unwrap().with_level_weight("x").unwrap();
        let of_name = schema(&["x", "y", "overview"], "space:x,y").with_levels(Levels::new(1)).unwrap();
        for (schema, word) in [
            (of_space(), "--levels"),
            (schema(&["x", "y"], "x"), "--levels"),
            (weighted, "in proportion to 'x'"),
            (of_name, "a column 'overview'"),
        ] {
            let error = Overview.check(&schema).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
