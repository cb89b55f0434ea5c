//! Which control messages may come in which phase. Honest ranks keep to it, whatever the delays; one that does not (of another
//! release, or by a transport that mixes up messages) gives an error before it moves this rank's state.
//!
//! Why each holds: a rank's parent and children send it their messages in order, and pass on what they got from theirs. So
//! the first that comes down is `Go`; `Probe` follows only after every rank has settled, `Closed` after `Probe`, and `Outcome`
//! after every rank has sealed. What comes up answers what went down, once for each child.

use super::Engine;
use super::session::Phase;
use crate::shuffle::message::Control;
use crate::shuffle::wire::MessageError;

impl Engine {
    pub(in crate::shuffle) fn check_order(&self, message: &Control) -> Result<(), MessageError> {
        let (above, children) = (self.place.parent().is_some(), self.children_count());
        let records_flow = self.session.phase.records_flow();
        let fits = match message {
            // Any child may be in the next session already.
            Control::Ready => true,
            Control::Go { .. } => above && self.session.phase == Phase::Opening,
            Control::Begin { .. } | Control::Table { .. } => above && records_flow,
            Control::Probe { .. } | Control::Closed => above && self.session.phase == Phase::Settled,
            Control::Outcome(_) => above && self.session.phase == Phase::Sealing,
            // A round may be overtaken by the end of its epoch.
            Control::Request { .. } | Control::Pivots { .. } | Control::Delivered { .. } => children > 0,
            Control::Settled { .. } => records_flow && self.session.quiescence.awaits_settled(children),
            Control::Sealed(_) => {
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
    use crate::schema::{Column, DataType, Schema};
    use crate::shuffle::message::Sealed;
    use crate::shuffle::{Channel, EngineOptions, Sent, Transport};

    /// Control messages that a broken peer has sent; what is answered goes nowhere.
    struct Broken(VecDeque<Vec<u8>>);

    impl Transport for Broken {
        fn send(&mut self, _to: u32, _channel: Channel, _message: Vec<u8>) -> Sent {
            Sent::Accepted
        }

        fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
            if channel == Channel::Control { self.0.pop_front() } else { None }
        }
    }

    /// What a rank of three makes of messages after it has begun its first session.
    fn told(rank: u32, messages: &[Control]) -> Result<bool, MessageError> {
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

    /// An epoch that is closed under the hands of a program would make its next append wait for ever.
    #[test]
    fn messages_out_of_their_order_are_refused() {
        let go = || Control::Go { announcement: Vec::new() };
        let settled = || Control::Settled { originated: 0 };
        let sealed = || Control::Sealed(Sealed::Payloads(Vec::new()));
        assert!(told(1, &[go()]).is_ok());
        assert!(told(0, &[Control::Ready, Control::Ready]).is_ok());
        for messages in [vec![Control::Closed], vec![go(), go()], vec![go(), Control::Closed], vec![settled()]] {
            assert!(told(1, &messages).is_err(), "{messages:?}");
        }
        for messages in [
            vec![go()],
            // Two open this session, two more may be of the next one.
            (0..5).map(|_| Control::Ready).collect(),
            vec![Control::Ready, Control::Ready, sealed()],
            vec![Control::Ready, Control::Ready, Control::Probe { round: u32::MAX }],
            vec![Control::Ready, Control::Ready, settled(), settled(), settled()],
            vec![Control::Outcome(Ok(Vec::new()))],
        ] {
            assert!(told(0, &messages).is_err(), "{messages:?}");
        }
    }

    /// The sum overflowed.
    #[test]
    fn counts_beyond_all_numbers_are_refused() {
        let settled = || Control::Settled { originated: u64::MAX };
        assert!(told(0, &[Control::Ready, Control::Ready, settled(), settled()]).is_err());
    }
}
