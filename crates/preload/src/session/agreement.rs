//! Determines in agreement of all ranks which epochs are complete, and when to ask again.

use std::path::Path;
use std::time::{Duration, Instant};

use super::state::Session;
use crate::config::DatasetPlan;
use crate::notices::{self, Once, complain, complain_in_lines, of_leftovers};
use crate::printed_messages;
use crate::process;
use crate::spool;
use crate::world::World;

impl Session {
    /// Reports the files that killed runs left in the spools of this node.
    pub(super) fn look_for_leftovers(&mut self) {
        if std::mem::replace(&mut self.has_looked_for_leftovers, true) {
            return;
        }
        let plans: Vec<&DatasetPlan> = self.datasets.iter().map(|dataset| &dataset.plan).collect();
        let mut roots: Vec<&Path> = plans.iter().map(|plan| plan.spool.as_path()).collect();
        roots.sort_unstable();
        roots.dedup();
        let lines: Vec<String> =
            roots.iter().flat_map(|root| of_leftovers(spool::leftovers(root), root, &plans)).collect();
        if !lines.is_empty() {
            complain_in_lines(&lines);
        }
    }

    /// Indexes complete epochs, if a question is due. Called inside the program's collective calls. Collective.
    pub(crate) fn at_collective(&mut self) {
        self.calls += 1;
        if self.calls >= self.next_question {
            self.settle(false);
        }
    }

    /// Starts agreeing with the other ranks: MPI has been initialised, and all ranks have the same configuration.
    pub(crate) fn join(&mut self, world: World, job: u64) {
        self.world = world;
        spool::describe_job(job);
        printed_messages::share(&self.world, job);
        let roots = process::spool_roots();
        if self.world.rank() == 0 && !roots.is_empty() && !process::is_quiet() {
            let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
            complain(&format!("files are spooled in {} until they are indexed", roots.join(" and ")));
        }
        if self.world.leads_node() {
            self.look_for_leftovers();
        }
    }

    /// Stops indexing, since the ranks' configurations differ.
    pub(crate) fn part(&mut self, world: World) {
        self.world = world;
        self.abandon();
    }

    /// Stops indexing, since MPI cannot be used. The reason has been reported.
    pub(crate) fn refuse(&mut self) {
        self.part(World::Parted);
    }

    /// Stops indexing and communicating with other ranks.
    fn abandon(&mut self) {
        for dataset in &mut self.datasets {
            dataset.give_up();
        }
        self.world.part();
    }

    /// Indexes every epoch that is complete on all ranks. An epoch with an open file delays no other epoch. Collective.
    pub(super) fn settle(&mut self, last: bool) {
        if !self.world.can_agree() {
            return;
        }
        self.drop_strangers();
        self.complete_unmapped();
        self.look_at_growing();
        let mut unfinished: Vec<Vec<u64>> = vec![Vec::new(); self.datasets.len()];
        while let Some(found) = self.agree(last, &unfinished) {
            if found.is_empty() || unfinished.iter().any(|epochs| epochs.len() > MAX_UNFINISHED) {
                return;
            }
            for Candidate { dataset: index, epoch, is_complete, are_distinct } in found {
                if !is_complete {
                    unfinished[index].push(epoch);
                    continue;
                }
                let dataset = &mut self.datasets[index];
                let mut files = dataset.pending.remove(&epoch).unwrap_or_default();
                dataset.recall(epoch, &mut files);
                if self.share(&mut files, are_distinct).is_none() {
                    // The next question fails, too.
                    self.datasets[index].pending.insert(epoch, files);
                    break;
                }
                self.datasets[index].index(epoch, files, &self.world);
            }
        }
        if self.world.rank() == 0 {
            complain("ranks can no longer reach each other; records that are not indexed remain in their files");
        }
        self.abandon();
    }

    /// Returns the next epoch of each dataset that is complete on all ranks or has an open file, except those that are
    /// known to be `unfinished`. Returns `None` if ranks cannot agree.
    fn agree(&mut self, last: bool, unfinished: &[Vec<u64>]) -> Option<Vec<Candidate>> {
        let begun = Instant::now();
        // Times above one second have no further effect on the pace.
        let time = |time: Duration| time.min(Duration::from_secs(1)).as_micros() as i64;
        let rank = i64::from(self.world.rank());
        let speakers = Once::ALL.map(|what| if notices::is_noted(what) { rank } else { i64::MAX });
        let mut least = vec![time(self.asked.elapsed()), time(self.question)];
        least.extend(speakers);
        for (dataset, unfinished) in self.datasets.iter().zip(unfinished) {
            let first = dataset.pending.keys().find(|epoch| !unfinished.contains(epoch));
            let largest = dataset.largest_seen.map_or(i64::MAX, |epoch| -(epoch as i64));
            least.extend([first.map_or(i64::MAX, |&epoch| epoch as i64), largest, i64::from(!dataset.has_given_up())]);
        }
        if !self.world.minimum(&mut least) {
            return None;
        }
        let (speakers, asked) = least[2..].split_at(Once::ALL.len());
        for (what, &speaker) in Once::ALL.into_iter().zip(speakers) {
            if speaker < i64::MAX {
                notices::print_noted(what, speaker == rank);
            }
        }
        let agreed = |time: i64| Duration::from_micros(time.max(0) as u64);
        self.next_question = self.calls + self.pace.after(agreed(least[0]), agreed(least[1]));
        self.asked = begun;
        self.question = begun.elapsed();
        let open = |asked: &[i64]| asked[0] < i64::MAX && asked[2] == 1;
        let asked: Vec<&[i64]> = asked.chunks(3).collect();
        for (dataset, asked) in self.datasets.iter_mut().zip(&asked) {
            dataset.is_written |= asked[1] < i64::MAX;
        }
        if !asked.iter().any(|asked| open(asked)) {
            return Some(Vec::new());
        }
        let mut counts: Vec<i64> = Vec::new();
        for (dataset, asked) in self.datasets.iter().zip(&asked) {
            let files = u64::try_from(asked[0]).ok().and_then(|epoch| dataset.pending.get(&epoch));
            // Records of files with one record have been gathered already.
            let may_share = files.is_some_and(|files| !files.are_of_rank(self.world.rank()));
            let shared = dataset.shares || (may_share && !dataset.plan.pattern.names_records());
            counts.extend(files.map_or([0, 0], |files| [files.finished.len() as i64, files.open as i64]));
            counts.push(i64::from(shared));
        }
        if !self.world.sum(&mut counts) {
            return None;
        }
        let ranks = u64::from(self.world.ranks());
        let mut found = Vec::new();
        for (index, (asked, counted)) in
            asked.iter().zip(counts.chunks(3)).enumerate().filter(|(_, (asked, _))| open(asked))
        {
            let dataset = &mut self.datasets[index];
            let (epoch, is_open) = (asked[0] as u64, counted[1] > 0);
            dataset.shares |= counted[2] > 0;
            let wanted = dataset.plan.files_per_epoch.unwrap_or(ranks) as i64;
            // With one file per record, the number of files is unknown.
            let enough = counted[0] >= wanted && !dataset.plan.pattern.names_records();
            // If files hold several epochs, ranks may have read to different positions, so a later epoch does not prove
            // that this epoch is complete.
            let later = dataset.plan.pattern.names_epochs() && asked[1] < i64::MAX && -asked[1] > asked[0];
            if is_open || last || later || enough {
                found.push(Candidate { dataset: index, epoch, is_complete: !is_open, are_distinct: !dataset.shares });
            }
        }
        Some(found)
    }
}

/// An epoch that may be indexed.
struct Candidate {
    dataset: usize,
    epoch: u64,
    is_complete: bool,
    /// Whether no two ranks wrote the same file.
    are_distinct: bool,
}

/// Maximum number of epochs with open files that one question passes over.
const MAX_UNFINISHED: usize = 16;
