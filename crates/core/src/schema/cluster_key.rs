//! The cluster key: how the records of a dataset are divided among receivers, and ordered within a run.

use std::fmt;
use std::str::FromStr;

use super::columns::SchemaError;

/// The method by which records are divided among receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clustering {
    /// By ranges of the key. A receiver has all records of a range.
    Range,
    /// By the hash of the key. A receiver has all records of a key.
    Hash,
    /// By place: the key's columns are coordinates. A receiver has the records of a region of space.
    Space,
}

impl Clustering {
    /// Returns the name of the method, as in a cluster key and in `dataset.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Hash => "hash",
            Self::Space => "space",
        }
    }

    /// Returns the method of a name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Range, Self::Hash, Self::Space].into_iter().find(|method| method.name() == name)
    }
}

/// A clustering method with the columns that it applies to.
///
/// ```
/// use turbidite::{ClusterKey, Clustering};
/// let key: ClusterKey = "hash:id".parse()?;
/// assert_eq!((key.clustering, key.columns.as_slice()), (Clustering::Hash, &["id".to_owned()][..]));
/// assert_eq!("energy".parse::<ClusterKey>()?.to_string(), "energy");
/// # Ok::<(), turbidite::SchemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterKey {
    /// How records are divided among receivers.
    pub clustering: Clustering,
    /// The columns of the key, most significant first. By place: the coordinates.
    pub columns: Vec<String>,
}

impl ClusterKey {
    /// Returns the key that clusters by ranges of `column`.
    pub fn range(column: impl Into<String>) -> Self {
        Self { clustering: Clustering::Range, columns: vec![column.into()] }
    }
}

impl FromStr for ClusterKey {
    type Err = SchemaError;

    /// Parses `COLUMN`, `range:COLUMN`, `hash:COLUMN,…` or `space:COLUMN,COLUMN,…`. A column whose name begins like a
    /// method needs the prefix `range:`.
    fn from_str(text: &str) -> Result<Self, SchemaError> {
        let method = text.split_once(':').and_then(|(name, columns)| Some((Clustering::named(name)?, columns)));
        Ok(match method {
            None => Self::range(text),
            Some((Clustering::Range, column)) => Self::range(column),
            Some((clustering, columns)) => {
                Self { clustering, columns: columns.split(',').map(str::to_owned).collect() }
            }
        })
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.columns.join(",");
        let begins_like_a_method = columns.split_once(':').is_some_and(|(name, _)| Clustering::named(name).is_some());
        match self.clustering {
            Clustering::Range if !begins_like_a_method => f.write_str(&columns),
            clustering => write!(f, "{}:{columns}", clustering.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printed_as_they_are_parsed() {
        for text in
            ["energy", "hash:id", "hash:cpu,id", "space:x,y", "range:hash:id", "range:space:x", "range:range:x", "a:b"]
        {
            let key: ClusterKey = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
        }
        assert_eq!("range:energy".parse::<ClusterKey>().unwrap(), ClusterKey::range("energy"));
        assert_eq!("range:hash:id".parse::<ClusterKey>().unwrap(), ClusterKey::range("hash:id"));
        assert_eq!("hash:cpu,id".parse::<ClusterKey>().unwrap().columns, ["cpu", "id"]);
    }
}
