//! Collective opening of a dataset. Rank 0 opens or creates it and announces its descriptor. The other ranks compare
//! the descriptor with their own arguments. A rank that cannot open the dataset also takes part, so that no rank waits
//! forever.

use std::path::Path;
use std::sync::Arc;

use super::announcement::Announcement;
use super::driver::{Link, RankDriver};
use super::job::RankJob;
use crate::error::{Error, Result, UsageError};
use crate::runtime::WriteOptions;
use crate::runtime::dataset::JobDataset;
use crate::runtime::process::host::Host;
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::DatasetDescriptor;

impl RankJob {
    /// Starts a rank of the dataset at `path`, which [`RankJob::agree_on_dataset`] opens.
    ///
    /// # Errors
    /// [`Error::Refused`], the same on every rank, when the options are wrong.
    pub(super) fn start(
        host: Arc<dyn Host>,
        storage: Arc<dyn Storage>,
        path: &Path,
        schema: Schema,
        options: WriteOptions,
        rank: u32,
        link: Link,
    ) -> Result<Self> {
        let checked = options.check().map_err(Error::from);
        let dataset = match checked.and_then(|()| JobDataset::new(storage, path, schema, options.clone())) {
            Ok(dataset) => dataset,
            Err(cause) => return Err(Self::refuse_open(options, rank, link.transport, cause)),
        };
        let schema = Arc::clone(&dataset.descriptor.schema);
        let driver = RankDriver::start(host, path, schema, &dataset.options, rank, link)?;
        Ok(Self { driver, indexes: Vec::new(), dataset })
    }

    /// Opens the dataset together with the other ranks, or creates it. This rank has `connections` for indexes.
    ///
    /// # Errors
    /// [`Error::Refused`] when rank 0 cannot open the dataset, or when ranks differ in schema, receivers or indexes.
    /// The same on every rank.
    pub(super) fn agree_on_dataset(&mut self, connections: usize) -> Result<()> {
        // Arguments that differ must not create a dataset.
        if self.dataset.options.ranks > 1 {
            let Self { driver, dataset, .. } = self;
            let announcement = (driver.rank == 0).then(|| announce(dataset));
            driver.agree("open", announcement, |_, announced| {
                let Announcement::Dataset { descriptor, receivers, indexes } = announced else { return Ok(()) };
                accept_arguments(dataset, descriptor, *receivers)?;
                accept_indexes(&dataset.options, indexes, connections)
            })?;
        }
        let announcement = (self.driver.rank == 0).then(|| match self.dataset.open() {
            Ok(_) => {
                self.resume();
                announce(&self.dataset)
            }
            Err(error) => Announcement::refused(&error),
        });
        let Self { driver, dataset, .. } = self;
        driver.agree("open", announcement, |_, announced| {
            let Announcement::Dataset { descriptor, .. } = announced else { return Ok(()) };
            accept_dataset(dataset, descriptor)
        })?;
        Ok(())
    }
}

/// Announces a dataset, and this rank's other arguments.
fn announce(dataset: &JobDataset) -> Announcement {
    let JobDataset { descriptor, options, .. } = dataset;
    let indexes = options.indexes.iter().map(ToString::to_string).collect();
    let path = dataset.paths.descriptor();
    match descriptor.encode().map_err(|source| Error::Io { operation: "encode", path, source }) {
        Ok(descriptor) => Announcement::Dataset { descriptor, receivers: options.receivers, indexes },
        Err(error) => Announcement::refused(&error),
    }
}

/// Compares this rank's arguments with those of rank 0.
fn accept_arguments(dataset: &JobDataset, descriptor: &[u8], receivers: u32) -> Result<()> {
    let wanted = DatasetDescriptor::decode(descriptor, &dataset.paths.descriptor())?;
    match wanted.check_same(&dataset.paths, &dataset.descriptor) {
        Err(Error::Mismatch { what, .. }) => {
            let what = format!("is not that of rank 0: {what} here");
            return Err(UsageError::Option { option: "schema", what }.into());
        }
        compared => compared?,
    }
    let own = dataset.options.receivers;
    if receivers != own {
        let what = format!("{own} here, {receivers} on rank 0");
        return Err(UsageError::Option { option: "receivers", what }.into());
    }
    Ok(())
}

fn accept_dataset(dataset: &mut JobDataset, descriptor: &[u8]) -> Result<()> {
    let opened = DatasetDescriptor::decode(descriptor, &dataset.paths.descriptor())?;
    opened.check_same(&dataset.paths, &dataset.descriptor)?;
    opened.check_level_weight(&dataset.paths, dataset.options.level_weight.as_deref())?;
    dataset.descriptor = opened;
    Ok(())
}

/// Compares the indexes that rank 0 makes with this rank's, and with the connections that this rank has for them.
fn accept_indexes(options: &WriteOptions, announced: &[String], connections: usize) -> Result<()> {
    let own: Vec<String> = options.indexes.iter().map(ToString::to_string).collect();
    let what = if own != announced {
        format!("[{}] here, [{}] on rank 0", own.join(", "), announced.join(", "))
    } else if options.index_connections() > connections {
        let wanted = options.index_connections();
        format!("{wanted} indexes need a connection each, and the transport has {connections}")
    } else {
        return Ok(());
    };
    Err(UsageError::Option { option: "index", what }.into())
}
