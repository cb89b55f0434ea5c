//! Radix sort of numbers: ordinals, or ordinals packed with a tie-breaker.
//!
//! Least significant digit first, but only over the upper digits when those alone nearly sort: then neighbours that
//! differ below are ordered by insertion, which costs less than another pass. The counts of the uppermost digit show
//! beforehand whether keys are too clustered for that.

/// Maximum bits per pass: 2,048 counters fit the first-level cache beside the data.
const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;

/// Below this many numbers a comparison sort is faster than passes with their counters.
const LEAST: usize = 512;

/// The upper digits suffice when no value of the uppermost has more than this part of all numbers.
const CROWD: usize = 64;

/// Sorts `values` by their `bits` bits from bit `from` on, and equal ones by all of their bits below, if they are in
/// that order already (the result is then that of a full sort, up to equal values). `scratch` is reused memory: its
/// content is arbitrary before and after.
///
/// Bits at and above `from + bits` must be the same in all values.
pub(crate) fn sort(values: &mut Vec<u64>, scratch: &mut Vec<u64>, from: u32, bits: u32) {
    let count = values.len();
    if count < LEAST {
        values.sort_unstable();
        return;
    }
    scratch.resize(count, 0);
    if bits > 2 * DIGIT_BITS && upper_digits(values, scratch, from + bits - 2 * DIGIT_BITS) {
        return;
    }
    // Passes share the bits evenly: fewer buckets are filled faster.
    let passes = bits.div_ceil(DIGIT_BITS);
    let digit_bits = bits.div_ceil(passes.max(1));
    for number in 0..passes {
        let shift = from + digit_bits * number;
        let mask = (1 << digit_bits) - 1;
        let mut digits = [0u32; DIGITS];
        for value in values.iter() {
            digits[(value >> shift) as usize & mask & (DIGITS - 1)] += 1;
        }
        // A digit that is the same in all numbers needs no pass.
        if !digits.contains(&(count as u32)) {
            scatter(values, scratch, digits, |value| (value >> shift) as usize & mask);
        }
    }
}

/// Sorts by the two digits from bit `low` on and completes the order by insertion, if that pays. Returns whether it
/// did.
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

/// Performs one pass: moves the numbers to the section of their digit, in the order they came, and swaps the two
/// buffers.
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

/// Sorts numbers that lie near their places by insertion. Gives up when they do not, and returns whether it completed.
fn insert(values: &mut [u64]) -> bool {
    /// Maximum moves per number, on average; numbers from an even distribution need a tenth of one.
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
            // Few clusters of near neighbours look spread to the uppermost digit; masks make ties and gaps.
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
            // With bits below the sorted ones, in order of arrival.
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
        // 100 clusters, each in descending order below the digits that the passes sort by.
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
