//! One history: a job that is launched, hit by faults, killed and launched again. All of its events follow from one
//! seed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use turbidite::storage::{Fault, FaultStorage, FileKind, MemoryStorage, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths, VerifyOptions, lock_holder, salvage, verify_on};
use turbidite::{Clustering, IfExists, Levels, Prior, Renegotiation, Routing, SecondaryIndex, Topology, WriteOptions};

use crate::audit::{audit, files_below, filters_of};
use crate::audit_index::audit_index;
use crate::coverage::Coverage;
use crate::disk::{ROOT, Shared};
use crate::faults::{Crash, Failure, Faults, Plan, Trigger, Trouble};
use crate::job::{Calls, Launch, Progress, Step, Told, read_all, write_new};
use crate::model::Model;
use crate::network::Network;
use crate::random::{Random, mix};
use crate::reader;
use crate::trace::Trace;
use crate::workload::Writing;
use crate::world::World;

/// Stall limit of the ranks, in simulated time.
const STALL_LIMIT: Duration = Duration::from_secs(20);

/// The boot ID in the locks of a machine that was restarted.
const BOOT_BEFORE: &str = "the boot before";

/// Precedes the host in the locks of another machine.
const NOT: &str = "not ";

/// The state of the machine of a writer that has left its lock. In truth it was this process, which runs, and which
/// knows that the writer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    /// The next writer runs elsewhere, and cannot know whether the holder has ended.
    Other,
    /// The next writer runs on this machine, which was restarted since.
    Restarted,
}

/// The result of a history.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) turns: u64,
    pub(crate) epochs: u64,
    pub(crate) crashes: u64,
    pub(crate) coverage: Coverage,
    /// The first violation, if any.
    pub(crate) violation: Option<String>,
}

/// The job of a history. It is the same in all launches, except for parameters that restarts may change.
#[derive(Debug)]
struct JobSettings {
    options: WriteOptions,
    slowness: Vec<u64>,
    longest_delay_ns: u64,
    longest_computation: Duration,
}

impl JobSettings {
    fn draw(random: &mut Random) -> Self {
        let ranks = random.pick(&[1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 8]);
        let nodes = if ranks >= 4 && random.one_in(2) { random.between(2, 3) as u32 } else { 1 };
        let labels: Vec<u32> =
            (0..ranks).map(|rank| if rank < nodes { rank } else { random.below(u64::from(nodes)) as u32 }).collect();
        let topology = if nodes == 1 { Topology::one_node() } else { Topology::from_nodes(&labels) };
        let renegotiations = [Renegotiation::Adaptive, Renegotiation::Adaptive, Renegotiation::OnRequest];
        let renegotiation =
            if random.one_in(3) { Renegotiation::Every(random.between(20, 400)) } else { random.pick(&renegotiations) };
        let receivers = if random.one_in(4) { random.between(1, u64::from(ranks)) as u32 } else { ranks };
        let mut options = WriteOptions::new(ranks);
        options.receivers = receivers;
        options.part_bytes = Some(random.pick(&[0, 0, 256, 1 << 10, 8 << 10]));
        options.topology = topology;
        options.routing = if random.one_in(6) { Routing::Direct } else { Routing::ByNode };
        options.pivots = random.pick(&[2, 16, 64]);
        options.renegotiation = renegotiation;
        options.prior = if random.one_in(4) { Prior::None } else { Prior::Last };
        options.memtable_bytes = random.pick(&[1 << 10, 2 << 10, 4 << 10, 32 << 10]);
        options.page_rows = random.pick(&[8, 32, 256]);
        options.row_groups_per_run = random.pick(&[1, 1, 2, 4]);
        options.row_groups_per_part = random.pick(&[1, 3, 8, 1000]);
        options.credit_batches = random.pick(&[1, 1, 2, 8]);
        options.credit_timeout = Duration::from_micros(random.pick(&[0, 50, 500, 3000]));
        options.stall_limit = Some(STALL_LIMIT);
        let slowness = (0..ranks).map(|_| if random.one_in(5) { random.between(3, 12) } else { 1 }).collect();
        Self {
            options,
            slowness,
            longest_delay_ns: random.pick(&[2_000, 20_000, 20_000, 300_000]),
            longest_computation: Duration::from_micros(random.pick(&[1, 20, 200, 2000])),
        }
    }
}

/// The intended course of one launch.
struct Intent {
    if_exists: IfExists,
    break_lock: bool,
    /// Whether another writer holds the lock.
    is_locked: bool,
    steps: Vec<Step>,
    plan: Plan,
    /// Whether a crash is a power failure. A `Some` seed preserves some of the unsynced changes.
    power: Option<Option<u64>>,
}

struct History {
    random: Random,
    settings: JobSettings,
    memory: MemoryStorage,
    model: Arc<Mutex<Model>>,
    trace: Trace,
    report: Report,
    writings: u32,
}

/// Returns the indexes that the history of a seed makes: six in ten have some.
fn indexes(seed: u64) -> Vec<SecondaryIndex> {
    let texts: &[&str] = match mix(seed ^ 0x0021) % 10 {
        0 => &["id"],
        1 => &["hash:id,with=key"],
        2 => &["key"],
        3 => &["key,with=id", "hash:id"],
        4 => &["bitmap:key,id"],
        5 => &["bitmap:id", "id", "bitmap:key,precision=1"],
        _ => &[],
    };
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Runs the history of a seed. `loud` prints every event.
pub(crate) fn run(seed: u64, loud: bool) -> Report {
    let mut random = Random::new(seed);
    let mut settings = JobSettings::draw(&mut random);
    settings.options.indexes = indexes(seed);
    let memory = if random.one_in(3) { MemoryStorage::without_exchange() } else { MemoryStorage::new() };
    let trace = Trace::new(loud);
    if loud {
        println!("{settings:?}");
    }
    // One history in four is clustered by hash, and one in eight by space, two thirds of them with levels of detail.
    let clustering = match mix(seed) % 8 {
        0 | 4 => Clustering::Hash,
        1 => Clustering::Space,
        _ => Clustering::Range,
    };
    let levels = match mix(seed ^ 0x0022) % 6 {
        count @ 1..=3 if clustering == Clustering::Space => Some(Levels { count: count as u8, seed }),
        4 if clustering == Clustering::Space => Some(Levels { count: 6, seed }),
        _ => None,
    };
    // Half of them are in proportion to a column: one with NaN, infinities and negative numbers, or large integers.
    let weight = match mix(seed ^ 0x0166) % 4 {
        0 => Some("key"),
        1 => Some("id"),
        _ => None,
    };
    let detail = levels.map(|levels| (levels, weight));
    let model = Arc::new(Mutex::new(Model::new(clustering, detail)));
    let mut history = History { random, settings, memory, model, trace, report: Report::default(), writings: 0 };
    let launches = history.random.between(2, 5);
    let outcome = (0..launches).try_for_each(|number| history.launch_again(number + 1 == launches));
    let outcome = outcome.and_then(|()| history.settle());
    let mut report = history.report;
    report.violation = outcome.err();
    (report.hash, report.events) = (history.trace.hash(), history.trace.events);
    report
}

impl History {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.memory.clone())
    }

    /// Runs one launch with its faults, and then checks the storage.
    fn launch_again(&mut self, last: bool) -> Result<(), String> {
        let break_lock = self.face_lock()?;
        let mut intent = self.draw_intent(break_lock);
        if last {
            intent.plan = Plan::default();
            intent.steps.retain(|step| !matches!(step, Step::Intrude { force: true }));
        }
        self.launch(&intent)?;
        self.doubt()?;
        self.salvage()
    }

    fn draw_intent(&mut self, break_lock: bool) -> Intent {
        let ranks = self.settings.options.ranks;
        let random = &mut self.random;
        let if_exists = random.pick(&[IfExists::Error, IfExists::Replace, IfExists::Replace, IfExists::Skip]);
        let mut steps = Vec::new();
        let epochs = random.between(1, 4);
        for _ in 0..epochs {
            match self.random.below(12) {
                0 => steps.push(Step::Truncate { last: self.random.below(4) }),
                1 => steps.push(Step::Intrude { force: false }),
                2 if self.random.one_in(3) => steps.push(Step::Intrude { force: true }),
                _ => {}
            }
            let epoch = self.random.below(4);
            let writing = Writing::draw(&mut self.random, epoch, self.writings, ranks);
            self.writings += 1;
            let writing = self.model().add(writing);
            steps.push(Step::Epoch { epoch, writing });
        }
        let plan = draw_plan(&mut self.random, ranks, epochs);
        let power = match self.random.below(5) {
            0 | 1 => Some(None),
            2 | 3 => Some(Some(self.random.bits())),
            _ => None,
        };
        Intent { if_exists, break_lock, is_locked: false, steps, plan, power }
    }

    /// Determines whether the next writer must break a lock. At random, first checks that a writer is refused unless it
    /// breaks the lock.
    fn face_lock(&mut self) -> Result<bool, String> {
        let layout = DatasetPaths::new(ROOT);
        for index in &self.settings.options.indexes {
            let control = layout.index(&index.name()).control();
            if self.memory.kind(&control).is_ok_and(|kind| kind.is_some()) {
                self.move_locks(&control, Machine::Restarted).map_err(|error| error.to_string())?;
            }
        }
        let is_there = self.memory.kind(&layout.lock()).map_err(|error| error.to_string())?.is_some();
        if !is_there {
            return Ok(self.random.one_in(4));
        }
        let is_known = self.holder_is_gone(&layout.lock());
        if !is_known {
            self.move_locks(&layout.control(), Machine::Other).map_err(|error| error.to_string())?;
        }
        if self.random.one_in(3) && !is_known {
            let intent = Intent {
                if_exists: IfExists::Error,
                break_lock: false,
                is_locked: true,
                steps: Vec::new(),
                plan: Plan::default(),
                power: None,
            };
            let calls = self.run_ranks(&intent)?;
            if !calls
                .iter()
                .all(|calls| matches!(&calls[..], [(_, Told::Failed(what))] if what.contains("is locked by")))
            {
                return Err(format!("one writer: the lock was not respected: {calls:?}"));
            }
            self.report.coverage.met("job: refused since it is locked");
        }
        let holder = lock_holder(&self.memory, &layout).map_err(|error| error.to_string())?;
        if holder.is_none() || self.random.one_in(2) {
            self.report.coverage.met("job: lock broken");
            return Ok(true);
        }
        self.move_locks(&layout.control(), Machine::Restarted).map_err(|error| error.to_string())?;
        self.report.coverage.met("job: lock of a dead writer taken over");
        Ok(false)
    }

    /// Returns whether a launch that died during a takeover left a lock that names a dead writer.
    fn holder_is_gone(&self, path: &Path) -> bool {
        let content = read_all(&self.memory, path).unwrap_or_default();
        content.windows(BOOT_BEFORE.len()).any(|window| window == BOOT_BEFORE.as_bytes())
    }

    /// Changes all lock files to name holders on this machine.
    fn move_locks(&self, folder: &Path, machine: Machine) -> std::io::Result<()> {
        for entry in self.memory.list(folder)? {
            let path = folder.join(&entry.name);
            if entry.kind != FileKind::File || !entry.name.starts_with("lock") {
                continue;
            }
            let content = read_all(&self.memory, &path)?;
            // The incomplete draft of a crash is not a lock.
            let Ok(mut holder) = serde_json::from_slice::<serde_json::Value>(&content) else { continue };
            let host = holder["host"].as_str().unwrap_or_default();
            let host = host.strip_prefix(NOT).unwrap_or(host).to_owned();
            match machine {
                Machine::Other => holder["host"] = format!("{NOT}{host}").into(),
                Machine::Restarted => (holder["host"], holder["boot"]) = (host.into(), BOOT_BEFORE.into()),
            }
            self.memory.remove_file(&path)?;
            write_new(&self.memory, &path, holder.to_string().as_bytes())?;
        }
        Ok(())
    }

    /// Runs all ranks of one launch until they end.
    fn run_ranks(&mut self, intent: &Intent) -> Result<Vec<Calls>, String> {
        let mut options = self.settings.options.clone();
        options.if_exists = intent.if_exists;
        options.break_lock = intent.break_lock;
        let network = |_| Network::new(options.ranks, options.credit_batches, self.settings.longest_delay_ns);
        let networks = (0..=options.index_connections()).map(network).collect();
        let faults = Faults::new(intent.plan.clone(), STALL_LIMIT);
        let trace = std::mem::take(&mut self.trace);
        let world = Arc::new(World::new(self.random.fork(), &self.settings.slowness, networks, faults, trace));
        let shared = Arc::new(Shared {
            world: Arc::clone(&world),
            memory: self.memory.clone(),
            model: Arc::clone(&self.model),
            reader: Mutex::new(None),
        });
        let found = self.model().visible();
        let launch = Launch {
            shared,
            options,
            is_locked: intent.is_locked,
            found,
            steps: intent.steps.clone(),
            seed: self.random.bits(),
            longest_computation: self.settings.longest_computation,
            progress: Mutex::new(Progress::default()),
        };
        let calls = world.run(|rank| launch.run(rank));
        self.report.epochs += launch.progress.into_inner().unwrap_or_else(PoisonError::into_inner).epochs;
        drop(launch.shared);
        let mut state = Arc::into_inner(world).ok_or("a rank did not let go of the world")?.into_state();
        self.trace = std::mem::take(&mut state.trace);
        self.report.coverage.add(&state.coverage);
        self.report.turns += state.turns;
        if let Some(violation) = state.violation {
            return Err(violation);
        }
        let calls: Vec<Calls> = calls.into_iter().flatten().collect();
        let excused = state.faults.crashed.is_some() || state.faults.stalled;
        self.compare(&calls, excused)?;
        self.crash(state.faults.crashed, intent)?;
        Ok(calls)
    }

    /// Checks that all ranks got the same results, except those that lost the connection because of a crash or a long
    /// stall.
    fn compare(&mut self, calls: &[Calls], excused: bool) -> Result<(), String> {
        let longest = calls.iter().map(Vec::len).max().unwrap_or_default();
        for index in 0..longest {
            let mut stated: Option<(usize, &(String, Told))> = None;
            for (rank, calls) in calls.iter().enumerate() {
                match calls.get(index) {
                    Some((call, Told::Lost(what))) => {
                        self.report.coverage.met("job: ranks lost each other");
                        if !excused {
                            return Err(format!("liveness: rank {rank} in {call}: {what}"));
                        }
                    }
                    None if !excused => return Err(format!("agreement: rank {rank} made {} calls", calls.len())),
                    None => {}
                    Some(answer) => match stated {
                        Some((other, first)) if first != answer => {
                            return Err(format!("agreement: rank {other}: {first:?}, rank {rank}: {answer:?}"));
                        }
                        _ => stated = Some((rank, answer)),
                    },
                }
            }
        }
        Ok(())
    }

    /// Applies the effects of a launch's end to the storage.
    fn crash(&mut self, crashed: Option<Option<u32>>, intent: &Intent) -> Result<(), String> {
        let Some(who) = crashed else { return Ok(()) };
        self.report.crashes += 1;
        match (who, intent.power) {
            (Some(_), _) => self.report.coverage.met("fault: one rank killed"),
            (None, None) => self.report.coverage.met("fault: job killed"),
            (None, Some(None)) => {
                self.report.coverage.met("fault: power failure, only what was synced survives");
                self.memory = self.memory.crash();
            }
            (None, Some(Some(seed))) => {
                self.report.coverage.met("fault: power failure, some of the rest survives");
                self.memory = self.memory.crash_keeping(seed);
            }
        }
        let found = reader::identify(&self.storage(), &self.model())?;
        self.trace.note(&format!("after the crash: {found:?}"));
        let power = who.is_none() && intent.power.is_some();
        self.model().survived(&found, power)?;
        self.audit_all(&found)
    }

    fn audit_all(&mut self, contents: &BTreeMap<u64, usize>) -> Result<(), String> {
        for (epoch, writing) in contents {
            let records = Arc::clone(self.model().records(*writing));
            audit(&self.memory, *epoch, &records, &mut self.report.coverage)?;
            for index in &self.settings.options.indexes {
                audit_index(&self.memory, *epoch, index, false, &mut self.report.coverage)?;
            }
            if self.model().clustering == Clustering::Hash {
                let storage = self.storage();
                reader::look_up(&storage, (*epoch, &records), &mut self.random, &mut self.report.coverage)?;
            }
        }
        Ok(())
    }

    fn launch(&mut self, intent: &Intent) -> Result<(), String> {
        self.run_ranks(intent)?;
        let found = reader::identify(&self.storage(), &self.model())?;
        self.model().survived(&found, false)
    }

    /// Changes one byte of one file of a committed epoch.
    fn doubt(&mut self) -> Result<(), String> {
        let layout = DatasetPaths::new(ROOT);
        let visible = self.model().visible();
        if visible.is_empty() || !self.random.one_in(2) {
            return Ok(());
        }
        let epoch = self.random.pick(&visible);
        let folder = if self.random.one_in(3) { layout.manifests() } else { layout.epoch(epoch) };
        let Ok(paths) = files_below(&self.memory, &folder) else { return Ok(()) };
        if paths.is_empty() {
            return Ok(());
        }
        // Manifests have random names, so the choice differs between two runs of a seed. No later event depends on it.
        let path = self.random.pick(&paths);
        let bytes = self.memory.open(&path).map_err(|error| error.to_string())?.bytes();
        let place = self.random.bits();
        let by_hash = self.model().clustering == Clustering::Hash;
        let filters = if by_hash && self.random.one_in(2) { filters_of(&self.memory, epoch, &path)? } else { None };
        let range = filters.clone().unwrap_or(0..bytes);
        if range.is_empty() {
            // A crash may leave an empty draft of a manifest.
            return Ok(());
        }
        let offset = range.start + place % (range.end - range.start);
        let fault = Fault::Flip { path, offset, mask: 1 << self.random.below(8) };
        let corrupted: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(self.storage(), fault));
        self.report.coverage.met("fault: bit rot");
        let model = Arc::clone(&self.model);
        let model = model.lock().unwrap_or_else(PoisonError::into_inner);
        reader::doubt(&corrupted, &model, &mut self.report.coverage)?;
        if filters.is_some() {
            self.report.coverage.met("hash: flip in a filter");
            reader::doubt_filters(&corrupted, epoch, &model, &mut self.report.coverage)?;
        }
        Ok(())
    }

    /// Checks that the data of epochs that were never committed can be salvaged, and that it equals the written data.
    fn salvage(&mut self) -> Result<(), String> {
        let layout = DatasetPaths::new(ROOT);
        let stated = |error: turbidite::Error| format!("salvage: {error}");
        let Ok(descriptor) = DatasetDescriptor::read(&self.memory, &layout) else { return Ok(()) };
        let clustering = self.model().clustering;
        for (number, attempt) in salvage::list(&self.memory, &layout, &descriptor).map_err(stated)?.iter().enumerate() {
            if attempt.runs() == 0 || !self.random.one_in(3) {
                continue;
            }
            let out = format!("/salvaged/{}-{number}-{}", self.writings, self.random.bits());
            let out = Path::new(&out);
            let saved = salvage::recover_into(&self.storage(), &layout, &descriptor, attempt, out).map_err(stated)?;
            let Some(writing) = self.model().attempts.get(&attempt.directory).copied() else {
                return Err(format!("salvage: nobody wrote {}", attempt.directory.display()));
            };
            let records = Arc::clone(self.model().records(writing));
            let found = crate::audit::read_folder(&self.memory, &saved.directory, clustering)
                .map_err(|what| format!("salvage: {what}"))?;
            let fits = |pair: &[(u64, u32)]| pair[0].0 != pair[1].0;
            let right = found.windows(2).all(fits) && found.iter().all(|one| records.binary_search(one).is_ok());
            if !right || found.len() as u64 != saved.rows || saved.rows < attempt.rows() && saved.corrupt.is_empty() {
                return Err(format!(
                    "salvage: {} records of epoch {} are not those written",
                    found.len(),
                    attempt.epoch
                ));
            }
            self.report.coverage.met("job: salvaged");
            if clustering == Clustering::Hash {
                self.report.coverage.met("hash: salvaged");
            }
            if self.random.one_in(2) {
                salvage::discard(&self.memory, attempt).map_err(stated)?;
            }
        }
        Ok(())
    }

    /// Runs a last launch without faults. It must succeed, and the dataset must verify afterwards.
    fn settle(&mut self) -> Result<(), String> {
        let break_lock = self.face_lock()?;
        let ranks = self.settings.options.ranks;
        let writing = Writing::draw(&mut self.random, 9, self.writings, ranks);
        let writing = self.model().add(writing);
        let steps = vec![Step::Epoch { epoch: 9, writing }];
        let plan = Plan::default();
        let if_exists = IfExists::Error;
        self.launch(&Intent { if_exists, break_lock, is_locked: false, steps, plan, power: None })?;
        if self.model().now(9) != Some(writing) {
            return Err("liveness: the last epoch is not there".to_owned());
        }
        let layout = DatasetPaths::new(ROOT);
        let mut options = VerifyOptions::default();
        options.threads = 1;
        let found =
            verify_on(&self.storage(), &layout, &options, &|_| ()).map_err(|error| format!("verify: {error}"))?;
        if !found.is_clean() {
            return Err(format!("verify: {:?}", found.findings));
        }
        let contents = reader::identify(&self.storage(), &self.model())?;
        self.audit_all(&contents)?;
        let manifests = self.memory.list(&layout.manifests()).map_err(|error| error.to_string())?.len();
        if manifests != contents.len() {
            return Err(format!("tidiness: {manifests} manifests of {} epochs", contents.len()));
        }
        let left = self.memory.list(&layout.unfinished()).map_err(|error| error.to_string())?;
        match left.iter().find(|entry| entry.name.contains(".re")) {
            Some(entry) => Err(format!("tidiness: {} is left", entry.name)),
            None => Ok(()),
        }
    }
}

/// Draws the faults of a launch of `ranks` and `epochs`.
fn draw_plan(random: &mut Random, ranks: u32, epochs: u64) -> Plan {
    let mut plan = Plan::default();
    let operations = 30 + epochs * (25 + u64::from(ranks) * 12);
    let trigger = |random: &mut Random| match random.below(8) {
        0..4 => Trigger::Commit { number: random.between(1, epochs), operation: random.below(17) },
        4..7 => Trigger::Operation(random.below(operations)),
        _ => Trigger::Turn(random.below(4_000)),
    };
    let kind = random.below(12);
    if (2..9).contains(&kind) {
        let who = (kind == 8).then(|| random.below(u64::from(ranks)) as u32);
        plan.crash = Some(Crash { who, at: trigger(random), torn: random.one_in(2) });
    }
    if kind >= 7 {
        for _ in 0..random.between(1, 2) {
            let failure = match random.below(6) {
                0..3 => Failure::Broken,
                3 | 4 => Failure::Full,
                _ => Failure::Slow {
                    ms: if random.one_in(2) { random.between(1, 500) } else { random.between(21_000, 40_000) },
                },
            };
            let rank = if random.one_in(3) { Some(random.below(u64::from(ranks)) as u32) } else { None };
            let most = if matches!(failure, Failure::Slow { .. }) { 1 } else { 3 };
            let count = if most > 1 && random.one_in(8) { 10_000 } else { random.between(1, most) };
            plan.troubles.push(Trouble { failure, rank, at: trigger(random), count });
        }
    }
    plan
}
