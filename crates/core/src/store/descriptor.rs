//! `dataset.json`: the schema and identity of a dataset. The file is written once, and read by every reader and writer.
//!
//! The format is JSON, which people and other programs can read. The last field is the xxh3-64 of all bytes before that
//! field. The checksum detects any changed byte, even if the JSON is still valid.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::files::{create_dir_synced, write_synced};
use super::paths::DatasetPaths;
use crate::error::{Error, IoContext, Result};
use crate::format::{FORMAT_VERSION, check_version};
use crate::schema::{ClusterKey, Clustering, Column, Levels, Periods, Schema, SchemaError};
use crate::storage::{FileKind, Storage, read_all};

/// Maximum size of `dataset.json` in bytes, sufficient for the largest schema.
const MAX_BYTES: u64 = 16 << 20;

/// The content of `dataset.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetDescriptor {
    /// Identifier of the dataset. The footer of every part contains it.
    pub uuid: Uuid,
    /// Columns with their units, and the key.
    pub schema: Arc<Schema>,
    /// Definitions of derived columns, as `name = expression`.
    pub derivations: Vec<String>,
    /// Origin of the data, as free text.
    pub source: Option<String>,
    /// Names of features that a writer must know, but a reader need not. This release knows none.
    pub requires_to_write: Vec<String>,
}

/// The fields of the file, in file order. The checksum follows them.
#[derive(Debug, Serialize, Deserialize)]
struct Fields {
    format_version: u32,
    uuid: String,
    created_by: String,
    #[serde(default)]
    requires: Vec<String>,
    #[serde(default)]
    requires_to_write: Vec<String>,
    columns: Vec<Column>,
    clustering: StoredClustering,
    /// Levels of detail, with the feature of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    levels: Option<StoredLevels>,
    /// Periods of the coordinates, with the feature of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    periods: Option<Vec<Option<f64>>>,
    #[serde(default)]
    derivations: Vec<String>,
    #[serde(default)]
    source: Option<String>,
}

/// The feature of datasets with a key by hash that is not one integer. Older releases do not know such keys.
const WIDE_KEYS: &str = "wide_keys";

/// The feature of datasets with levels of detail. Older releases do not look for parts in folders of levels.
const LEVELS: &str = "levels";

/// The feature of datasets whose levels of detail are in proportion to a column. Older releases would take them for
/// even.
const LEVEL_WEIGHTS: &str = "level_weights";

/// The feature of datasets whose coordinates have periods. Older releases would not wrap boxes.
const PERIODS: &str = "periods";

/// Features that `requires` may name.
const KNOWN_FEATURES: [&str; 4] = [WIDE_KEYS, LEVELS, LEVEL_WEIGHTS, PERIODS];

/// The method that partitions and orders the rows, and its columns.
#[derive(Debug, Serialize, Deserialize)]
struct StoredClustering {
    method: String,
    columns: Vec<String>,
}

/// Levels of detail: the name of their folders, the seed of the sample, the number of levels above level 0, and the
/// column to which they are in proportion, with the feature of this name.
#[derive(Debug, Serialize, Deserialize)]
struct StoredLevels {
    folder: String,
    seed: u64,
    count: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<String>,
}

/// The fields that decide whether this release can decode the others.
#[derive(Debug, Deserialize)]
struct Header {
    format_version: u32,
    #[serde(default)]
    requires: Vec<String>,
}

/// Returns the end of the file, from the comma before the checksum.
pub(super) fn closing(covered: &[u8]) -> String {
    format!(",\n  \"checksum\": \"{:016x}\"\n}}\n", xxh3_64(covered))
}

impl DatasetDescriptor {
    /// Creates the descriptor of a new dataset.
    pub fn new(schema: Arc<Schema>) -> Self {
        Self { uuid: Uuid::new_v4(), schema, derivations: Vec::new(), source: None, requires_to_write: Vec::new() }
    }

    /// Encodes `dataset.json`.
    ///
    /// # Errors
    /// Errors of the JSON encoder. No schema causes one.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let ClusterKey { clustering, columns } = self.schema.cluster_key();
        let is_wide = clustering == Clustering::Hash && !self.schema.has_numeric_key();
        let (has_levels, is_weighted) = (self.schema.levels().is_some(), self.schema.level_weight().is_some());
        let is_periodic = self.schema.periods().is_some();
        let features =
            [(WIDE_KEYS, is_wide), (LEVELS, has_levels), (LEVEL_WEIGHTS, is_weighted), (PERIODS, is_periodic)];
        let requires = features.into_iter().filter(|(_, is_used)| *is_used).map(|(name, _)| name.to_owned()).collect();
        let fields = Fields {
            format_version: FORMAT_VERSION,
            uuid: self.uuid.to_string(),
            created_by: concat!("turbidite ", env!("CARGO_PKG_VERSION")).to_owned(),
            requires,
            requires_to_write: self.requires_to_write.clone(),
            columns: self.schema.columns().to_vec(),
            clustering: StoredClustering { method: clustering.name().to_owned(), columns },
            levels: self.stored_levels(),
            periods: self.schema.periods().map(|periods| periods.as_slice().to_vec()),
            derivations: self.derivations.clone(),
            source: self.source.clone(),
        };
        let mut text = serde_json::to_string_pretty(&fields)?;
        // The closing brace is appended again after the checksum.
        text.truncate(text.trim_end_matches(['}', '\n']).len());
        let end = closing(text.as_bytes());
        text.push_str(&end);
        Ok(text.into_bytes())
    }

    fn stored_levels(&self) -> Option<StoredLevels> {
        let Levels { count, seed } = self.schema.levels()?;
        let weight = self.schema.level_weight_name().map(str::to_owned);
        Some(StoredLevels { folder: self.schema.level_folders()?, seed, count, weight })
    }

    /// Decodes `dataset.json`. `path` is the path of the file, for error messages.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a byte was changed; [`Error::Version`] or [`Error::Feature`] if another release wrote
    /// the file.
    pub fn decode(bytes: &[u8], path: &std::path::Path) -> Result<Self> {
        let corruption = |what: &str| Error::corruption(path, what);
        let covered = bytes.len().checked_sub(closing(&[]).len()).map(|end| &bytes[..end]);
        let covered = covered.ok_or_else(|| corruption("it is too short"))?;
        if bytes[covered.len()..] != *closing(covered).as_bytes() {
            return Err(corruption("checksum mismatch; if it was edited by hand, undo the edit"));
        }
        let header: Header =
            serde_json::from_slice(bytes).map_err(|error| corruption(&format!("it has no format version: {error}")))?;
        check_version(header.format_version, path)?;
        let unknown = |feature: &String| Error::Feature { path: path.to_owned(), feature: feature.clone() };
        if let Some(feature) = header.requires.iter().find(|feature| !KNOWN_FEATURES.contains(&feature.as_str())) {
            return Err(unknown(feature));
        }
        let fields: Fields =
            serde_json::from_slice(bytes).map_err(|error| corruption(&format!("it cannot be decoded: {error}")))?;
        let StoredClustering { method, columns } = fields.clustering;
        let key = ClusterKey { clustering: Clustering::named(&method).ok_or_else(|| unknown(&method))?, columns };
        let schema = Schema::clustered(fields.columns, &key).map_err(|error| match error {
            // A newer release may have keys that this one refuses.
            SchemaError::HashedType { .. } | SchemaError::KeyColumns { .. } | SchemaError::KeyBytes { .. }
                if key.clustering != Clustering::Range =>
            {
                unknown(&format!("the key {key}"))
            }
            error => corruption(&error.to_string()),
        })?;
        let requires = |name: &str| header.requires.iter().any(|feature| feature == name);
        let weight =
            fields.levels.as_ref().and_then(|levels| levels.weight.clone()).filter(|_| requires(LEVEL_WEIGHTS));
        if requires(LEVEL_WEIGHTS) && weight.is_none() {
            return Err(corruption("it does not state the weight of its levels"));
        }
        let schema = match fields.levels.filter(|_| requires(LEVELS)) {
            Some(StoredLevels { folder, seed, count, .. }) => {
                let schema = schema.with_levels(Levels { count, seed });
                let schema = schema.map_err(|error| corruption(&error.to_string()))?;
                if schema.level_folders().as_ref() != Some(&folder) {
                    return Err(corruption(&format!("'{folder}' is not the name of its folders of levels")));
                }
                schema
            }
            None if requires(LEVELS) => return Err(corruption("it does not state its levels")),
            None => schema,
        };
        let schema = match fields.periods.filter(|_| requires(PERIODS)) {
            Some(periods) => Periods::new(periods)
                .and_then(|periods| schema.with_periods(periods))
                .map_err(|error| corruption(&error.to_string()))?,
            None if requires(PERIODS) => return Err(corruption("it does not state its periods")),
            None => schema,
        };
        let schema = match weight {
            Some(weight) => schema.with_level_weight(&weight).map_err(|error| corruption(&error.to_string()))?,
            None => schema,
        };
        let uuid = Uuid::try_parse(&fields.uuid).map_err(|error| corruption(&error.to_string()))?;
        Ok(Self {
            uuid,
            schema: Arc::new(schema),
            derivations: fields.derivations,
            source: fields.source,
            requires_to_write: fields.requires_to_write,
        })
    }

    /// Reads the descriptor of the dataset at `paths`.
    ///
    /// # Errors
    /// - [`Error::NotADataset`] if there is no dataset
    /// - [`Error::Corruption`] if the file is corrupt, or missing although there is data
    /// - [`Error::Version`]
    /// - I/O errors
    pub fn read(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Self> {
        let path = paths.descriptor();
        match read_all(storage, &path, MAX_BYTES) {
            Ok(bytes) => Self::decode(&bytes, &path),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(Self::missing(storage, paths)?)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Error::corruption(&path, error.to_string()))
            }
            Err(error) => Err(error).at("read", &path),
        }
    }

    /// Returns the error for a missing descriptor.
    fn missing(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Error> {
        let root = paths.root();
        let not = |what| Error::NotADataset { path: root.to_owned(), what };
        Ok(match storage.kind(root).at("look up", root)? {
            None => not("the folder does not exist"),
            Some(FileKind::File) => not("it is a file; use the folder that contains '_turbidite' and 'data'"),
            Some(FileKind::Directory) if !super::listing::list_epochs(storage, paths)?.is_empty() => {
                Error::corruption(&paths.descriptor(), "it is missing, but epochs exist")
            }
            Some(FileKind::Directory) if Self::is_data(storage, root)? => {
                not("it is the folder of a dataset's Parquet files; name the folder above")
            }
            Some(FileKind::Directory) => not("it has no '_turbidite/dataset.json'"),
        })
    }

    /// Returns whether a folder has the data of the dataset in the folder above it.
    fn is_data(storage: &dyn Storage, folder: &Path) -> Result<bool> {
        let dataset = DatasetPaths::new(super::files::parent(folder));
        let descriptor = dataset.descriptor();
        Ok(dataset.data() == folder && storage.kind(&descriptor).at("look up", &descriptor)?.is_some())
    }

    /// Opens the dataset, or creates it with the descriptor `wanted` if it does not exist. Only the holder of the lock
    /// may call this function.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the dataset exists with other columns, another key, other levels, periods or derivations;
    /// the errors of [`DatasetDescriptor::read`].
    pub fn open_or_create(storage: &dyn Storage, paths: &DatasetPaths, wanted: &Self) -> Result<Self> {
        match Self::read(storage, paths) {
            Ok(found) => {
                found.check_writable(paths)?;
                found.check_same(paths, wanted)?;
                Ok(found)
            }
            Err(Error::NotADataset { .. }) => {
                wanted.create(storage, paths)?;
                Ok(wanted.clone())
            }
            Err(error) => Err(error),
        }
    }

    fn create(&self, storage: &dyn Storage, paths: &DatasetPaths) -> Result<()> {
        let data = paths.data();
        if storage.kind(&data).at("look up", &data)?.is_some() && !storage.list(&data).at("list", &data)?.is_empty() {
            let what = "its folder 'data' has other files";
            return Err(Error::NotADataset { path: paths.root().to_owned(), what });
        }
        for folder in [paths.control(), paths.manifests(), paths.unfinished(), data] {
            create_dir_synced(storage, &folder)?;
        }
        let path = paths.descriptor();
        // The complete file appears atomically, by a rename. A draft left by a crash is removed first.
        let draft = paths.control().join("dataset.json.new");
        if storage.kind(&draft).at("look up", &draft)?.is_some() {
            storage.remove_file(&draft).at("remove", &draft)?;
        }
        write_synced(storage, &draft, &self.encode().at("encode", &path)?)?;
        storage.rename(&draft, &path).at("rename", &draft)?;
        storage.sync_dir(&paths.control()).at("sync", &paths.control())
    }

    /// Checks that this release may write the dataset at `paths`.
    ///
    /// # Errors
    /// [`Error::Feature`] with a feature that a writer must know.
    pub fn check_writable(&self, paths: &DatasetPaths) -> Result<()> {
        let unknown = |feature: &String| Error::Feature { path: paths.descriptor(), feature: feature.clone() };
        self.requires_to_write.first().map_or(Ok(()), |feature| Err(unknown(feature)))
    }

    /// Checks that this dataset has the columns and key of `wanted`, and its levels of detail, periods and derivations
    /// if there are any.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first difference.
    pub fn check_same(&self, paths: &DatasetPaths, wanted: &Self) -> Result<()> {
        let mismatch = |what: String| Err(Error::Mismatch { path: paths.root().to_owned(), what });
        let (ours, theirs) = (&self.schema, &wanted.schema);
        for (stored, asked) in ours.columns().iter().zip(theirs.columns()) {
            if (&stored.name, stored.data_type) != (&asked.name, asked.data_type) {
                return mismatch(format!(
                    "its column '{}' is {}, but '{}' of type {} was requested",
                    stored.name, stored.data_type, asked.name, asked.data_type
                ));
            }
        }
        if ours.columns().len() != theirs.columns().len() {
            return mismatch(format!(
                "it has {} columns, but {} were requested",
                ours.columns().len(),
                theirs.columns().len()
            ));
        }
        if ours.cluster_key() != theirs.cluster_key() {
            let (ours, theirs) = (ours.cluster_key(), theirs.cluster_key());
            return mismatch(format!("its key is '{ours}', but '{theirs}' was requested"));
        }
        match (ours.levels(), theirs.levels()) {
            (found, Some(wanted)) if found.is_none_or(|found| found.count != wanted.count) => {
                let found = found.map_or("no levels of detail".to_owned(), |found| format!("{} levels", found.count));
                return mismatch(format!("it has {found}, but {} were requested", wanted.count));
            }
            _ => {}
        }
        self.check_level_weight(paths, theirs.level_weight_name())?;
        if let Some(asked) = theirs.periods()
            && !ours.rounded_periods().eq(theirs.rounded_periods())
        {
            let found = ours.periods().map_or("no periods".to_owned(), |found| format!("the periods '{found}'"));
            return mismatch(format!("it has {found}, but '{asked}' were requested"));
        }
        if !wanted.derivations.is_empty() && self.derivations != wanted.derivations {
            return mismatch(format!(
                "its derivations are [{}], but [{}] were requested",
                self.derivations.join("; "),
                wanted.derivations.join("; ")
            ));
        }
        Ok(())
    }

    /// Checks that the levels of detail are in proportion to this column, if one is stated.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if they are not.
    pub(crate) fn check_level_weight(&self, paths: &DatasetPaths, wanted: Option<&str>) -> Result<()> {
        let (Some(wanted), found) = (wanted, self.schema.level_weight_name()) else { return Ok(()) };
        if found == Some(wanted) {
            return Ok(());
        }
        let found = match found {
            _ if self.schema.levels().is_none() => "it has no levels of detail".to_owned(),
            None => "its levels of detail are even".to_owned(),
            Some(found) => format!("its levels of detail are in proportion to '{found}'"),
        };
        let what = format!("{found}, but levels in proportion to '{wanted}' were requested");
        Err(Error::Mismatch { path: paths.root().to_owned(), what })
    }

    /// Checks that records from the source of `wanted` may be added to this dataset. The scheme of a source is its text
    /// before `": "`. Sources with the same scheme must be equal. Sources without a scheme, or with different schemes,
    /// are not compared.
    ///
    /// # Errors
    /// [`Error::OtherSource`] if the sources differ.
    pub(crate) fn check_source(&self, paths: &DatasetPaths, wanted: &Self) -> Result<()> {
        let (Some(found), Some(wanted)) = (&self.source, &wanted.source) else { return Ok(()) };
        let scheme = |source: &str| source.split_once(": ").map(|(scheme, _)| scheme.to_owned());
        if found == wanted || scheme(found).is_none() || scheme(found) != scheme(wanted) {
            return Ok(());
        }
        let (path, found, wanted) = (paths.root().to_owned(), found.clone(), wanted.clone());
        Err(Error::OtherSource { path, found, wanted })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::schema::DataType;
    use crate::storage::MemoryStorage;

    fn descriptor() -> DatasetDescriptor {
        let columns = vec![
            Column::new("energy", DataType::F32).with_unit("m c²"),
            Column::new("payload", DataType::FixedBytes(56)),
            Column::new("id", DataType::U64),
        ];
        DatasetDescriptor {
            derivations: vec!["energy = sqrt(1+ux*ux)-1".to_owned()],
            source: Some("VPIC \"run 7\"\n}".to_owned()),
            ..DatasetDescriptor::new(Arc::new(Schema::new(columns, "energy").unwrap()))
        }
    }

    fn decode(bytes: &[u8]) -> Result<DatasetDescriptor> {
        DatasetDescriptor::decode(bytes, Path::new("dataset.json"))
    }

    /// Appends a valid checksum to the text.
    fn signed(covered: &str) -> Vec<u8> {
        format!("{covered}{}", closing(covered.as_bytes())).into_bytes()
    }

    #[test]
    fn it_round_trips_and_is_json() {
        let descriptor = descriptor();
        let bytes = descriptor.encode().unwrap();
        assert_eq!(decode(&bytes).unwrap(), descriptor);
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["format_version"], 2);
        assert_eq!(json["columns"][0]["unit"], "m c²");
        assert_eq!(json["columns"][1]["type"]["fixed_bytes"], 56);
        assert_eq!(json["checksum"].as_str().unwrap().len(), 16);
        assert_eq!(json["clustering"]["columns"][0], "energy");
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_corruption() {
        let bytes = descriptor().encode().unwrap();
        for index in 0..bytes.len() {
            for mask in [0x01, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[index] ^= mask;
                assert!(matches!(decode(&changed), Err(Error::Corruption { .. })), "byte {index} ^ {mask:#x}");
            }
            assert!(matches!(decode(&bytes[..index]), Err(Error::Corruption { .. })), "cut to {index}");
        }
        assert!(matches!(decode(&[bytes.as_slice(), b"\n"].concat()), Err(Error::Corruption { .. })));
    }

    #[test]
    fn other_versions_are_named_and_unknown_fields_let_through() {
        let newer = signed("{\n  \"format_version\": 3, \"shape\": \"unknown\"");
        assert!(matches!(decode(&newer), Err(Error::Version { found: 3, supported: 2, .. })));
        let first = decode(&signed("{\n  \"format_version\": 1, \"key\": \"energy\"")).unwrap_err();
        assert_eq!(
            first.to_string(),
            "dataset.json has format version 1, this release reads version 2: write the data again with this release"
        );
        let text = String::from_utf8(descriptor().encode().unwrap()).unwrap();
        let covered = text.split_once(",\n  \"checksum\"").unwrap().0;
        for (from, to) in [("\"requires\": []", "\"requires\": [\"planes\"]"), ("\"range\"", "\"planes\"")] {
            assert!(covered.contains(from), "{covered}");
            let error = decode(&signed(&covered.replace(from, to))).unwrap_err();
            assert!(matches!(&error, Error::Feature { feature, .. } if feature == "planes"), "{error}");
        }
        let wide = covered.replace("\"range\"", "\"hash\"");
        let error = decode(&signed(&wide)).unwrap_err();
        assert!(matches!(&error, Error::Feature { feature, .. } if feature == "the key hash:energy"), "{error}");
        assert!(matches!(decode(&signed(&covered.replace("\"range\"", "7"))), Err(Error::Corruption { .. })));
        decode(&signed(&format!("{covered},\n  \"later\": 1"))).unwrap();
        let nonsense = signed("{\n  \"format_version\": 2");
        assert!(matches!(decode(&nonsense), Err(Error::Corruption { .. })));
    }

    #[test]
    fn weights_of_levels_are_a_feature_and_columns_of_numbers() {
        let columns = ["x", "y", "energy"].map(|name| Column::new(name, DataType::F32)).to_vec();
        let schema = Schema::new(columns, "space:x,y").unwrap().with_levels(Levels { count: 2, seed: 7 }).unwrap();
        let even = DatasetDescriptor::new(Arc::new(schema.clone()));
        assert!(!String::from_utf8(even.encode().unwrap()).unwrap().contains("weight"), "even levels state none");
        let descriptor = DatasetDescriptor::new(Arc::new(schema.with_level_weight("energy").unwrap()));
        let text = String::from_utf8(descriptor.encode().unwrap()).unwrap();
        assert_eq!(decode(text.as_bytes()).unwrap(), descriptor);
        let covered = text.split_once(",\n  \"checksum\"").unwrap().0;
        for (from, to) in [
            ("\"weight\": \"energy\"", "\"weight\": \"ux\""),
            ("\"weight\": \"energy\"", "\"weight\": null"),
            ("\"weight\": \"energy\"", "\"weight\": 7"),
            ("\"levels\",\n", "\n"),
        ] {
            assert!(covered.contains(from), "{covered}");
            assert!(matches!(decode(&signed(&covered.replacen(from, to, 1))), Err(Error::Corruption { .. })), "{to}");
        }
    }

    #[test]
    fn a_dataset_that_only_newer_releases_write_is_read() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let paths = DatasetPaths::new("/ds");
        let newer = DatasetDescriptor { requires_to_write: vec!["two keys".to_owned()], ..descriptor() };
        newer.create(&*storage, &paths).unwrap();
        assert_eq!(DatasetDescriptor::read(&*storage, &paths).unwrap(), newer);
        let refused = |result: Result<()>| match result.unwrap_err() {
            Error::Feature { feature, .. } => assert_eq!(feature, "two keys"),
            other => panic!("{other}"),
        };
        refused(DatasetDescriptor::open_or_create(&*storage, &paths, &descriptor()).map(drop));
        refused(crate::store::recover(&storage, &paths, &newer).map(drop));
        refused(crate::store::truncate_after(&storage, &paths, &newer, 0, false).map(drop));
    }

    #[test]
    fn only_the_same_shape_is_opened_again() {
        let storage = MemoryStorage::new();
        let paths = DatasetPaths::new("/ds");
        let first = descriptor();
        assert!(matches!(DatasetDescriptor::read(&storage, &paths), Err(Error::NotADataset { .. })));
        DatasetDescriptor::open_or_create(&storage, &paths, &first).unwrap();
        let again = DatasetDescriptor { uuid: Uuid::new_v4(), derivations: Vec::new(), ..descriptor() };
        let found = DatasetDescriptor::open_or_create(&storage, &paths, &again).unwrap();
        assert_eq!(found, first, "the stored identity and derivations hold");
        let columns = first.schema.columns().to_vec();
        let retyped: Vec<Column> = columns
            .iter()
            .map(|column| match column.name.as_str() {
                "id" => Column::new("id", DataType::I64),
                _ => column.clone(),
            })
            .collect();
        let shapes = [
            DatasetDescriptor::new(Arc::new(Schema::new(columns.clone(), "id").unwrap())),
            DatasetDescriptor::new(Arc::new(Schema::new(columns[..2].to_vec(), "energy").unwrap())),
            DatasetDescriptor::new(Arc::new(Schema::new(retyped, "energy").unwrap())),
            DatasetDescriptor { derivations: vec!["energy = ux".to_owned()], ..descriptor() },
        ];
        for wanted in shapes {
            let result = DatasetDescriptor::open_or_create(&storage, &paths, &wanted);
            assert!(matches!(result, Err(Error::Mismatch { .. })), "{wanted:?}");
        }
        assert_eq!(DatasetDescriptor::read(&storage.crash(), &paths).unwrap(), first, "it is durable");
    }

    #[test]
    fn a_missing_descriptor_beside_data_is_corruption() {
        let storage = MemoryStorage::new();
        let paths = DatasetPaths::new("/ds");
        DatasetDescriptor::open_or_create(&storage, &paths, &descriptor()).unwrap();
        storage.create_dir_all(&paths.epoch(3)).unwrap();
        storage.remove_file(&paths.descriptor()).unwrap();
        let again = DatasetDescriptor::open_or_create(&storage, &paths, &descriptor());
        assert!(matches!(again, Err(Error::Corruption { .. })), "{again:?}");
    }
}
