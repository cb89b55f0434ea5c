//! Lends readers to the threads that read. There are as many readers as threads that read at the same time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use turbidite::store::{EpochSet, EpochSpan};
use turbidite::{Attribute, Column};

use super::messages::{Inventory, Open, Read, Request, VERSION};
use super::process::ReaderProcess;
use crate::error::SourceError;
use crate::options::{Nulls, SourceOptions};
use crate::periods::StatedPeriod;

/// The columns of a source that the package reads, and the readers.
#[derive(Debug)]
pub(crate) struct BlockForm {
    pub(crate) columns: Vec<Column>,
    /// The periods of each epoch's coordinates, by column.
    pub(crate) periods: BTreeMap<u64, BTreeMap<String, StatedPeriod>>,
    /// The attributes of each epoch, by name.
    pub(crate) attributes: BTreeMap<u64, BTreeMap<String, Attribute>>,
    pub(super) path: PathBuf,
    pub(super) options: SourceOptions,
    /// The index from the inventory, as the reader has written it.
    pub(super) index: Option<Box<RawValue>>,
    /// Readers that no thread is using.
    pub(super) idle: Mutex<Vec<ReaderProcess>>,
}

/// Returns the request that opens a source.
pub(super) fn open_request<'a>(
    path: &'a PathBuf,
    options: &'a SourceOptions,
    index: Option<&'a RawValue>,
) -> Request<'a> {
    Request::Open(Open {
        version: VERSION,
        path,
        format: options.format.as_deref(),
        species: options.species.as_deref(),
        columns: options.columns.as_deref(),
        epoch: options.epoch,
        if_repeated: options.if_repeated.as_deref(),
        nulls: options.nulls.map(Nulls::name),
        epochs: options
            .epochs
            .as_ref()
            .and_then(EpochSet::spans)
            .map(|spans| spans.iter().map(EpochSpan::parts).collect()),
        done: options.done.keys().copied().collect(),
        resume: options.resume.as_deref(),
        allow_missing_ranks: options.allow_missing_ranks,
        complete_only: options.complete_only,
        index,
    })
}

impl BlockForm {
    /// Returns the places from which the source is read again.
    pub(crate) fn resume(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Index {
            details: Details,
        }
        #[derive(Deserialize)]
        struct Details {
            resume: Box<RawValue>,
        }
        let index: Index = serde_json::from_str(self.index.as_ref()?.get()).ok()?;
        Some(index.details.resume.get().to_owned())
    }

    /// Reads a block by an idle reader, or by a new one.
    pub(super) fn read(&self, block: Read, values: &mut [u8]) -> Result<(), SourceError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => {
                let mut reader = ReaderProcess::start(&self.path)?;
                let _: Inventory = reader.ask(&open_request(&self.path, &self.options, self.index.as_deref()))?;
                reader
            }
        };
        reader.read_values(&Request::Read(block), block.rows, values)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        Ok(())
    }
}
