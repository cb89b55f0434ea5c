//! Ends the session with MPI or with the process.

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

    /// Ends the session when MPI or a program without MPI ends. All files are complete.
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

    /// Ends the session when the process ends. If MPI has not ended, ranks cannot agree: other ranks may have ended, or
    /// may wait for this rank in another call.
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
