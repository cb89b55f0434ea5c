//! Checks the order of control messages: which of them are valid in which phase. Correct ranks follow this order under
//! any delay. A message out of order (from another release, or from a faulty transport) causes an error before it
//! changes this rank's state.
//!
//! The order holds because a rank's parent and children send and forward messages in order. The first message down is
//! therefore `Go`. `Probe` follows only after every rank has settled, `Closed` after `Probe`, and `Outcome` after every
//! rank has sealed. Each message up replies to one down, once per child.

use super::Engine;
use super::session::Phase;
use crate::shuffle::message::Control;
use crate::shuffle::wire::MessageError;

impl Engine {
    pub(in crate::shuffle) fn check_order(&self, message: &Control) -> Result<(), MessageError> {
        let (above, children) = (self.place.parent().is_some(), self.children_count());
        let records_flow = self.session.phase.records_flow();
        let fits = match message {
            // Any child may already be in the next session.
            Control::Ready => true,
            Control::Go { .. } => above && self.session.phase == Phase::Opening,
            Control::Begin { .. } | Control::Keep { .. } | Control::Frame(_) | Control::Table { .. } => {
                above && records_flow
            }
            Control::Probe { .. } | Control::Closed { .. } => above && self.session.phase == Phase::Settled,
            Control::Outcome(_) => above && self.session.phase == Phase::Sealing,
            // A round's messages may arrive after the end of its epoch has begun.
            Control::Request { .. } | Control::Report(_) | Control::Delivered { .. } => children > 0,
            Control::Settled { .. } => records_flow && self.session.quiescence.awaits_settled(children),
            Control::SealReport(_) => {
                self.session.phase == Phase::Sealing && self.session.quiescence.awaits_sealed(children)
            }
        };
        if fits { Ok(()) } else { Err(MessageError::Field { field: "place in the order of messages" }) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::format::RunKind;
    use crate::partition::{Pivots, PointSample};
    use crate::schema::{Column, DataType, Schema};
    use crate::shuffle::engine::session::EMPTY_RANGE;
    use crate::shuffle::message::{SealReport, Summary};
    use crate::shuffle::{Channel, EngineOptions, Sent, Transport};

    /// Control messages from a faulty peer. Replies are discarded.
    struct Broken(VecDeque<Vec<u8>>);

    impl Transport for Broken {
        fn send(&mut self, _to: u32, _channel: Channel, _message: Vec<u8>) -> Sent {
            Sent::Accepted
        }

        fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
            if channel == Channel::Control { self.0.pop_front() } else { None }
        }
    }

    fn summary() -> Summary {
        Summary { contributors: 0, range: EMPTY_RANGE, pivots: Pivots::default(), points: PointSample::default() }
    }

    /// Returns the result of `messages` on one of three ranks that has begun its first session.
    fn receive(rank: u32, messages: &[Control]) -> Result<bool, MessageError> {
        let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap());
        let mut engine = Engine::new(EngineOptions::new(rank, 3), schema);
        engine.begin(Vec::new());
        let mut peer = Broken(messages.iter().map(|message| message.encode(1)).collect());
        let result = engine.exchange(&mut peer, &mut |_: RunKind, _: &[u8]| ());
        if result.is_ok() && engine.is_open() {
            engine.end();
            return engine.exchange(&mut peer, &mut |_: RunKind, _: &[u8]| ());
        }
        result
    }

    /// The next append would block forever if an epoch closed while the application appends.
    #[test]
    fn messages_out_of_their_order_are_refused() {
        let go = || Control::Go { announcement: Vec::new(), placement: (3, None), frame: None, first: None };
        let settled = || Control::Settled { originated: 0, summary: summary() };
        let closed = || Control::Closed { rows: 0 };
        let sealed = || Control::SealReport(SealReport::Payloads(Vec::new()));
        assert!(receive(1, &[go()]).is_ok());
        assert!(receive(0, &[Control::Ready, Control::Ready]).is_ok());
        for messages in [vec![closed()], vec![go(), go()], vec![go(), closed()], vec![settled()]] {
            assert!(receive(1, &messages).is_err(), "{messages:?}");
        }
        for messages in [
            vec![go()],
            // Two children may begin this session and the next one. The fifth `Ready` is invalid.
            (0..5).map(|_| Control::Ready).collect(),
            vec![Control::Ready, Control::Ready, sealed()],
            vec![Control::Ready, Control::Ready, Control::Probe { round: u32::MAX }],
            vec![Control::Ready, Control::Ready, settled(), settled(), settled()],
            vec![Control::Outcome(Ok(Vec::new()))],
        ] {
            assert!(receive(0, &messages).is_err(), "{messages:?}");
        }
    }

    /// The sum of the counts overflows.
    #[test]
    fn counts_beyond_all_numbers_are_refused() {
        let settled = || Control::Settled { originated: u64::MAX, summary: summary() };
        assert!(receive(0, &[Control::Ready, Control::Ready, settled(), settled()]).is_err());
    }
}
