//! Tracks the files that the program renames and removes.

use std::path::{Path, PathBuf};

use turbidite_source::Named;

use super::placement::{Moved, Open, Removal};
use super::state::Session;
use crate::growing::Growing;
use crate::notices::{self, Once, complain_of_place};
use crate::pending::Finished;
use crate::spool::{self, Identity, Spooled};

impl Session {
    /// Returns the place of a file in its dataset's spool, or `None` if the file is not spooled.
    fn copy_of(&self, path: &Path) -> Option<Spooled> {
        let (index, _) = self.dataset_of(path)?;
        Spooled::find(self.datasets[index].plan.spool_root()?, path)
    }

    fn open_under(&self, path: &Path) -> Vec<u64> {
        self.files.iter().filter(|(_, open)| open.path == path).map(|(&number, _)| number).collect()
    }

    /// Withdraws a file from its epoch before the program renames it.
    pub(crate) fn before_rename(&mut self, from: &Path) -> Option<Moved> {
        let path = std::path::absolute(from).ok()?;
        if let Some(copy) = self.copy_of(&path)
            && let Err(error) = spool::put_in_place(&copy)
        {
            // The rename needs a file at the original path.
            complain_of_place(&copy, &error);
        }
        let mut is_closed = false;
        for dataset in &mut self.datasets {
            is_closed |= dataset.part_with(&path);
        }
        let open = self.open_under(&path);
        (is_closed || !open.is_empty()).then_some(Moved { is_closed, open })
    }

    /// Records that a file has the name `to`, by a rename or a further link. `moved` is the file's known state, or
    /// `None` if its old path belonged to no dataset.
    pub(crate) fn renamed(&mut self, moved: Option<Moved>, to: &Path) {
        let target = std::path::absolute(to).ok().and_then(|path| Some((self.dataset_of(&path)?, path)));
        let Some(((index, named), path)) = target else {
            return self.drop_open(&moved.map_or(Vec::new(), |moved| moved.open));
        };
        // The rename has replaced any earlier file at that path, so its spooled copy is removed.
        if let Some(root) = self.datasets[index].plan.spool_root()
            && let Some(copy) = Spooled::own_copy(root, &path)
        {
            let _ = copy.remove();
        }
        let is_known = moved.is_some();
        let Moved { is_closed, open } = moved.unwrap_or(Moved { is_closed: true, open: Vec::new() });
        for number in open {
            self.give_name(number, index, named, &path);
        }
        // A file that was opened under a name of no dataset may still be open.
        let writers = if is_known { Vec::new() } else { writers_of(&path) };
        if !writers.is_empty() {
            self.follow(index, named, path, &writers);
        } else if is_closed {
            self.appeared(index, named, path);
        }
    }

    /// Follows a file whose matching name is new, and which the program has open under `descriptors`.
    fn follow(&mut self, index: usize, named: Named, path: PathBuf, descriptors: &[i32]) {
        if let Some(epoch) = named.epoch {
            self.datasets[index].observe(epoch);
            self.datasets[index].pending.entry(epoch).or_default().open += 1;
        }
        let growing = named.epoch.is_none().then(|| Growing::named(&path));
        let identity = descriptors.first().and_then(|&descriptor| Identity::of_descriptor(descriptor));
        let open = Open { plan: index, named, path, spool: None, anew: true, growing, identity };
        self.add_open(open, descriptors);
    }

    /// Records that a complete file has a matching name now.
    pub(super) fn appeared(&mut self, index: usize, named: Named, path: PathBuf) {
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

    /// Assigns a new name to an open file.
    pub(super) fn give_name(&mut self, number: u64, index: usize, named: Named, path: &Path) {
        let Some(open) = self.files.get_mut(&number) else { return };
        if let Some(epoch) = open.named.epoch {
            self.datasets[open.plan].no_longer_open(epoch);
        }
        if let Some(epoch) = named.epoch {
            self.datasets[index].observe(epoch);
            self.datasets[index].pending.entry(epoch).or_default().open += 1;
        }
        let growing = named.epoch.is_none().then(|| Growing::named(path));
        let identity = open.identity;
        *open = Open { plan: index, named, path: path.to_owned(), spool: None, anew: true, growing, identity };
    }

    /// Stops tracking open files.
    pub(super) fn drop_open(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some(open) = self.files.remove(number) else { continue };
            if let Some(epoch) = open.named.epoch {
                self.datasets[open.plan].no_longer_open(epoch);
            }
        }
    }

    /// Stops tracking a path that the program is about to remove, and removes its spooled copy. Returns the step that
    /// remains.
    pub(crate) fn before_removal(&mut self, path: &Path) -> Removal {
        let Ok(path) = std::path::absolute(path) else { return Removal::OfName };
        let copy = self.copy_of(&path);
        self.drop_open(&self.open_under(&path));
        for dataset in &mut self.datasets {
            dataset.forget(&path);
        }
        let Some(copy) = copy else {
            // The program removes an old dump whose records are in the dataset.
            let may_remove = self.is_replaced(&path)
                && self
                    .dataset_of(&path)
                    .is_some_and(|(index, named)| self.datasets[index].may_remove(&path, named.rank, &self.world));
            return if may_remove { Removal::Done } else { Removal::OfName };
        };
        if let Some(file) = spool::find_open(&copy) {
            file.removed();
        }
        match copy.remove() {
            Ok(()) => Removal::Done,
            Err(_) => Removal::OfName,
        }
    }

    /// Returns whether the index has replaced a file, so that no file exists under its name.
    fn is_replaced(&self, path: &Path) -> bool {
        let Some((index, named)) = self.dataset_of(path) else { return false };
        let dataset = &self.datasets[index];
        named.epoch.is_some_and(|epoch| dataset.has_replaced(epoch)) && path.symlink_metadata().is_err()
    }

    /// Records that a call of the program has found no file under a name. If the index has replaced the file, a message
    /// will say so.
    pub(crate) fn missed(&mut self, path: &Path) {
        let Ok(path) = std::path::absolute(path) else { return };
        if self.is_replaced(&path)
            && let Some((index, named)) = self.dataset_of(&path)
        {
            notices::note(Once::Replaced, || self.datasets[index].where_replaced(&path, named.epoch.unwrap_or(0)));
        }
    }
}

/// Returns the program's descriptors that may write to a file.
fn writers_of(path: &Path) -> Vec<i32> {
    let Ok(about) = path.metadata() else { return Vec::new() };
    let identity = Some(Identity::of(&about));
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let descriptors = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    descriptors
        .filter(|&descriptor| Identity::of_descriptor(descriptor) == identity && spool::is_writable(descriptor))
        .collect()
}
