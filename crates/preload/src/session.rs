//! When epochs are indexed, and what all ranks have to agree on for that.
//!
//! An epoch of a dataset is complete when no rank has a file of it open and either as many were closed as an epoch has, or a
//! rank has begun a later epoch, or the program ends. Ranks find that out together, inside of calls that all of them make; how
//! many of those calls pass without asking is decided from what all ranks have agreed on, so that it is the same on all.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use turbidite::runtime;
use turbidite_source::Named;

use crate::config::Plan;
use crate::dataset::Dataset;
use crate::growing::Growing;
use crate::locking::lock_unless;
use crate::mpi::{self, World};
use crate::notices::{complain, complain_in_lines, complain_of_place, of_leftover};
use crate::pace::Pace;
use crate::pending::Finished;
use crate::process::{self, Watched};
use crate::spool::{self, Choice, Spooled};
use crate::summary;

/// A file the program has open for writing.
#[derive(Debug)]
struct Open {
    plan: usize,
    named: Named,
    path: PathBuf,
    spool: Option<Spooled>,
    /// Whether nothing is in it that was there before.
    anew: bool,
    /// How much of it is known, where it holds several epochs.
    growing: Option<Growing>,
}

/// Everything this process knows.
pub(crate) struct Session {
    datasets: Vec<Dataset>,
    /// The files that are open, by numbers of ours; duplicated descriptors share one.
    files: HashMap<u64, Open>,
    descriptors: HashMap<i32, u64>,
    next_file: u64,
    world: World,
    calls: u64,
    next_question: u64,
    pace: Pace,
    asked: Instant,
    /// How long the last question took on this rank.
    question: Duration,
    has_looked_for_leftovers: bool,
}

/// Where a file is to be opened.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Another path than the program's.
    pub(crate) path: Option<CString>,
    open: Option<Open>,
    refused: Option<i32>,
}

impl Placement {
    /// Where a child of a fork is to open a file: one that its parent has in the spool it may read, and is moved before it
    /// writes to it.
    pub(crate) fn of_child(path: &Path, writes: bool) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let Watched { spool, .. } = process::watched(&path)?;
        let copy = Spooled::find(spool.as_deref()?, &path)?;
        if !writes {
            return Some(Self { path: c_path(&copy.place()), ..Self::default() });
        }
        copy.put_in_place().err().map(|error| Self::refuse(&copy, &error))
    }

    /// The file cannot be opened, since its bytes are in the spool and cannot be moved to where it is to be opened.
    fn refuse(copy: &Spooled, error: &std::io::Error) -> Self {
        complain_of_place(copy, error);
        Self { refused: Some(error.raw_os_error().unwrap_or(libc::EIO)), ..Self::default() }
    }

    /// The error with which opening is to fail.
    pub(crate) fn refused(&self) -> Option<i32> {
        self.refused
    }

    /// The place in the spool that the program is to write to.
    pub(crate) fn written_in_spool(&self) -> Option<&Spooled> {
        self.open.as_ref()?.spool.as_ref()
    }

    /// The other path is of no use: the file is opened in its own place.
    pub(crate) fn withdraw(&mut self) {
        self.path = None;
        if let Some(spool) = self.open.as_mut().and_then(|open| open.spool.take()) {
            spool.remove_empty_folders();
        }
    }

    /// The file was created in the spool, and could not be written there or elsewhere.
    pub(crate) fn discard(&self) {
        if let Some(spool) = self.written_in_spool()
            && spool.place().metadata().is_ok_and(|about| about.len() == 0)
        {
            // It is empty; one that stays is found by the next run.
            let _ = spool.remove();
        }
    }
}

/// What is left to do about a name that the program removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Nothing: the file was in the spool alone.
    Done,
    /// The file has that name.
    OfName,
}

/// What had a name that the program gives up.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Whether it was a file that is closed.
    is_closed: bool,
    open: Vec<u64>,
}

/// Returns the session of this process; `None` without a configuration.
pub(crate) fn session() -> Option<MutexGuard<'static, Session>> {
    process::session().map(|session| session.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How long the end of the process waits for a thread that waits for other ranks.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the session for a thread that ends the process; none when another thread has it and may wait for other ranks for
/// ever.
pub(crate) fn session_at_exit() -> Option<MutexGuard<'static, Session>> {
    let begun = Instant::now();
    let hopeless = || mpi::is_waiting_for_ranks() && begun.elapsed() >= PATIENCE;
    let session = lock_unless(process::session()?, hopeless);
    if session.is_none() {
        complain(
            "the program ended while another of its threads waited for other ranks: epochs that are complete are not all \
             indexed, and files may be left in the spool",
        );
    }
    session
}

/// Returns the session of the process that loaded us; a child of a fork has none.
pub(crate) fn of_original(is_original: bool) -> Option<MutexGuard<'static, Session>> {
    is_original.then(session)?
}

impl Session {
    pub(crate) fn new(plans: Vec<Plan>) -> Self {
        let process = Arc::new(runtime::Process::new());
        Self {
            datasets: plans.into_iter().map(|plan| Dataset::new(plan, Arc::clone(&process))).collect(),
            files: HashMap::new(),
            descriptors: HashMap::new(),
            next_file: 0,
            world: World::find(),
            calls: 0,
            next_question: 0,
            pace: Pace::new(),
            asked: Instant::now(),
            question: Duration::ZERO,
            has_looked_for_leftovers: false,
        }
    }

    /// Returns the first dataset that wants a file of this path.
    fn dataset_of(&self, path: &Path) -> Option<(usize, Named)> {
        let path = path.to_str()?;
        let matches = |dataset: &Dataset| dataset.plan.pattern.matches(path);
        self.datasets.iter().enumerate().find_map(|(index, dataset)| matches(dataset).map(|named| (index, named)))
    }

    /// Looks at a path that is about to be opened.
    pub(crate) fn before_open(&mut self, path: &Path, writes: bool, anew: bool) -> Option<Placement> {
        let (plan, named) = self.dataset_of(path)?;
        let path = std::path::absolute(path).ok()?;
        let root = self.datasets[plan].plan.spool_root().map(Path::to_owned);
        if !writes {
            let copy = Spooled::find(root.as_deref()?, &path)?;
            return Some(Placement { path: c_path(&copy.place()), ..Placement::default() });
        }
        if self.world.is_alone() {
            self.look_for_leftovers();
        }
        let open = |spool| Open { plan, named, path: path.clone(), spool, anew, growing: None };
        let Some(epoch) = named.epoch else {
            return Some(Placement { open: Some(open(None)), ..Placement::default() });
        };
        if self.world.is_alone() && self.datasets[plan].largest_seen.is_some_and(|seen| seen < epoch) {
            self.datasets[plan].observe(epoch);
            self.settle(false);
        }
        self.datasets[plan].observe(epoch);
        let dataset = &self.datasets[plan];
        // Nothing more is spooled for a dataset that is given up, but for what is in the spool already.
        let root = root.filter(|root| !dataset.has_given_up() || Spooled::find(root, &path).is_some());
        let spool = match root.map(|root| (Spooled::choose(&root, &path), root)) {
            None | Some((Ok(Choice::Own), _)) => None,
            Some((Ok(Choice::Spool(spooled)), _)) => Some(spooled),
            Some((Err(error), root)) => return Some(Placement::refuse(&Spooled::find(&root, &path)?, &error)),
        };
        let place = spool.as_ref().and_then(|spool| c_path(&spool.place()));
        Some(Placement { path: place, open: Some(open(spool)), refused: None })
    }

    /// The file was opened as `descriptor`. Returns whether its end is of interest.
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
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, open);
        self.descriptors.insert(descriptor, number);
        true
    }

    /// The program has duplicated a descriptor. Returns whether the end of the new one is of interest.
    pub(crate) fn duplicated(&mut self, from: i32, to: i32) -> bool {
        self.closed(to);
        let Some(&number) = self.descriptors.get(&from) else { return false };
        self.descriptors.insert(to, number);
        true
    }

    /// The program has closed a descriptor of interest; with the last one of a file, that is complete.
    pub(crate) fn closed(&mut self, descriptor: i32) {
        let Some(number) = self.descriptors.remove(&descriptor) else { return };
        if self.descriptors.values().any(|&other| other == number) {
            return;
        }
        let Some(Open { plan, named, path, spool, anew, growing }) = self.files.remove(&number) else { return };
        if let Some(growing) = growing {
            return self.grown(plan, growing);
        }
        let Some(epoch) = named.epoch else { return };
        let dataset = &mut self.datasets[plan];
        dataset.no_longer_open(epoch);
        dataset.finished(named, epoch, Finished { anew, ..Finished::whole(path, spool) });
    }

    /// A file of several epochs is complete.
    fn grown(&mut self, plan: usize, mut growing: Growing) {
        self.found(plan, growing.look());
        if let Some((path, what)) = growing.damage() {
            self.datasets[plan].is_damaged(path, what);
        }
    }

    /// Parts of files are complete.
    fn found(&mut self, plan: usize, parts: Vec<(u64, Finished)>) {
        for (epoch, part) in parts {
            self.datasets[plan].found(epoch, part);
        }
    }

    /// Looks for epochs that have become complete in files that are still open.
    fn look_at_growing(&mut self) {
        let look = |open: &mut Open| open.growing.as_mut().map(|growing| (open.plan, growing.look()));
        let parts: Vec<_> = self.files.values_mut().filter_map(look).collect();
        for (plan, parts) in parts {
            self.found(plan, parts);
        }
    }

    /// Returns the copy of a file in the spool of its dataset.
    fn copy_of(&self, path: &Path) -> Option<Spooled> {
        let (index, _) = self.dataset_of(path)?;
        Spooled::find(self.datasets[index].plan.spool_root()?, path)
    }

    fn open_under(&self, path: &Path) -> Vec<u64> {
        self.files.iter().filter(|(_, open)| open.path == path).map(|(&number, _)| number).collect()
    }

    /// The program is about to give a file that is of interest another name: it is none of its epoch's any more.
    pub(crate) fn before_rename(&mut self, from: &Path) -> Option<Moved> {
        let path = std::path::absolute(from).ok()?;
        if let Some(copy) = self.copy_of(&path) {
            // Here the name exists only when the file does.
            let moved = match spool::find_open(&copy) {
                Some(file) => file.move_to_own_place(),
                None => copy.put_in_place(),
            };
            if let Err(error) = moved {
                complain_of_place(&copy, &error);
            }
        }
        let mut is_closed = false;
        for dataset in &mut self.datasets {
            is_closed |= dataset.part_with(&path);
        }
        let open = self.open_under(&path);
        (is_closed || !open.is_empty()).then_some(Moved { is_closed, open })
    }

    /// The program has given a file the name `to`; `moved` is what is known of it, and nothing where it had a name of no interest.
    pub(crate) fn renamed(&mut self, moved: Option<Moved>, to: Option<&Path>) {
        let path = to.and_then(|to| std::path::absolute(to).ok());
        let target = path.and_then(|path| Some((self.dataset_of(&path)?, path)));
        let (is_closed, open) = moved.map_or((true, Vec::new()), |moved| (moved.is_closed, moved.open));
        let Some(((index, named), path)) = target else { return self.drop_open(&open) };
        // A file that had that name before is gone, also from the spool.
        if let Some(root) = self.datasets[index].plan.spool_root()
            && let Some(copy) = Spooled::own_copy(root, &path)
        {
            let _ = copy.remove();
        }
        for number in open {
            self.give_name(number, index, named, &path);
        }
        if !is_closed {
            return;
        }
        let dataset = &mut self.datasets[index];
        match named.epoch {
            Some(epoch) => {
                dataset.observe(epoch);
                dataset.finished(named, epoch, Finished { anew: true, ..Finished::whole(path, None) });
            }
            None => {
                dataset.forget(&path);
                self.grown(index, Growing::named(&path));
            }
        }
    }

    /// An open file has another name now.
    fn give_name(&mut self, number: u64, index: usize, named: Named, path: &Path) {
        let Some(open) = self.files.get_mut(&number) else { return };
        if let Some(epoch) = open.named.epoch {
            self.datasets[open.plan].no_longer_open(epoch);
        }
        if let Some(epoch) = named.epoch {
            self.datasets[index].observe(epoch);
            self.datasets[index].pending.entry(epoch).or_default().open += 1;
        }
        let growing = named.epoch.is_none().then(|| Growing::named(path));
        *open = Open { plan: index, named, path: path.to_owned(), spool: None, anew: true, growing };
    }

    /// Open files are of no interest any more.
    fn drop_open(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some(open) = self.files.remove(number) else { continue };
            if let Some(epoch) = open.named.epoch {
                self.datasets[open.plan].no_longer_open(epoch);
            }
        }
    }

    /// The program is about to remove a name.
    pub(crate) fn before_removal(&mut self, path: &Path) -> Removal {
        let Ok(path) = std::path::absolute(path) else { return Removal::OfName };
        let copy = self.copy_of(&path);
        self.drop_open(&self.open_under(&path));
        for dataset in &mut self.datasets {
            dataset.forget(&path);
        }
        let Some(copy) = copy else { return Removal::OfName };
        if let Some(file) = spool::find_open(&copy) {
            file.removed();
        }
        match copy.remove() {
            Ok(()) => Removal::Done,
            Err(_) => Removal::OfName,
        }
    }

    /// Says what killed runs left in the spools of this node.
    fn look_for_leftovers(&mut self) {
        if std::mem::replace(&mut self.has_looked_for_leftovers, true) {
            return;
        }
        let plans: Vec<&Plan> = self.datasets.iter().map(|dataset| &dataset.plan).collect();
        let mut roots: Vec<&Path> = plans.iter().map(|plan| plan.spool.as_path()).collect();
        roots.sort_unstable();
        roots.dedup();
        let found =
            roots.iter().flat_map(|&root| spool::leftovers(root).into_iter().map(move |leftover| (root, leftover)));
        let lines: Vec<String> = found.map(|(root, leftover)| of_leftover(&leftover, root, &plans)).collect();
        if !lines.is_empty() {
            complain_in_lines(&lines);
        }
    }

    /// All ranks are in the same call: indexes what is complete, now and then.
    pub(crate) fn at_collective(&mut self) {
        self.calls += 1;
        if self.calls >= self.next_question {
            self.settle(false);
        }
    }

    /// MPI has begun, and all ranks have the same configuration.
    pub(crate) fn join(&mut self, world: World) {
        self.world = world;
        if self.world.leads_node() {
            self.look_for_leftovers();
        }
    }

    /// MPI has begun, and nothing is indexed since ranks are not at one.
    pub(crate) fn part(&mut self, world: World) {
        self.world = world;
        self.abandon();
    }

    /// Returns a number that differs where configurations do.
    pub(crate) fn fingerprint(&self) -> i64 {
        self.datasets.iter().fold(self.datasets.len() as i64, |sum, dataset| {
            let text = dataset.plan.summary();
            text.bytes().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(i64::from(byte)) & 0xffff_ffff)
        })
    }

    /// Nothing is indexed, since MPI cannot be used; why has been said.
    pub(crate) fn refuse(&mut self) {
        self.part(World::Parted);
    }

    /// Ranks index nothing together any more, and ask each other nothing.
    fn abandon(&mut self) {
        for dataset in &mut self.datasets {
            dataset.give_up();
        }
        self.world.part();
    }

    fn close_all(&mut self) {
        for descriptor in self.descriptors.keys().copied().collect::<Vec<_>>() {
            self.closed(descriptor);
        }
    }

    /// The program ends, or MPI does: what is there is all there will be.
    pub(crate) fn end(&mut self) {
        self.close_all();
        if self.world.can_agree() {
            self.settle(true);
            summary::say(&self.datasets, &self.world);
        } else if self.datasets.iter().any(|dataset| !dataset.has_given_up() && !dataset.pending.is_empty())
            && crate::notices::is_first_of_launch()
        {
            complain(self.world.why_not());
        }
        for dataset in &mut self.datasets {
            dataset.close();
        }
        self.world.leave();
    }

    /// The process ends. Where MPI has not, no rank can be asked for anything: others may be gone, or wait for this one
    /// in a call of their own.
    pub(crate) fn exit(&mut self) {
        if !self.world.is_connected() {
            return self.end();
        }
        self.close_all();
        let rank = self.world.rank();
        self.world.part();
        say_full(true);
        self.datasets.iter_mut().for_each(|dataset| dataset.abandon(rank));
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
        if self.world.rank() == 0 {
            complain("ranks cannot reach each other any more; what is not indexed stays in its files");
        }
        self.abandon();
    }

    /// Returns the epochs that are complete on all ranks; `None` when ranks cannot agree.
    fn agree(&mut self, last: bool) -> Option<Vec<(usize, u64)>> {
        let begun = Instant::now();
        // A second is as good as more.
        let time = |time: Duration| time.min(Duration::from_secs(1)).as_micros() as i64;
        let rank = i64::from(self.world.rank());
        let is_full = if spool::is_full_unsaid() { rank } else { i64::MAX };
        let mut least = vec![time(self.asked.elapsed()), time(self.question), is_full];
        for dataset in &self.datasets {
            let first = dataset.pending.keys().next().map_or(i64::MAX, |&epoch| epoch as i64);
            let largest = dataset.largest_seen.map_or(i64::MAX, |epoch| -(epoch as i64));
            least.extend([first, largest, i64::from(!dataset.has_given_up())]);
        }
        if !self.world.minimum(&mut least) {
            return None;
        }
        if least[2] < i64::MAX {
            say_full(least[2] == rank);
        }
        let agreed = |time: i64| Duration::from_micros(time.max(0) as u64);
        self.next_question = self.calls + self.pace.after(agreed(least[0]), agreed(least[1]));
        self.asked = begun;
        self.question = begun.elapsed();
        let open = |asked: &[i64]| asked[0] < i64::MAX && asked[2] == 1;
        let asked: Vec<&[i64]> = least[3..].chunks(3).collect();
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

/// Says once, of all ranks, that the spool is full.
fn say_full(speaks: bool) {
    if let Some(what) = spool::take_full()
        && speaks
    {
        complain(&format!("{what}; files are written in their own places then, and stay there when they are indexed"));
    }
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().to_owned().into_vec()).ok()
}

/// A path as C has it.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
