//! When epochs are indexed, and what all ranks have to agree on for that.
//!
//! An epoch of a dataset is complete when no rank has a file of it open and either as many were closed as an epoch has, or a
//! rank has begun a later epoch, or the program ends. Ranks find that out together, inside of calls that all of them make; how
//! many of those calls pass without asking is decided from what all ranks have agreed on, so that it is the same on all.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use turbidite::drivers;
use turbidite::storage::FileSystem;
use turbidite::{EpochStart, RankJob, WriteOptions};

use crate::config::{self, Mode, Plan};
use crate::growing::Growing;
use crate::intake;
use crate::mpi::World;
use crate::pace::Pace;
use crate::pattern::{Named, Pattern};
use crate::pending::{EpochFiles, Finished, Pending};
use crate::spool::Spooled;

/// How long ranks wait for one that does not come before they give indexing up.
const STALL_LIMIT: Duration = Duration::from_secs(300);

/// How long an append waits for others: all ranks are in the same call.
const PATIENCE: Duration = Duration::from_secs(5);

/// A file the program has open for writing.
#[derive(Debug)]
struct Open {
    plan: usize,
    named: Named,
    path: PathBuf,
    spool: Option<Spooled>,
    /// How much of it is known, where it holds several epochs.
    growing: Option<Growing>,
}

/// One dataset on this rank.
struct Dataset {
    plan: Plan,
    pending: Pending,
    largest_seen: Option<u64>,
    job: Option<RankJob>,
    /// What the datasets share.
    process: Arc<drivers::Process>,
    /// Files of several epochs that could not be read to their ends, and why.
    damaged: HashMap<PathBuf, String>,
    /// Why nothing is indexed any more.
    given_up: bool,
}

/// Everything this process knows.
pub(crate) struct Session {
    datasets: Vec<Dataset>,
    open: HashMap<i32, Open>,
    world: World,
    calls: u64,
    next_question: u64,
    pace: Pace,
    asked: Instant,
    /// How long the last question took on this rank.
    question: Duration,
}

/// Where a file is to be opened.
pub(crate) struct Placement {
    /// Another path than the program's.
    pub(crate) path: Option<CString>,
    open: Option<Open>,
}

impl Placement {
    /// The other path is of no use: the file is opened in its own place.
    pub(crate) fn withdraw(&mut self) {
        self.path = None;
        if let Some(spool) = self.open.as_mut().and_then(|open| open.spool.take()) {
            spool.remove_empty_folders();
        }
    }
}

/// What a process has from the first question on.
struct Process {
    /// Beside the session, so that paths of no interest are told without its lock: our own threads open files while it is
    /// held.
    patterns: Vec<Pattern>,
    session: Mutex<Session>,
}

/// `None` without a configuration.
fn process() -> Option<&'static Process> {
    static PROCESS: OnceLock<Option<Process>> = OnceLock::new();
    let process = PROCESS.get_or_init(|| {
        let config = std::env::var_os("TURBIDITE_CONFIG")?;
        match config::read(Path::new(&config)) {
            Ok(plans) => {
                let patterns = plans.iter().map(|plan| plan.pattern.clone()).collect();
                Some(Process { patterns, session: Mutex::new(Session::new(plans)) })
            }
            Err(what) => {
                complain(&format!("{what}; nothing is indexed"));
                None
            }
        }
    });
    process.as_ref()
}

/// Whether a path is one of those to be indexed.
pub(crate) fn is_of_interest(path: &Path) -> bool {
    let matches = |process: &Process, text: &str| process.patterns.iter().any(|one| one.matches(text).is_some());
    path.to_str().is_some_and(|text| process().is_some_and(|process| matches(process, text)))
}

/// The session of this process; `None` without a configuration.
pub(crate) fn session() -> Option<MutexGuard<'static, Session>> {
    process().map(|process| process.session.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Says something on standard error.
pub(crate) fn complain(what: &str) {
    use std::io::Write;
    // Nobody is left to be told when standard error is closed.
    let _ = writeln!(std::io::stderr(), "turbidite: {what}");
}

impl Session {
    fn new(plans: Vec<Plan>) -> Self {
        let process = Arc::new(drivers::Process::new());
        let dataset = |plan| Dataset {
            plan,
            process: Arc::clone(&process),
            pending: Pending::new(),
            largest_seen: None,
            job: None,
            damaged: HashMap::new(),
            given_up: false,
        };
        Self {
            datasets: plans.into_iter().map(dataset).collect(),
            open: HashMap::new(),
            world: World::find(),
            calls: 0,
            next_question: 0,
            pace: Pace::new(),
            asked: Instant::now(),
            question: Duration::ZERO,
        }
    }

    /// The first dataset that wants a file of this path.
    fn dataset_of(&self, path: &str) -> Option<(usize, Named)> {
        self.datasets.iter().enumerate().find_map(|(index, dataset)| {
            (!dataset.given_up).then(|| dataset.plan.pattern.matches(path).map(|named| (index, named)))?
        })
    }

    /// Looks at a path that is about to be opened.
    pub(crate) fn before_open(&mut self, path: &Path, writes: bool) -> Option<Placement> {
        let text = path.to_str()?;
        let (plan, named) = self.dataset_of(text)?;
        let path = std::path::absolute(path).ok()?;
        let dataset = &self.datasets[plan];
        if !writes {
            let spool = (dataset.plan.mode == Mode::Replace).then(|| Spooled::find(&dataset.plan.spool, &path))??;
            return Some(Placement { path: c_path(spool.place()), open: None });
        }
        let Some(epoch) = named.epoch else {
            return Some(Placement { path: None, open: Some(Open { plan, named, path, spool: None, growing: None }) });
        };
        if self.world.is_alone() && dataset.largest_seen.is_some_and(|seen| seen < epoch) {
            self.observe(plan, epoch);
            self.settle(false);
        }
        self.observe(plan, epoch);
        let dataset = &self.datasets[plan];
        let replaces = dataset.plan.mode == Mode::Replace;
        let spool = replaces.then(|| Spooled::choose(&dataset.plan.spool, &path)).flatten();
        let place = spool.as_ref().and_then(|spool| c_path(spool.place()));
        Some(Placement { path: place, open: Some(Open { plan, named, path, spool, growing: None }) })
    }

    fn observe(&mut self, plan: usize, epoch: u64) {
        let seen = &mut self.datasets[plan].largest_seen;
        *seen = Some(seen.map_or(epoch, |seen| seen.max(epoch)));
    }

    /// The file was opened as `descriptor`. Answers whether its end is of interest.
    pub(crate) fn after_open(&mut self, placement: Placement, descriptor: i32) -> bool {
        let Some(mut open) = placement.open else { return false };
        // A number that is given out again was closed behind our back.
        self.closed(descriptor);
        let dataset = &mut self.datasets[open.plan];
        match open.named.epoch {
            Some(epoch) => dataset.pending.entry(epoch).or_default().open += 1,
            None => {
                let growing = Growing::opened(&open.path);
                if growing.is_new() {
                    dataset.forget(&open.path);
                }
                open.growing = Some(growing);
            }
        }
        self.open.insert(descriptor, open);
        true
    }

    /// The program has closed a file of interest.
    pub(crate) fn closed(&mut self, descriptor: i32) {
        let Some(Open { plan, named, path, spool, growing }) = self.open.remove(&descriptor) else { return };
        if let Some(growing) = growing {
            return self.grown(plan, growing);
        }
        let dataset = &mut self.datasets[plan];
        let file = Finished::whole(path, spool);
        let (false, Some(epoch)) = (dataset.given_up, named.epoch) else { return put_in_place(&[file]) };
        let files = dataset.pending.entry(epoch).or_default();
        files.open -= 1;
        finish(&dataset.plan, files, named, file);
    }

    /// A file of several epochs is complete.
    fn grown(&mut self, plan: usize, mut growing: Growing) {
        self.found(plan, growing.look());
        if let Some((path, what)) = growing.damage() {
            complain(&format!("{}: {what}; it stays as the program wrote it", path.display()));
            self.datasets[plan].damaged.insert(path, what);
        }
    }

    /// Parts of files are complete.
    fn found(&mut self, plan: usize, parts: Vec<(u64, Finished)>) {
        for (epoch, part) in parts {
            self.observe(plan, epoch);
            let dataset = &mut self.datasets[plan];
            if !dataset.given_up {
                dataset.pending.entry(epoch).or_default().add(part);
            }
        }
    }

    /// Looks for epochs that have become complete in files that are still open.
    fn look_at_growing(&mut self) {
        let look = |open: &mut Open| open.growing.as_mut().map(|growing| (open.plan, growing.look()));
        let parts: Vec<_> = self.open.values_mut().filter_map(look).collect();
        for (plan, parts) in parts {
            self.found(plan, parts);
        }
    }

    /// The program is about to give a file that is of interest another name: it is none of its epoch's any more.
    /// Answers whether it was.
    pub(crate) fn before_rename(&mut self, from: &Path) -> bool {
        let Ok(path) = std::path::absolute(from) else { return false };
        for dataset in &mut self.datasets {
            let mut found = dataset.damaged.remove(&path).is_some();
            for files in dataset.pending.values_mut() {
                if let Some(index) = files.finished.iter().position(|file| file.path == path) {
                    put_in_place(&[files.finished.swap_remove(index)]);
                    found = true;
                }
            }
            if found {
                dataset.pending.retain(|_, files| !files.is_empty());
                return true;
            }
        }
        false
    }

    /// The program has given a finished file a name of interest. Answers whether it belongs to an epoch now.
    pub(crate) fn renamed(&mut self, to: &Path) -> bool {
        let (Some(text), Ok(path)) = (to.to_str(), std::path::absolute(to)) else { return false };
        let Some((index, named)) = self.dataset_of(text) else { return false };
        let Some(epoch) = named.epoch else {
            self.datasets[index].forget(&path);
            self.grown(index, Growing::named(&path));
            return true;
        };
        self.observe(index, epoch);
        let Dataset { plan, pending, .. } = &mut self.datasets[index];
        finish(plan, pending.entry(epoch).or_default(), named, Finished::whole(path, None));
        true
    }

    /// All ranks are in the same call: indexes what is complete, now and then.
    pub(crate) fn at_collective(&mut self) {
        self.calls += 1;
        if self.calls >= self.next_question {
            self.settle(false);
        }
    }

    /// MPI has begun.
    pub(crate) fn join(&mut self, world: World) {
        self.world = world;
        let fingerprint = self.datasets.iter().fold(self.datasets.len() as i64, |sum, dataset| {
            let text = dataset.plan.summary();
            text.bytes().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(i64::from(byte)) & 0xffff_ffff)
        });
        let rank = i64::from(self.world.rank());
        let mut values = [fingerprint, -fingerprint, rank];
        let agreed = self.world.minimum(&mut values);
        if !agreed || values[..2] != [fingerprint, -fingerprint] {
            // Rank 0 may be the one that has none.
            let speaks = !agreed || values[2] == rank;
            self.give_up(speaks, "ranks have different configurations; nothing is indexed");
        }
    }

    /// A rank has no configuration where others may have one: they have to hear of it.
    pub(crate) fn decline(world: &World) {
        let mut values = [i64::MIN, i64::MIN, i64::MAX];
        world.minimum(&mut values);
    }

    /// Ranks index nothing together any more, and ask each other nothing.
    fn give_up(&mut self, speaks: bool, why: &str) {
        if speaks {
            complain(why);
        }
        for dataset in &mut self.datasets {
            dataset.give_up();
        }
        self.world.part();
    }

    /// The program ends, or MPI does: what is there is all there will be.
    pub(crate) fn end(&mut self) {
        for descriptor in self.open.keys().copied().collect::<Vec<_>>() {
            self.closed(descriptor);
        }
        if self.world.can_agree() {
            self.settle(true);
        } else if self.datasets.iter().any(|dataset| !dataset.given_up && !dataset.pending.is_empty()) {
            complain(self.world.why_not());
        }
        for dataset in &mut self.datasets {
            dataset.give_up();
            if let Some(Err(error)) = dataset.job.take().map(RankJob::close) {
                complain(&format!("{}: {error}", dataset.plan.out.display()));
            }
        }
        self.world.leave();
    }

    /// Indexes every epoch that is complete on all ranks. All ranks call it together.
    fn settle(&mut self, last: bool) {
        if !self.world.can_agree() {
            return;
        }
        self.look_at_growing();
        while let Some(ready) = self.agree(last) {
            if ready.is_empty() {
                return;
            }
            for (index, epoch) in ready {
                let files = self.datasets[index].pending.remove(&epoch).unwrap_or_default();
                self.datasets[index].index(epoch, files, &self.world);
            }
        }
        self.give_up(
            self.world.rank() == 0,
            "ranks cannot reach each other any more; what is not indexed stays in its files",
        );
    }

    /// The epochs that are complete on all ranks; `None` when ranks cannot agree.
    fn agree(&mut self, last: bool) -> Option<Vec<(usize, u64)>> {
        let begun = Instant::now();
        // A second is as good as more.
        let time = |time: Duration| time.min(Duration::from_secs(1)).as_micros() as i64;
        let mut least = vec![time(self.asked.elapsed()), time(self.question)];
        for dataset in &self.datasets {
            let first = dataset.pending.keys().next().map_or(i64::MAX, |&epoch| epoch as i64);
            let largest = dataset.largest_seen.map_or(i64::MAX, |epoch| -(epoch as i64));
            least.extend([first, largest, i64::from(!dataset.given_up)]);
        }
        if !self.world.minimum(&mut least) {
            return None;
        }
        let agreed = |time: i64| Duration::from_micros(time.max(0) as u64);
        self.next_question = self.calls + self.pace.after(agreed(least[0]), agreed(least[1]));
        self.asked = begun;
        self.question = begun.elapsed();
        let open = |asked: &[i64]| asked[0] < i64::MAX && asked[2] == 1;
        let asked: Vec<&[i64]> = least[2..].chunks(3).collect();
        if !asked.iter().any(|asked| open(asked)) {
            return Some(Vec::new());
        }
        let mut counts: Vec<i64> = Vec::new();
        for (dataset, asked) in self.datasets.iter().zip(&asked) {
            let files = u64::try_from(asked[0]).ok().and_then(|epoch| dataset.pending.get(&epoch));
            counts.extend(files.map_or([0, 0], |files| [files.finished.len() as i64, files.open as i64]));
        }
        if !self.world.sum(&mut counts) {
            return None;
        }
        let ranks = u64::from(self.world.ranks());
        let complete = self.datasets.iter().zip(&asked).zip(counts.chunks(2)).enumerate();
        let complete = complete.filter_map(|(index, ((dataset, asked), counted))| {
            let wanted = dataset.plan.files_per_epoch.unwrap_or(ranks) as i64;
            // One file a record: nobody knows how many there will be.
            let enough = counted[0] >= wanted && !dataset.plan.pattern.names_records();
            // A later epoch says nothing where one rank's file may be further than another's.
            let later = dataset.plan.pattern.names_epochs() && asked[1] < i64::MAX && -asked[1] > asked[0];
            (open(asked) && counted[1] == 0 && (last || later || enough)).then_some((index, asked[0] as u64))
        });
        Some(complete.collect())
    }
}

impl Dataset {
    /// Writes one epoch. All ranks call it together.
    fn index(&mut self, epoch: u64, mut files: EpochFiles, world: &World) {
        let result = self.write(epoch, &mut files, world);
        match &result {
            Ok(()) => files.finished.iter().filter_map(|file| file.spool.as_ref()).for_each(|spool| {
                if let Err(error) = spool.remove() {
                    complain(&format!("cannot remove {}: {error}", spool.place().display()));
                }
            }),
            Err(what) => {
                if world.rank() == 0 {
                    complain(&format!("{what}; the files of epoch {epoch} stay as the program wrote them"));
                }
                put_in_place(&files.finished);
            }
        }
    }

    fn write(&mut self, epoch: u64, files: &mut EpochFiles, world: &World) -> Result<(), String> {
        if self.job.is_none() {
            match self.open(world) {
                Ok(job) => self.job = Some(job),
                Err(error) => {
                    self.give_up();
                    return Err(error);
                }
            }
        }
        let Some(job) = &mut self.job else { return Ok(()) };
        match job.begin_epoch(epoch).map_err(|error| error.to_string())? {
            // The epoch is there from an earlier run of the program, and what it holds may not be what was written now.
            EpochStart::Skipped => {
                put_in_place(&std::mem::take(&mut files.finished));
                return Ok(());
            }
            EpochStart::Started => {}
        }
        let appended = match damage(&self.damaged, files) {
            Some(what) => Err(what),
            None => intake::append(&self.plan, epoch, files, job, world.rank()),
        };
        if let Err(what) = appended {
            job.refuse(what).map_err(|error| error.to_string())?;
        }
        job.end_epoch().map(drop).map_err(|error| error.to_string())
    }

    fn open(&self, world: &World) -> Result<RankJob, String> {
        let Plan { out, schema, .. } = &self.plan;
        let defaults = WriteOptions::new(world.ranks());
        let options = WriteOptions {
            receivers: self.plan.receivers.unwrap_or(defaults.receivers),
            memtable_bytes: self.plan.memtable_bytes.unwrap_or(defaults.memtable_bytes),
            if_exists: self.plan.if_exists,
            break_lock: self.plan.break_lock,
            patience: PATIENCE,
            stall_limit: Some(self.plan.stall_limit.unwrap_or(STALL_LIMIT)),
            derivations: self.plan.derivation_texts.clone(),
            topology: world.topology(),
            ..defaults
        };
        let (process, storage) = (Arc::clone(&self.process), Arc::new(FileSystem::new()));
        let opened = match world.transport(options.credit_batches) {
            None => RankJob::open_alone_on(process, storage, out, schema.clone(), options),
            Some(transport) => {
                let transport = Box::new(transport?);
                RankJob::open_on(process, storage, out, schema.clone(), options, world.rank(), transport)
            }
        };
        let mut job = opened.map_err(|error| error.to_string())?;
        if let Some(epoch) = self.plan.truncate_after {
            job.truncate_after(epoch).map_err(|error| error.to_string())?;
        }
        Ok(job)
    }

    /// A file of several epochs begins anew: what was found in it before is gone.
    fn forget(&mut self, path: &Path) {
        self.damaged.remove(path);
        for files in self.pending.values_mut() {
            files.finished.retain(|file| file.path != path);
        }
        self.pending.retain(|_, files| !files.is_empty());
    }

    /// Indexes nothing any more; files in the spool go where the program believes them to be.
    fn give_up(&mut self) {
        self.given_up = true;
        for files in std::mem::take(&mut self.pending).into_values() {
            put_in_place(&files.finished);
        }
    }
}

/// The damage that an epoch may have suffered: that of any file that should have it and has not.
fn damage(damaged: &HashMap<PathBuf, String>, files: &EpochFiles) -> Option<String> {
    let lacks = |path: &Path| files.finished.iter().all(|file| file.path != path);
    damaged.iter().find(|(path, _)| lacks(path)).map(|(path, what)| format!("{}: {what}", path.display()))
}

/// Takes note of a finished file.
fn finish(plan: &Plan, files: &mut EpochFiles, named: Named, file: Finished) {
    let Some(id) = named.id else { return files.add(file) };
    let place = file.spool.as_ref().map_or(file.path.as_path(), Spooled::place);
    let gathered = std::fs::read(place).map_err(|error| error.to_string()).and_then(|content| {
        let Some(record) = content.get(plan.header_bytes..).filter(|rest| rest.len() == plan.file_record_bytes())
        else {
            let wanted = plan.header_bytes + plan.file_record_bytes();
            return Err(format!("has {} bytes where a record's file has {wanted}", content.len()));
        };
        let record = [record, &id.to_le_bytes()].concat();
        files.gathered.add(&record, &plan.spool).map_err(|error| error.to_string())
    });
    if let Err(what) = gathered {
        files.failure.get_or_insert(format!("{}: {what}", file.path.display()));
    }
    if file.spool.is_some() {
        files.finished.push(file);
    }
}

/// Moves spooled files to where the program believes them to be.
fn put_in_place(files: &[Finished]) {
    for Finished { path, spool, .. } in files {
        let Some(spool) = spool else { continue };
        if let Err(error) = spool.put_in_place(path) {
            complain(&format!("cannot put {} in its place, {}: {error}", spool.place().display(), path.display()));
        }
    }
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().to_owned().into_vec()).ok()
}

/// A path as C has it.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
