//! Verifies indexes by sidecars: their descriptions, and the sidecars of the current commit of each epoch.

use std::path::PathBuf;

use super::descriptor::DatasetDescriptor;
use super::epoch_set::ChosenEpochs;
use super::epochs::load_named_manifest;
use super::findings::{Finding, FindingKind, VerifyReport};
use super::listing::{ManifestNames, list_epochs, list_or_empty, list_sidecar_indexes, may_exist};
use super::paths::DatasetPaths;
use super::sidecar_index::{SidecarDescriptor, SidecarEpoch};
use crate::error::{Error, Result};
use crate::format::bitmap::sidecar::{SidecarIdentity, SidecarReader};
use crate::format::{EpochManifest, PartEntry};
use crate::schema::{KeyOrder, Schema};
use crate::storage::Storage;

/// The family of indexes whose sidecars this release can read.
const METHOD: &str = "bitmap";

/// Verifies the sidecars of all indexes of a dataset, and adds them to the report. Errors are findings.
pub(super) fn verify_sidecars(
    storage: &dyn Storage,
    (records, dataset): (&DatasetPaths, &DatasetDescriptor),
    chosen: &ChosenEpochs,
    report: &mut VerifyReport,
) {
    let names = match list_sidecar_indexes(storage, records) {
        Ok(names) => names,
        Err(error) => return report.findings.push(Finding::from_error(error, &records.indexes())),
    };
    for name in names {
        let index = records.index(&name);
        let found = verify_described(storage, records, (&index, dataset), chosen)
            .unwrap_or_else(|error| VerifyReport::of_error(error, &index.sidecar_index()));
        // Files of an index that is dropped meanwhile disappear.
        if may_exist(storage, index.root()) {
            report.indexes += 1;
            report.add(found);
        }
    }
}

/// Verifies an index if this release knows its family.
fn verify_described(
    storage: &dyn Storage,
    records: &DatasetPaths,
    (index, dataset): (&DatasetPaths, &DatasetDescriptor),
    chosen: &ChosenEpochs,
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let found = match SidecarDescriptor::read(storage, index)? {
        Some(found) if found.method == METHOD => found,
        // The index was removed meanwhile, or is of a family that a newer release knows.
        _ => return Ok(report),
    };
    let columns = IndexedColumns::of(&found, dataset);
    let columns = columns.map_err(|what| Error::corruption(&index.sidecar_index(), what))?;
    verify_index(storage, records, (index, &columns), chosen, &mut report)?;
    Ok(report)
}

/// The inputs of the verification of an index's sidecars.
struct IndexedColumns<'a> {
    dataset: &'a DatasetDescriptor,
    orders: Vec<KeyOrder>,
}

impl<'a> IndexedColumns<'a> {
    fn of(index: &SidecarDescriptor, dataset: &'a DatasetDescriptor) -> Result<Self, String> {
        if index.dataset != dataset.uuid {
            return Err("it is the index of another dataset".to_owned());
        }
        let schema: &Schema = &dataset.schema;
        let order = |name: &String| {
            let column = schema.index_of(name).map(|column| schema.columns()[column].data_type);
            column.and_then(KeyOrder::new).ok_or_else(|| format!("the dataset has no numbers in a column '{name}'"))
        };
        Ok(Self { dataset, orders: index.columns.iter().map(order).collect::<Result<_, _>>()? })
    }
}

fn verify_index(
    storage: &dyn Storage,
    records: &DatasetPaths,
    (index, columns): (&DatasetPaths, &IndexedColumns<'_>),
    chosen: &ChosenEpochs,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut notice = |path: PathBuf, what: &str| report.findings.push(Finding::new(FindingKind::Notice, &path, what));
    for entry in list_or_empty(storage, &index.unfinished())? {
        let path = index.unfinished().join(&entry.name);
        notice(path, "unfinished sidecars, or some being written; the next writer of the index removes them");
    }
    let (epochs, names) = (list_epochs(storage, records)?, ManifestNames::list(storage, records)?);
    for sidecars in SidecarEpoch::list(storage, index)? {
        if !chosen.has(sidecars.epoch) {
            continue;
        }
        let exists = epochs.binary_search(&sidecars.epoch).is_ok();
        let manifest = exists.then(|| load_named_manifest(storage, records, columns.dataset, &names, sidecars.epoch));
        let manifest = match manifest {
            Some(Ok(manifest)) if manifest.commit == sidecars.commit => manifest,
            // Findings of the records.
            Some(Err(_)) => continue,
            _ => {
                let what = "the records were replaced or removed, or are being committed; the next writer of the index removes what is stale";
                report.findings.push(Finding::new(FindingKind::Notice, &sidecars.folder, what));
                continue;
            }
        };
        for part in &manifest.parts {
            match verify_part(storage, &sidecars, &manifest, part, columns) {
                Ok(bytes) => report.bytes += bytes,
                Err(error) => report.findings.push(Finding::from_error(error, &sidecars.folder)),
            }
        }
    }
    Ok(())
}

/// Verifies the sidecar of a part. Returns its size in bytes.
fn verify_part(
    storage: &dyn Storage,
    sidecars: &SidecarEpoch,
    manifest: &EpochManifest,
    part: &PartEntry,
    columns: &IndexedColumns<'_>,
) -> Result<u64> {
    let path = SidecarEpoch::part(&sidecars.folder, part.part);
    let identity = SidecarIdentity {
        dataset: columns.dataset.uuid,
        commit: manifest.commit,
        epoch: manifest.epoch,
        part: part.part,
    };
    let sidecar = SidecarReader::open(storage, &path, &identity, columns.orders.len())?;
    let of_part = || manifest.row_groups.iter().filter(|entry| entry.part == part.part);
    let is_same = of_part().count() == sidecar.rows().len()
        && of_part().all(|entry| {
            sidecar.rows().get(entry.row_group as usize).is_some_and(|rows| u64::from(*rows) == entry.rows)
        });
    if !is_same {
        return Err(Error::corruption_at(&path, "directory", "its row groups are not those of the manifest"));
    }
    sidecar.verify_head()?;
    let mut bytes = 0;
    for row_group in 0..sidecar.rows().len() {
        for (column, order) in columns.orders.iter().enumerate() {
            bytes += sidecar.verify(row_group, column, *order)?;
        }
    }
    Ok(bytes)
}
