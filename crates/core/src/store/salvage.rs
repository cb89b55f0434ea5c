//! Salvages the data of epochs that were never committed.
//!
//! A run is sealed when it is complete, so a writer that died leaves complete runs. Salvage verifies these runs and
//! copies them to plain Parquet files in a separate folder. Salvaged runs are never added to the dataset: an epoch in
//! the dataset must be complete, and the missing records of such an epoch are unknown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::descriptor::DatasetDescriptor;
use super::files::create_dir_synced;
use super::listing::{EpochFile, list_or_empty, list_parts};
use super::paths::{DatasetPaths, Leftover, level_folders, parse_leftover};
use super::recovery::is_superseded;
use crate::error::{Error, IoContext, Result, UsageError};
use crate::format::{PartId, PartIdentity, SealedRun, recover_part, scan_seals};
use crate::storage::{FileKind, Storage};

/// An epoch that was begun but not committed.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedEpoch {
    /// Label of the epoch.
    pub epoch: u64,
    /// Identifier of the attempt. An epoch may have several attempts.
    pub commit: Uuid,
    /// Folder of the attempt.
    pub directory: PathBuf,
    /// Parts in the folder.
    pub parts: Vec<UnfinishedPart>,
}

/// A part of an unfinished epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedPart {
    /// Identity of the part.
    pub part: PartId,
    /// Level of detail of its records, by its folder.
    pub level: u8,
    /// Path of the file.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Sealed runs in the file.
    pub runs: Vec<SealedRun>,
}

impl UnfinishedEpoch {
    /// Returns the number of sealed runs.
    pub fn runs(&self) -> u64 {
        self.parts.iter().map(|part| part.runs.len() as u64).sum()
    }

    /// Returns the number of records in sealed runs.
    pub fn rows(&self) -> u64 {
        self.parts.iter().flat_map(|part| &part.runs).map(SealedRun::rows).sum()
    }
}

/// The result of a salvage.
#[derive(Debug)]
pub struct SalvagedEpoch {
    /// Label of the epoch.
    pub epoch: u64,
    /// Folder of the new Parquet files.
    pub directory: PathBuf,
    /// Number of files written.
    pub parts: u32,
    /// Number of runs in these files.
    pub runs: u64,
    /// Number of records in these files.
    pub rows: u64,
    /// Errors of the runs that were skipped because they are corrupt.
    pub corrupt: Vec<Error>,
}

/// Returns the unfinished epochs of a dataset, ordered by epoch. Includes the epoch of a running writer.
///
/// # Errors
/// If storage fails.
pub fn list(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
) -> Result<Vec<UnfinishedEpoch>> {
    let mut unfinished = Vec::new();
    for entry in list_or_empty(storage, &paths.unfinished())? {
        let Some((epoch, commit, Leftover::Attempt)) = parse_leftover(&entry.name) else { continue };
        if entry.kind != FileKind::Directory || is_superseded(storage, paths, epoch, commit)? {
            continue;
        }
        let directory = paths.attempt(epoch, commit);
        let mut parts = Vec::new();
        for (part, EpochFile { name, level, .. }) in list_parts(storage, &directory)? {
            let path = directory.join(name);
            let file = storage.open(&path).at("open", &path)?;
            let mut runs = scan_seals(&*file, &path, &descriptor.schema)?;
            // File systems reuse the blocks of deleted files, so a file may contain seals of other attempts.
            let identity = PartIdentity { dataset: descriptor.uuid, commit, epoch };
            runs.retain(|run| run.identity == identity && (run.part, run.level) == (part, level));
            parts.push(UnfinishedPart { part, level, path, bytes: file.bytes(), runs });
        }
        unfinished.push(UnfinishedEpoch { epoch, commit, directory, parts });
    }
    unfinished.sort_by_key(|attempt| (attempt.epoch, attempt.commit));
    Ok(unfinished)
}

/// Copies the recoverable runs of an unfinished epoch to plain Parquet files in the new folder `out`/epoch=N. The
/// attempt is not changed; [`discard`] removes it.
///
/// # Errors
/// If `out` lies in the dataset or already has the epoch, or if storage fails.
pub fn recover_into(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    unfinished: &UnfinishedEpoch,
    out: &Path,
) -> Result<SalvagedEpoch> {
    if out.starts_with(paths.root()) {
        let what = format!("{} is inside the dataset; use a folder outside it", out.display());
        return Err(UsageError::Option { option: "out", what }.into());
    }
    let epoch = unfinished.epoch;
    let directory = out.join(format!("epoch={epoch}"));
    if storage.kind(&directory).at("look up", &directory)?.is_some() {
        return Err(std::io::Error::from(std::io::ErrorKind::AlreadyExists)).at("create", &directory);
    }
    // The final name appears only after the content is complete. The draft of an unfinished salvage is removed first.
    let draft = out.join(format!(".epoch={epoch}.unfinished"));
    if storage.kind(&draft).at("look up", &draft)?.is_some() {
        storage.remove_dir_all(&draft).at("remove", &draft)?;
    }
    create_dir_synced(&**storage, &draft)?;
    let schema = &descriptor.schema;
    let levels = level_folders(&draft, schema);
    levels.iter().try_for_each(|level| create_dir_synced(&**storage, level))?;
    let identity = PartIdentity { dataset: descriptor.uuid, commit: Uuid::new_v4(), epoch };
    let mut salvaged = SalvagedEpoch { epoch, directory, parts: 0, runs: 0, rows: 0, corrupt: Vec::new() };
    for part in unfinished.parts.iter().filter(|part| !part.runs.is_empty()) {
        let (source, target) = (&part.path, (part.part, part.level));
        let recovered = recover_part(storage, source, &part.runs, &draft, target, schema, identity)?;
        let corrupt = recovered.corrupt.len();
        salvaged.corrupt.extend(recovered.corrupt.into_iter().map(|(_, error)| error));
        if recovered.runs.is_empty() {
            let path = draft.join(part.part.path_in_epoch(part.level, schema));
            storage.remove_file(&path).at("remove", &path)?;
            continue;
        }
        salvaged.parts += 1;
        salvaged.runs += (part.runs.len() - corrupt) as u64;
        salvaged.rows += recovered.runs.iter().map(|run| run.rows).sum::<u64>();
    }
    levels.iter().chain([&draft]).try_for_each(|folder| storage.sync_dir(folder).at("sync", folder))?;
    storage.rename(&draft, &salvaged.directory).at("rename", &draft)?;
    storage.sync_dir(out).at("sync", out)?;
    Ok(salvaged)
}

/// Removes an unfinished epoch permanently. Only the holder of the lock may call this function.
///
/// # Errors
/// If storage fails.
pub fn discard(storage: &dyn Storage, unfinished: &UnfinishedEpoch) -> Result<()> {
    storage.remove_dir_all(&unfinished.directory).at("remove", &unfinished.directory)
}
