//! The end of MPI and of the process.

use super::agreement::say_full;
use super::state::Session;
use crate::notices::{complain, is_first_of_launch};
use crate::summary;

impl Session {
    fn close_all(&mut self) {
        for descriptor in self.descriptors.keys().copied().collect::<Vec<_>>() {
            self.closed(descriptor);
        }
    }

    /// Ends the session with the program or with MPI: no further files will come.
    pub(crate) fn end(&mut self) {
        self.close_all();
        if self.world.can_agree() {
            self.settle(true);
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

    /// Ends the process. If MPI has not ended, no rank can be asked: the others may be gone, or wait for this one in a
    /// call of their own.
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
}
