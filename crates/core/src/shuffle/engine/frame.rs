//! Agrees on the frame that is divided by place.
//!
//! Ordinals of records depend on the frame, so no record is routed before every rank has it. In the first epoch, the
//! first round brings samples of places to rank 0 along with pivots, which say nothing yet. Rank 0 sends the frame and
//! begins the round again. The records that the ranks hold back are all that their new pivots are made of.
//!
//! Later epochs begin with the same frame. If the last epoch's places do not suit it any more, rank 0 makes another at
//! its end, and forgets the keys of that epoch with the frame that they depend on.

use super::Engine;
use super::session::EMPTY_RANGE;
use crate::partition::{Frame, Pivots, PointSample};
use crate::shuffle::message::Control;
use crate::shuffle::options::Prior;
use crate::shuffle::round::Round;
use crate::shuffle::wire::MessageError;

impl Engine {
    /// Returns whether records are divided by place, and the frame is not known.
    pub(super) fn lacks_frame(&self) -> bool {
        self.needs_points() && self.frame.is_none()
    }

    /// Returns whether the ranks sample the places of their records.
    pub(super) fn needs_points(&self) -> bool {
        self.partitioner.divides_a_frame() && self.negotiates()
    }

    /// Sets the frame of the records that are appended from now on.
    pub(super) fn set_frame(&mut self, frame: Option<Frame>) {
        if self.frame != frame {
            self.frame = frame;
            self.partitioner.set_frame(frame.as_ref());
        }
    }

    /// Keeps the last epoch's frame, unless epochs are independent. Called on rank 0.
    pub(super) fn begin_with_frame(&mut self) {
        if self.options.prior == Prior::None {
            self.set_frame(None);
        }
    }

    /// Sets the frame that rank 0 begins the epoch with.
    pub(super) fn receive_first_frame(&mut self, frame: Option<Frame>) -> Result<(), MessageError> {
        self.check_frame(frame.is_some())?;
        if self.frame != frame {
            self.last = None;
            self.set_frame(frame);
        }
        Ok(())
    }

    /// Makes the frame from the places of a round, and begins the round again. Called on rank 0.
    pub(super) fn make_frame(&mut self, round: &Round) -> Result<(), MessageError> {
        let points = PointSample::merge(&round.points, &mut self.random);
        let version = round.version;
        self.begin_again(Frame::around(&points));
        self.start_round(version, true);
        Ok(())
    }

    /// Sets the frame of an epoch that began without one.
    pub(super) fn receive_frame(&mut self, frame: Frame) -> Result<(), MessageError> {
        self.check_frame(true)?;
        if self.frame.is_some() || self.session.negotiation.round.is_some() || self.table_version() > 0 {
            return Err(MessageError::Field { field: "frame" });
        }
        self.begin_again(frame);
        Ok(())
    }

    /// Sets the frame, and observes the records held back once more.
    fn begin_again(&mut self, frame: Frame) {
        self.tell_children(&Control::Frame(frame));
        self.set_frame(Some(frame));
        self.sketch.clear();
        self.session.own_keys = Pivots::default();
        self.session.unsent_keys = Pivots::default();
        let negotiation = &mut self.session.negotiation;
        (negotiation.observed_range, negotiation.epoch_range) = (EMPTY_RANGE, EMPTY_RANGE);
        let mut ordinals = std::mem::take(&mut self.scratch.ordinals);
        ordinals.clear();
        self.key_ordinals(&self.held, &mut ordinals);
        self.observe(&ordinals);
        self.scratch.ordinals = ordinals;
    }

    fn check_frame(&self, is_some: bool) -> Result<(), MessageError> {
        if is_some && !self.needs_points() { Err(MessageError::Field { field: "frame" }) } else { Ok(()) }
    }

    /// Returns whether the frame suits the places of the epoch that ends. Otherwise, the next epoch has another frame.
    /// Called on rank 0.
    pub(super) fn suits_frame(&mut self, points: &PointSample) -> bool {
        let (Some(frame), false) = (self.frame, points.is_empty()) else { return true };
        let found = Frame::around(points);
        let suits = found.resembles(&frame);
        if !suits {
            self.set_frame(Some(found));
        }
        suits
    }
}
