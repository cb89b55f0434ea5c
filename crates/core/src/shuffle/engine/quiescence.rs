//! Ends an epoch: detects quiescence, and gives all ranks one outcome.
//!
//! The engine counts records, not messages. The sum of originated records is final when every rank has sent all of its
//! records (`Settled`). Rank 0 then requests the number of deliveries (`Probe`) until the two sums agree. Each rank's
//! count only grows, so equal sums imply that no record is in flight. The ranks then seal their parts, rank 0 gathers
//! the entries, and its outcome is sent to all ranks.

use super::session::Phase;
use super::{Engine, Event};
use crate::shuffle::counts::Probe;
use crate::shuffle::message::{Control, Failure, SealReport, Summary};
use crate::shuffle::wire::MessageError;

/// Adds two sums of records over ranks. Only a faulty rank's counts overflow.
fn add_count(sum: u64, more: u64) -> Result<u64, MessageError> {
    sum.checked_add(more).ok_or(MessageError::Field { field: "number of records" })
}

impl Engine {
    /// Begins the end of the epoch. No more records are appended, and buffered records are sent.
    pub fn end(&mut self) {
        debug_assert_eq!(self.session.phase, Phase::Open);
        self.session.phase = Phase::Ending;
        self.compare_first_keys(true);
        if !self.is_routing() && !self.held.is_empty() {
            self.request_renegotiation();
        }
        self.route_held();
    }

    /// Flushes open batches at the end of the epoch. No batch waits for more records: neither for this rank's own nor
    /// for forwarded records, which may arrive long after the rank's own are sent. While a batch waits for credit,
    /// however, the next batch for the same hop may fill up. If it were queued at once, every few records would become
    /// a message, and no quota would limit the queue.
    pub(in crate::shuffle) fn flush_at_the_end(&mut self) {
        if matches!(self.session.phase, Phase::Ending | Phase::Settled) {
            self.outbox.flush(self.session.number, self.table_version());
        }
    }

    /// Reports this rank's count when all of its records have been sent. The count is then final.
    pub(in crate::shuffle) fn settle_when_empty(&mut self) {
        if self.session.phase == Phase::Ending && self.held.is_empty() && self.outbox.is_empty() {
            self.session.phase = Phase::Settled;
            self.session.quiescence.own_settled = true;
            let summary = self.summarize_epoch();
            self.session.quiescence.summaries.push(summary);
            // A sum that overflows comes from a faulty child. The sums then never agree, and the epoch ends on no rank.
            self.session.quiescence.originated =
                self.session.quiescence.originated.saturating_add(self.session.metrics.originated);
            self.report_settled();
        }
    }

    pub(in crate::shuffle) fn child_settled(&mut self, originated: u64, summary: Summary) -> Result<(), MessageError> {
        self.session.quiescence.settled_children += 1;
        self.session.quiescence.summaries.push(summary);
        self.session.quiescence.originated = add_count(self.session.quiescence.originated, originated)?;
        self.report_settled();
        Ok(())
    }

    fn report_settled(&mut self) {
        let state = &mut self.session.quiescence;
        if !state.own_settled || state.settled_children < self.place.children().len() as u32 {
            return;
        }
        let originated = state.originated;
        let summary = self.merged_summaries();
        match self.place.parent() {
            Some(parent) => self.control.push_back((parent, Control::Settled { originated, summary })),
            None => {
                let state = &mut self.session.quiescence;
                state.summaries.push(summary);
                state.total = Some(originated);
                state.again = true;
                self.probe_again();
            }
        }
    }

    pub(in crate::shuffle) fn probe_again(&mut self) {
        if std::mem::take(&mut self.session.quiescence.again) {
            let round = self.session.quiescence.last_probe + 1;
            self.receive_probe(round);
        }
    }

    pub(in crate::shuffle) fn receive_probe(&mut self, round: u32) {
        self.tell_children(&Control::Probe { round });
        self.session.quiescence.last_probe = round;
        self.session.quiescence.probe =
            Some(Probe { round, missing_children: self.children_count(), delivered: self.session.metrics.delivered });
        self.report_delivered();
    }

    pub(in crate::shuffle) fn child_delivered(&mut self, round: u32, delivered: u64) -> Result<(), MessageError> {
        if let Some(probe) = self.session.quiescence.probe.as_mut().filter(|probe| probe.round == round) {
            probe.missing_children -= 1;
            probe.delivered = add_count(probe.delivered, delivered)?;
            self.report_delivered();
        }
        Ok(())
    }

    fn report_delivered(&mut self) {
        let Some(probe) = self.session.quiescence.probe.take_if(|probe| probe.missing_children == 0) else { return };
        match self.place.parent() {
            Some(parent) => {
                self.control.push_back((parent, Control::Delivered { round: probe.round, delivered: probe.delivered }));
            }
            None if self.session.quiescence.total == Some(probe.delivered) => {
                let has_pivots = |whole: &Summary| whole.pivots.mass() > 0;
                let has_keys = self.has_fixed_table || self.session.quiescence.summaries.last().is_some_and(has_pivots);
                self.close(if has_keys { probe.delivered } else { 0 });
            }
            None => self.session.quiescence.again = true,
        }
    }

    pub(in crate::shuffle) fn close(&mut self, rows: u64) {
        self.tell_children(&Control::Closed { rows });
        self.session.phase = Phase::Sealing;
        self.session.rows = rows;
        // A round may still be in progress, but its table is no longer needed.
        self.session.negotiation.round = None;
        self.events.push_back(Event::Closed);
    }

    /// Sends this rank's sealed payload, or the cause of its failure, towards rank 0.
    pub fn sealed(&mut self, result: Result<Vec<u8>, String>) {
        let rank = self.options.rank;
        let own = match result {
            Ok(payload) => SealReport::Payloads(vec![(rank, payload)]),
            Err(cause) => SealReport::Failed(Failure { rank, cause }),
        };
        self.add_sealed(own);
        self.session.quiescence.own_sealed = true;
        self.report_sealed();
    }

    pub(in crate::shuffle) fn child_sealed(&mut self, sealed: SealReport) {
        self.session.quiescence.sealed_children += 1;
        self.add_sealed(sealed);
        self.report_sealed();
    }

    fn add_sealed(&mut self, sealed: SealReport) {
        let sum = match (self.session.quiescence.sealed.take(), sealed) {
            (None, sealed) => sealed,
            (Some(SealReport::Payloads(mut all)), SealReport::Payloads(more)) => {
                all.extend(more);
                SealReport::Payloads(all)
            }
            (Some(SealReport::Failed(one)), SealReport::Failed(other)) => {
                SealReport::Failed(if one.rank <= other.rank { one } else { other })
            }
            (Some(failed @ SealReport::Failed(_)), _) | (_, failed @ SealReport::Failed(_)) => failed,
        };
        self.session.quiescence.sealed = Some(sum);
    }

    fn report_sealed(&mut self) {
        if self.session.phase != Phase::Sealing
            || !self.session.quiescence.own_sealed
            || self.session.quiescence.sealed_children < self.children_count()
        {
            return;
        }
        let Some(sealed) = self.session.quiescence.sealed.take() else { return };
        match (self.place.parent(), self.merged(sealed)) {
            (Some(parent), sealed) => self.control.push_back((parent, Control::SealReport(sealed))),
            (None, SealReport::Payloads(payloads)) => self.events.push_back(Event::Gathered { payloads: Ok(payloads) }),
            (None, SealReport::Failed(failure)) => self.events.push_back(Event::Gathered { payloads: Err(failure) }),
        }
    }

    /// Merges the payloads of this subtree if a merge function is set. Rank 0 keeps its payloads unmerged.
    fn merged(&self, sealed: SealReport) -> SealReport {
        let Some(merge) = &self.merge else { return sealed };
        let SealReport::Payloads(payloads) = sealed else { return sealed };
        if payloads.len() < 2 || self.place.parent().is_none() {
            return SealReport::Payloads(payloads);
        }
        let rank = self.options.rank;
        match (merge.0)(payloads) {
            Ok(payload) => SealReport::Payloads(vec![(rank, payload)]),
            Err(cause) => SealReport::Failed(Failure { rank, cause }),
        }
    }

    /// Ends the epoch with the result for all ranks, or with the failure. Rank 0's driver calls it after
    /// [`Event::Gathered`].
    pub fn finish(&mut self, outcome: Result<Vec<u8>, Failure>) {
        self.tell_children(&Control::Outcome(outcome.clone()));
        if outcome.is_ok() {
            self.remember_epoch();
        }
        self.session.phase = Phase::Idle;
        self.events.push_back(Event::Over { outcome });
    }
}
