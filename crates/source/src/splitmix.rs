//! SplitMix64, a pseudo-random number generator.

/// The increment of SplitMix64's state.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns SplitMix64's output for a state.
pub fn mix(state: u64) -> u64 {
    let mut value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation, seeded with 1234567.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let outputs = (1..=3).map(|step| mix(1_234_567u64.wrapping_add(STEP.wrapping_mul(step))));
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(outputs.collect::<Vec<u64>>(), expected);
    }
}
