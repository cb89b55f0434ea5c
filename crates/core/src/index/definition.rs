//! The definition of an index: its column, and how its entries are clustered.

use std::fmt;
use std::str::FromStr;

use super::bitmap::BitmapDefinition;
use crate::error::{Error, UsageError};
use crate::schema::{ClusterKey, Clustering};

/// What an index is made of: a column by whose value records are found, and the method that clusters the entries.
///
/// ```
/// use turbidite::{Clustering, IndexDefinition};
/// let by_id: IndexDefinition = "hash:id".parse()?;
/// assert_eq!((by_id.column(), by_id.clustering()), ("id", Clustering::Hash));
/// assert_eq!("uy".parse::<IndexDefinition>()?.clustering(), Clustering::Range);
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    clustering: Clustering,
    column: String,
}

impl IndexDefinition {
    /// Defines the index of a column whose entries are clustered by a method.
    ///
    /// # Errors
    /// A usage error if the column's name cannot be the name of a folder.
    pub fn new(clustering: Clustering, column: impl Into<String>) -> Result<Self, Error> {
        let column = column.into();
        let is_folder = !column.is_empty() && !column.starts_with('.') && !column.contains(['/', '\\', '\0', ',']);
        if !is_folder {
            let what = format!("'{column}' cannot be indexed, since an index is a folder with the name of its column");
            return Err(UsageError::Option { option: "index", what }.into());
        }
        Ok(Self { clustering, column })
    }

    /// Returns the name of the index, which is its column's.
    pub fn name(&self) -> &str {
        &self.column
    }

    /// Returns the name of the indexed column.
    pub fn column(&self) -> &str {
        &self.column
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

    /// Parses `COLUMN`, `range:COLUMN` or `hash:COLUMN`, like a cluster key.
    fn from_str(text: &str) -> Result<Self, Error> {
        if BitmapDefinition::is_meant(text) {
            let what = format!(
                "'{text}' is a bitmap index, which is made of committed epochs only: use 'turbidite index add' by itself"
            );
            return Err(UsageError::Option { option: "index", what }.into());
        }
        let ClusterKey { clustering, columns } = text.parse::<ClusterKey>()?;
        Self::new(clustering, columns.join(","))
    }
}

impl fmt::Display for IndexDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.clustering == Clustering::Range && BitmapDefinition::is_meant(&self.column) {
            f.write_str("range:")?;
        }
        self.key().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_printed_as_they_are_parsed() {
        for text in ["id", "hash:id", "uy", "range:bitmap:x"] {
            assert_eq!(text.parse::<IndexDefinition>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn names_that_are_no_folders_are_refused() {
        for text in ["", ".", "..", "a/b", "hash:a,b", "hash:", "bitmap:ux"] {
            assert!(text.parse::<IndexDefinition>().is_err(), "{text}");
        }
    }
}
