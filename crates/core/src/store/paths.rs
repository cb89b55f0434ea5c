//! The paths in a dataset's folder. This module does not access storage.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::error::{Error, UsageError};
use crate::format::PartEntry;
use crate::schema::Schema;

const EPOCH_PREFIX: &str = "epoch=";
const MANIFEST_SUFFIX: &str = ".arrow";

/// The paths of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetPaths {
    root: PathBuf,
}

/// Beginning of the names of folders of indexes that are being removed. No index's name begins with a dot.
pub(crate) const REMOVED_INDEX: &str = ".removed-";

/// The name of the index that has the rows of the highest level of detail.
pub(crate) const OVERVIEW_INDEX: &str = "overview";

/// The kind of a folder in `tmp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    /// An attempt to write an epoch that is in progress or was left by a crash. After an exchange, the replaced data.
    Attempt,
    /// Data set aside by a replacement with two renames. The commit in the name is the new one.
    SetAside,
    /// Data removed by a truncation.
    Removed,
}

impl Leftover {
    fn suffix(self) -> &'static str {
        match self {
            Self::Attempt => "",
            Self::SetAside => ".replaced",
            Self::Removed => ".removed",
        }
    }
}

impl DatasetPaths {
    /// Creates the paths of the dataset at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the root folder of the dataset.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of the Parquet files, which other tools open.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Returns the folder of an epoch's parts.
    pub fn epoch(&self, epoch: u64) -> PathBuf {
        self.data().join(format!("{EPOCH_PREFIX}{epoch}"))
    }

    /// Returns the path of a part of an epoch, in a dataset with this schema.
    pub fn part(&self, epoch: u64, entry: &PartEntry, schema: &Schema) -> PathBuf {
        self.epoch(epoch).join(entry.part.path_in_epoch(entry.level, schema))
    }

    /// Returns the folder of the control files, which contain no records.
    pub fn control(&self) -> PathBuf {
        self.root.join("_turbidite")
    }

    /// Returns the path of the descriptor: schema, key and identity.
    pub fn descriptor(&self) -> PathBuf {
        self.control().join("dataset.json")
    }

    /// Returns the path of the writer lock.
    pub fn lock(&self) -> PathBuf {
        self.control().join("lock")
    }

    /// Returns the folder of manifests.
    pub fn manifests(&self) -> PathBuf {
        self.control().join("manifest")
    }

    /// Returns the path of the manifest for one commit of an epoch.
    pub fn manifest(&self, epoch: u64, commit: Uuid) -> PathBuf {
        self.manifests().join(format!("{epoch}.{commit}{MANIFEST_SUFFIX}"))
    }

    /// Returns the folder of the dataset's indexes.
    pub fn indexes(&self) -> PathBuf {
        self.control().join("index")
    }

    /// Returns the paths of an index, which is a dataset of entries.
    #[must_use]
    pub fn index(&self, name: &str) -> Self {
        Self::new(self.indexes().join(name))
    }

    /// Returns the path of the description of an index by sidecars, whose folder this is.
    pub(crate) fn sidecar_index(&self) -> PathBuf {
        self.root.join("index.json")
    }

    /// Returns the folder of the sidecars of one commit of an epoch, in an index whose folder this is.
    pub(crate) fn sidecars(&self, epoch: u64, commit: Uuid) -> PathBuf {
        self.root.join(format!("{epoch}.{commit}"))
    }

    /// Returns a new folder for an index that is being removed. It is not an index.
    pub(crate) fn removed_index(&self) -> Self {
        Self::new(self.indexes().join(format!("{REMOVED_INDEX}{}", Uuid::new_v4())))
    }

    /// Returns the folder of unfinished work. Readers never open it.
    pub fn unfinished(&self) -> PathBuf {
        self.control().join("tmp")
    }

    /// Returns the folder in which one commit of an epoch is written.
    pub fn attempt(&self, epoch: u64, commit: Uuid) -> PathBuf {
        self.leftover(epoch, commit, Leftover::Attempt)
    }

    pub(super) fn leftover(&self, epoch: u64, commit: Uuid, leftover: Leftover) -> PathBuf {
        self.unfinished().join(format!("{epoch}.{commit}{}", leftover.suffix()))
    }
}

/// Returns the folders of the levels of detail in the folder of an epoch. There are none without levels.
pub(super) fn level_folders(folder: &Path, schema: &Schema) -> Vec<PathBuf> {
    (0..=schema.top_level()).filter_map(|level| Some(folder.join(schema.level_folder(level)?))).collect()
}

/// Parses an epoch label: a decimal number without sign or leading zeros.
pub fn parse_epoch(text: &str) -> Option<u64> {
    let epoch: u64 = text.parse().ok()?;
    (epoch.to_string() == text).then_some(epoch)
}

/// Parses the name of a folder in [`DatasetPaths::data`]. Returns its epoch.
pub(super) fn parse_epoch_folder(name: &str) -> Option<u64> {
    parse_epoch(name.strip_prefix(EPOCH_PREFIX)?)
}

fn parse_commit(text: &str) -> Option<(u64, Uuid)> {
    let (epoch, commit) = text.split_once('.')?;
    let parsed = Uuid::try_parse(commit).ok()?;
    // Only the canonical spelling is accepted: lower case, with hyphens and without braces.
    (parsed.to_string() == commit).then_some((parse_epoch(epoch)?, parsed))
}

/// Parses the name of a file in [`DatasetPaths::manifests`]. Returns its epoch and commit.
pub(super) fn parse_manifest(name: &str) -> Option<(u64, Uuid)> {
    parse_commit(name.strip_suffix(MANIFEST_SUFFIX)?)
}

/// Parses the name of a folder of sidecars. Returns the epoch and commit of their records.
pub(super) fn parse_sidecars(name: &str) -> Option<(u64, Uuid)> {
    parse_commit(name)
}

/// Parses the name of a folder in [`DatasetPaths::unfinished`]. Returns its epoch, commit and kind.
pub(super) fn parse_leftover(name: &str) -> Option<(u64, Uuid, Leftover)> {
    for leftover in [Leftover::SetAside, Leftover::Removed, Leftover::Attempt] {
        if let Some(stem) = name.strip_suffix(leftover.suffix()) {
            return parse_commit(stem).map(|(epoch, commit)| (epoch, commit, leftover));
        }
    }
    None
}

/// A range of epochs from `first` to `last`, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochRange {
    /// Lowest label.
    pub first: u64,
    /// Highest label.
    pub last: u64,
}

impl EpochRange {
    /// The range of all epochs.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// Returns the range of a single epoch.
    pub fn one(epoch: u64) -> Self {
        Self { first: epoch, last: epoch }
    }

    /// Returns whether the epoch lies in the range.
    pub fn contains(self, epoch: u64) -> bool {
        (self.first..=self.last).contains(&epoch)
    }
}

impl std::str::FromStr for EpochRange {
    type Err = Error;

    /// Parses `E` or `A..B`. Refuses a range that ends before it begins, which is probably a mistake.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = match text.split_once("..") {
            None => parse_epoch(text).map(Self::one),
            Some((first, last)) => parse_epoch(first).zip(parse_epoch(last)).map(|(first, last)| Self { first, last }),
        };
        let what = match parsed {
            Some(range) if range.first <= range.last => return Ok(range),
            Some(Self { first, last }) => format!("'{text}' ends before it begins; write {last}..{first}"),
            None => format!("'{text}' is neither an epoch such as 200 nor a range such as 0..200"),
        };
        Err(UsageError::Option { option: "epoch", what }.into())
    }
}

impl std::fmt::Display for EpochRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}..{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_plain_decimal_numbers() {
        for (text, epoch) in [("0", 0), ("200", 200), ("18446744073709551615", u64::MAX)] {
            assert_eq!(parse_epoch(text), Some(epoch));
            assert_eq!(parse_epoch_folder(&format!("epoch={text}")), Some(epoch));
        }
        for text in ["", "+1", "-1", "01", "00", "1 ", "1.0", "1e3", "0x1", "18446744073709551616", "١"] {
            assert_eq!(parse_epoch(text), None, "{text:?}");
        }
        assert_eq!(parse_epoch_folder("200"), None);
    }

    #[test]
    fn names_round_trip() {
        let paths = DatasetPaths::new("/ds");
        let commit = Uuid::from_u128(7);
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(parse_manifest(&name(paths.manifest(200, commit))), Some((200, commit)));
        for leftover in [Leftover::Attempt, Leftover::SetAside, Leftover::Removed] {
            assert_eq!(parse_leftover(&name(paths.leftover(3, commit, leftover))), Some((3, commit, leftover)));
        }
        for name in ["200.arrow", "x.00000000-0000-0000-0000-000000000007", "1.00000000000000000000000000000007"] {
            assert_eq!(parse_leftover(name), None, "{name}");
            assert_eq!(parse_manifest(name), None, "{name}");
        }
    }

    #[test]
    fn ranges_include_both_ends() {
        let range: EpochRange = "3..7".parse().unwrap();
        assert!(range.contains(3) && range.contains(7) && !range.contains(8) && !range.contains(2));
        assert_eq!("5".parse::<EpochRange>().unwrap(), EpochRange::one(5));
        for text in ["", "..", "1..", "..1", "7..3", "01", "1...2", "a..b"] {
            text.parse::<EpochRange>().unwrap_err();
        }
        assert_eq!(range.to_string(), "3..7");
    }
}
