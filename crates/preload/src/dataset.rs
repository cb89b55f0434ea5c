//! A dataset on this rank: the state of its epochs, and the indexing of each epoch.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use turbidite::runtime;
use turbidite::storage::FileSystem;
use turbidite::{EpochMetrics, EpochStart, IfExists, OutOfRange, RankJob, WriteOptions};
use turbidite_source::Named;

use crate::advice;
use crate::config::DatasetPlan;
use crate::indexed_epochs::IndexedEpochs;
use crate::intake;
use crate::notices::{complain, complain_of_place, display, ingest_command, quoted};
use crate::pending::{EpochFiles, Finished, Pending};
use crate::spool::{self, Spooled};
use crate::world::World;

/// Default timeout for a missing rank. The other ranks then stop indexing.
const STALL_LIMIT: Duration = Duration::from_secs(300);

/// Timeout of an append that waits for credit, while all ranks are in the same call.
const CREDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of files that are remembered.
const MAX_KNOWN: usize = 1 << 20;

/// Counts of a dataset's epochs and of this rank's files, for the summary at the end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of matching files that the program has closed.
    pub(crate) files: u64,
    /// Metrics of each indexed epoch, over all ranks. Indexing an epoch again replaces its entry.
    pub(crate) indexed: BTreeMap<u64, Indexed>,
    /// Epochs that were skipped because the dataset already has them.
    pub(crate) skipped: BTreeSet<u64>,
    pub(crate) failed: BTreeSet<u64>,
    /// Files that were to be spooled but were written to their original paths.
    pub(crate) unspooled: HashSet<PathBuf>,
}

/// Metrics of an indexed epoch.
#[derive(Debug, Clone)]
pub(crate) struct Indexed {
    pub(crate) records: u64,
    pub(crate) out_of_range: Vec<OutOfRange>,
}

/// One dataset on this rank.
pub(crate) struct Dataset {
    pub(crate) plan: DatasetPlan,
    pub(crate) pending: Pending,
    past: IndexedEpochs,
    pub(crate) largest_seen: Option<u64>,
    job: Option<RankJob>,
    /// State shared by all datasets.
    process: Arc<runtime::Process>,
    /// Files of several epochs that cannot be read to their ends, each with the reason.
    corrupt: HashMap<PathBuf, String>,
    /// Indexing has stopped for the rest of the run.
    given_up: bool,
    pub(crate) tally: Tally,
    /// Whether a rank is known to have written files.
    pub(crate) is_written: bool,
    /// Whether several ranks may have written one file. The same on all ranks.
    pub(crate) shares: bool,
    /// The spooled files of the epoch that was indexed last.
    retained: Vec<Spooled>,
    /// Hashes of the paths of all files that this rank has seen.
    known: HashSet<u64>,
    /// Hashes of the paths that the program has removed after the index had replaced them.
    removed: HashSet<u64>,
    /// The folders of the files that this rank has seen.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// The time at which the first of these files was written, by the clock of its file system.
    pub(crate) since: Option<SystemTime>,
}

impl Dataset {
    pub(crate) fn new(plan: DatasetPlan, process: Arc<runtime::Process>) -> Self {
        Self {
            plan,
            process,
            pending: Pending::new(),
            past: IndexedEpochs::default(),
            largest_seen: None,
            job: None,
            corrupt: HashMap::new(),
            given_up: false,
            tally: Tally::default(),
            is_written: false,
            shares: false,
            retained: Vec::new(),
            known: HashSet::new(),
            removed: HashSet::new(),
            folders: BTreeSet::new(),
            since: None,
        }
    }

    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up
    }

    pub(crate) fn observe(&mut self, epoch: u64) {
        self.largest_seen = Some(self.largest_seen.map_or(epoch, |seen| seen.max(epoch)));
    }

    /// Decrements the number of open files of an epoch.
    pub(crate) fn no_longer_open(&mut self, epoch: u64) {
        if let Some(files) = self.pending.get_mut(&epoch) {
            files.open = files.open.saturating_sub(1);
            if files.is_empty() {
                self.pending.remove(&epoch);
            }
        }
    }

    /// Records that the program has closed a file, or renamed one to a matching name.
    pub(crate) fn finished(&mut self, named: Named, epoch: u64, mut file: Finished) {
        self.tally.files += 1;
        self.note(&file);
        file.rank = named.rank;
        // A full spool moves the file to its original path.
        file.spool = file.spool.take_if(|spool| spool.exists());
        if self.plan.spool_root().is_some() && file.spool.is_none() {
            self.tally.unspooled.insert(file.path.clone());
        }
        if self.given_up {
            put_in_place(&[file]);
            return;
        }
        finish(&self.plan, self.pending.entry(epoch).or_default(), named, file);
    }

    /// Remembers a file, so that it is not taken for one that this rank has not seen.
    fn note(&mut self, file: &Finished) {
        if !self.knows_all() || self.plan.pattern.names_records() {
            return;
        }
        let hash = Self::hash_of(&file.path);
        self.known.insert(hash);
        self.removed.remove(&hash);
        if let Some(folder) = file.path.parent().filter(|folder| !self.folders.contains(*folder)) {
            self.folders.insert(folder.to_owned());
        }
        if self.since.is_none() {
            self.since = file.place().metadata().and_then(|about| about.modified()).ok();
        }
    }

    /// Returns whether all files could be remembered.
    pub(crate) fn knows_all(&self) -> bool {
        self.known.len() < MAX_KNOWN
    }

    pub(crate) fn knows_hash(&self, hash: u64) -> bool {
        self.known.contains(&hash)
    }

    /// Returns a hash of a path. Its highest bit is zero.
    pub(crate) fn hash_of(path: &Path) -> u64 {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish() >> 1
    }

    /// Records the section of a file that holds one epoch.
    pub(crate) fn found(&mut self, epoch: u64, mut part: Finished) {
        self.observe(epoch);
        let named = part.path.to_str().and_then(|path| self.plan.pattern.matches(path));
        part.rank = named.and_then(|named| named.rank);
        if !self.given_up {
            self.tally.files += 1;
            self.pending.entry(epoch).or_default().add(part);
        }
    }

    /// Records that a file of several epochs cannot be read to the end.
    pub(crate) fn record_corruption(&mut self, path: PathBuf, what: String) {
        complain(&format!("{}: {what}; it stays as the program wrote it", path.display()));
        self.corrupt.insert(path, what);
    }

    /// Adds the files of an epoch that was indexed before and that were not written again.
    pub(crate) fn recall(&self, epoch: u64, files: &mut EpochFiles) {
        self.past.recall(epoch, self.shares, files);
    }

    /// Writes one epoch. Collective.
    pub(crate) fn index(&mut self, epoch: u64, mut files: EpochFiles, world: &World) {
        // If files hold one record or several epochs, a rewritten file does not imply that the epoch's other files
        // belong to the new version.
        let remembers = self.plan.pattern.names_epochs() && !self.plan.pattern.names_records();
        let result = self.write(epoch, &mut files, world);
        let is_stored = matches!(result, Ok(Some(_)));
        match result {
            Ok(Some(indexed)) => {
                self.tally.indexed.insert(epoch, indexed);
                self.tally.failed.remove(&epoch);
                self.retain(&files.finished);
            }
            // The epoch was indexed by an earlier run of the program. Its data may differ from this run's files.
            Ok(None) => {
                self.tally.skipped.insert(epoch);
                put_in_place(&files.finished);
            }
            Err(what) => {
                self.tally.failed.insert(epoch);
                if world.rank() == 0 {
                    complain(&self.why_not_indexed(epoch, &what, &files, world));
                }
                let complete = put_in_place(&files.finished);
                self.clear_up(complete, world);
            }
        }
        if remembers {
            self.past.remember(epoch, &files.finished, is_stored);
        }
    }

    /// Keeps the spooled files of an epoch that was just indexed, and removes those of the epoch before it.
    fn retain(&mut self, files: &[Finished]) {
        let indexed = files.iter().filter_map(|file| file.spool.clone()).collect();
        let before = std::mem::replace(&mut self.retained, indexed);
        spool::remove_retained(&before.into_iter().filter(|file| !self.retained.contains(file)).collect::<Vec<_>>());
        spool::retain(&self.retained);
    }

    /// Returns whether the index replaces the files of an epoch.
    pub(crate) fn has_replaced(&self, epoch: u64) -> bool {
        self.plan.spool_root().is_some() && self.tally.indexed.contains_key(&epoch)
    }

    /// Returns whether the program may remove a file that the index has replaced: once, and only if there was one.
    pub(crate) fn may_remove(&mut self, path: &Path, rank: Option<u64>, world: &World) -> bool {
        let hash = Self::hash_of(path);
        let is_of_job = rank.is_none_or(|rank| !world.is_alone() && rank < u64::from(world.ranks()));
        (self.knows_hash(hash) || is_of_job) && self.removed.insert(hash)
    }

    /// Returns the message that a file of the program is no longer a file.
    pub(crate) fn where_replaced(&self, path: &Path, epoch: u64) -> String {
        let out = display(&self.plan.out);
        format!(
            "{} is no longer a file: its records are epoch {epoch} of {out} (turbidite query {out} --epoch {epoch}); \
             mode = \"keep\" in {} keeps the program's files",
            display(path),
            self.plan.config.display()
        )
    }

    /// Returns the message that an epoch is not indexed, with the reason.
    fn why_not_indexed(&self, epoch: u64, what: &str, files: &EpochFiles, world: &World) -> String {
        if !self.given_up {
            let stored = if self.past.has(epoch) { "; the dataset keeps the previous version" } else { "" };
            return format!("{what}; the files of epoch {epoch} stay as the program wrote them{stored}");
        }
        let example = files.finished.first().map(|file| file.path.as_path());
        let later = ingest_command(&self.plan, example, None, world.job_ranks());
        format!(
            "{what}; nothing more is indexed into {}: the files stay as the program writes them{later}",
            display(&self.plan.out)
        )
    }

    /// Removes a failed epoch's part files, if the program's files are at their original paths on all ranks.
    /// Collective.
    fn clear_up(&mut self, complete: bool, world: &World) {
        // All ranks agree on whether an epoch has failed. If none has, the ranks may have no connection, and no
        // collective is called.
        let Some(job) = self.job.as_mut().filter(|job| job.has_failed()) else { return };
        let mut all = [i64::from(complete)];
        if !world.minimum(&mut all) || all[0] == 0 {
            return job.keep_failed();
        }
        if let Err(error) = job.discard_failed() {
            complain(&format!("cannot remove the files of a failed epoch: {error}"));
        }
    }

    /// Stores an epoch's records. Returns `None` if the epoch was skipped.
    fn write(&mut self, epoch: u64, files: &mut EpochFiles, world: &World) -> Result<Option<Indexed>, String> {
        if self.job.is_none() {
            match self.open(world) {
                Ok(job) => self.job = Some(job),
                Err(error) => {
                    self.given_up = true;
                    return Err(error);
                }
            }
        }
        let Some(job) = &mut self.job else { return Ok(None) };
        let begun = if self.past.has(epoch) { job.replace_epoch(epoch) } else { job.begin_epoch(epoch) };
        match begun.map_err(|error| advice::in_words(&error))? {
            EpochStart::Skipped => return Ok(None),
            EpochStart::Started => {}
        }
        let appended = match corruption(&self.corrupt, files) {
            Some(what) => Err(what),
            None => intake::append(&self.plan, epoch, files, job, world.rank()),
        };
        if let Err(what) = appended {
            job.refuse(what).map_err(|error| error.to_string())?;
        }
        let EpochMetrics { rows: records, out_of_range, .. } =
            job.end_epoch().map_err(|error| advice::in_words(&error))?;
        Ok(Some(Indexed { records, out_of_range }))
    }

    fn open(&self, world: &World) -> Result<RankJob, String> {
        let DatasetPlan { out, schema, .. } = &self.plan;
        let mut options = WriteOptions::new(world.ranks());
        if let Some(receivers) = self.plan.receivers {
            options.receivers = receivers;
            options.part_bytes = Some(0);
        }
        options.memtable_bytes = self.plan.memtable_bytes.unwrap_or(options.memtable_bytes);
        options.if_exists = self.plan.if_exists;
        options.break_lock = self.plan.break_lock;
        options.source = Some(format!("preload: {}", self.plan.pattern));
        options.match_source = !self.plan.any_source;
        // With `if_exists` or `truncate_after`, the configuration states how existing epochs are handled.
        options.must_be_empty = self.plan.if_exists == IfExists::Error && self.plan.truncate_after.is_none();
        options.credit_timeout = CREDIT_TIMEOUT;
        options.stall_limit = Some(self.plan.stall_limit.unwrap_or(STALL_LIMIT));
        options.derivations = self.plan.derivation_texts.clone();
        options.topology = world.topology();
        options.indexes = self.plan.indexes.clone();
        options.levels = self.plan.levels;
        options.level_weight.clone_from(&self.plan.level_weight);
        let (process, storage) = (Arc::clone(&self.process), Arc::new(FileSystem::new()));
        let opened = match world.transport(options.credit_batches, options.index_connections()) {
            None => RankJob::open_alone_on(process, storage, out, schema.clone(), options),
            Some(transport) => {
                let transport = Box::new(transport?);
                RankJob::open_on(process, storage, out, schema.clone(), options, world.rank(), transport)
            }
        };
        let mut job = opened.map_err(|error| advice::in_words(&error))?;
        if let Some(epoch) = self.plan.truncate_after {
            job.truncate_after(epoch).map_err(|error| error.to_string())?;
        }
        Ok(job)
    }

    /// Forgets the epochs found in a file of several epochs that is truncated or removed.
    pub(crate) fn forget(&mut self, path: &Path) {
        self.corrupt.remove(path);
        for files in self.pending.values_mut() {
            files.finished.retain(|file| file.path != path);
        }
        self.pending.retain(|_, files| !files.is_empty());
    }

    /// Forgets the files of a folder that has been renamed.
    pub(crate) fn part_with_folder(&mut self, folder: &Path) {
        self.corrupt.retain(|path, _| !path.starts_with(folder));
        for files in self.pending.values_mut() {
            files.finished.retain(|file| !file.path.starts_with(folder));
        }
        self.pending.retain(|_, files| !files.is_empty());
    }

    /// Forgets a file that is being renamed. Returns whether the file was known.
    pub(crate) fn part_with(&mut self, path: &Path) -> bool {
        let known = self.corrupt.contains_key(path)
            || self.pending.values().any(|files| files.finished.iter().any(|file| file.path == path));
        self.forget(path);
        known
    }

    /// Stops indexing, and moves spooled files to their original paths.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
        self.put_back();
    }

    /// Forgets the pending epochs, and moves their spooled files to their original paths.
    fn put_back(&mut self) {
        self.retain(&[]);
        for files in std::mem::take(&mut self.pending).into_values() {
            put_in_place(&files.finished);
        }
    }

    /// Abandons the pending epochs and the job, in a process that ends without `MPI_Finalize`. Not collective.
    pub(crate) fn abandon(&mut self) {
        self.give_up();
        if let Some(Err(error)) = self.job.take().map(RankJob::abandon) {
            complain(&format!("{}: {error}", display(&self.plan.out)));
        }
    }

    /// Returns the message that epochs are not indexed since the program ended in the given way, or `None` if there are
    /// no such epochs on this rank. `others` are paths of spooled files of other ranks.
    pub(crate) fn left_by(&self, how: &str, world: &World, others: &[PathBuf]) -> Option<String> {
        let epoch_of = |path: &PathBuf| self.plan.pattern.matches(path.to_str()?)?.epoch;
        let of_others = others.iter().filter_map(|path| Some((epoch_of(path)?, path.as_path())));
        let is_stored = |epoch: &u64| self.tally.indexed.contains_key(epoch) || self.tally.skipped.contains(epoch);
        let mut left: BTreeMap<u64, Option<&Path>> = of_others
            .filter(|(epoch, _)| !self.given_up && !is_stored(epoch))
            .map(|(epoch, path)| (epoch, Some(path)))
            .collect();
        for (&epoch, files) in &self.pending {
            left.insert(epoch, files.finished.first().map(|file| file.path.as_path()));
        }
        let epochs: Vec<String> = left.keys().map(u64::to_string).collect();
        let epochs = match epochs.as_slice() {
            [] => return None,
            [epoch] => format!("epoch {epoch} is"),
            [first @ .., last] => format!("epochs {} and {last} are", first.join(", ")),
        };
        let range = left.keys().next().copied().zip(left.keys().last().copied());
        let example = left.values().flatten().next().copied();
        let later = ingest_command(&self.plan, example, range, world.job_ranks());
        let (out, spools) = (display(&self.plan.out), self.spools_of_hosts());
        Some(format!("{out}: {how}: {epochs} not indexed; the files stay as the program wrote them{spools}{later}"))
    }

    /// Returns the message that files of other ranks may not be indexed, if other ranks have written files.
    pub(crate) fn left_elsewhere(&self, how: &str, world: &World) -> Option<String> {
        if !self.is_written || self.given_up {
            return None;
        }
        // The names of other ranks' files are known only if this rank has written files to the same folders.
        let example = self.folders.first().map(|folder| folder.join("file"));
        let later =
            example.map_or_else(String::new, |path| ingest_command(&self.plan, Some(&path), None, world.job_ranks()));
        let (out, spools) = (display(&self.plan.out), self.spools_of_hosts());
        Some(format!(
            "{out}: {how}: files of other ranks may be not indexed, and stay as the program wrote them{spools}{later}"
        ))
    }

    /// Returns the part of a message that says how to move the files of other hosts: a process that is killed, or has
    /// too little time, does not move its files.
    fn spools_of_hosts(&self) -> String {
        self.plan.spool_root().map_or_else(String::new, |root| {
            format!(
                "; files that could not be moved in time are in the spools of their hosts: run there 'turbidite salvage \
                 --spool {} --put-in-place'",
                quoted(&root.display().to_string())
            )
        })
    }

    /// Abandons the pending epochs and closes the dataset. Files that the program writes later are pending again.
    /// Collective.
    pub(crate) fn close(&mut self) {
        self.put_back();
        if let Some(Err(error)) = self.job.take().map(RankJob::close) {
            complain(&format!("{}: {error}", display(&self.plan.out)));
        }
    }
}

/// Returns the error of a corrupt file in which the epoch was not found. Its unreadable rest may hold the epoch.
fn corruption(corrupt: &HashMap<PathBuf, String>, files: &EpochFiles) -> Option<String> {
    let lacks = |path: &Path| files.finished.iter().all(|file| file.path != path);
    corrupt.iter().find(|(path, _)| lacks(path)).map(|(path, what)| format!("{}: {what}", path.display()))
}

/// Adds a finished file to its epoch.
fn finish(plan: &DatasetPlan, files: &mut EpochFiles, named: Named, file: Finished) {
    let Some(id) = named.id else { return files.add(file) };
    let gathered = std::fs::read(file.place()).map_err(|error| error.to_string()).and_then(|content| {
        let record = [intake::only_record(plan, &content)?, &id.to_le_bytes()].concat();
        files.gathered.add(&record, &plan.spool).map_err(|error| error.to_string())
    });
    if let Err(what) = gathered {
        files.failure.get_or_insert(format!("{}: {what}", file.path.display()));
    }
    if file.spool.is_some() {
        files.finished.push(file);
    }
}

/// Moves spooled files to their original paths. Returns whether all of them were moved.
pub(crate) fn put_in_place(files: &[Finished]) -> bool {
    let mut all = true;
    // Another process may have moved a file.
    for spool in files.iter().filter_map(|file| file.spool.as_ref()).filter(|spool| spool.exists()) {
        if let Err(error) = spool::put_in_place(spool) {
            complain_of_place(spool, &error);
            all = false;
        }
    }
    all
}
