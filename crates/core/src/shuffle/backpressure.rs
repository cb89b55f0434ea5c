//! Backpressure: decides whether an append continues, waits or spills when receivers give no credit.
//!
//! A slow receiver gives no credit, so its senders' buffers fill up. A sender waits for credit until a timeout, then
//! keeps the batch on its own rank as a *spill*. A receiver that caused a timeout is *unresponsive*. Later batches for
//! an unresponsive receiver spill without a wait until the receiver accepts a batch, so each sender waits once instead
//! of once per batch. The state machine has no clock; the runtime passes the current time.

use std::time::Duration;

/// Timeouts of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout for a receiver's credit.
    pub credit: Duration,
    /// Timeout for a partition table under negotiation. Records sent before the table arrives are routed by an older
    /// table.
    pub table: Duration,
}

/// The progress of one attempt to append and exchange messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether at least one record was taken from the application.
    pub taken: bool,
    /// Whether at least one message was sent or received.
    pub moved: bool,
}

/// The reasons why an engine holds records back ([`super::Engine::pressure`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Whether the rank takes part in a negotiation.
    pub is_negotiating: bool,
    /// Whether records are routed by a partition table, and not held back for one.
    pub has_table: bool,
    /// Whether a batch waits for an unresponsive rank: the rank's timeout expired, and the rank has accepted no batch
    /// since.
    pub is_unresponsive: bool,
}

/// The records that a rank keeps as a spill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spill {
    /// The oldest waiting batch, or the records held back for a table.
    Oldest,
    /// A batch for an unresponsive rank.
    Unresponsive,
}

/// The next step of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Append again at once.
    Continue,
    /// Exchange messages without appending, until the deadline at most: a table is under negotiation.
    AwaitTable {
        /// The deadline, on the runtime's clock.
        until: Duration,
    },
    /// Exchange messages. Append again after progress, or at the deadline.
    AwaitCredit {
        /// The deadline, on the runtime's clock.
        until: Duration,
    },
    /// Keep records on this rank ([`super::Engine::spill`]). If no record could be kept, proceed as for
    /// [`Action::AwaitCredit`].
    Spill(Spill),
}

/// One rank's backpressure state over an epoch.
#[derive(Debug)]
pub struct Backpressure {
    timeouts: Timeouts,
    /// Time since which no record has been taken.
    blocked_since: Option<Duration>,
    /// Time since which the rank has waited for the next table.
    table_since: Option<Duration>,
    /// Whether the last table arrived before its timeout. If not, appends do not wait for the next table.
    expects_table: bool,
    /// Whether the wait for the epoch's first table timed out. Until that table arrives, appends spill without a wait.
    gave_up_first_table: bool,
}

impl Backpressure {
    /// Creates the state of a rank that has waited for no receiver.
    pub fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, blocked_since: None, table_since: None, expects_table: true, gave_up_first_table: false }
    }

    /// Begins an epoch: all ranks count as responsive again, whatever their state in the previous epoch.
    pub fn begin(&mut self) {
        *self = Self::new(self.timeouts);
    }

    /// Forgets since when records wait. Called after a time in which the rank exchanged no messages, so that nobody
    /// could have accepted them.
    pub fn resume(&mut self) {
        (self.blocked_since, self.table_since) = (None, None);
    }

    /// Returns the next step of an append that has not finished.
    pub fn decide(&mut self, now: Duration, progress: Progress, pressure: Pressure) -> Action {
        let awaited = self.table_since.is_some();
        if let Some(until) = self.awaits_table(now, pressure.is_negotiating) {
            return Action::AwaitTable { until };
        }
        if progress.taken || awaited {
            self.blocked_since = None;
            return Action::Continue;
        }
        if pressure.is_unresponsive {
            return Action::Spill(Spill::Unresponsive);
        }
        let hurried = self.gave_up_first_table && !pressure.has_table;
        let timeout = if hurried { Duration::ZERO } else { self.timeouts.credit };
        let until = self.blocked_since.get_or_insert(now).saturating_add(timeout);
        if now >= until {
            Action::Spill(Spill::Oldest)
        } else if progress.moved {
            Action::Continue
        } else {
            Action::AwaitCredit { until }
        }
    }

    /// Returns the deadline for the table under negotiation, or `None` if there is no negotiation or the wait timed
    /// out.
    pub fn awaits_table(&mut self, now: Duration, is_negotiating: bool) -> Option<Duration> {
        if !is_negotiating {
            (self.table_since, self.expects_table) = (None, true);
            return None;
        }
        if !self.expects_table {
            return None;
        }
        let until = self.table_since.get_or_insert(now).saturating_add(self.timeouts.table);
        self.expects_table = now < until;
        if self.expects_table {
            // The credit timeout does not run while the append waits for a table.
            self.blocked_since = None;
            return Some(until);
        }
        self.table_since = None;
        None
    }

    /// Records that a spill requested by [`Action::Spill`] took place.
    pub fn spilled(&mut self, spill: Spill, pressure: Pressure) {
        match spill {
            Spill::Unresponsive => self.blocked_since = None,
            Spill::Oldest => self.gave_up_first_table |= !pressure.has_table,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDIT: Duration = Duration::from_millis(100);
    const TABLE: Duration = Duration::from_millis(10);
    const NOTHING: Progress = Progress { taken: false, moved: false };
    const TAKEN: Progress = Progress { taken: true, moved: false };
    const MOVED: Progress = Progress { taken: false, moved: true };

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn backpressure() -> Backpressure {
        Backpressure::new(Timeouts { credit: CREDIT, table: TABLE })
    }

    /// Pressure when a table is in force and all ranks accept batches.
    const OPEN: Pressure = Pressure { is_negotiating: false, has_table: true, is_unresponsive: false };

    #[test]
    fn a_receiver_without_credit_is_waited_for_once() {
        let mut rank = backpressure();
        assert_eq!(rank.decide(at(0), NOTHING, OPEN), Action::AwaitCredit { until: CREDIT });
        // Messages of other ranks do not extend the timeout.
        assert_eq!(rank.decide(at(60), MOVED, OPEN), Action::Continue);
        assert_eq!(rank.decide(at(99), NOTHING, OPEN), Action::AwaitCredit { until: CREDIT });
        assert_eq!(rank.decide(at(100), MOVED, OPEN), Action::Spill(Spill::Oldest));
        rank.spilled(Spill::Oldest, OPEN);
        let unresponsive = Pressure { is_unresponsive: true, ..OPEN };
        assert_eq!(
            rank.decide(at(101), TAKEN, unresponsive),
            Action::Continue,
            "nothing is spilled while there is room"
        );
        assert_eq!(rank.decide(at(102), NOTHING, unresponsive), Action::Spill(Spill::Unresponsive));
        rank.spilled(Spill::Unresponsive, unresponsive);
        // Each rank has its own timeout.
        assert_eq!(rank.decide(at(110), NOTHING, OPEN), Action::AwaitCredit { until: at(210) });
    }

    #[test]
    fn tables_are_waited_for_while_they_arrive_in_time() {
        let mut rank = backpressure();
        let negotiating = Pressure { is_negotiating: true, ..OPEN };
        assert_eq!(rank.decide(at(0), TAKEN, negotiating), Action::AwaitTable { until: TABLE });
        assert_eq!(rank.decide(at(9), MOVED, negotiating), Action::AwaitTable { until: TABLE });
        assert_eq!(rank.decide(at(9), NOTHING, OPEN), Action::Continue, "it arrived: append again");
        assert_eq!(rank.decide(at(20), TAKEN, negotiating), Action::AwaitTable { until: at(30) });
        assert_eq!(rank.decide(at(30), NOTHING, negotiating), Action::Continue, "it did not: append without it");
        assert_eq!(rank.decide(at(31), TAKEN, negotiating), Action::Continue, "nor is it waited for again");
        assert_eq!(rank.decide(at(32), NOTHING, negotiating), Action::AwaitCredit { until: at(132) });
        assert_eq!(rank.decide(at(40), NOTHING, OPEN), Action::AwaitCredit { until: at(132) });
        assert_eq!(rank.decide(at(41), TAKEN, negotiating), Action::AwaitTable { until: at(51) });
    }

    #[test]
    fn the_first_table_is_given_up_once_an_epoch() {
        let mut rank = backpressure();
        let without = Pressure { has_table: false, ..OPEN };
        assert_eq!(rank.decide(at(0), NOTHING, without), Action::AwaitCredit { until: CREDIT });
        assert_eq!(rank.decide(at(100), NOTHING, without), Action::Spill(Spill::Oldest));
        rank.spilled(Spill::Oldest, without);
        assert_eq!(rank.decide(at(101), TAKEN, without), Action::Continue);
        assert_eq!(rank.decide(at(102), NOTHING, without), Action::Spill(Spill::Oldest), "at once");
        assert_eq!(rank.decide(at(103), TAKEN, OPEN), Action::Continue);
        assert_eq!(rank.decide(at(104), NOTHING, OPEN), Action::AwaitCredit { until: at(204) }, "a table is in force");
        rank.begin();
        assert_eq!(rank.decide(at(300), NOTHING, without), Action::AwaitCredit { until: at(400) });
    }

    #[test]
    fn without_a_timeout_nothing_waits() {
        let mut rank = Backpressure::new(Timeouts { credit: Duration::ZERO, table: Duration::ZERO });
        let negotiating = Pressure { is_negotiating: true, ..OPEN };
        assert_eq!(rank.decide(at(0), NOTHING, negotiating), Action::Spill(Spill::Oldest));
        assert_eq!(rank.decide(at(0), MOVED, OPEN), Action::Spill(Spill::Oldest));
        assert_eq!(rank.decide(at(0), TAKEN, negotiating), Action::Continue);
    }
}
