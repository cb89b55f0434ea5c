//! Verifies a whole dataset: checksums, positions, and consistency of manifests with the data.
//!
//! This module checks the files of the folder and their consistency, and distributes the parts over threads.
//! `verify_part` verifies one part. Problems become findings, and verification continues. Only failures that prevent
//! verification are errors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::descriptor::DatasetDescriptor;
use super::epoch_set::{ChosenEpochs, EpochSet};
use super::epochs::load_named_manifest;
use super::findings::{Finding, FindingKind, VerifyReport};
use super::listing::{ManifestNames, list_epochs, list_files, list_indexes, list_or_empty, may_exist};
use super::paths::{DatasetPaths, Leftover, OVERVIEW_INDEX, parse_epoch_folder, parse_leftover, parse_manifest};
use super::verify_part::verify_part;
use super::verify_sidecars::verify_sidecars;
use crate::error::{Error, Result};
use crate::format::{EpochManifest, EpochMetrics, PartEntry, RunKind};
use crate::schema::{Clustering, Schema};
use crate::storage::{FileSystem, Storage};

/// Options of a verification.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Epochs to verify: all, if there is no choice. Files that belong to no epoch are always checked.
    pub epochs: Option<EpochSet>,
    /// Number of parts that are read at the same time.
    pub threads: usize,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { epochs: None, threads }
    }
}

/// The progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Size of the row groups checked so far, in bytes.
    pub done_bytes: u64,
    /// Size of all row groups to check, in bytes.
    pub total_bytes: u64,
}

/// The options of a verification, with the epochs that they choose among those that exist.
#[derive(Debug)]
struct Chosen {
    epochs: ChosenEpochs,
    threads: usize,
}

/// A part to verify.
struct Task {
    manifest: Arc<EpochManifest>,
    entry: PartEntry,
}

/// Verifies a whole dataset and its indexes. Reads all data, and compares data, footers and manifests.
///
/// Several threads call `progress`, after each row group.
///
/// # Errors
/// If there is no dataset or chosen epoch, or the folders cannot be listed. An index that cannot be read is a finding.
pub fn verify(
    path: impl AsRef<Path>,
    options: &VerifyOptions,
    progress: &(dyn Fn(VerifyProgress) + Sync),
) -> Result<VerifyReport> {
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    verify_on(&storage, &DatasetPaths::new(path.as_ref()), options, progress)
}

/// Verifies a dataset like [`verify`], on any storage.
///
/// # Errors
/// As for [`verify`].
pub fn verify_on(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    options: &VerifyOptions,
    progress: &(dyn Fn(VerifyProgress) + Sync),
) -> Result<VerifyReport> {
    let chosen = options.epochs.as_ref().map(|set| set.among(&list_epochs(&**storage, paths)?, paths.root()));
    let options = &Chosen { epochs: ChosenEpochs(chosen.transpose()?), threads: options.threads };
    let (descriptor, mut report) = match DatasetDescriptor::read(&**storage, paths) {
        Ok(descriptor) => {
            let report = verify_records(storage, paths, &descriptor, false, options, progress)?;
            (Some(descriptor), report)
        }
        Err(error @ Error::Corruption { .. }) => (None, VerifyReport::of_error(error, &paths.descriptor())),
        Err(error) => return Err(error),
    };
    // From here on, errors are findings, so that those about the records are reported.
    match list_indexes(&**storage, paths) {
        Ok(names) => {
            for name in names {
                let index = paths.index(&name);
                let found = verify_index(storage, (paths, descriptor.as_ref()), &name, options, progress)
                    .unwrap_or_else(|error| VerifyReport::of_error(error, index.root()));
                // Files of an index that is dropped meanwhile disappear.
                if may_exist(&**storage, index.root()) {
                    report.add_index(found);
                }
            }
            if let Some(descriptor) = &descriptor {
                verify_sidecars(&**storage, (paths, descriptor), &options.epochs, &mut report);
            }
        }
        Err(error) => report.findings.push(Finding::from_error(error, &paths.indexes())),
    }
    Ok(report)
}

/// Verifies an index of entries or copies of a dataset, whose descriptor is `None` if it is corrupt.
fn verify_index(
    storage: &Arc<dyn Storage>,
    (records, of_records): (&DatasetPaths, Option<&DatasetDescriptor>),
    name: &str,
    options: &Chosen,
    progress: &(dyn Fn(VerifyProgress) + Sync),
) -> Result<VerifyReport> {
    let index = records.index(name);
    let description = index.descriptor();
    if !may_exist(&**storage, &description) {
        let what = "it is missing; 'turbidite index drop' and 'index add' make the index again";
        return Err(Error::corruption(&description, what));
    }
    let descriptor = DatasetDescriptor::read(&**storage, &index)?;
    let mut report = verify_records(storage, &index, &descriptor, true, options, progress)?;
    if let Some(of_records) = of_records {
        let least_level = if name == OVERVIEW_INDEX { of_records.schema.top_level() } else { 0 };
        let (of_records, of_index) = ((records, of_records), (&index, &descriptor));
        check_entries(&**storage, of_records, of_index, least_level, &options.epochs, &mut report.findings)?;
    }
    Ok(report)
}

/// Checks that each epoch of an index with the commit of the records has as many entries as there are records of a
/// level of detail and above. Entries of an epoch that the dataset lacks are a notice.
fn check_entries(
    storage: &dyn Storage,
    (records, of_records): (&DatasetPaths, &DatasetDescriptor),
    (index, of_index): (&DatasetPaths, &DatasetDescriptor),
    least_level: u8,
    chosen: &ChosenEpochs,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let built = list_epochs(storage, index)?;
    let existing = list_epochs(storage, records)?;
    let (names, names_of_index) = (ManifestNames::list(storage, records)?, ManifestNames::list(storage, index)?);
    for epoch in built.into_iter().filter(|epoch| chosen.has(*epoch)) {
        if existing.binary_search(&epoch).is_err() {
            let what = "the records were removed, or are being committed; the next writer of the index removes stale \
                        entries";
            findings.push(Finding::new(FindingKind::Notice, &index.epoch(epoch), what));
            continue;
        }
        let manifest = |paths, descriptor, names| load_named_manifest(storage, paths, descriptor, names, epoch).ok();
        // Errors are findings already, and entries of replaced records are as good as none.
        let pair = manifest(records, of_records, &names).zip(manifest(index, of_index, &names_of_index));
        let Some((records, entries)) = pair.filter(|(records, entries)| entries.indexed_commit == Some(records.commit))
        else {
            continue;
        };
        let indexed_rows = records.rows_above(least_level);
        if indexed_rows != entries.rows() {
            let what = format!("{} entries for {indexed_rows} records", entries.rows());
            findings.push(Finding::from_error(Error::corruption(&index.epoch(epoch), what), index.root()));
        }
    }
    Ok(())
}

/// Verifies the records of a dataset, or the entries of an index.
fn verify_records(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    is_index: bool,
    options: &Chosen,
    progress: &(dyn Fn(VerifyProgress) + Sync),
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let epochs = list_epochs(&**storage, paths)?;
    report.unfinished = check_folders(&**storage, paths, &epochs, is_index, &mut report.findings)?;
    let names = ManifestNames::list(&**storage, paths)?;
    let mut tasks = Vec::new();
    for epoch in epochs.into_iter().filter(|epoch| options.epochs.has(*epoch)) {
        report.epochs += 1;
        match load_named_manifest(&**storage, paths, descriptor, &names, epoch) {
            Ok(manifest) => {
                let path = paths.manifest(epoch, manifest.commit);
                check_metrics(&path, &manifest, descriptor, &mut report.findings);
                check_parts(&**storage, paths, &manifest, &descriptor.schema, &mut report.findings)?;
                let manifest = Arc::new(manifest);
                tasks.extend(manifest.parts.iter().map(|entry| Task { manifest: manifest.clone(), entry: *entry }));
            }
            Err(error) => report.findings.push(Finding::from_error(error, &paths.epoch(epoch))),
        }
    }
    report.add(run_tasks(storage, paths, descriptor, &tasks, options.threads, progress));
    Ok(report)
}

/// Verifies the parts on several threads.
fn run_tasks(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    tasks: &[Task],
    threads: usize,
    progress: &(dyn Fn(VerifyProgress) + Sync),
) -> VerifyReport {
    let total_bytes = tasks.iter().flat_map(|task| task.runs()).map(|run| run.bytes).fold(0, u64::saturating_add);
    let done_bytes = AtomicU64::new(0);
    let advance = |bytes: u64| {
        let done_bytes = done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        progress(VerifyProgress { done_bytes, total_bytes });
    };
    let next = AtomicUsize::new(0);
    let reports: Mutex<Vec<Option<VerifyReport>>> = Mutex::new(tasks.iter().map(|_| None).collect());
    let work = || {
        while let Some((index, task)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            tasks.get(index).map(|task| (index, task))
        } {
            let report = verify_part(storage, paths, descriptor, &task.manifest, &task.entry, &advance);
            reports.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(report);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, tasks.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut whole = VerifyReport::default();
    for report in reports.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten() {
        whole.add(report);
    }
    whole
}

impl Task {
    fn runs(&self) -> impl Iterator<Item = &crate::format::RowGroupEntry> {
        self.manifest.row_groups.iter().filter(|run| run.part == self.entry.part)
    }
}

/// Checks that an epoch's folder contains no file that the manifest does not list. Missing parts are detected when they
/// are read.
fn check_parts(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    manifest: &EpochManifest,
    schema: &Schema,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let name = |entry: &PartEntry| entry.part.path_in_epoch(entry.level, schema);
    let listed: BTreeSet<String> = manifest.parts.iter().map(name).collect();
    let folder = paths.epoch(manifest.epoch);
    for entry in list_files(storage, &folder)? {
        if !listed.contains(&entry.name) {
            let what = "it is not part of the epoch, but other tools read it with the epoch";
            findings.push(Finding::new(FindingKind::Corruption, &folder.join(&entry.name), what));
        }
    }
    Ok(())
}

/// Compares the metrics of an epoch with its row groups.
fn check_metrics(path: &Path, manifest: &EpochManifest, descriptor: &DatasetDescriptor, findings: &mut Vec<Finding>) {
    let EpochMetrics { rows, strays, spills, nan_keys, .. } = manifest.metrics;
    let count = |kind| manifest.row_groups.iter().filter(|run| run.kind == kind).map(|run| run.rows).sum::<u64>();
    let key = descriptor.schema.key_index();
    let found_nan = match descriptor.schema.clustering() {
        // Any of the coordinates may be NaN. Each run is checked with its part.
        Clustering::Space => count(RunKind::NanKey),
        Clustering::Range | Clustering::Hash => {
            manifest.row_groups.iter().filter_map(|run| run.columns.get(key)).map(|key| key.nan_count).sum()
        }
    };
    let pairs = [
        ("records", rows, manifest.rows()),
        ("strays", strays, count(RunKind::Stray)),
        ("spilled records", spills, count(RunKind::Unordered)),
        ("records with a NaN key", nan_keys, found_nan),
    ];
    for (name, said, found) in pairs {
        if said != found {
            let what = format!("it states {said} {name}, but lists {found}");
            findings.push(Finding::new(FindingKind::Corruption, path, what));
        }
    }
}

/// Checks files and folders that belong to no epoch. Returns the number of attempts that were never committed.
fn check_folders(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    epochs: &[u64],
    is_index: bool,
    findings: &mut Vec<Finding>,
) -> Result<u64> {
    let exists = |epoch: u64| epochs.binary_search(&epoch).is_ok();
    let mut notice = |path: PathBuf, what: &str| findings.push(Finding::new(FindingKind::Notice, &path, what));
    for entry in list_or_empty(storage, &paths.data())? {
        if !parse_epoch_folder(&entry.name).is_some_and(exists) {
            notice(paths.data().join(&entry.name), "it is not an epoch of this dataset; other tools may read it");
        }
    }
    for entry in list_or_empty(storage, &paths.manifests())? {
        if !parse_manifest(&entry.name).is_some_and(|(epoch, _)| exists(epoch)) {
            notice(paths.manifests().join(&entry.name), "it has no data; the next writer removes it");
        }
    }
    let mut unfinished = 0;
    for entry in list_or_empty(storage, &paths.unfinished())? {
        let path = paths.unfinished().join(&entry.name);
        match parse_leftover(&entry.name) {
            Some((epoch, _, Leftover::SetAside)) if !exists(epoch) => {
                notice(
                    path,
                    "a replacement was interrupted; the next writer completes it, and until then the epoch is missing",
                );
            }
            Some((_, _, Leftover::Attempt)) => {
                unfinished += 1;
                let what = if is_index {
                    "an unfinished epoch of an index, or one being made; the next 'turbidite index add' removes it"
                } else {
                    "an unfinished epoch, or one being written; 'turbidite salvage' lists it"
                };
                notice(path, what);
            }
            _ => notice(path, "the next writer removes it"),
        }
    }
    Ok(unfinished)
}
