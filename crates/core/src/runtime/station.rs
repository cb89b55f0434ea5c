//! One rank's engine and writer, joined: what every driver with files does for a rank, whatever carries its messages.
//!
//! A *session* is what the engine calls an epoch: begun on all ranks, announced by rank 0, ended with one outcome for all. A
//! session in which a station gets no writer moves no records; ranks use it to agree on something.
//!
//! Invariant: no record is taken before the station has a writer, and none is dropped afterwards.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use super::gather;
use super::traffic::RankTraffic;
use crate::error::{Error, Result};
use crate::format::{BucketBounds, EpochFigures, Memtable, PartId, PartIdentity, RunKind};
use crate::runtime::process::memory::{MemtableMemory, Share};
use crate::schema::Schema;
use crate::shuffle::{Append, BatchMemory, Engine, Event, Failure, MessageError, Peers, Transport};
use crate::store::EpochCommit;
use crate::writer::{Completion, PartFactory, Task, Writer, WriterOptions};

/// A way in which the engine keeps records on their own rank; answers how many.
type Spill = fn(&mut Engine, &mut dyn FnMut(RunKind, &[u8])) -> u64;

/// One rank: its state machines and what they need.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) engine: Engine,
    schema: Arc<Schema>,
    writer: Option<Writer>,
    /// Where the memory of memtables comes from, and this writer's share in it.
    memory: Arc<MemtableMemory>,
    share: Option<Share>,
    /// The size of a memtable where no other dataset wants memory.
    memtable_bytes: usize,
    /// How the rows of the last memtable were spread.
    spread: Option<BucketBounds>,
    factory: Option<Arc<PartFactory>>,
    table_version: u32,
    route_s: f64,
    /// Most memory of batches on their way out, since the session began.
    batches: BatchMemory,
    /// What rank 0 announced, until it is taken.
    announcement: Option<Vec<u8>>,
    /// Why this rank must not agree to a session without records.
    objection: Option<String>,
    /// Every record of the session has been delivered.
    closed: bool,
    /// Set when the session is over here.
    outcome: Option<Result<Vec<u8>, Failure>>,
    /// On rank 0: the epoch to commit, and when it was begun.
    commit: Option<(EpochCommit, Instant)>,
}

impl Station {
    pub(super) fn new(mut engine: Engine, schema: Arc<Schema>, memory: Arc<MemtableMemory>) -> Self {
        let merging = Arc::clone(&schema);
        engine.merge_payloads(move |payloads| gather::merge(&merging, payloads).map_err(|error| error.to_string()));
        Self {
            engine,
            schema,
            writer: None,
            memory,
            share: None,
            memtable_bytes: 0,
            spread: None,
            factory: None,
            table_version: 0,
            route_s: 0.0,
            batches: BatchMemory::default(),
            announcement: None,
            objection: None,
            closed: false,
            outcome: None,
            commit: None,
        }
    }

    /// Begins a session. What rank 0 announces reaches every rank.
    pub(super) fn begin(&mut self, announcement: Vec<u8>) {
        self.table_version = 0;
        self.route_s = 0.0;
        self.batches = BatchMemory::default();
        self.closed = false;
        (self.announcement, self.objection, self.outcome) = (None, None, None);
        self.factory = None;
        self.engine.begin(announcement);
    }

    /// On rank 0, in a session that writes an epoch: what is to be committed at its end.
    pub(super) fn will_commit(&mut self, commit: EpochCommit) {
        self.commit = Some((commit, Instant::now()));
    }

    /// Lets the session's records in.
    pub(super) fn equip(&mut self, options: WriterOptions, factory: Arc<PartFactory>) {
        let share = Share::of(&self.memory);
        self.memtable_bytes = options.memtable_bytes;
        let memtable_bytes = share.memtable_bytes(options.memtable_bytes);
        let mut writer = Writer::new(WriterOptions { memtable_bytes, ..options }, Arc::clone(&self.schema));
        for memory in std::iter::from_fn(|| share.take()) {
            writer.reuse(memory, self.spread);
        }
        // Others may have opened the epoch earlier and agreed on a table meanwhile.
        writer.set_partition(self.table_version, self.engine.bounds());
        (self.writer, self.share, self.factory) = (Some(writer), Some(share), Some(factory));
    }

    /// Has the writer take no more memory than it is entitled to now.
    pub(super) fn keep_to_share(&mut self) {
        if let (Some(writer), Some(share)) = (&mut self.writer, &self.share) {
            writer.set_memtable_bytes(share.memtable_bytes(self.memtable_bytes));
        }
    }

    /// Makes the session fail on this rank, and so on all.
    pub(super) fn object(&mut self, cause: Error) {
        match &mut self.writer {
            Some(writer) => writer.fail(cause),
            None => self.objection = Some(cause.cause()),
        }
    }

    /// Bytes in the engine's buffers and in memtables.
    pub(super) fn resident_bytes(&self) -> usize {
        let writer = self.writer.as_ref().map_or(0, Writer::resident_bytes);
        self.engine.resident_bytes() + writer + self.memory.spare_bytes()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    pub(super) fn take_announcement(&mut self) -> Option<Vec<u8>> {
        self.announcement.take()
    }

    pub(super) fn has_announcement(&self) -> bool {
        self.announcement.is_some()
    }

    /// The session's outcome, once it is over. After a failure nothing is left to commit.
    pub(super) fn take_outcome(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        let outcome = self.outcome.take();
        if let Some(Err(_)) = outcome
            && let Some((commit, _)) = self.commit.take()
        {
            commit.abandon();
        }
        outcome
    }

    /// Takes rows of an append, as many as fit. Answers whether any did.
    pub(super) fn advance(&mut self, append: &mut Append<'_>) -> bool {
        let begun = Instant::now();
        let before = self.engine.figures().originated;
        self.engine.advance(append);
        self.route_s += begun.elapsed().as_secs_f64();
        self.batches = self.batches.peak(self.engine.batch_memory());
        self.engine.figures().originated > before
    }

    /// What this rank had to do with others since the session began.
    pub(super) fn traffic(&self) -> RankTraffic {
        let Peers { recipients, senders } = self.engine.peers();
        let BatchMemory { open_bytes, resident_bytes, .. } = self.batches;
        RankTraffic {
            recipients,
            senders,
            forwarded: self.engine.figures().forwarded,
            open_batch_bytes: open_bytes as u64,
            batch_bytes: resident_bytes as u64,
        }
    }

    /// Exchanges messages and acts on the engine's events until there are none. Answers whether anything moved;
    /// [`Station::next_task`] has what is to be done then.
    pub(super) fn drive(&mut self, transport: &mut dyn Transport) -> Result<bool> {
        let mut moved = false;
        loop {
            if self.exchange(transport)? {
                moved = true;
                self.batches = self.batches.peak(self.engine.batch_memory());
            }
            let Some(event) = self.engine.event() else { return Ok(moved) };
            moved = true;
            // What the engine has to say about it is sent before this rank is found to be done.
            self.act(event);
        }
    }

    fn exchange(&mut self, transport: &mut dyn Transport) -> Result<bool> {
        let rank = self.engine.options().rank;
        self.keep_to_share();
        // Once the parts are sealed there is no writer, but still control messages.
        let writer = RefCell::new(self.writer.as_mut());
        let mut moved = false;
        loop {
            moved |= self
                .engine
                .exchange(
                    transport,
                    || writer.borrow().as_ref().is_some_and(|writer| writer.accepts()),
                    &mut |kind, rows| {
                        if let Some(writer) = writer.borrow_mut().as_mut() {
                            writer.push(kind, rows);
                        }
                    },
                )
                .map_err(|source| Error::Message { rank, source })?;
            if self.engine.table_version() == self.table_version {
                break;
            }
            // An exchange ends when a table comes into force, so that what follows is stored under its bounds.
            self.table_version = self.engine.table_version();
            if let Some(writer) = writer.borrow_mut().as_mut() {
                writer.set_partition(self.table_version, self.engine.bounds());
            }
        }
        Ok(moved)
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::GatherFailed => {}
            Event::Opened { announcement } => self.announcement = Some(announcement),
            Event::Closed => {
                self.closed = true;
                match &mut self.writer {
                    Some(writer) => writer.finish(),
                    None => self.engine.sealed(self.objection.take().map_or(Ok(Vec::new()), Err)),
                }
            }
            Event::Gathered { payloads } => {
                let result = self.commit(payloads);
                self.engine.committed(result.map_err(|error| error.cause()));
            }
            Event::Over { outcome } => self.outcome = Some(outcome),
        }
    }

    /// The writer's next task, if one may be begun now.
    pub(super) fn next_task(&mut self) -> Option<(Arc<PartFactory>, Task)> {
        let task = self.writer.as_mut()?.next_task()?;
        Some((Arc::clone(self.factory.as_ref()?), task))
    }

    /// Takes the result of a task.
    pub(super) fn complete(&mut self, completion: Completion) {
        if let Some(writer) = &mut self.writer {
            writer.complete(completion);
        }
    }

    /// Tells rank 0 what this rank's writer achieved, once that is all. Answers whether it was.
    pub(super) fn report_when_finished(&mut self) -> bool {
        let Some(writer) = self.writer.take_if(|writer| writer.is_finished()) else { return false };
        let Some(factory) = &self.factory else { return false };
        let PartIdentity { epoch, commit, .. } = factory.identity;
        let mut outcome = writer.into_outcome();
        let (memory, spread): (Vec<_>, Vec<_>) = outcome.spare.drain(..).map(Memtable::into_memory).unzip();
        self.spread = spread.into_iter().flatten().last().or(self.spread);
        if let Some(share) = self.share.take() {
            share.leave(memory.into_iter());
        }
        let result = match outcome.error.take() {
            Some(error) => Err(error),
            None => {
                let traffic = self.traffic();
                gather::report(&self.schema, epoch, commit, &self.engine, traffic, self.route_s, outcome)
            }
        };
        self.engine.sealed(result.map_err(|error| error.cause()));
        self.engine.release();
        true
    }

    /// Keeps on this rank what no other takes in time. Answers whether there was something to keep, and room for it.
    pub(super) fn spill(&mut self) -> bool {
        self.keep(Engine::spill)
    }

    /// The same for ranks that were waited for before.
    pub(super) fn spill_unwilling(&mut self) -> bool {
        self.keep(Engine::spill_unwilling)
    }

    fn keep(&mut self, spill: Spill) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        // The rank's own storage is no other rank's progress: waiting for it is allowed.
        writer.accepts() && spill(&mut self.engine, &mut |kind, rows| writer.push(kind, rows)) > 0
    }

    /// Commits what the ranks report. Answers the epoch's figures, for all ranks to know.
    fn commit(&mut self, payloads: Vec<(u32, Vec<u8>)>) -> Result<Vec<u8>> {
        let (Some((commit, begun)), Some(factory)) = (self.commit.take(), &self.factory) else {
            return Ok(Vec::new());
        };
        let PartIdentity { epoch, commit: identity, .. } = factory.identity;
        let mut manifest = gather::join(&self.schema, epoch, identity, payloads)?;
        if manifest.parts.is_empty() {
            // An epoch without records is one part without rows: the folder must open in every tool.
            manifest.parts.push(factory.create(PartId { rank: 0, roll: 0 })?.finish()?);
        }
        // What the manifest says of itself ends before it is written.
        manifest.figures.wall_s = begun.elapsed().as_secs_f64();
        let figures = encode_figures(&manifest.figures);
        commit.commit(manifest)?;
        Ok(figures)
    }
}

fn encode_figures(figures: &EpochFigures) -> Vec<u8> {
    // Numbers only: there is nothing JSON could refuse.
    serde_json::to_vec(figures).unwrap_or_default()
}

/// The figures in the outcome of an epoch that was committed.
pub(super) fn decode_figures(rank: u32, words: &[u8]) -> Result<EpochFigures> {
    serde_json::from_slice(words)
        .map_err(|_| Error::Message { rank, source: MessageError::Field { field: "figures of an epoch" } })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::path::Path;

    use uuid::Uuid;

    use super::*;
    use crate::format::{PartOptions, scan_seals};
    use crate::schema::{Column, ColumnView, DataType};
    use crate::shuffle::{Channel, EngineOptions, Sent};
    use crate::storage::{MemoryStorage, Storage};

    /// What was sent to each of two ranks, and which of them polls.
    #[derive(Default)]
    struct Post {
        queues: [VecDeque<(Channel, Vec<u8>)>; 2],
        rank: usize,
    }

    impl Transport for Post {
        fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
            self.queues[to as usize].push_back((channel, message));
            Sent::Accepted
        }

        fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
            let queue = &mut self.queues[self.rank];
            let place = queue.iter().position(|(of, _)| *of == channel)?;
            queue.remove(place).map(|(_, message)| message)
        }
    }

    fn drive(stations: &mut [Station; 2], post: &mut Post) {
        for _ in 0..20 {
            for (rank, station) in stations.iter_mut().enumerate() {
                post.rank = rank;
                station.drive(post).unwrap();
                while let Some((factory, task)) = station.next_task() {
                    station.complete(factory.execute(task, &mut Default::default()));
                }
                station.report_when_finished();
            }
        }
    }

    /// Appends keys on rank 0.
    fn append(stations: &mut [Station; 2], post: &mut Post, keys: impl Iterator<Item = u32>) {
        let bytes: Vec<u8> = keys.flat_map(u32::to_le_bytes).collect();
        let views = [ColumnView::new(&bytes, 4, bytes.len() / 4, DataType::U32).unwrap()];
        let mut append = stations[0].engine.append(&views).unwrap();
        while stations[0].advance(&mut append) {
            drive(stations, post);
        }
        assert!(append.is_done());
    }

    /// A rank may be the last to open an epoch, when the others have agreed on a table already. Found by a test of the preload
    /// library: after the second table the run's bounds were those of that one alone, and `verify` called its keys damage.
    #[test]
    fn a_table_that_is_there_before_the_writer_counts() {
        let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap());
        let memory = Arc::new(MemtableMemory::default());
        let mut stations = [0, 1].map(|rank| {
            let engine = Engine::new(EngineOptions::new(rank, 2), Arc::clone(&schema));
            Station::new(engine, Arc::clone(&schema), Arc::clone(&memory))
        });
        let storage = MemoryStorage::new();
        let factory = Arc::new(PartFactory {
            storage: Arc::new(storage.clone()),
            directory: "/epoch".into(),
            schema: Arc::clone(&schema),
            options: PartOptions::default(),
            identity: PartIdentity { dataset: Uuid::nil(), commit: Uuid::nil(), epoch: 0 },
        });
        storage.create_dir_all(Path::new("/epoch")).unwrap();
        let mut post = Post::default();
        let equip = |station: &mut Station, rank| {
            station.equip(crate::runtime::WriteOptions::new(2).writer(rank), Arc::clone(&factory));
        };
        stations.iter_mut().for_each(|station| station.begin(Vec::new()));
        drive(&mut stations, &mut post);
        equip(&mut stations[0], 0);
        append(&mut stations, &mut post, 0..4096);
        let first = stations[1].engine.bounds().expect("a table is in force before the rank has a writer");
        equip(&mut stations[1], 1);
        drive(&mut stations, &mut post);
        append(&mut stations, &mut post, 100_000..104_096);
        stations[0].engine.request_renegotiation();
        drive(&mut stations, &mut post);
        let second = stations[1].engine.bounds().expect("a table is in force");
        assert!(first.0.compare(second.0).is_some_and(|order| order.is_lt()), "{first:?} {second:?}");
        stations.iter_mut().for_each(|station| station.engine.end());
        drive(&mut stations, &mut post);
        stations[0].engine.idle();
        drive(&mut stations, &mut post);
        let path = factory.directory.join(PartId { rank: 1, roll: 0 }.file_name());
        let runs = scan_seals(&*storage.open(&path).unwrap(), &path, &schema).unwrap();
        let bounds: Vec<_> = runs.iter().filter(|run| run.kind == RunKind::Regular).map(|run| run.bounds).collect();
        assert_eq!(bounds.first().and_then(|bounds| bounds.map(|(low, _)| low)), Some(first.0), "{runs:?}");
    }
}
