//! The access paths that a query may use, as requested.

use crate::index::SecondaryIndex;

/// Name of the access path without an index.
pub(super) const SCAN: &str = "scan";

/// Name of the access path by the caches.
pub(super) const LOOKUP: &str = "lookup";

/// The access paths that a query may use besides statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Use {
    /// The paths that are expected to read least.
    #[default]
    Automatic,
    /// None: rows are found by statistics alone.
    Scan,
    /// The index with this name, in each epoch in which it can answer the predicate.
    Index(String),
}

impl Use {
    /// Returns the use of an index, by its name or definition, or of none for the name `scan`.
    ///
    /// ```
    /// use turbidite::query::Use;
    /// assert_eq!(Use::named("hash:id"), Use::Index("id".to_owned()));
    /// assert_eq!(Use::named("space:x,y,levels=3"), Use::named("space:x,y"));
    /// assert_eq!(Use::named("scan"), Use::Scan);
    /// ```
    pub fn named(text: &str) -> Self {
        match text.parse::<SecondaryIndex>() {
            _ if text == SCAN => Self::Scan,
            Ok(definition) => Self::Index(definition.name()),
            Err(_) => Self::Index(text.to_owned()),
        }
    }

    /// Returns whether a query may use the index with this name.
    pub(super) fn allows(&self, name: &str) -> bool {
        match self {
            Self::Automatic => true,
            Self::Scan => false,
            Self::Index(required) => required == name,
        }
    }
}
