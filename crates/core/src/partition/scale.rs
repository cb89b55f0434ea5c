//! The axis along which mass is assumed to be spread evenly.
//!
//! The ordinals of floats have a bend at every power of two, where the density of any smooth distribution doubles.
//! Linear interpolation across the bend misplaces cut points by a tenth of a partition for particle energies. Floats
//! are therefore mapped to an axis close to their logarithm. Within a binade, the mantissa t in [0, 1) is mapped to (4
//! t - t^2) / 3. The slope falls from 4/3 to 2/3, so the slopes of adjacent binades agree. All arithmetic is on
//! integers, and hence exact and the same on every machine. The mapping is strictly increasing. Integers are spread
//! evenly over their ordinals.

use crate::schema::{DataType, KeyOrder};

/// The mapping from ordinals to positions on the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Scale {
    /// Proportional to the ordinals.
    #[default]
    Even,
    /// Close to the logarithm, for ordinals of f32.
    Single,
    /// Close to the logarithm, for ordinals of f64.
    Double,
}

/// The parameters of a float type.
#[derive(Clone, Copy)]
struct Float {
    mantissa_bits: u32,
    /// Ordinal of zero.
    zero: u64,
}

const SINGLE: Float = Float { mantissa_bits: 23, zero: 1 << 31 };
const DOUBLE: Float = Float { mantissa_bits: 52, zero: 1 << 63 };

/// Position of zero for floats. It is larger than the rise of any magnitude.
const ZERO_PLACE: u128 = 1 << 68;

impl Float {
    /// Returns the distance of a magnitude (the bits without the sign) from zero. Neighbours are four to eight
    /// positions apart.
    fn rise(self, magnitude: u64) -> u128 {
        let one = 1u64 << self.mantissa_bits;
        let mantissa = magnitude & (one - 1);
        let binade = magnitude >> self.mantissa_bits;
        let bend = u128::from(mantissa) * u128::from(4 * one - mantissa);
        u128::from(binade) * u128::from(self.span()) + (bend >> (self.mantissa_bits - 1))
    }

    /// Returns the length of a binade on the axis.
    fn span(self) -> u64 {
        3 << (self.mantissa_bits + 1)
    }

    fn place(self, ordinal: u64) -> u128 {
        if ordinal >= self.zero {
            ZERO_PLACE + self.rise(ordinal - self.zero)
        } else {
            // The ordinal before zero is that of negative zero. No key has this ordinal, but it occupies a unit.
            ZERO_PLACE - 4 - self.rise(self.zero - 1 - ordinal)
        }
    }
}

impl Float {
    /// Returns the largest magnitude whose distance from zero is at most `rise`.
    fn magnitude(self, rise: u128) -> u64 {
        let one = 1u64 << self.mantissa_bits;
        // The length of a binade is 3 times a power of two. The division is on 64 bits, since one on 128 bits calls a
        // function of the runtime library.
        let binade = u64::try_from(rise >> (self.mantissa_bits + 1)).unwrap_or(u64::MAX) / 3;
        let within = rise.saturating_sub(u128::from(binade) * u128::from(self.span())) as u64;
        // Solves 4 t - t^2 = w for t. The loops below correct rounding errors.
        let full = 4.0 * (one as f64) * (one as f64);
        let mantissa = 2.0 * one as f64 - (full - within as f64 * (one / 2) as f64).max(0.0).sqrt();
        let guess = binade.saturating_mul(one).saturating_add((mantissa.max(0.0) as u64).min(one - 1));
        let mut magnitude = guess.min(self.zero - 1);
        while magnitude > 0 && self.rise(magnitude) > rise {
            magnitude -= 1;
        }
        while magnitude < self.zero - 1 && self.rise(magnitude + 1) <= rise {
            magnitude += 1;
        }
        magnitude
    }

    /// Returns the ordinal whose unit contains a position.
    fn ordinal(self, place: u128) -> u64 {
        if let Some(rise) = place.checked_sub(ZERO_PLACE) {
            return self.zero + self.magnitude(rise);
        }
        let depth = (ZERO_PLACE - 4).saturating_sub(place);
        let magnitude = self.magnitude(depth);
        // For negative keys, a unit extends from the position of its key towards smaller magnitudes.
        let magnitude = if self.rise(magnitude) < depth { magnitude + 1 } else { magnitude };
        (self.zero - 1).saturating_sub(magnitude)
    }
}

impl Scale {
    pub(crate) fn of(order: KeyOrder) -> Self {
        match order.data_type() {
            DataType::F32 => Self::Single,
            DataType::F64 => Self::Double,
            _ => Self::Even,
        }
    }

    /// Returns the code of the scale in messages.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Even, Self::Single, Self::Double].into_iter().find(|scale| scale.code() == code)
    }

    /// Returns the start of a key's unit. Units have a width of at least two.
    pub(crate) fn place(self, ordinal: u64) -> u128 {
        match self {
            Self::Even => u128::from(ordinal) * 2,
            Self::Single => SINGLE.place(ordinal),
            Self::Double => DOUBLE.place(ordinal),
        }
    }

    /// Returns the end of a key's unit.
    pub(crate) fn end(self, ordinal: u64) -> u128 {
        match ordinal.checked_add(1) {
            Some(next) => self.place(next),
            None => self.place(ordinal) + 2,
        }
    }

    /// Returns the ordinal whose unit contains a position, clamped to `low..=high`.
    pub(crate) fn ordinal(self, place: u128, low: u64, high: u64) -> u64 {
        let ordinal = match self {
            Self::Even => u64::try_from(place / 2).unwrap_or(u64::MAX),
            Self::Single => SINGLE.ordinal(place),
            Self::Double => DOUBLE.ordinal(place),
        };
        ordinal.clamp(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_rise_with_the_key() {
        for (scale, order) in [
            (Scale::Single, KeyOrder::new(DataType::F32).unwrap()),
            (Scale::Double, KeyOrder::new(DataType::F64).unwrap()),
        ] {
            assert_eq!(Scale::of(order), scale);
            let zero = if scale == Scale::Single { 1u64 << 31 } else { 1 << 63 };
            let bits = if scale == Scale::Single { 23 } else { 52 };
            let around = [
                zero,
                zero + (1 << bits),
                zero + (5 << bits),
                zero - (1 << bits),
                zero - (77 << bits),
                100,
                zero + zero / 2,
            ];
            for ordinal in around.into_iter().flat_map(|middle| middle - 50..middle + 50) {
                let width = scale.end(ordinal) - scale.place(ordinal);
                assert!((4..=8).contains(&width), "{scale:?} {ordinal}: {width}");
                assert_eq!(scale.ordinal(scale.place(ordinal), 0, u64::MAX), ordinal);
                assert_eq!(scale.ordinal(scale.end(ordinal) - 1, 0, u64::MAX), ordinal);
            }
        }
    }

    #[test]
    fn slopes_meet_at_powers_of_two() {
        let at = |value: f64| {
            let ordinal = KeyOrder::new(DataType::F64).unwrap().ordinal(&value.to_le_bytes());
            Scale::Double.place(ordinal) as i128
        };
        // Equal steps in value around 2.0 are almost equal steps on the axis: they differ by less than 0.2 %.
        let (below, above) = (at(2.0) - at(1.999), at(2.001) - at(2.0));
        assert!((below - above).abs() * 500 < below, "{below} {above}");
    }
}
