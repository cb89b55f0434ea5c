//! Radix sort of numbers: ordinals, or ordinals packed with a tie-breaker.
//!
//! The sort is least significant digit first. If sorting by the two upper digits places the numbers near their final
//! positions, an insertion sort completes the order at a lower cost than further passes. The counts of the uppermost
//! digit show in advance whether the numbers are too clustered for this.

/// Maximum number of bits per pass. The 2,048 counters fit the L1 cache together with the data.
const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;

/// Length below which a comparison sort is faster than radix passes.
const MIN: usize = 512;

/// Denominator of the maximum share of numbers with the same uppermost digit, for a sort by the upper digits.
const CROWD: usize = 64;

/// Sorts `values` by the `bits` bits from bit `from` on. If values that are equal in these bits are in ascending order
/// before, `values` is fully sorted afterwards. `scratch` is reused memory with arbitrary contents before and after.
///
/// Bits at and above `from + bits` must be the same in all values.
pub(crate) fn sort(values: &mut Vec<u64>, scratch: &mut Vec<u64>, from: u32, bits: u32) {
    let count = values.len();
    if count < MIN {
        values.sort_unstable();
        return;
    }
    scratch.resize(count, 0);
    if bits > 2 * DIGIT_BITS && upper_digits(values, scratch, from + bits - 2 * DIGIT_BITS) {
        return;
    }
    // Passes share the bits evenly, since fewer buckets are filled faster.
    let passes = bits.div_ceil(DIGIT_BITS);
    let digit_bits = bits.div_ceil(passes.max(1));
    for number in 0..passes {
        let shift = from + digit_bits * number;
        let mask = (1 << digit_bits) - 1;
        let mut digits = [0u32; DIGITS];
        for value in values.iter() {
            digits[(value >> shift) as usize & mask & (DIGITS - 1)] += 1;
        }
        // A digit that is equal in all numbers needs no pass.
        if !digits.contains(&(count as u32)) {
            scatter(values, scratch, digits, |value| (value >> shift) as usize & mask);
        }
    }
}

/// Sorts by the two digits from bit `low` on, and completes the order by insertion. Returns false if the order is not
/// complete, because the numbers are too clustered.
fn upper_digits(values: &mut Vec<u64>, scratch: &mut Vec<u64>, low: u32) -> bool {
    let upper = counts(values, low + DIGIT_BITS);
    if upper.iter().any(|&count| count as usize > values.len() / CROWD) {
        return false;
    }
    let lower = counts(values, low);
    scatter(values, scratch, lower, |value| (value >> low) as usize);
    scatter(values, scratch, upper, |value| (value >> (low + DIGIT_BITS)) as usize);
    if !insert(values) {
        values.sort_unstable();
    }
    true
}

fn counts(values: &[u64], shift: u32) -> [u32; DIGITS] {
    let mut digits = [0u32; DIGITS];
    for value in values {
        digits[(value >> shift) as usize & (DIGITS - 1)] += 1;
    }
    digits
}

/// Performs one pass: moves the numbers to the bucket of their digit, in order of arrival, and swaps the two buffers.
#[inline]
fn scatter(values: &mut Vec<u64>, scratch: &mut Vec<u64>, mut starts: [u32; DIGITS], digit: impl Fn(u64) -> usize) {
    let mut next = 0;
    for start in &mut starts {
        next += std::mem::replace(start, next);
    }
    for value in values.iter() {
        let start = &mut starts[digit(*value) & (DIGITS - 1)];
        scratch[*start as usize] = *value;
        *start += 1;
    }
    std::mem::swap(values, scratch);
}

/// Sorts numbers by insertion. Returns false if the sort stopped early, because the numbers are far from their final
/// positions.
fn insert(values: &mut [u64]) -> bool {
    /// Maximum number of moves per number, on average. Evenly distributed numbers need about a tenth of a move.
    const MOVES: usize = 8;
    let mut moves = 0;
    for index in 1..values.len() {
        let value = values[index];
        if values[index - 1] <= value {
            continue;
        }
        let mut place = index;
        while place > 0 && values[place - 1] > value {
            values[place] = values[place - 1];
            place -= 1;
        }
        values[place] = value;
        moves += index - place;
        if moves > values.len().saturating_mul(MOVES) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn result_is_that_of_a_comparison_sort(
            seed in any::<u64>(),
            count in prop_oneof![0usize..600, 2000usize..9000],
            bits in 1u32..=64,
            common in 0u64..16,
            // The uppermost digit of a few clusters of near neighbours looks evenly distributed. Masks create ties and
            // gaps.
            clusters in prop::sample::select(vec![0u64, 1, 70, 500]),
            mask in prop::sample::select(vec![u64::MAX, 0xffff_ffff_0000_0000, 0x8000_0000_0000_03ff, 0]),
        ) {
            let mut state = seed | 1;
            let mut random = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let mut values: Vec<u64> = (0..count)
                .map(|_| {
                    let spread = match clusters {
                        0 => random() & mask,
                        clusters => (random() % clusters).wrapping_mul(0x9E37_79B9_7F4A_7C15) | (random() & 0x3ff),
                    };
                    spread >> (64 - bits)
                })
                .map(|value| value | if bits < 60 { common << 60 } else { 0 })
                .collect();
            let mut expected = values.clone();
            expected.sort_unstable();
            let mut scratch = vec![7; 3];
            sort(&mut values, &mut scratch, 0, bits);
            prop_assert_eq!(&values, &expected);
            // The bits below the sorted bits hold the order of arrival.
            if bits <= 32 {
                let mut packed: Vec<u64> = values.iter().map(|value| value & 0xffff_ffff).rev().zip(0u64..).map(|(value, row)| value << 32 | row).collect();
                let mut expected = packed.clone();
                expected.sort_unstable();
                sort(&mut packed, &mut scratch, 32, bits);
                prop_assert_eq!(packed, expected);
            }
        }
    }

    #[test]
    fn crowds_below_the_upper_digits_are_noticed() {
        // 100 clusters, each in descending order below the digits of the passes.
        let mut values: Vec<u64> =
            (0..100u64).flat_map(|cluster| (0..1000u64).rev().map(move |low| cluster << 50 | low)).collect();
        values.iter_mut().for_each(|value| *value |= 1 << 20);
        let mut expected = values.clone();
        expected.sort_unstable();
        assert!(!insert(&mut values.clone()), "insertion alone would take too long");
        sort(&mut values, &mut Vec::new(), 0, 57);
        assert_eq!(values, expected);
    }
}
