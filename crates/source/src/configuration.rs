//! The preload library's configuration, as `turbidite ingest --layout` reads it: a file with a `[[dataset]]` for each
//! dataset, which describes the source's files and the dataset that their records are written to.
//!
//! `crates/preload/src/config.rs` documents the settings. Settings that concern only the running program, such as
//! `mode` and `receivers`, are accepted and have no effect here.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use turbidite::IfExists;

use crate::checks::Texts;
use crate::error::{SourceContext, SourceError};
use crate::field::FieldLayout;
use crate::files::file_bytes;
use crate::pattern::FolderPattern;

/// Maximum size of a layout or configuration file. The limit avoids reading a whole data file that was given by
/// mistake.
const MAX_LAYOUT_BYTES: u64 = 1 << 20;

/// Reads a layout or configuration file.
pub(crate) fn read_text(path: &Path) -> Result<String, SourceError> {
    if file_bytes(path)? > MAX_LAYOUT_BYTES {
        return Err(SourceError::Layout { path: path.to_owned(), what: "too large for a layout file".into() });
    }
    std::fs::read_to_string(path).of("read", path)
}

/// Shows whether a file is a configuration: a layout has no datasets.
#[derive(Debug, Deserialize)]
struct Kind {
    dataset: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    dataset: Vec<DatasetEntry>,
    #[serde(rename = "quiet")]
    _quiet: Option<bool>,
}

/// A dataset of a configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetEntry {
    /// The pattern of the source's files.
    pub files: String,
    /// The dataset's folder.
    pub out: PathBuf,
    /// The cluster key.
    pub key: String,
    /// Derived columns.
    #[serde(default)]
    pub derive: Vec<String>,
    /// Columns that are not stored.
    #[serde(default)]
    pub drop: Vec<String>,
    /// Columns to index.
    #[serde(default)]
    pub index: Vec<String>,
    /// The format of the files.
    #[serde(default)]
    pub format: DumpFormat,
    /// Length of each file's header, in bytes.
    pub header_bytes: Option<u64>,
    /// Length of a record, in bytes, if it is longer than its fields.
    pub record_bytes: Option<usize>,
    /// Type and offset of a record count in each header.
    pub records: Option<String>,
    /// Bytes of each header.
    pub magic: Option<Texts>,
    /// The action for an epoch that exists.
    #[serde(default)]
    pub if_exists: Existing,
    /// Number of levels of detail of a new dataset.
    pub levels: Option<u8>,
    /// The column to which the levels are in proportion.
    pub level_weight: Option<String>,
    /// The periods of the coordinates.
    pub period: Option<String>,
    /// The columns of a record.
    #[serde(rename = "field", default)]
    pub fields: Vec<FieldLayout>,
    /// Numbers in each file's header, for derivations.
    #[serde(rename = "constant", default)]
    pub constants: Vec<FieldLayout>,
    #[serde(rename = "mode")]
    _mode: Option<IgnoredAny>,
    #[serde(rename = "spool")]
    _spool: Option<IgnoredAny>,
    #[serde(rename = "truncate_after")]
    _truncate_after: Option<IgnoredAny>,
    #[serde(rename = "any_source")]
    _any_source: Option<IgnoredAny>,
    #[serde(rename = "break_lock")]
    _break_lock: Option<IgnoredAny>,
    #[serde(rename = "files_per_epoch")]
    _files_per_epoch: Option<IgnoredAny>,
    #[serde(rename = "receivers")]
    _receivers: Option<IgnoredAny>,
    #[serde(rename = "memtable_bytes")]
    _memtable_bytes: Option<IgnoredAny>,
    #[serde(rename = "stall_s")]
    _stall_s: Option<IgnoredAny>,
}

/// The format of a dataset's files.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DumpFormat {
    /// Consecutive records after a header of fixed size.
    #[default]
    Records,
    /// VPIC particle dumps.
    Vpic,
    /// LAMMPS binary dumps.
    Lammps,
}

/// The setting `if_exists`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Existing {
    /// Fail.
    #[default]
    Error,
    /// Replace the epoch.
    Replace,
    /// Keep the epoch.
    Skip,
}

impl From<Existing> for IfExists {
    fn from(existing: Existing) -> Self {
        match existing {
            Existing::Error => Self::Error,
            Existing::Replace => Self::Replace,
            Existing::Skip => Self::Skip,
        }
    }
}

impl DatasetEntry {
    /// Returns the dataset of a configuration whose `out` is the given folder, or else the one whose files are below
    /// `source`. Returns `None` if the file is a layout.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if several datasets fit or none.
    pub fn choose(path: &Path, source: &Path, out: &Path) -> Result<Option<Self>, SourceError> {
        let text = read_text(path)?;
        let wrong = |what: String| SourceError::Layout { path: path.to_owned(), what };
        let parsed = |error: toml::de::Error| wrong(error.to_string());
        if toml::from_str::<Kind>(&text).map_err(parsed)?.dataset.is_none() {
            return Ok(None);
        }
        let mut datasets = toml::from_str::<Document>(&text).map_err(parsed)?.dataset;
        let known = datasets.iter().map(Self::describe).collect::<Vec<_>>().join(", ");
        if datasets.len() > 1 {
            let is_out = |entry: &Self| names_folder(&entry.out, out);
            match datasets.iter().filter(|entry| is_out(entry)).count() {
                0 => datasets.retain(|entry| entry.has_files_below(source)),
                _ => datasets.retain(is_out),
            }
        }
        let only = datasets.pop().filter(|_| datasets.is_empty());
        only.map(Some).ok_or_else(|| {
            wrong(format!("which dataset is {}? Set --out to the out of one of them: {known}", out.display()))
        })
    }

    fn describe(&self) -> String {
        format!("{} (files = \"{}\")", self.out.display(), self.files)
    }

    fn has_files_below(&self, source: &Path) -> bool {
        let finds = |pattern: &FolderPattern| pattern.find(source).is_ok_and(|found| !found.is_empty());
        FolderPattern::below(&self.files, source).is_ok_and(|patterns| patterns.iter().any(finds))
    }
}

/// Returns whether `written` names the folder `out`. A relative path is relative to the working directory of the
/// program, which is not known.
fn names_folder(written: &Path, out: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    let is_same = real(out).ok().zip(real(written).ok()).is_some_and(|(one, other)| one == other);
    let names: PathBuf = written.components().filter(|part| *part != Component::CurDir).collect();
    let ends = |out: std::io::Result<PathBuf>| out.is_ok_and(|out| out.ends_with(&names));
    is_same || names.is_relative() && (ends(real(out)) || ends(std::path::absolute(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "quiet = true\n[[dataset]]\nfiles = 'a.{epoch}.{rank}'\nout = './ds/a.tbd'\nkey = 'x'\nmode = \
                       'replace'\n[[dataset]]\nfiles = 'b.{epoch}.{rank}'\nout = 'b.tbd'\nkey = 'y'\nif_exists = \
                       'skip'\n";

    fn chosen(text: &str, files: &[&str], out: &str) -> Result<Option<String>, String> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("sim.toml");
        std::fs::write(&path, text).unwrap();
        for name in files {
            std::fs::write(root.path().join(name), [0; 4]).unwrap();
        }
        let found = DatasetEntry::choose(&path, root.path(), Path::new(out));
        found.map(|entry| entry.map(|entry| entry.key)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_dataset_is_chosen_by_its_folder_or_its_files() {
        let key = |key: &str| Ok(Some(key.to_owned()));
        assert_eq!(chosen("path = 'a.{epoch}'\n", &[], "x"), Ok(None));
        assert_eq!(chosen(TWO, &[], "/run/ds/a.tbd"), key("x"));
        assert_eq!(chosen(TWO, &["a.1.0"], "b.tbd"), key("y"));
        assert_eq!(chosen(TWO, &["a.1.0"], "other"), key("x"));
        let one = "[[dataset]]\nfiles = 'a.{epoch}'\nout = 'a.tbd'\nkey = 'x'\n";
        assert_eq!(chosen(one, &[], "other"), key("x"));
        let known = "sim.toml: which dataset is other? Set --out to the out of one of them: ./ds/a.tbd (files = \
                     \"a.{epoch}.{rank}\"), b.tbd (files = \"b.{epoch}.{rank}\")";
        for files in [&[][..], &["a.1.0", "b.1.0"]] {
            let message = chosen(TWO, files, "other").unwrap_err();
            assert!(message.ends_with(known), "{message}");
        }
        let message = chosen(&one.replace("key", "kay"), &[], "other").unwrap_err();
        assert!(message.contains("unknown field `kay`"), "{message}");
    }

    /// The examples have the settings that the library accepts.
    #[test]
    fn configurations_of_the_examples_are_read() {
        for name in ["vpic", "lammps"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{name}/turbidite.toml"));
            let document: Document = toml::from_str(&read_text(&path).unwrap()).unwrap();
            assert!(!document.dataset.is_empty());
        }
    }
}
