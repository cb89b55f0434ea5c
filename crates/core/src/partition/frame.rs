//! The frame of an epoch: the box in which records are divided by place.

use super::point_sample::PointSample;
use super::table::DecodeError;
use crate::schema::MAX_AXES;

/// The denominator of the share of points that may lie outside of the frame on each side of an axis, so that a few
/// records far away do not widen it.
const OUTSIDE_SHARE: usize = 100;

/// The denominator of the length by which the frame exceeds the points on each side.
const MARGIN: f64 = 16.0;

/// The share of an axis' length by which the ends of similar frames differ.
const SIMILAR: f64 = 0.25;

/// The denominator of the longest axis' length. Shorter axes count as that long when frames are compared.
const SHORT_AXIS: f64 = 64.0;

/// Length of an encoded frame in bytes.
pub(crate) const FRAME_BYTES: usize = 2 * MAX_AXES * size_of::<f64>();

/// A box around most of an epoch's records. All ranks divide records by the same frame. Records outside of it are
/// divided the more coarsely the farther away they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Least and greatest coordinate of each axis, both finite.
    axes: [(f64, f64); MAX_AXES],
}

// The coordinates are finite.
impl Eq for Frame {}

impl Frame {
    /// Returns the frame of a sample of places.
    pub fn around(sample: &PointSample) -> Self {
        let axes = std::array::from_fn(|axis| {
            let mut coordinates: Vec<f64> = sample.points().iter().map(|point| point[axis]).collect();
            coordinates.sort_unstable_by(f64::total_cmp);
            let outside = coordinates.len() / OUTSIDE_SHARE;
            let least = coordinates.get(outside).copied().unwrap_or_default();
            let most = coordinates.iter().rev().nth(outside).copied().unwrap_or_default();
            let margin = most / MARGIN - least / MARGIN;
            ((least - margin).max(f64::MIN), (most + margin).min(f64::MAX))
        });
        Self { axes }
    }

    /// Returns the least and greatest coordinate of each axis.
    pub(super) fn axes(&self) -> &[(f64, f64); MAX_AXES] {
        &self.axes
    }

    /// Returns whether records that suit this frame would be divided about as well by the other.
    pub fn resembles(&self, other: &Self) -> bool {
        let length = |(least, most): (f64, f64)| most - least;
        let longest = self.axes.iter().map(|axis| length(*axis)).fold(0.0, f64::max);
        self.axes.iter().zip(&other.axes).all(|(one, two)| {
            let tolerance = SIMILAR * length(*one).max(longest / SHORT_AXIS);
            (one.0 - two.0).abs() <= tolerance && (one.1 - two.1).abs() <= tolerance
        })
    }

    /// Returns the encoded frame.
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        let numbers = self.axes.iter().flat_map(|(least, most)| [least, most]);
        for (slot, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes the output of [`Frame::encode`].
    ///
    /// # Errors
    /// [`DecodeError`] for other input.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let invalid = || DecodeError { what: "frame" };
        let bytes: &[u8; FRAME_BYTES] = bytes.try_into().map_err(|_| invalid())?;
        let (words, _) = bytes.as_chunks::<8>();
        let number = |place: usize| f64::from_le_bytes(words[place]);
        let axes = std::array::from_fn(|axis| (number(2 * axis), number(2 * axis + 1)));
        let is_valid = |(least, most): &(f64, f64)| least.is_finite() && most.is_finite() && least <= most;
        if axes.iter().all(is_valid) { Ok(Self { axes }) } else { Err(invalid()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn frame_of(place: impl Fn(usize) -> [f64; MAX_AXES]) -> Frame {
        let mut sample = PointSample::default();
        sample.observe(1 << 16, &mut Random::new(7), &place);
        for _ in 0..7 {
            sample.observe(1 << 16, &mut Random::new(8), &place);
        }
        Frame::around(&sample)
    }

    #[test]
    fn few_records_far_away_do_not_widen_a_frame() {
        let scattered = |record: usize| (record * 7919 % 65_536) as f64 / 65_536.0;
        let plain = frame_of(|record| [scattered(record), 3.0, 1e6 + scattered(record)]);
        let outlying = frame_of(|record| match record % 1000 {
            0 => [1e30, -1e300, f64::MAX],
            _ => [scattered(record), 3.0, 1e6 + scattered(record)],
        });
        assert!(plain.resembles(&outlying) && outlying.resembles(&plain), "{plain:?} {outlying:?}");
        assert!(plain.axes[0].0 > -0.2 && plain.axes[0].1 < 1.2 && plain.axes[1] == (3.0, 3.0), "{plain:?}");
        let moved = frame_of(|record| [scattered(record), 3.5, 1e6 + scattered(record)]);
        assert!(!moved.resembles(&plain));
    }

    #[test]
    fn frames_survive_the_wire() {
        for frame in [
            Frame::around(&PointSample::default()),
            frame_of(|record| [record as f64, -f64::MAX, if record % 2 == 0 { f64::MAX } else { f64::MIN }]),
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
        assert!(Frame::decode(&[]).is_err() && Frame::decode(&[0xff; FRAME_BYTES]).is_err());
    }
}
