//! The elements of a manifest: parts, kinds of runs, and column statistics.

use serde::{Deserialize, Serialize};

use crate::schema::Value;

/// The identity of a part file: the writing rank, and how often that rank rolled over to a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId {
    /// The receiver that wrote it.
    pub rank: u32,
    /// 0 for the first file, 1 for the next, …
    pub roll: u32,
}

impl PartId {
    /// Returns the file name: `part-00003.parquet`, or `part-00003-001.parquet` after a rollover.
    pub fn file_name(self) -> String {
        match self.roll {
            0 => format!("part-{:05}.parquet", self.rank),
            roll => format!("part-{:05}-{roll:03}.parquet", self.rank),
        }
    }

    /// Parses a file name; the inverse of [`PartId::file_name`].
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_prefix("part-")?.strip_suffix(".parquet")?;
        let (rank, roll) = stem.split_once('-').unwrap_or((stem, "0"));
        let id = Self { rank: rank.parse().ok()?, roll: roll.parse().ok()? };
        (id.file_name() == name).then_some(id)
    }
}

/// The kind of a run: the property that its records share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Records whose keys lay within the receiver's partition.
    Regular,
    /// Records that reached a receiver whose partition did not hold their key (any more).
    Stray,
    /// Records kept by a sender that got no credit in time (spills); sorted, but not partitioned.
    Unordered,
    /// Records whose key is NaN.
    NanKey,
}

impl RunKind {
    /// All kinds, by their codes.
    pub(crate) const ALL: [Self; 4] = [Self::Regular, Self::Stray, Self::Unordered, Self::NanKey];

    /// Returns the code of the kind in manifests and seals.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Regular => 0,
            Self::Stray => 1,
            Self::Unordered => 2,
            Self::NanKey => 3,
        }
    }

    /// Returns the kind of a code.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// Statistics of one column over the rows of one row group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnStatistics {
    /// Smallest and largest value that is not NaN; `None` when there is none, or for `fixed_bytes`.
    pub range: Option<(Value, Value)>,
    /// Number of NaN values.
    pub nan_count: u64,
}

/// One part file of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartEntry {
    /// The file.
    pub part: PartId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Offset of the page indexes and the footer: everything from here to the end is covered by `footer_checksum`.
    pub footer_offset: u64,
    /// xxh3-64 of the bytes from `footer_offset` to the end of the file.
    pub footer_checksum: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names_round_trip() {
        for part in [PartId { rank: 0, roll: 0 }, PartId { rank: 131_071, roll: 0 }, PartId { rank: 7, roll: 1234 }] {
            assert_eq!(PartId::parse(&part.file_name()), Some(part));
        }
        for name in ["part-0.parquet", "part-00000-000.parquet", "part-00000.parquet.tmp", "part--0001.parquet"] {
            assert_eq!(PartId::parse(name), None, "{name}");
        }
    }
}
