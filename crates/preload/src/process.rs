//! The state of a process from its first intercepted call on: the configuration, and the path patterns of its datasets.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use turbidite_source::PathPattern;

use crate::config::{self, Configuration, DatasetPlan};
use crate::nearest::Nearest;
use crate::notices::{complain_in_lines, is_first_of_launch};
use crate::spool::{DatasetNote, describe_owner};
use crate::world::World;

/// One dataset's files. This state is kept outside the session, so that files of no dataset are recognised without the
/// session's lock: our own threads open files while that lock is held.
pub(crate) struct Watched {
    pattern: PathPattern,
    files: String,
    out: PathBuf,
    /// The spool folder for files that the index replaces.
    pub(crate) spool: Option<PathBuf>,
    nearest: Mutex<Option<Nearest>>,
}

/// The initial state of a session.
pub(crate) struct Start {
    pub(crate) plans: Vec<DatasetPlan>,
    /// The other ranks, as seen when the configuration was read.
    pub(crate) world: World,
}

struct Process {
    watched: Vec<Watched>,
    quiet: bool,
    /// The initial state of the session, until the session takes it.
    start: Mutex<Option<Start>>,
}

/// The result of reading the configuration.
enum Configured {
    /// No configuration is given.
    Unset,
    /// The configuration is invalid, with these mistakes.
    Broken(Vec<String>),
    Ready(Box<Process>),
}

/// The status of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigurationState {
    /// No configuration is given.
    Unset,
    /// The configuration is invalid.
    Broken,
    Ready,
}

static CONFIGURED: OnceLock<Configured> = OnceLock::new();

fn configured() -> &'static Configured {
    CONFIGURED.get_or_init(|| {
        let Some(path) = std::env::var_os("TURBIDITE_CONFIG") else { return Configured::Unset };
        match config::read(Path::new(&path)) {
            Ok(configuration) => Configured::Ready(Box::new(Process::new(Path::new(&path), configuration))),
            Err(mistakes) => Configured::Broken(mistakes),
        }
    })
}

fn ready() -> Option<&'static Process> {
    if let Configured::Ready(process) = configured() { Some(process) } else { None }
}

impl Process {
    fn new(path: &Path, Configuration { plans, quiet }: Configuration) -> Self {
        let note = |plan: &DatasetPlan| DatasetNote { files: plan.pattern.to_string(), out: plan.out.clone() };
        describe_owner(path, plans.iter().map(note).collect());
        let watched = |plan: &DatasetPlan| Watched {
            pattern: plan.pattern.clone(),
            files: plan.pattern.to_string(),
            out: plan.out.clone(),
            spool: plan.spool_root().map(Path::to_owned),
            nearest: Mutex::new(None),
        };
        let watched = plans.iter().map(watched).collect();
        Self { watched, quiet, start: Mutex::new(Some(Start { plans, world: World::find() })) }
    }
}

/// Returns the status of the configuration.
pub(crate) fn state() -> ConfigurationState {
    match configured() {
        Configured::Unset => ConfigurationState::Unset,
        Configured::Broken(_) => ConfigurationState::Broken,
        Configured::Ready(_) => ConfigurationState::Ready,
    }
}

/// Returns whether the configuration is valid.
pub(crate) fn is_ready() -> bool {
    state() == ConfigurationState::Ready
}

/// Returns whether the configuration has been read and is valid. Neither allocates nor waits.
pub(crate) fn is_known_ready() -> bool {
    matches!(CONFIGURED.get(), Some(Configured::Ready(_)))
}

/// Takes the initial state of the session. Returns `None` without a valid configuration, and from the second call on.
pub(crate) fn take_start() -> Option<Start> {
    ready()?.start.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Returns the dataset that a path belongs to.
pub(crate) fn watched(path: &Path) -> Option<&'static Watched> {
    let path = path.to_str()?;
    ready()?.watched.iter().find(|watched| watched.pattern.matches(path).is_some())
}

/// Returns whether a path belongs to a dataset.
pub(crate) fn is_of_interest(path: &Path) -> bool {
    watched(path).is_some()
}

/// Returns whether a path belongs to the files that this library writes: datasets and spools. Returns false while the
/// configuration is being read.
pub(crate) fn is_own_path(path: &Path) -> bool {
    let Some(Configured::Ready(process)) = CONFIGURED.get() else { return false };
    let is_spooled = |watched: &Watched| watched.spool.as_deref().is_some_and(|root| path.starts_with(root));
    process.watched.iter().any(|watched| path.starts_with(&watched.out) || is_spooled(watched))
}

/// Returns the spool folders of all datasets, each once.
pub(crate) fn spool_roots() -> Vec<PathBuf> {
    let all = ready().map_or(&[][..], |process| &process.watched);
    let mut roots: Vec<PathBuf> = all.iter().filter_map(|watched| watched.spool.clone()).collect();
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Returns whether to print nothing on success.
pub(crate) fn is_quiet() -> bool {
    ready().is_some_and(|process| process.quiet)
}

/// Records that the program opens a file for writing, and that the file belongs to no dataset.
pub(crate) fn note_other(path: &Path) {
    match configured() {
        Configured::Unset => {}
        Configured::Ready(process) => {
            for watched in &process.watched {
                let mut nearest = watched.nearest.lock().unwrap_or_else(PoisonError::into_inner);
                Nearest::consider(&mut nearest, &watched.files, path);
            }
        }
        // A program without MPI reports the mistakes here. With MPI, one rank reports them later.
        Configured::Broken(_) if World::find().is_alone() && !is_of_system(path) => say_broken(),
        Configured::Broken(_) => {}
    }
}

/// Returns whether a file lies in a folder of the kernel, where programs write no results.
fn is_of_system(path: &Path) -> bool {
    ["/dev", "/proc", "/sys"].iter().any(|folder| path.starts_with(folder))
}

/// Returns the file opened for writing that is nearest to a dataset's pattern.
pub(crate) fn nearest(dataset: usize) -> Option<Nearest> {
    ready()?.watched.get(dataset)?.nearest.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

static IS_BROKEN_SAID: AtomicBool = AtomicBool::new(false);

/// Reports, once, the mistakes in the configuration.
pub(crate) fn say_broken() {
    if let Configured::Broken(mistakes) = configured()
        && !IS_BROKEN_SAID.swap(true, Ordering::Relaxed)
    {
        let mut lines = mistakes.clone();
        if let Some(last) = lines.last_mut() {
            last.push_str("; nothing is indexed");
        }
        complain_in_lines(&lines);
    }
}

/// Suppresses the report of the mistakes, since another rank has printed them.
pub(crate) fn keep_broken_unsaid() {
    IS_BROKEN_SAID.store(true, Ordering::Relaxed);
}

/// Prints outstanding reports at the end of the process.
pub(crate) fn ended() {
    if matches!(World::find(), World::Unknown) && is_first_of_launch() {
        say_broken();
    }
}
