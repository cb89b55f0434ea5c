//! Finds the epochs of a dataset and their manifests.
//!
//! An epoch exists if and only if its folder is in `data`. The footers of its parts name a commit, and the manifest of
//! that commit is the epoch's manifest. Manifests of other commits are leftovers of crashes and replacements.

use std::io;
use std::path::Path;

use uuid::Uuid;

use super::descriptor::DatasetDescriptor;
use super::listing::{ManifestNames, epoch_exists, list_parts};
use super::paths::DatasetPaths;
use crate::error::{Error, IoContext, Result};
use crate::format::{EpochManifest, PartReader};
use crate::schema::Schema;
use crate::storage::{Storage, read_all, read_whole};

/// Maximum size of a manifest in bytes. A manifest has one row per row group. The manifest of 131,072 ranks with 16
/// runs and 16 columns is well below this limit.
const MAX_MANIFEST_BYTES: u64 = 4 << 30;

/// Size in bytes up to which a scan reads the whole manifest. Reading it by column would save no time.
const WHOLE_MANIFEST_BYTES: u64 = 1 << 20;

/// Returns the commit to which the parts in a folder belong, from the first readable footer. Returns `None` if no
/// footer is readable.
pub(super) fn commit_of(storage: &dyn Storage, folder: &Path) -> Result<Option<Uuid>> {
    for (_, file) in list_parts(storage, folder)? {
        match PartReader::identify(storage, &folder.join(file.name)) {
            Ok(identity) => return Ok(Some(identity.commit)),
            Err(error) if is_corruption(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns whether an error concerns the content of a file. Another file may then be readable.
fn is_corruption(error: &Error) -> bool {
    match error {
        Error::Corruption { .. } | Error::Version { .. } => true,
        Error::Io { source, .. } => {
            matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
        }
        _ => false,
    }
}

/// Reads the manifest that belongs to the data of an epoch.
///
/// # Errors
/// - [`Error::EpochMissing`]
/// - [`Error::Corruption`] if the manifest, or the footer of every part, is missing or corrupt
/// - [`Error::Version`]
/// - I/O errors
pub fn load_manifest(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    epoch: u64,
) -> Result<EpochManifest> {
    load_named_manifest(storage, paths, descriptor, &ManifestNames::list(storage, paths)?, epoch)
}

/// Reads the manifest that belongs to the data of an epoch, for callers that read many. Names may be stale: they save
/// reading a part of the epoch, whose commit decides.
///
/// # Errors
/// As for [`load_manifest`].
pub(crate) fn load_named_manifest(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    names: &ManifestNames,
    epoch: u64,
) -> Result<EpochManifest> {
    // Listing a folder of 131,072 parts takes long. If there is only one manifest, one part suffices to check that the
    // manifest belongs to the data.
    if let Some(commit) = names.only_commit(epoch)
        && let Ok(manifest) = read_manifest(storage, paths, descriptor, epoch, commit)
        && is_of_data(storage, paths, &manifest, &descriptor.schema)
    {
        return Ok(manifest);
    }
    if !epoch_exists(storage, paths, epoch)? {
        return Err(Error::EpochMissing { epoch, path: paths.root().to_owned() });
    }
    let commit = match (commit_of(storage, &paths.epoch(epoch))?, names.only_commit(epoch)) {
        // No footer is readable, so the commit of the data is unknown. A single manifest is still used, so that
        // verification can report the corrupt parts. If there are two, the right one cannot be determined.
        (Some(commit), _) | (None, Some(commit)) => commit,
        (None, None) => return Err(Error::corruption(&paths.epoch(epoch), "no part has a readable footer")),
    };
    read_manifest(storage, paths, descriptor, epoch, commit)
}

/// A manifest for a scan.
#[derive(Debug)]
pub(crate) struct ScanManifest {
    pub(crate) manifest: EpochManifest,
    /// Whether the whole manifest was read. Otherwise it has the statistics of the requested columns only, and neither
    /// range counts nor metrics of the epoch.
    pub(crate) is_whole: bool,
    /// Whether the manifest is known to belong to the data. Otherwise, the scan must compare it with a part.
    pub(crate) is_confirmed: bool,
}

/// Reads what a scan needs of an epoch's manifest: statistics of the key and of `columns`. Small manifests are read as
/// a whole. No part is read if the epoch has one manifest by `names`, so the first part need not wait for the manifest.
///
/// # Errors
/// The errors of [`load_manifest`].
pub(crate) fn load_scan_manifest(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    names: &ManifestNames,
    epoch: u64,
    columns: &[usize],
) -> Result<ScanManifest> {
    if let Some(commit) = names.only_commit(epoch) {
        let path = paths.manifest(epoch, commit);
        let file = storage.open(&path).at("open", &path);
        let read = file.and_then(|file| match file.bytes() {
            0..=WHOLE_MANIFEST_BYTES => {
                let bytes = read_whole(&*file).at("read", &path)?;
                Ok((decode_manifest(bytes, &path, descriptor, epoch, commit)?, true))
            }
            _ => Ok((EpochManifest::read_for_scan(file, &path, &descriptor.schema, columns)?, false)),
        });
        if let Ok((manifest, is_whole)) = read
            && (manifest.epoch, manifest.commit) == (epoch, commit)
        {
            return Ok(ScanManifest { manifest, is_whole, is_confirmed: false });
        }
    }
    let manifest = load_named_manifest(storage, paths, descriptor, names, epoch)?;
    Ok(ScanManifest { manifest, is_whole: true, is_confirmed: true })
}

/// Returns whether the first part of a manifest exists and names its commit.
pub(crate) fn is_of_data(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    manifest: &EpochManifest,
    schema: &Schema,
) -> bool {
    manifest.parts.first().is_some_and(|entry| {
        let path = paths.part(manifest.epoch, entry, schema);
        PartReader::commit_of(storage, &path, entry).is_ok_and(|commit| commit == manifest.commit)
    })
}

/// Reads the manifest of one commit.
pub(super) fn read_manifest(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    epoch: u64,
    commit: Uuid,
) -> Result<EpochManifest> {
    let path = paths.manifest(epoch, commit);
    let bytes = match read_all(storage, &path, MAX_MANIFEST_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::corruption(&path, format!("the manifest of epoch {epoch} is missing")));
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            return Err(Error::corruption(&path, error.to_string()));
        }
        other => other.at("read", &path)?,
    };
    decode_manifest(bytes, &path, descriptor, epoch, commit)
}

fn decode_manifest(
    bytes: Vec<u8>,
    path: &Path,
    descriptor: &DatasetDescriptor,
    epoch: u64,
    commit: Uuid,
) -> Result<EpochManifest> {
    let manifest = EpochManifest::decode(bytes, path, &descriptor.schema)?;
    if (manifest.epoch, manifest.commit) != (epoch, commit) {
        let what = format!("it is the manifest of epoch {}, commit {}", manifest.epoch, manifest.commit);
        return Err(Error::corruption(path, what));
    }
    // Reports of ranks are decoded in the same way, and may have levels that their rank was not told of.
    let most = descriptor.schema.top_level();
    if let Some(part) = manifest.parts.iter().find(|part| part.level > most) {
        let what = format!("{} has the level {}, but the highest is {most}", part.part.file_name(), part.level);
        return Err(Error::corruption(path, what));
    }
    Ok(manifest)
}
