//! The definition of an index: its column, how its entries are clustered, and the columns that they carry.

use std::fmt;
use std::str::FromStr;

use super::bitmap::BitmapDefinition;
use crate::error::{Error, UsageError};
use crate::schema::{ClusterKey, Clustering};
use crate::store::OVERVIEW_INDEX;

/// Text before the name of a carried column in a definition.
const CARRIES: &str = ",with=";

/// The definition of a value index: its column, the method that clusters its entries, and further columns that entries
/// carry. Queries for indexed and carried columns alone read no records.
///
/// ```
/// use turbidite::{Clustering, IndexDefinition};
/// let by_id: IndexDefinition = "hash:id".parse()?;
/// assert_eq!((by_id.column(), by_id.clustering()), ("id", Clustering::Hash));
/// assert_eq!("uy".parse::<IndexDefinition>()?.clustering(), Clustering::Range);
/// let tracks: IndexDefinition = "id,with=energy,with=ux".parse()?;
/// assert_eq!((tracks.name(), tracks.carried()), ("id", ["energy".to_owned(), "ux".to_owned()].as_slice()));
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    clustering: Clustering,
    column: String,
    carried: Vec<String>,
}

impl IndexDefinition {
    /// Defines the index of a column whose entries are clustered by a method.
    ///
    /// # Errors
    /// A usage error if the column's name cannot be the name of a folder, or if entries would be clustered by space.
    pub fn new(clustering: Clustering, column: impl Into<String>) -> Result<Self, Error> {
        let column = column.into();
        if clustering == Clustering::Space {
            let what = format!("'space:{column}' is no index of entries, which has one column");
            return Err(UsageError::Option { option: "index", what }.into());
        }
        let is_folder = !column.is_empty() && !column.starts_with('.') && !column.contains(['/', '\\', '\0', ',']);
        if !is_folder {
            let hint =
                if column.contains(',') { "; a column that entries carry is stated as ',with=COLUMN'" } else { "" };
            let what =
                format!("'{column}' cannot be indexed, since an index is a folder with the name of its column{hint}");
            return Err(UsageError::Option { option: "index", what }.into());
        }
        Ok(Self { clustering, column, carried: Vec::new() })
    }

    /// Adds columns that entries carry.
    ///
    /// # Errors
    /// A usage error for a column without a name, with a comma in its name, that is named twice, or that is indexed.
    pub fn carrying<I>(mut self, columns: I) -> Result<Self, Error>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        for column in columns.into_iter().map(Into::into) {
            let refused = |what: String| Err(UsageError::Option { option: "index", what }.into());
            if column.is_empty() || column.contains(',') {
                return refused(format!(
                    "'{column}' is no column that entries can carry; state each as ',with=COLUMN'"
                ));
            }
            if column == self.column || self.carried.contains(&column) {
                return refused(format!("index '{}' has '{column}' twice", self.column));
            }
            self.carried.push(column);
        }
        Ok(self)
    }

    /// Returns the name of the index, which is its column's.
    pub fn name(&self) -> &str {
        &self.column
    }

    /// Returns the name of the indexed column.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// Returns the names of the columns that entries carry besides it.
    pub fn carried(&self) -> &[String] {
        &self.carried
    }

    /// Returns the method that clusters the entries.
    pub fn clustering(&self) -> Clustering {
        self.clustering
    }

    /// Returns the cluster key of the entries.
    pub(crate) fn key(&self) -> ClusterKey {
        ClusterKey { clustering: self.clustering, columns: vec![self.column.clone()] }
    }
}

impl FromStr for IndexDefinition {
    type Err = Error;

    /// Parses `COLUMN`, `range:COLUMN` or `hash:COLUMN`, like a cluster key. `,with=COLUMN` follows for each column
    /// that entries carry.
    fn from_str(text: &str) -> Result<Self, Error> {
        if BitmapDefinition::is_meant(text) {
            let what = format!("'{text}' is a bitmap index, not the index of a column");
            return Err(UsageError::Option { option: "index", what }.into());
        }
        let mut parts = text.split(CARRIES);
        let ClusterKey { clustering, columns } = parts.next().unwrap_or_default().parse::<ClusterKey>()?;
        Self::new(clustering, columns.join(","))?.carrying(parts)
    }
}

impl fmt::Display for IndexDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_other = || BitmapDefinition::is_meant(&self.column) || self.column == OVERVIEW_INDEX;
        if self.clustering == Clustering::Range && is_other() {
            f.write_str("range:")?;
        }
        self.key().fmt(f)?;
        self.carried.iter().try_for_each(|column| write!(f, "{CARRIES}{column}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_printed_as_they_are_parsed() {
        for text in ["id", "hash:id", "uy", "range:bitmap:x", "id,with=energy", "hash:id,with=ux,with=a=b"] {
            assert_eq!(text.parse::<IndexDefinition>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn names_that_are_no_folders_are_refused() {
        for text in ["", ".", "..", "a/b", "hash:a,b", "hash:", "bitmap:ux", ",with=energy"] {
            assert!(text.parse::<IndexDefinition>().is_err(), "{text}");
        }
    }

    #[test]
    fn carried_columns_are_named_once_and_one_by_one() {
        for text in ["id,with=", "id,with=id", "id,with=ux,with=ux", "id,with=ux,uy", "id,ux"] {
            let error = text.parse::<IndexDefinition>().unwrap_err().to_string();
            assert!(error.contains(",with=COLUMN") || error.contains("twice"), "{text}: {error}");
        }
    }
}
