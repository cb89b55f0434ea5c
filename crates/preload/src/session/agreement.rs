//! Determines in agreement of all ranks which epochs are complete, and when to ask again.

use std::path::Path;
use std::time::{Duration, Instant};

use super::state::Session;
use crate::config::DatasetPlan;
use crate::notices::{complain, complain_in_lines, of_leftover};
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
        let found =
            roots.iter().flat_map(|&root| spool::leftovers(root).into_iter().map(move |leftover| (root, leftover)));
        let lines: Vec<String> = found.map(|(root, leftover)| of_leftover(&leftover, root, &plans)).collect();
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
    pub(crate) fn join(&mut self, world: World) {
        self.world = world;
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

    /// Indexes every epoch that is complete on all ranks. Collective.
    pub(super) fn settle(&mut self, last: bool) {
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
            complain("ranks can no longer reach each other; records that are not indexed remain in their files");
        }
        self.abandon();
    }

    /// Returns the datasets and epochs that are complete on all ranks, or `None` if ranks cannot agree.
    fn agree(&mut self, last: bool) -> Option<Vec<(usize, u64)>> {
        let begun = Instant::now();
        // Times above one second have no further effect on the pace.
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
            // With one file per record, the number of files is unknown.
            let enough = counted[0] >= wanted && !dataset.plan.pattern.names_records();
            // If files hold several epochs, ranks may have read to different positions, so a later epoch does not prove
            // that this epoch is complete.
            let later = dataset.plan.pattern.names_epochs() && asked[1] < i64::MAX && -asked[1] > asked[0];
            (open(asked) && counted[1] == 0 && (last || later || enough)).then_some((index, asked[0] as u64))
        });
        Some(complete.collect())
    }
}

/// Reports that the spool is full, once and only on one rank.
pub(super) fn say_full(speaks: bool) {
    if let Some(what) = spool::take_full()
        && speaks
    {
        complain(&format!("{what}; further files are written to their original paths, and stay there after indexing"));
    }
}
