//! Tracks the files that the program renames and removes.

use std::path::Path;

use turbidite_source::Named;

use super::placement::{Moved, Open, Removal};
use super::state::Session;
use crate::growing::Growing;
use crate::notices::complain_of_place;
use crate::pending::Finished;
use crate::spool::{self, Spooled};

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
        if let Some(copy) = self.copy_of(&path) {
            // The rename needs a file at the original path.
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

    /// Records that the program has renamed a file to `to`. `moved` is the file's known state, or `None` if its old
    /// path belonged to no dataset.
    pub(crate) fn renamed(&mut self, moved: Option<Moved>, to: Option<&Path>) {
        let path = to.and_then(|to| std::path::absolute(to).ok());
        let target = path.and_then(|path| Some((self.dataset_of(&path)?, path)));
        let (is_closed, open) = moved.map_or((true, Vec::new()), |moved| (moved.is_closed, moved.open));
        let Some(((index, named), path)) = target else { return self.drop_open(&open) };
        // The rename has replaced any earlier file at that path, so its spooled copy is removed.
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

    /// Assigns a new name to an open file.
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

    /// Stops tracking open files.
    fn drop_open(&mut self, numbers: &[u64]) {
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
        let Some(copy) = copy else { return Removal::OfName };
        if let Some(file) = spool::find_open(&copy) {
            file.removed();
        }
        match copy.remove() {
            Ok(()) => Removal::Done,
            Err(_) => Removal::OfName,
        }
    }
}
