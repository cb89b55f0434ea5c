//! SplitMix64, the pseudo-random number generator of sampling and simulation. Its numbers are the same on every
//! machine.

/// Increment of the generator's state.
pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the generator's output for a state.
pub fn mix(state: u64) -> u64 {
    let mut bits = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns the next number modulo `limit`, or 0 for a limit of 0. The result is biased for large limits.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit.max(1)
    }

    /// Returns the next number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the first numbers of the reference implementation, seeded with 1234567.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.next_u64(), random.next_u64(), random.next_u64()], expected);
        assert!((0.0..1.0).contains(&random.fraction()));
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }
}
