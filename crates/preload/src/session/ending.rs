//! Ends the session with MPI or with the process.

use std::path::{Path, PathBuf};

use super::current::session_at_signal;
use super::state::Session;
use crate::dataset::Dataset;
use crate::leaving::Ending;
use crate::notices::{self, Once, complain, complain_in_lines, complain_of_place, is_first_of_launch};
use crate::printed_messages;
use crate::process;
use crate::progress;
use crate::role;
use crate::spool;
use crate::summary;

impl Session {
    fn close_all(&mut self) {
        self.descriptors.clear();
        self.forget_mappings();
        for number in self.files.keys().copied().collect::<Vec<_>>() {
            self.complete_unless_used(number);
        }
    }

    /// Ends the session when MPI or a program without MPI ends. All files are complete.
    pub(crate) fn end(&mut self) {
        if self.world.is_alone() && self.has_seen_files() && role::is_child() {
            return;
        }
        self.close_all();
        if self.world.can_agree() {
            self.settle(true);
            self.name_overlooked();
            summary::say(&self.datasets, &self.world);
        } else if self.datasets.iter().any(|dataset| !dataset.has_given_up() && !dataset.pending.is_empty())
            && is_first_of_launch()
        {
            complain(self.world.why_not());
        }
        for dataset in &mut self.datasets {
            dataset.close();
        }
        self.world.leave();
    }

    /// Ends the session when the process ends. If MPI has not ended, ranks cannot agree: other ranks may have ended, or
    /// may wait for this rank in another call.
    pub(crate) fn exit(&mut self) {
        if !self.world.is_connected() {
            return self.end();
        }
        self.close_all();
        // Not left to rank 0: launchers kill the others when the first one has ended.
        self.print_left(&format!("rank {} ended without MPI_Finalize", self.world.rank()));
        self.part_alone();
    }

    /// Ends the session on this rank alone.
    fn part_alone(&mut self) {
        self.close_all();
        self.world.part();
        Once::ALL.into_iter().for_each(|what| notices::print_noted(what, true));
        self.datasets.iter_mut().for_each(Dataset::abandon);
    }

    /// Ends the session before `MPI_Abort`, which kills the other ranks. This rank moves their spooled files as well,
    /// as far as they are on this host.
    pub(crate) fn abort(&mut self) {
        let roots = process::spool_roots();
        let copies = || roots.iter().flat_map(|root| spool::copies_of_job(root));
        if self.world.is_connected() {
            self.close_all();
            let how = format!("rank {} has called MPI_Abort", self.world.rank());
            let on_host: Vec<PathBuf> = copies().map(|copy| copy.path().to_owned()).collect();
            let left = |dataset: &Dataset| {
                dataset.left_by(&how, &self.world, &on_host).or_else(|| dataset.left_elsewhere(&how, &self.world))
            };
            print(&how, self.datasets.iter().filter_map(left));
            self.part_alone();
        }
        for copy in copies() {
            if let Err(error) = copy.put_in_place() {
                complain_of_place(&copy, &error);
            }
        }
    }

    /// Empties this process's spool before the process ends without its exit handlers, or becomes another program.
    pub(crate) fn leave(&mut self, ending: Ending) {
        let roots = process::spool_roots();
        if self.world.rank() == 0 {
            self.print_left(&format!("the program ended by {ending}"));
        }
        empty_spools(&roots);
    }

    /// Prints which epochs are not indexed since the program ended in the given way.
    fn print_left(&self, how: &str) {
        let left = |dataset: &Dataset| dataset.left_by(how, &self.world, &[]);
        print(how, self.datasets.iter().filter_map(left));
    }
}

/// Prints the lines that no rank of this node has printed. `how` is their part that names the rank.
fn print(how: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.filter(|line| printed_messages::is_first(&line.replacen(how, "", 1))).collect();
    if !lines.is_empty() {
        complain_in_lines(&lines);
    }
}

/// Moves this process's spooled files to their original paths, and removes those that are indexed.
fn empty_spools(roots: &[PathBuf]) {
    for copy in roots.iter().flat_map(|root| spool::own_copies(root, Path::new("/"))) {
        if spool::is_retained(&copy) {
            spool::remove_retained(&[copy]);
        } else if let Err(error) = spool::put_in_place(&copy) {
            complain_of_place(&copy, &error);
        }
        progress::note();
    }
    spool::remove_own_if_empty();
}

/// Empties this process's spool on another thread, while the program's threads are stopped or may hold the session.
pub(super) fn leave(ending: Ending) {
    match session_at_signal() {
        Some(mut session) => session.leave(ending),
        None => empty_spools(&process::spool_roots()),
    }
}
