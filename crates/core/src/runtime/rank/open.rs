//! Collective opening of a dataset. Rank 0 opens or creates it and announces its descriptor. The other ranks compare
//! the descriptor with their own arguments. A rank that cannot open the dataset also takes part, so that no rank waits
//! forever.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::announcement::Announcement;
use super::stage::{RankStage, State, TABLE_TIMEOUT, objection, refusal};
use crate::error::{Error, ErrorClass, Result, UsageError};
use crate::runtime::WriteOptions;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::listener::Listener;
use crate::runtime::opening::{Opened, check_indexes, open_dataset, rows_of_greatest_epoch};
use crate::runtime::process::feed::EntryFeed;
use crate::runtime::process::host::{Host, Process};
use crate::runtime::process::resources::Background;
use crate::runtime::process::resources::ProcessResources;
use crate::runtime::sidecars::BitmapIndexes;
use crate::schema::{Column, DataType, Schema};
use crate::shuffle::{Engine, Failure, Timeouts, Transport};
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths};

/// The connections of a dataset.
pub(crate) struct Connections {
    transport: Box<dyn Transport + Send>,
    /// The feed that brings the entries of an index.
    source: Option<Arc<EntryFeed>>,
    /// Number of further connections between the same ranks, for indexes.
    further: usize,
}

impl Connections {
    /// Returns the connections of a dataset with as many `further` ones for indexes.
    pub(crate) fn of(transport: Box<dyn Transport + Send>, further: usize) -> Self {
        Self { transport, source: None, further }
    }

    /// Returns the connections of an index whose entries `source` brings.
    pub(super) fn of_index(transport: Box<dyn Transport + Send>, source: Arc<EntryFeed>) -> Self {
        Self { transport, source: Some(source), further: 0 }
    }
}

impl RankStage {
    /// Opens the dataset at `path` for writing, or creates it. All ranks call it with the same schema and options, and
    /// every rank must see the same folder at `path`.
    ///
    /// # Errors
    /// [`Error::Refused`] when rank 0 cannot open the dataset, or when ranks differ in schema, receivers or indexes.
    /// The same on every rank.
    pub(crate) fn open(
        host: Arc<dyn Host>,
        storage: Arc<dyn Storage>,
        path: &Path,
        schema: Schema,
        options: WriteOptions,
        rank: u32,
        connections: Connections,
    ) -> Result<Self> {
        let bitmaps = || options.bitmap_indexes().try_for_each(|definition| definition.positions(&schema).map(drop));
        if let Err(cause) = options.check().map_err(Error::from).and_then(|()| bitmaps()) {
            return Err(Self::refuse_open(storage, options, rank, connections.transport, cause));
        }
        let further = connections.further;
        let mut stage = Self::unopened(host, storage, path, schema, options, rank, connections)?;
        stage.agree_on_dataset(further)?;
        Ok(stage)
    }

    /// Takes part in the other ranks' [`RankStage::open`] when this rank cannot open the dataset, so that none of them
    /// waits forever. All ranks return the same error, with the cause. Of the options, only the ranks, the topology,
    /// the stall limit and the listener are used.
    pub(super) fn refuse_open(
        storage: Arc<dyn Storage>,
        options: WriteOptions,
        rank: u32,
        transport: Box<dyn Transport + Send>,
        cause: Error,
    ) -> Error {
        let WriteOptions { ranks, topology, stall_limit, listener, .. } = options;
        let options = WriteOptions { topology, stall_limit, listener, ..WriteOptions::new(ranks) };
        // No record will be appended, so any schema is sufficient.
        let refused =
            Schema::new(vec![Column::new("none", DataType::U8)], "none").map_err(Error::from).and_then(|schema| {
                let host = Arc::new(Process::new());
                let transport = Connections::of(transport, 0);
                let mut job = Self::unopened(host, storage, Path::new(""), schema, options, rank, transport)?;
                job.agree_on_refusal(cause)
            });
        let cause = "open was refused".to_owned();
        refused.err().unwrap_or(Error::Refused { rank, class: ErrorClass::Usage, refusal: None, cause })
    }

    /// Creates a rank that has exchanged no messages.
    pub(super) fn unopened(
        host: Arc<dyn Host>,
        storage: Arc<dyn Storage>,
        path: &Path,
        schema: Schema,
        options: WriteOptions,
        rank: u32,
        Connections { transport, source, .. }: Connections,
    ) -> Result<Self> {
        if rank >= options.ranks {
            return Err(UsageError::Rank { rank, ranks: options.ranks }.into());
        }
        let paths = DatasetPaths::new(path);
        let schema = Arc::new(options.with_levels(schema)?);
        let wanted = DatasetDescriptor {
            derivations: options.derivations.clone(),
            source: options.source.clone(),
            ..DatasetDescriptor::new(Arc::clone(&schema))
        };
        let bitmaps = BitmapIndexes::new(&storage, &paths, &schema, &options)?;
        let engine = Engine::new(options.engine(rank), Arc::clone(&schema));
        let timeouts = Timeouts { credit: options.credit_timeout, table: TABLE_TIMEOUT };
        let is_index = source.is_some();
        let endpoint = |resources: &ProcessResources| {
            // Entries have a small budget of their own.
            let memory = if is_index { Arc::default() } else { Arc::clone(&resources.memory) };
            let mut endpoint = Endpoint::new(engine, schema, memory, timeouts);
            if let Some(listener) = options.listener.clone().filter(|_| rank == 0) {
                endpoint.on_failure(failures_to(listener, is_index));
            }
            if is_index || options.index_connections() > 0 {
                endpoint.hold_commits();
            }
            endpoint
        };
        let background = Arc::new(Background::new(host.resources(), transport, source, endpoint));
        let running = host.start(&background);
        let running =
            running.map_err(|source| Error::Io { operation: "start a thread for", path: path.to_owned(), source })?;
        Ok(Self {
            _running: running,
            rank,
            options,
            storage,
            paths,
            descriptor: wanted,
            host,
            background,
            state: State::Between,
            attempt: Uuid::nil(),
            failed: Vec::new(),
            untidy: Vec::new(),
            begun: Duration::ZERO,
            lock: None,
            bitmaps,
        })
    }

    /// Agrees on the dataset with the other ranks. This rank has `connections` for indexes.
    fn agree_on_dataset(&mut self, connections: usize) -> Result<()> {
        // Arguments that differ must not create a dataset.
        if self.options.ranks > 1 {
            let announcement = (self.rank == 0).then(|| self.announce(&self.descriptor));
            self.open_by(announcement, |stage, descriptor, receivers, indexes| {
                stage.accept_arguments(descriptor, receivers)?;
                stage.accept_indexes(indexes, connections)
            })?;
        }
        let announcement = if self.rank == 0 { Some(self.open_as_root()) } else { None };
        self.open_by(announcement, |stage, descriptor, _, _| stage.accept_dataset(descriptor))
    }

    /// Takes a step of opening the dataset: every rank accepts what rank 0 announces, or all ranks fail.
    fn open_by(
        &mut self,
        announcement: Option<Announcement>,
        accept: impl FnOnce(&mut Self, &[u8], u32, &[String]) -> Result<()>,
    ) -> Result<()> {
        let announced = self.begin_session("open", announcement)?;
        if let Announcement::Dataset { descriptor, receivers, indexes } = &announced
            && let Err(error) = accept(self, descriptor, *receivers, indexes)
        {
            self.background.endpoint().object(error);
        }
        self.end_session("open")?;
        refusal(announced).map_or(Ok(()), Err)
    }

    fn agree_on_refusal(&mut self, cause: Error) -> Result<()> {
        let announcement = (self.rank == 0).then(|| Announcement::refused(&cause));
        let announced = self.begin_session("open", announcement)?;
        // One refusal is enough.
        if !matches!(announced, Announcement::Refused { .. }) {
            self.background.endpoint().object(cause);
        }
        self.end_session("open")?;
        refusal(announced).map_or(Ok(()), Err)
    }

    fn open_as_root(&mut self) -> Announcement {
        let schema = Schema::clone(&self.descriptor.schema);
        let opened = open_dataset(&self.storage, &self.paths, schema, &self.options);
        let opened = opened.and_then(|Opened { descriptor, lock, .. }| {
            self.lock = Some(lock);
            check_indexes(&self.storage, &self.paths, &descriptor, &self.options)?;
            let rows = rows_of_greatest_epoch(&*self.storage, &self.paths, &descriptor);
            self.background.endpoint().engine.resume_after(rows);
            self.bitmaps.open(&self.paths, &descriptor, &self.options)?;
            Ok(descriptor)
        });
        opened.map_or_else(|error| Announcement::refused(&error), |descriptor| self.announce(&descriptor))
    }

    /// Announces a dataset, and this rank's other arguments.
    fn announce(&self, descriptor: &DatasetDescriptor) -> Announcement {
        let indexes = self.options.indexes.iter().map(ToString::to_string).collect();
        let path = self.paths.descriptor();
        match descriptor.encode().map_err(|source| Error::Io { operation: "encode", path, source }) {
            Ok(descriptor) => Announcement::Dataset { descriptor, receivers: self.options.receivers, indexes },
            Err(error) => Announcement::refused(&error),
        }
    }

    /// Compares this rank's arguments with those of rank 0.
    fn accept_arguments(&self, descriptor: &[u8], receivers: u32) -> Result<()> {
        let wanted = DatasetDescriptor::decode(descriptor, &self.paths.descriptor())?;
        match wanted.check_same(&self.paths, &self.descriptor) {
            Err(Error::Mismatch { what, .. }) => {
                let what = format!("is not that of rank 0: {what} here");
                return Err(UsageError::Option { option: "schema", what }.into());
            }
            compared => compared?,
        }
        if receivers != self.options.receivers {
            let what = format!("{} here, {receivers} on rank 0", self.options.receivers);
            return Err(UsageError::Option { option: "receivers", what }.into());
        }
        Ok(())
    }

    fn accept_dataset(&mut self, descriptor: &[u8]) -> Result<()> {
        let found = DatasetDescriptor::decode(descriptor, &self.paths.descriptor())?;
        found.check_same(&self.paths, &self.descriptor)?;
        found.check_level_weight(&self.paths, self.options.level_weight.as_deref())?;
        self.descriptor = found;
        Ok(())
    }

    /// Compares the indexes that rank 0 makes with this rank's, and with the connections that this rank has for them.
    fn accept_indexes(&self, announced: &[String], connections: usize) -> Result<()> {
        let own: Vec<String> = self.options.indexes.iter().map(ToString::to_string).collect();
        let what = if own != announced {
            format!("[{}] here, [{}] on rank 0", own.join(", "), announced.join(", "))
        } else if self.options.index_connections() > connections {
            let wanted = self.options.index_connections();
            format!("{wanted} indexes need a connection each, and the transport has {connections}")
        } else {
            return Ok(());
        };
        Err(UsageError::Option { option: "index", what }.into())
    }
}

/// Returns a function that tells a listener of failures. The failure of an index's epoch is told as that of the
/// records.
fn failures_to(listener: Arc<dyn Listener>, is_index: bool) -> impl Fn(&Failure, Option<u64>) + Send {
    move |Failure { rank, cause }, epoch| match epoch {
        Some(_) if is_index => {}
        Some(epoch) => listener.failed(&Error::EpochFailed { epoch, rank: *rank, cause: cause.clone() }),
        None => listener.failed(&objection(Failure { rank: *rank, cause: cause.clone() })),
    }
}
