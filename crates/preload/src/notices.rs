//! Prints messages on standard error. Each message is printed once, by one rank, in one write.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use turbidite::store::DatasetPaths;
use turbidite_source::DumpFormat;

use crate::config::DatasetPlan;
use crate::own_descriptors;
use crate::spool::{Leftover, Spooled};

/// Prints a message on standard error.
pub(crate) fn complain(what: &str) {
    complain_in_lines(&[what.to_owned()]);
}

/// Prints several messages, one per line, without lines of other ranks between them.
pub(crate) fn complain_in_lines(lines: &[String]) {
    use std::io::Write;
    let text: String = lines.iter().map(|line| format!("turbidite: {line}\n")).collect();
    // An error of standard error cannot be reported anywhere.
    let _ = match KEPT.get() {
        Some(mut kept) => kept.write_all(text.as_bytes()),
        None => io::stderr().write_all(text.as_bytes()),
    };
}

/// Standard error, if the program has closed it.
static KEPT: OnceLock<File> = OnceLock::new();

/// Keeps standard error open for messages, before the program closes it. Programs do this when they end (those of GNU,
/// for example), before their last epoch is indexed.
pub(crate) fn keep_standard_error() {
    if let Ok(kept) = own_descriptors::duplicate(io::stderr().as_fd()) {
        // The first one is kept.
        let _ = KEPT.set(File::from(kept));
    }
}

/// A message that a job prints once. Ranks note it when its cause occurs, and agree later on which of them prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Once {
    /// The spool refused a file.
    Full,
    /// The program looked for a file that the index has replaced.
    Replaced,
}

impl Once {
    pub(crate) const ALL: [Self; 2] = [Self::Full, Self::Replaced];
}

#[derive(Debug)]
enum Noted {
    Never,
    Unprinted(String),
    Printed,
}

static NOTED: [Mutex<Noted>; Once::ALL.len()] = [const { Mutex::new(Noted::Never) }; Once::ALL.len()];

fn noted(what: Once) -> MutexGuard<'static, Noted> {
    NOTED[what as usize].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a message, unless it was noted before.
pub(crate) fn note(what: Once, message: impl FnOnce() -> String) {
    let mut noted = noted(what);
    if matches!(*noted, Noted::Never) {
        *noted = Noted::Unprinted(message());
    }
}

/// Returns whether a message is noted and not printed.
pub(crate) fn is_noted(what: Once) -> bool {
    matches!(*noted(what), Noted::Unprinted(_))
}

/// Prints a noted message if this rank `speaks` for the job. Neither this rank nor another one prints it again.
pub(crate) fn print_noted(what: Once, speaks: bool) {
    if let Noted::Unprinted(message) = std::mem::replace(&mut *noted(what), Noted::Printed)
        && speaks
    {
        complain(&message);
    }
}

/// Reports that a file stays in the spool because it could not be moved to its original path.
pub(crate) fn complain_of_place(spool: &Spooled, error: &io::Error) {
    complain(&format!(
        "cannot move {} out of the spool: {error}; the complete file is {}: copy it before the job loses this node, or run \
         'turbidite salvage --spool {} --put-in-place' on this node",
        spool.path().display(),
        spool.place().display(),
        spool.root().display(),
    ));
}

/// Returns whether this process is rank 0 according to its launcher's environment variables. For use without MPI.
pub(crate) fn is_first_of_launch() -> bool {
    const RANKS: [&str; 5] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok());
    rank.is_none_or(|rank| rank.trim() == "0")
}

/// Returns a path relative to the folder in which the program was started.
pub(crate) fn display(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let shown = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    shown.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| path.to_owned()).display().to_string()
}

/// Returns a number with its thousands grouped.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number with its noun: "1 epoch", "2 epochs".
pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Returns the end of a message, with the command that indexes the files later, or nothing if `turbidite ingest` cannot
/// read them. `example` is one of the files, `epochs` are the first and the last epoch, and `ranks` is the number of
/// the job's ranks, if it is known.
pub(crate) fn ingest_command(
    plan: &DatasetPlan,
    example: Option<&Path>,
    epochs: Option<(u64, u64)>,
    ranks: Option<u32>,
) -> String {
    if plan.format == DumpFormat::Lammps || plan.pattern.names_records() {
        return String::new();
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    // Without an example, the job's folder is the best guess.
    let folder = example.and_then(|path| path.ancestors().nth(plan.pattern.names())).unwrap_or(Path::new("."));
    let [folder, layout, out] = [folder, &plan.config, &plan.out].map(|path| quoted(&absolute(path)));
    let files = plan.files_per_epoch.or(ranks.map(u64::from)).filter(|_| plan.pattern.names_ranks());
    let ranks = files.map_or_else(String::new, |files| format!(" --source-ranks {files}"));
    // Files of other epochs may be missing, since the index has replaced them.
    let epochs = match epochs.filter(|_| plan.pattern.names_epochs()) {
        None => String::new(),
        Some((first, last)) if first == last => format!(" --epochs {first}"),
        Some((first, last)) => format!(" --epochs {first}..{last}"),
    };
    format!(
        "; index them later with: turbidite ingest {folder} --layout {layout} --out {out}{epochs}{ranks} --if-exists skip"
    )
}

/// Returns a word quoted for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the messages about files that killed runs left in a spool, one for each job.
pub(crate) fn of_leftovers(leftovers: Vec<Leftover>, root: &Path, plans: &[&DatasetPlan]) -> Vec<String> {
    let mut jobs: Vec<Vec<Leftover>> = Vec::new();
    for leftover in leftovers {
        match jobs.iter_mut().find(|job| job[0].is_of_one_job(&leftover)) {
            Some(job) => job.push(leftover),
            None => jobs.push(vec![leftover]),
        }
    }
    jobs.iter().map(|job| of_killed_job(job, root, plans)).collect()
}

/// Returns the message about the files of one job, which has at least one leftover.
fn of_killed_job(job: &[Leftover], root: &Path, plans: &[&DatasetPlan]) -> String {
    let owner = job[0].owner.as_ref();
    let who = owner.map_or_else(
        || "a killed run".to_owned(),
        |owner| {
            let processes = match job.len() {
                1 => format!("process {}", owner.process),
                processes => format!("{processes} processes"),
            };
            format!("a killed run ({processes} on {}, {})", owner.host, owner.config.display())
        },
    );
    // The folders of several processes lie in one folder.
    let folder = if job.len() > 1 { job[0].folder.parent().unwrap_or(root) } else { &job[0].folder };
    let paths: Vec<&Path> = job.iter().flat_map(|leftover| &leftover.paths).map(|path| path.as_path()).collect();
    // The commands index into this job's datasets: they must be those of the killed job.
    let is_of_job = |plan: &&&DatasetPlan| owner.is_none_or(|owner| owner.datasets.iter().any(|of| of.out == plan.out));
    let later: String = plans.iter().filter(is_of_job).filter_map(|plan| index_leftovers(plan, &paths)).collect();
    format!(
        "{who} left {} of {:.1} MB in the spool, {}: {}{}; move them to their original paths with: turbidite salvage \
         --spool {} --put-in-place{later}",
        count(paths.len() as u64, "file"),
        job.iter().map(|leftover| leftover.bytes).sum::<u64>() as f64 / 1e6,
        folder.display(),
        paths.first().map(|path| path.display().to_string()).unwrap_or_default(),
        if paths.len() > 1 { ", …" } else { "" },
        quoted(&root.display().to_string()),
    )
}

/// Returns the command that indexes those files of a dataset whose epochs are not indexed, or `None` if there are none.
fn index_leftovers(plan: &DatasetPlan, paths: &[&Path]) -> Option<String> {
    let dataset = DatasetPaths::new(&plan.out);
    let mut files: Vec<(Option<u64>, &Path)> = Vec::new();
    for &path in paths {
        let Some(named) = plan.pattern.matches(&path.to_string_lossy()) else { continue };
        // A job that is killed while it removes the files of an indexed epoch leaves some of them.
        if named.epoch.is_none_or(|epoch| !dataset.epoch(epoch).exists()) {
            files.push((named.epoch, path));
        }
    }
    let (first, last) = (files.iter().min()?, files.iter().max()?);
    let epochs = first.0.zip(last.0);
    Some(ingest_command(plan, Some(first.1), epochs, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let grouped = [0, 12, 123, 1234, 7_340_032].map(grouped);
        assert_eq!(grouped, ["0", "12", "123", "1,234", "7,340,032"]);
        assert_eq!((count(1, "epoch"), count(2, "epoch")), ("1 epoch".to_owned(), "2 epochs".to_owned()));
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("/a/b_c.tbd"), "/a/b_c.tbd");
        assert_eq!(quoted("energy = sqrt(x)"), "'energy = sqrt(x)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
