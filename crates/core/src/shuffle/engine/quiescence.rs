//! The end of an epoch: detection of quiescence, and one outcome for all ranks.
//!
//! Records are counted, not messages. When every rank has sent all the records it originated (`Settled`), their sum is
//! final; rank 0 then asks for the number of deliveries (`Probe`) until the two sums agree. Each rank's count only
//! grows, so equal sums mean that no record is in flight. Then the parts are sealed, the entries gathered on rank 0,
//! and its outcome sent to all.

use super::session::Phase;
use super::{Engine, Event};
use crate::shuffle::counts::Probe;
use crate::shuffle::message::{Control, Failure, SealReport};
use crate::shuffle::wire::MessageError;

/// Adds two sums of records over ranks. A correct job never overflows them.
fn add_count(sum: u64, more: u64) -> Result<u64, MessageError> {
    sum.checked_add(more).ok_or(MessageError::Field { field: "number of records" })
}

impl Engine {
    /// Begins the end of the epoch: buffered records are sent, and no more are appended.
    pub fn end(&mut self) {
        debug_assert_eq!(self.session.phase, Phase::Open);
        self.session.phase = Phase::Ending;
        if self.session.installed.is_none() && !self.held.is_empty() {
            self.request_renegotiation();
        }
        self.route_held();
    }

    /// Flushes open batches at the end of the epoch. No batch waits for more records then: neither this rank's own nor
    /// forwarded ones, which may arrive long after its own are gone. But while a batch waits for credit, the next one
    /// for the same hop may fill up: queued at once, every few records would become a message, and no quota would hold
    /// them.
    pub(in crate::shuffle) fn flush_at_the_end(&mut self) {
        if matches!(self.session.phase, Phase::Ending | Phase::Settled) {
            self.outbox.flush(self.session.number, self.table_version());
        }
    }

    /// Reports this rank's count once all its records have been sent: the count is final then.
    pub(in crate::shuffle) fn settle_when_empty(&mut self) {
        if self.session.phase == Phase::Ending && self.held.is_empty() && self.outbox.is_empty() {
            self.session.phase = Phase::Settled;
            self.session.quiescence.own_settled = true;
            // A sum that overflows comes from a broken child. The sums then never agree, and the epoch does not end on
            // any rank.
            self.session.quiescence.originated =
                self.session.quiescence.originated.saturating_add(self.session.statistics.originated);
            self.report_settled();
        }
    }

    pub(in crate::shuffle) fn child_settled(&mut self, originated: u64) -> Result<(), MessageError> {
        self.session.quiescence.settled_children += 1;
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
        match self.place.parent() {
            Some(parent) => self.control.push_back((parent, Control::Settled { originated })),
            None => {
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
        self.session.quiescence.probe = Some(Probe {
            round,
            missing_children: self.children_count(),
            delivered: self.session.statistics.delivered,
        });
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
            None if self.session.quiescence.total == Some(probe.delivered) => self.close(),
            None => self.session.quiescence.again = true,
        }
    }

    pub(in crate::shuffle) fn close(&mut self) {
        self.tell_children(&Control::Closed);
        self.session.phase = Phase::Sealing;
        // A round that is no longer needed may still be open.
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
            (None, SealReport::Payloads(payloads)) => self.events.push_back(Event::Gathered { payloads }),
            (None, SealReport::Failed(failure)) => {
                self.events.push_back(Event::GatherFailed);
                self.finish(Err(failure));
            }
        }
    }

    /// Merges the payloads of this subtree, if a merge function is set. Rank 0 keeps them as they arrive.
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

    /// Ends the epoch on rank 0, after [`Event::Gathered`], with the result for all ranks or with the failure of the
    /// commit.
    pub fn committed(&mut self, result: Result<Vec<u8>, String>) {
        let rank = self.options.rank;
        self.finish(result.map_err(|cause| Failure { rank, cause }));
    }

    pub(in crate::shuffle) fn finish(&mut self, outcome: Result<Vec<u8>, Failure>) {
        self.tell_children(&Control::Outcome(outcome.clone()));
        self.session.phase = Phase::Idle;
        self.events.push_back(Event::Over { outcome });
    }
}
