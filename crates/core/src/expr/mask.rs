//! Row masks: one bit per row in `u64` words, filled by tight loops over native values.
//!
//! Each word is computed in two steps that compilers vectorise on any target. 64 comparisons return 64 bytes of 0 or 1.
//! One multiplication per eight bytes then gathers these into eight bits.

use arrow_buffer::{BooleanBuffer, Buffer};

/// Rows per word.
pub(super) const WORD_ROWS: usize = 64;

/// A mask with one bit per row. Bits beyond the last row are unspecified.
#[derive(Debug, Clone)]
pub(super) struct Mask {
    words: Vec<u64>,
    rows: usize,
}

/// Gathers 64 bytes of 0 or 1 into 64 bits. The first byte becomes the lowest bit.
#[inline]
pub(super) fn pack(bytes: &[u8; WORD_ROWS]) -> u64 {
    // The factor's bit 56 - 7 i moves byte i of a group to bit 56 + i. No two products share a bit.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut word = 0u64;
    for (group, eight) in bytes.chunks_exact(8).enumerate() {
        let mut raw = [0u8; 8];
        raw.copy_from_slice(eight);
        word |= (u64::from_le_bytes(raw).wrapping_mul(GATHER) >> 56) << (8 * group);
    }
    word
}

impl Mask {
    /// Returns a mask with the same bit for every row.
    pub(super) fn constant(rows: usize, value: bool) -> Self {
        Self { words: vec![if value { u64::MAX } else { 0 }; rows.div_ceil(WORD_ROWS)], rows }
    }

    /// Creates a mask of words that cover `rows` rows.
    pub(super) fn of_words(words: Vec<u64>, rows: usize) -> Self {
        Self { words, rows }
    }

    /// Creates a mask by testing every value.
    #[inline]
    pub(super) fn of<T: Copy>(values: &[T], test: impl Fn(T) -> bool) -> Self {
        let mut words = Vec::with_capacity(values.len().div_ceil(WORD_ROWS));
        let mut chunks = values.chunks_exact(WORD_ROWS);
        for chunk in &mut chunks {
            let mut bytes = [0u8; WORD_ROWS];
            for (byte, value) in bytes.iter_mut().zip(chunk) {
                *byte = u8::from(test(*value));
            }
            words.push(pack(&bytes));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut bytes = [0u8; WORD_ROWS];
            for (byte, value) in bytes.iter_mut().zip(rest) {
                *byte = u8::from(test(*value));
            }
            words.push(pack(&bytes));
        }
        Self { words, rows: values.len() }
    }

    /// Tests pairs of values, and sets the bits of the rows from `first_row` on. `first_row` is a multiple of 64.
    #[inline]
    pub(super) fn set_pairs<A: Copy, B: Copy>(
        &mut self,
        first_row: usize,
        left: &[A],
        right: &[B],
        test: impl Fn(A, B) -> bool,
    ) {
        let words = &mut self.words[first_row / WORD_ROWS..];
        for ((word, left), right) in words.iter_mut().zip(left.chunks(WORD_ROWS)).zip(right.chunks(WORD_ROWS)) {
            let mut bytes = [0u8; WORD_ROWS];
            for ((byte, left), right) in bytes.iter_mut().zip(left).zip(right) {
                *byte = u8::from(test(*left, *right));
            }
            *word = pack(&bytes);
        }
    }

    /// Tests single values, and sets their bits like [`Mask::set_pairs`].
    #[inline]
    pub(super) fn set<T: Copy>(&mut self, first_row: usize, values: &[T], test: impl Fn(T) -> bool) {
        let part = Self::of(values, test);
        let first = first_row / WORD_ROWS;
        self.words[first..first + part.words.len()].copy_from_slice(&part.words);
    }

    /// Sets or clears the bit of one row.
    pub(super) fn put(&mut self, row: usize, value: bool) {
        let (word, bit) = (&mut self.words[row / WORD_ROWS], 1 << (row % WORD_ROWS));
        *word = if value { *word | bit } else { *word & !bit };
    }

    /// Returns the bit of one row.
    pub(super) fn get(&self, row: usize) -> bool {
        self.words[row / WORD_ROWS] >> (row % WORD_ROWS) & 1 == 1
    }

    /// Replaces the values of the rows whose bit is not set.
    pub(super) fn select<T: Copy>(&self, values: &mut [T], others: &[T]) {
        for (row, (value, other)) in values.iter_mut().zip(others).enumerate() {
            if !self.get(row) {
                *value = *other;
            }
        }
    }

    /// Inverts the mask.
    pub(super) fn negate(mut self) -> Self {
        self.words.iter_mut().for_each(|word| *word = !*word);
        self
    }

    /// Intersects the mask with `other`.
    pub(super) fn and(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    /// Unites the mask with `other`.
    pub(super) fn or(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Returns whether every row's bit equals `value`.
    pub(super) fn is_all(&self, value: bool) -> bool {
        let fill = if value { u64::MAX } else { 0 };
        let Some((last, full)) = self.words.split_last() else { return true };
        let used = match self.rows % WORD_ROWS {
            0 => u64::MAX,
            rows => (1u64 << rows) - 1,
        };
        (last ^ fill) & used == 0 && full.iter().all(|word| *word == fill)
    }

    /// Returns the mask as an Arrow bitmap.
    pub(super) fn finish(mut self) -> BooleanBuffer {
        // Arrow's first row is the lowest bit of the first byte.
        self.words.iter_mut().for_each(|word| *word = word.to_le());
        BooleanBuffer::new(Buffer::from_vec(self.words), 0, self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_lands_in_its_place() {
        for bit in 0..WORD_ROWS {
            let mut bytes = [0u8; WORD_ROWS];
            bytes[bit] = 1;
            assert_eq!(pack(&bytes), 1 << bit);
        }
        assert_eq!(pack(&[1; WORD_ROWS]), u64::MAX);
    }

    #[test]
    fn rows_beyond_the_last_do_not_count() {
        for rows in [0, 1, 63, 64, 65, 130] {
            let values: Vec<usize> = (0..rows).collect();
            let all = Mask::of(&values, |_| true);
            assert!(all.is_all(true));
            assert!(all.clone().negate().is_all(false));
            assert_eq!(all.finish().count_set_bits(), rows);
            if rows > 0 {
                let but_last = Mask::of(&values, |value| value + 1 < rows);
                assert!(!but_last.is_all(true));
                assert_eq!(but_last.finish().count_set_bits(), rows - 1);
            }
        }
    }
}
