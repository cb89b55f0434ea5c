//! Tracks the files that the program opens, duplicates and closes.

use std::path::Path;

use super::ending;
use super::placement::{Open, Placement, c_path};
use super::state::Session;
use crate::growing::Growing;
use crate::leaving;
use crate::pending::Finished;
use crate::role;
use crate::spool::{Choice, Identity, Spooled};

impl Session {
    /// Chooses the placement of a path that is about to be opened.
    pub(crate) fn before_open(&mut self, path: &Path, writes: bool, anew: bool) -> Option<Placement> {
        let (plan, named) = self.dataset_of(path)?;
        let path = std::path::absolute(path).ok()?;
        let root = self.datasets[plan].plan.spool_root().map(Path::to_owned);
        if !writes {
            let Some(copy) = Spooled::find(root.as_deref()?, &path) else {
                self.missed(&path);
                return None;
            };
            return Some(Placement { path: c_path(&copy.place()), ..Placement::default() });
        }
        role::claim();
        leaving::prepare(ending::leave);
        if self.world.is_alone() {
            self.look_for_leftovers();
        }
        let open = |spool| Open { plan, named, path: path.clone(), spool, anew, growing: None, identity: None };
        let Some(epoch) = named.epoch else {
            return Some(Placement { open: Some(open(None)), ..Placement::default() });
        };
        if self.world.is_alone() && self.datasets[plan].largest_seen.is_some_and(|seen| seen < epoch) {
            self.datasets[plan].observe(epoch);
            self.settle(false);
        }
        self.datasets[plan].observe(epoch);
        let dataset = &self.datasets[plan];
        // A rank on another node would not find the file of all ranks.
        let root = root.filter(|_| dataset.plan.pattern.names_ranks() || self.world.nodes() == 1);
        // A dataset that has stopped indexing spools no new files. Files that are already in the spool are opened
        // there.
        let root = root.filter(|root| !dataset.has_given_up() || Spooled::find(root, &path).is_some());
        let mut turn = None;
        let spool = match root.map(|root| (Spooled::choose(&root, &path), root)) {
            None | Some((Ok((Choice::Own, _)), _)) => None,
            Some((Ok((Choice::Spool(spooled), taken)), _)) => {
                turn = taken;
                Some(spooled)
            }
            Some((Err(error), root)) => return Some(Placement::refuse(&Spooled::find(&root, &path)?, &error)),
        };
        let place = spool.as_ref().and_then(|spool| c_path(&spool.place()));
        Some(Placement { path: place, open: Some(open(spool)), refused: None, turn })
    }

    /// Records that the file was opened as `descriptor`. Returns whether to watch the descriptor.
    pub(crate) fn after_open(&mut self, placement: Placement, descriptor: i32) -> bool {
        let Some(mut open) = placement.open else { return false };
        // If the descriptor number is in use here, its previous file was closed by a call that is not intercepted.
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
        open.identity = Identity::of_descriptor(descriptor);
        self.add_open(open, &[descriptor]);
        true
    }

    /// Adds an open file with its descriptors.
    pub(super) fn add_open(&mut self, open: Open, descriptors: &[i32]) {
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, open);
        self.descriptors.extend(descriptors.iter().map(|&descriptor| (descriptor, number)));
    }

    /// Records that the program has duplicated a descriptor. Returns whether to watch the new one.
    pub(crate) fn duplicated(&mut self, from: i32, to: i32) -> bool {
        self.closed(to);
        let Some(&number) = self.descriptors.get(&from) else { return false };
        self.descriptors.insert(to, number);
        true
    }

    /// Forgets a watched descriptor that the program is about to close. Returns our number of its file. Another thread
    /// may receive the descriptor as soon as it is closed.
    pub(crate) fn before_close(&mut self, descriptor: i32) -> Option<u64> {
        self.descriptors.remove(&descriptor)
    }

    /// Records that the program has closed a watched descriptor.
    pub(crate) fn closed(&mut self, descriptor: i32) {
        if let Some(number) = self.descriptors.remove(&descriptor) {
            self.complete_unless_used(number);
        }
    }

    /// Closes the descriptors that refer to another file now: the program has closed them by a call that is not
    /// intercepted.
    pub(super) fn drop_strangers(&mut self) {
        let mut strangers = Vec::new();
        for (&descriptor, number) in &self.descriptors {
            let Some(open) = self.files.get_mut(number) else { continue };
            let now = Identity::of_descriptor(descriptor);
            if now == open.identity {
                continue;
            }
            // A file that has been moved out of the spool is another one.
            if now.is_some() && now == open.path.metadata().ok().as_ref().map(Identity::of) {
                open.identity = now;
            } else {
                strangers.push(descriptor);
            }
        }
        strangers.into_iter().for_each(|descriptor| self.closed(descriptor));
    }

    /// Records that a file is complete, unless the program has a descriptor or a mapping of it.
    pub(crate) fn complete_unless_used(&mut self, number: u64) {
        let is_open = self.descriptors.values().any(|&other| other == number);
        if is_open || self.mapped.contains(&number) {
            return;
        }
        let Some(Open { plan, named, path, spool, anew, growing, .. }) = self.files.remove(&number) else { return };
        if let Some(growing) = growing {
            return self.grown(plan, growing);
        }
        let Some(epoch) = named.epoch else { return };
        let dataset = &mut self.datasets[plan];
        dataset.no_longer_open(epoch);
        dataset.finished(named, epoch, Finished { anew, ..Finished::whole(path, spool) });
    }

    /// Records that a file of several epochs is complete.
    pub(super) fn grown(&mut self, plan: usize, mut growing: Growing) {
        self.found(plan, growing.look());
        if let Some((path, what)) = growing.corruption() {
            self.datasets[plan].record_corruption(path, what);
        }
    }

    /// Records sections of files, each of which holds one complete epoch.
    fn found(&mut self, plan: usize, parts: Vec<(u64, Finished)>) {
        for (epoch, part) in parts {
            self.datasets[plan].found(epoch, part);
        }
    }

    /// Looks for newly complete epochs in files that are still open.
    pub(super) fn look_at_growing(&mut self) {
        let look = |open: &mut Open| open.growing.as_mut().map(|growing| (open.plan, growing.look()));
        let parts: Vec<_> = self.files.values_mut().filter_map(look).collect();
        for (plan, parts) in parts {
            self.found(plan, parts);
        }
    }
}
