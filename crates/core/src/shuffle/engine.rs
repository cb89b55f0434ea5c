//! One rank's engine: its state, its events, and the processing of messages.

mod append;
mod forward;
mod frame;
mod negotiation;
mod order;
mod prior;
mod quiescence;
mod receivers;
mod session;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;

use super::last_epoch::LastEpoch;
use super::message::{Control, Failure, FirstTable};
use super::metrics::EngineMetrics;
use super::options::{EngineOptions, Renegotiation, Routing};
use super::outbox::{BatchMemory, Outbox};
use super::peers::Peers;
use super::placement::Placement;
use super::receiver::Receiver;
use super::transport::{Channel, Sent, Transport};
use super::tree::TreePlace;
use super::wire::MessageError;
use crate::partition::{Frame, Partitioner, Sketch, TableCache, TablePlannerOptions, TieSequence, partitioner};
use crate::random::{self, Random};
use crate::schema::{Schema, Value};

pub use append::Append;

use session::{Phase, Session};

/// A state change that the driver must act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All ranks have begun the epoch.
    Opened {
        /// Rank 0's announcement.
        announcement: Vec<u8>,
    },
    /// Every record of the epoch has been delivered. The driver seals the parts and calls [`Engine::sealed`].
    Closed,
    /// All ranks have sealed their parts or failed; emitted on rank 0 only. The driver commits, or tells of the
    /// failure, and calls [`Engine::finish`]. The other ranks do not know the outcome before that.
    Gathered {
        /// One payload per rank, or per group of ranks whose payloads were merged ([`Engine::merge_payloads`]).
        payloads: Result<Payloads, Failure>,
    },
    /// The epoch has ended on this rank: committed or aborted.
    Over {
        /// Rank 0's result of the committed epoch ([`Engine::finish`]), or the failure.
        outcome: Result<Vec<u8>, Failure>,
    },
}

/// Payloads that ranks return at the end of an epoch ([`Engine::sealed`]), each with the number of one of its ranks.
pub type Payloads = Vec<(u32, Vec<u8>)>;

/// The function that merges several ranks' payloads into one.
struct Merge(Box<dyn Fn(Payloads) -> Result<Vec<u8>, String> + Send>);

impl std::fmt::Debug for Merge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Merge")
    }
}

/// One rank's engine. See the documentation of [`crate::shuffle`].
#[derive(Debug)]
pub struct Engine {
    options: EngineOptions,
    place: TreePlace,
    schema: Arc<Schema>,
    partitioner: Box<dyn Partitioner>,
    /// The frame that records are divided in, if they are divided by place and it is known.
    frame: Option<Frame>,
    /// Whether the table does not depend on the records, so that there is nothing to negotiate.
    has_fixed_table: bool,
    merge: Option<Merge>,
    /// Decoded partition tables, shared with the other ranks of this process.
    cache: Arc<TableCache>,
    session: Session,
    events: VecDeque<Event>,
    control: VecDeque<(u32, Control)>,
    /// Number of children that have begun this session or the next one. Children may begin a session before this rank.
    ready_children: u32,
    outbox: Outbox,
    /// Stored rows of records that have no destination yet.
    held: Vec<u8>,
    /// Batches routed by a table newer than this rank's, buffered until that table arrives.
    ahead: Vec<Vec<u8>>,
    /// The last epoch with records that was committed.
    last: Option<LastEpoch>,
    /// Number of records of the next epoch, as the application expects. Used on rank 0 only.
    hint_rows: Option<u64>,
    /// Number of records of the last epoch, if nothing else is known of it. Used on rank 0 only.
    rows_before: Option<u64>,
    sketch: Sketch,
    ties: TieSequence,
    /// State of the random number generator for sampling phases.
    random: Random,
    scratch: Scratch,
}

/// Buffers of `append`, reused for every block.
#[derive(Debug, Default)]
struct Scratch {
    block: Vec<u8>,
    ordinals: Vec<u64>,
    destinations: Vec<u32>,
}

/// Returns the planner's options. If tables are rare, a table balances the loads over an interval like the last one. If
/// they come in quick succession, it must not try to balance them over so short an interval.
fn planner_options(options: &EngineOptions, most_slots: usize) -> TablePlannerOptions {
    let remainder = match options.renegotiation {
        Renegotiation::Adaptive => ADAPTIVE_REMAINDER,
        Renegotiation::Every(_) | Renegotiation::OnRequest => 0.0,
    };
    TablePlannerOptions { remainder, most_slots, ..TablePlannerOptions::default() }
}

/// Minimum number of records over which an adaptive table balances the loads, as a multiple of the records before.
const ADAPTIVE_REMAINDER: f64 = 1.0 / 6.0;

/// Maximum number of batches buffered for a newer table. At the limit the engine stops polling data but keeps polling
/// control, so that the table can arrive.
const AHEAD_LIMIT: usize = 8;

impl Engine {
    /// Creates an idle engine.
    pub fn new(options: EngineOptions, schema: Arc<Schema>) -> Self {
        let place = TreePlace::new(options.rank, options.ranks, &options.topology);
        // Mixes the rank into the seed. With equal ties on all ranks, records of equal keys would again go to one
        // receiver.
        let seed = (options.seed ^ u64::from(options.rank)).wrapping_mul(random::STEP).rotate_left(32);
        debug_assert!(options.topology.fits(options.ranks));
        let routes = match options.routing {
            Routing::ByNode => options.topology.routes(options.rank),
            Routing::Direct => None,
        };
        let outbox = Outbox::new(
            options.rank,
            schema.row_bytes(),
            options.batch_bytes,
            options.outbox_bytes,
            options.ranks as usize,
            routes,
        );
        let partitioner = partitioner(&schema);
        Self {
            place,
            has_fixed_table: partitioner.fixed_table(1, 1).is_some(),
            merge: None,
            cache: Arc::default(),
            session: Session::default(),
            events: VecDeque::new(),
            control: VecDeque::new(),
            ready_children: 0,
            outbox,
            held: Vec::new(),
            ahead: Vec::new(),
            last: None,
            hint_rows: None,
            rows_before: None,
            sketch: Sketch::for_keys(partitioner.order(), Sketch::DEFAULT_CAPACITY, seed),
            partitioner,
            frame: None,
            ties: TieSequence::new(seed as u32),
            random: Random::new(seed),
            scratch: Scratch::default(),
            schema,
            options,
        }
    }

    /// Shares decoded partition tables with the other ranks of this process that use the same cache. Each table is
    /// decoded and stored once.
    pub fn share_tables(&mut self, cache: Arc<TableCache>) {
        self.cache = cache;
    }

    /// Sets the function that merges the payloads of a subtree ([`Engine::sealed`]) on their way to rank 0, so that
    /// rank 0 receives fewer payloads than there are ranks. The function must also accept its own output.
    pub fn merge_payloads(&mut self, merge: impl Fn(Payloads) -> Result<Vec<u8>, String> + Send + 'static) {
        self.merge = Some(Merge(Box::new(merge)));
    }

    /// Returns the next number in 0..1 of the seed's random sequence (SplitMix64).
    fn sampling_phase(&mut self) -> f64 {
        self.random.fraction()
    }

    /// Returns the engine's options.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Returns the metrics of the current epoch, or of the last one.
    pub fn metrics(&self) -> EngineMetrics {
        self.session.metrics
    }

    /// Returns the number of records of all ranks, on rank 0 once all ranks have sent theirs.
    pub fn total_rows(&self) -> Option<u64> {
        self.session.quiescence.total
    }

    /// Returns the version of the partition table in force; 0 before the first table.
    pub fn table_version(&self) -> u32 {
        self.session.installed.as_ref().map_or(0, |installed| installed.table.version())
    }

    /// Returns this receiver's partition as a closed key range. `None` before the first table, on non-receivers, and if
    /// partitions are no intervals of keys.
    pub fn bounds(&self) -> Option<(Value, Value)> {
        self.partitioner.bounds(self.session.installed.as_ref()?.own_bounds?)
    }

    /// Returns whether ranks negotiate tables.
    pub(in crate::shuffle) fn negotiates(&self) -> bool {
        self.options.receivers > 1 && !self.has_fixed_table
    }

    /// Frees the buffers kept for further records, so that another dataset can use the memory.
    pub fn release(&mut self) {
        self.outbox.release();
        self.held.shrink_to_fit();
        self.scratch = Scratch::default();
    }

    /// Removes and returns the next event for the driver.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Begins an epoch on this rank. On rank 0, [`Event::Opened`] carries `announcement` to every rank.
    pub fn begin(&mut self, announcement: Vec<u8>) {
        debug_assert_eq!(self.session.phase, Phase::Idle);
        self.session = self.session.next(announcement);
        self.sketch.clear();
        self.report_ready();
    }

    /// Returns whether records may be appended.
    pub fn is_open(&self) -> bool {
        self.session.phase == Phase::Open
    }

    fn report_ready(&mut self) {
        if self.ready_children < self.children_count() {
            return;
        }
        let Some(announcement) = self.session.unreported.take() else { return };
        self.ready_children = 0;
        match self.place.parent() {
            Some(parent) => self.control.push_back((parent, Control::Ready)),
            None => {
                self.place_partitions();
                self.begin_with_frame();
                let first = self.begin_with_table();
                self.open(announcement, first);
            }
        }
    }

    fn open(&mut self, announcement: Vec<u8>, first: Option<FirstTable>) {
        if self.has_fixed_table {
            self.install_fixed();
        } else if first.is_none() {
            // Rank 0 has forgotten the last epoch, so all ranks do.
            self.last = None;
        }
        let placement = (self.session.placement.partitions(), self.session.placement.shift());
        self.tell_children(&Control::Go { announcement: announcement.clone(), placement, frame: self.frame, first });
        self.session.phase = Phase::Open;
        self.events.push_back(Event::Opened { announcement });
    }

    fn children_count(&self) -> u32 {
        self.place.children().len() as u32
    }

    fn tell_children(&mut self, message: &Control) {
        for &child in self.place.children() {
            self.control.push_back((child, message.clone()));
        }
    }

    /// Sends and receives messages until the transport has none and accepts none, or `receiver` accepts no more
    /// records. Returns whether a message moved.
    ///
    /// # Errors
    /// [`MessageError`] when a message cannot be decoded or is out of order. The job cannot continue after that.
    pub fn exchange(
        &mut self,
        transport: &mut dyn Transport,
        receiver: &mut dyn Receiver,
    ) -> Result<bool, MessageError> {
        self.outbox.check()?;
        let mut moved = false;
        loop {
            self.announce_first_table(receiver)?;
            self.advance_round(receiver)?;
            let mut step = self.send(transport);
            let version = self.table_version();
            while self.table_version() == version
                && let Some(message) = transport.poll(Channel::Control)
            {
                step = true;
                self.receive_control(&message, receiver)?;
            }
            if self.table_version() != version {
                // Sends the batches that the new table filled before more records arrive.
                moved = true;
                continue;
            }
            while self.ahead.len() < AHEAD_LIMIT && receiver.accepts() {
                let Some(message) = transport.poll(Channel::Data) else { break };
                step = true;
                self.receive_data(message, receiver)?;
            }
            step |= self.forward_arrived(transport)?;
            if !step {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Delivers the batches that were buffered for the table now in force.
    pub(in crate::shuffle) fn deliver_ahead(&mut self, receiver: &mut dyn Receiver) -> Result<(), MessageError> {
        for message in std::mem::take(&mut self.ahead) {
            self.receive_data(message, receiver)?;
        }
        Ok(())
    }

    /// Notifies the engine that no message moved recently. Rank 0 then counts deliveries again.
    pub fn idle(&mut self) {
        self.probe_again();
    }

    fn send(&mut self, transport: &mut dyn Transport) -> bool {
        let mut sent = false;
        while let Some((to, message)) = self.control.pop_front() {
            // The transport always accepts control messages.
            transport.send(to, Channel::Control, message.encode(self.session.number));
            self.session.metrics.messages += 1;
            sent = true;
        }
        self.flush_at_the_end();
        let Self { outbox, session: Session { metrics, traffic, unresponsive, .. }, options, .. } = self;
        outbox.offer(|to, channel, message| match transport.send(to, channel, message) {
            Sent::Accepted => {
                metrics.messages += 1;
                traffic.sent(options.rank, to);
                unresponsive.remove(&to);
                sent = true;
                None
            }
            Sent::NoCredit(message) => Some(message),
        });
        self.settle_when_empty();
        sent
    }

    fn receive_control(&mut self, message: &[u8], receiver: &mut dyn Receiver) -> Result<(), MessageError> {
        let (session, message) = Control::decode(message)?;
        // A child may begin the next epoch before this rank does. Any other control message of another session is
        // stale, since its epoch has ended.
        if let Control::Ready = message {
            if self.ready_children == self.children_count() {
                return Err(MessageError::Field { field: "place in the order of messages" });
            }
            self.ready_children += 1;
            self.report_ready();
            return Ok(());
        }
        if session != self.session.number {
            return Ok(());
        }
        self.check_order(&message)?;
        match message {
            Control::Ready => {}
            Control::Go { announcement, placement: (partitions, shift), frame, first } => {
                let placement = Placement::decode(&self.options, partitions, shift);
                self.session.placement = placement.ok_or(MessageError::Field { field: "receivers" })?;
                self.receive_first_frame(frame)?;
                if let Some(first) = &first {
                    self.receive_first_table(first)?;
                }
                self.open(announcement, first);
            }
            Control::Request { version, urgent } => {
                self.check_request(version)?;
                self.receive_request(version, urgent);
            }
            Control::Begin { version, with_pivots } => self.join_round(version, with_pivots)?,
            Control::Report(report) => self.receive_report(report)?,
            Control::Keep { version, interval_rows } => self.keep_table(version, interval_rows)?,
            Control::Table { interval_rows, range, table } => {
                self.receive_table(interval_rows, range, &table, receiver)?;
            }
            Control::Frame(frame) => self.receive_frame(frame)?,
            Control::Settled { originated, summary } => self.child_settled(originated, summary)?,
            Control::Probe { round } => self.receive_probe(round),
            Control::Delivered { round, delivered } => self.child_delivered(round, delivered)?,
            Control::Closed { rows } => self.close(rows),
            Control::SealReport(sealed) => self.child_sealed(sealed),
            Control::Outcome(outcome) => self.finish(outcome),
        }
        Ok(())
    }
}
