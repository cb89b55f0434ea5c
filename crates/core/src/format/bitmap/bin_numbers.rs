//! The bin of each row of a row group, in one of several encodings.

use std::ops::Range;

use super::bins::MAX_BINS;

/// Number of rows of a word of a bitmap.
pub(crate) const WORD_ROWS: usize = u64::BITS as usize;

/// Maximum number of intervals of bins that are compared one by one. A table is faster for more of them.
const MAX_INTERVALS: usize = 4;

/// Number of words of a bitmap that are compared at a time.
const BLOCK_WORDS: usize = 4;

/// How the bins of rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A byte for each row.
    Bytes,
    /// A bitmap for each bit of the numbers, the lowest first.
    Slices,
    /// Bins of consecutive rows: the number as a byte, and the number of rows as an LEB128 varint.
    Runs,
}

impl Encoding {
    /// All encodings, indexed by code.
    pub(crate) const ALL: [Self; 3] = [Self::Bytes, Self::Slices, Self::Runs];

    /// Returns the code of the encoding in a sidecar.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Bytes => 0,
            Self::Slices => 1,
            Self::Runs => 2,
        }
    }

    /// Returns the name of the encoding in definitions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Slices => "slices",
            Self::Runs => "runs",
        }
    }

    /// Returns the encoding with a code.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// A set of bins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BinSet([bool; MAX_BINS]);

impl BinSet {
    /// Creates the set of the bins for which `is_in` returns true.
    pub(crate) fn of(is_in: impl Fn(usize) -> bool) -> Self {
        Self(std::array::from_fn(is_in))
    }

    /// Returns the intervals of the bins in the set that are less than `bins`.
    fn intervals(&self, bins: usize) -> Vec<Range<usize>> {
        let mut intervals: Vec<Range<usize>> = Vec::new();
        for bin in (0..bins.min(MAX_BINS)).filter(|bin| self.0[*bin]) {
            match intervals.last_mut() {
                Some(last) if last.end == bin => last.end = bin + 1,
                _ => intervals.push(bin..bin + 1),
            }
        }
        intervals
    }
}

/// The bin of each row of a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BinNumbers {
    rows: usize,
    bins: usize,
    stored: Stored,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stored {
    /// One bin has all rows.
    One,
    Bytes(Vec<u8>),
    /// The bitmaps of all bits, one after another, in words.
    Slices(Vec<u8>),
    /// The bin of rows, and the row after the last of them.
    Runs(Vec<(u8, u32)>),
}

/// Returns the number of bits of the numbers of bins.
fn bits_of(bins: usize) -> usize {
    (usize::BITS - bins.saturating_sub(1).leading_zeros()) as usize
}

/// Encodes the bin of each row, all of them less than `bins`, in the smallest encoding, or in a given one. Nothing is
/// stored if there is one bin.
pub(crate) fn encode(numbers: &[u8], bins: usize, forced: Option<Encoding>) -> (Encoding, Vec<u8>) {
    if bins <= 1 {
        return (Encoding::Bytes, Vec::new());
    }
    let slice_bytes = bits_of(bins) * numbers.len().div_ceil(WORD_ROWS) * size_of::<u64>();
    // Runs are read faster than they are smaller; bytes are read faster than slices of the same size.
    let cheapest = || {
        let least = slice_bytes.min(numbers.len());
        match encode_runs(numbers, least / 2) {
            Some(runs) => (Encoding::Runs, runs),
            None if slice_bytes < numbers.len() => (Encoding::Slices, encode_slices(numbers, bins)),
            None => (Encoding::Bytes, numbers.to_vec()),
        }
    };
    match forced {
        None => cheapest(),
        Some(Encoding::Bytes) => (Encoding::Bytes, numbers.to_vec()),
        Some(Encoding::Slices) => (Encoding::Slices, encode_slices(numbers, bins)),
        Some(Encoding::Runs) => (Encoding::Runs, encode_runs(numbers, usize::MAX).unwrap_or_default()),
    }
}

fn encode_slices(numbers: &[u8], bins: usize) -> Vec<u8> {
    let words = numbers.len().div_ceil(WORD_ROWS);
    let mut out = vec![0; bits_of(bins) * words * size_of::<u64>()];
    for (place, rows) in numbers.chunks(size_of::<u64>()).enumerate() {
        let mut eight = [0; size_of::<u64>()];
        eight[..rows.len()].copy_from_slice(rows);
        let eight = u64::from_le_bytes(eight);
        for (bit, slice) in out.chunks_exact_mut(words * size_of::<u64>()).enumerate() {
            // The product moves bit 8 r to bit 56 + r.
            slice[place] = ((eight >> bit & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
        }
    }
    out
}

/// Returns the runs, unless they take more than `most` bytes.
fn encode_runs(numbers: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for rows in numbers.chunk_by(|one, next| one == next) {
        out.push(rows[0]);
        let mut left = rows.len();
        while left >= 0x80 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
        if out.len() > most {
            return None;
        }
    }
    Some(out)
}

fn decode_runs(bytes: &[u8], rows: usize, bins: usize) -> Result<Vec<(u8, u32)>, String> {
    let (mut runs, mut end, mut rest) = (Vec::new(), 0u64, bytes);
    while let Some((&bin, mut after)) = rest.split_first() {
        let (mut length, mut shift) = (0u64, 0);
        loop {
            let Some((&byte, left)) = after.split_first().filter(|_| shift < 35) else {
                return Err(format!("run {} has no length", runs.len()));
            };
            after = left;
            length |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        end += length;
        if length == 0 || end > rows as u64 || usize::from(bin) >= bins {
            return Err(format!("run {} has {length} rows of bin {bin}, up to row {end} of {rows}", runs.len()));
        }
        // Not beyond the number of rows, which fits.
        runs.push((bin, end as u32));
        rest = after;
    }
    if end != rows as u64 {
        return Err(format!("its runs have {end} rows, the row group has {rows}"));
    }
    Ok(runs)
}

impl BinNumbers {
    /// Decodes the bins of `rows` rows, all of which must be less than `bins`. The error describes the mismatch.
    pub(crate) fn decode(encoding: Encoding, bytes: Vec<u8>, rows: u32, bins: usize) -> Result<Self, String> {
        let rows = rows as usize;
        let expect = |expected: usize| match bytes.len() == expected {
            true => Ok(()),
            false => Err(format!("it has {} bytes where {expected} were expected", bytes.len())),
        };
        let stored = match encoding {
            _ if bins <= 1 => expect(0).map(|()| Stored::One)?,
            Encoding::Bytes => {
                expect(rows)?;
                let most = bytes.iter().copied().max().map_or(0, usize::from);
                if most >= bins {
                    return Err(format!("a row is in bin {most} of {bins}"));
                }
                Stored::Bytes(bytes)
            }
            Encoding::Slices => {
                expect(bits_of(bins) * rows.div_ceil(WORD_ROWS) * size_of::<u64>())?;
                let mut unknown = vec![0; rows.div_ceil(WORD_ROWS)];
                mark_slices(&bytes, &(bins..1 << bits_of(bins)), &mut unknown);
                clear_beyond(&mut unknown, rows);
                if unknown.iter().any(|word| *word != 0) {
                    return Err(format!("a row is in a bin beyond the last of {bins}"));
                }
                Stored::Slices(bytes)
            }
            Encoding::Runs => Stored::Runs(decode_runs(&bytes, rows, bins)?),
        };
        Ok(Self { rows, bins, stored })
    }

    /// Returns the bitmap of the rows whose bins are in a set. Bits beyond the last row are not set.
    pub(crate) fn rows_in(&self, set: &BinSet) -> Vec<u64> {
        let mut bitmap = vec![0u64; self.rows.div_ceil(WORD_ROWS)];
        let intervals = set.intervals(self.bins);
        match &self.stored {
            _ if intervals.is_empty() => return bitmap,
            Stored::One => fill(&mut bitmap, 0..self.rows),
            Stored::Runs(runs) => {
                let mut start = 0;
                for (bin, end) in runs {
                    if set.0[usize::from(*bin)] {
                        fill(&mut bitmap, start..*end as usize);
                    }
                    start = *end as usize;
                }
            }
            Stored::Bytes(numbers) if intervals.len() <= MAX_INTERVALS => {
                for interval in &intervals {
                    // Both ends fit, since there are at most 256 bins.
                    let (first, last) = (interval.start as u8, (interval.end - 1) as u8);
                    mark(numbers, &mut bitmap, |bin| (bin >= first) & (bin <= last));
                }
            }
            Stored::Bytes(numbers) => mark(numbers, &mut bitmap, |bin| set.0[usize::from(bin)]),
            Stored::Slices(slices) if intervals.len() <= MAX_INTERVALS => {
                for interval in &intervals {
                    mark_slices(slices, interval, &mut bitmap);
                }
            }
            Stored::Slices(_) => mark(&self.bytes(), &mut bitmap, |bin| set.0[usize::from(bin)]),
        }
        clear_beyond(&mut bitmap, self.rows);
        bitmap
    }

    /// Returns the bin of each row.
    pub(crate) fn bytes(&self) -> std::borrow::Cow<'_, [u8]> {
        match &self.stored {
            Stored::One => vec![0; self.rows].into(),
            Stored::Bytes(numbers) => numbers.into(),
            Stored::Slices(slices) => {
                let words = self.rows.div_ceil(WORD_ROWS);
                let (slices, _) = slices.as_chunks::<8>();
                let mut numbers = Vec::with_capacity(words * WORD_ROWS);
                for at in 0..words {
                    let mut of_bits = [0u64; 8];
                    let each = slices.chunks_exact(words);
                    of_bits.iter_mut().zip(each).for_each(|(word, slice)| *word = u64::from_le_bytes(slice[at]));
                    numbers.extend_from_slice(transposed(of_bits).as_flattened());
                }
                numbers.truncate(self.rows);
                numbers.into()
            }
            Stored::Runs(runs) => {
                let mut numbers = Vec::with_capacity(self.rows);
                for (bin, end) in runs {
                    numbers.resize(*end as usize, *bin);
                }
                numbers.into()
            }
        }
    }
}

/// Returns the numbers of 64 rows, eight after eight, from the words of their bits, the lowest first.
fn transposed(of_bits: [u64; 8]) -> [[u8; 8]; 8] {
    let bytes = of_bits.map(u64::to_le_bytes);
    // Each word has the bits of eight rows: a byte of each slice. The steps are the same for all words, so that the
    // compiler makes them at once.
    let mut words: [u64; 8] = std::array::from_fn(|rows| u64::from_le_bytes(bytes.map(|of_bit| of_bit[rows])));
    for (shift, mask) in [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)] {
        for word in &mut words {
            let swapped = (*word ^ (*word >> shift)) & mask;
            *word ^= swapped ^ (swapped << shift);
        }
    }
    words.map(u64::to_le_bytes)
}

/// Sets the bits of a range of rows.
fn fill(bitmap: &mut [u64], rows: Range<usize>) {
    if rows.is_empty() {
        return;
    }
    let (first, last) = (rows.start / WORD_ROWS, (rows.end - 1) / WORD_ROWS);
    let (from, to) = (u64::MAX << (rows.start % WORD_ROWS), u64::MAX >> (WORD_ROWS - 1 - (rows.end - 1) % WORD_ROWS));
    if first == last {
        bitmap[first] |= from & to;
        return;
    }
    bitmap[first] |= from;
    bitmap[first + 1..last].fill(u64::MAX);
    bitmap[last] |= to;
}

/// Sets the bits of the rows that pass a test.
fn mark(numbers: &[u8], bitmap: &mut [u64], test: impl Fn(u8) -> bool) {
    let (whole, rest) = numbers.as_chunks::<WORD_ROWS>();
    for (rows, word) in whole.iter().zip(&mut *bitmap) {
        // The test of all rows of a word is a loop over bytes, which the compiler turns into a few instructions.
        let mut found = [0u8; WORD_ROWS];
        for (found, bin) in found.iter_mut().zip(rows) {
            *found = u8::from(test(*bin));
        }
        *word |= gathered(&found);
    }
    if let Some(word) = bitmap.get_mut(whole.len()) {
        let rest = rest.iter().enumerate();
        *word |= rest.fold(0, |word, (row, bin)| word | u64::from(test(*bin)) << row);
    }
}

/// Returns the word of 64 bytes that are 0 or 1.
fn gathered(found: &[u8; WORD_ROWS]) -> u64 {
    let (groups, _) = found.as_chunks::<8>();
    groups.iter().enumerate().fold(0, |word, (group, bytes)| {
        // Multiplication adds up the eight bytes, each shifted to its bit, in the highest byte.
        let byte = u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word | byte << (8 * group)
    })
}

/// Clears the bits of a bitmap that are beyond its last row.
fn clear_beyond(bitmap: &mut [u64], rows: usize) {
    if let (Some(last), used @ 1..) = (bitmap.last_mut(), rows % WORD_ROWS) {
        *last &= (1 << used) - 1;
    }
}

/// Sets the bits of the rows whose numbers lie in an interval.
fn mark_slices(slices: &[u8], interval: &Range<usize>, bitmap: &mut [u64]) {
    if interval.is_empty() {
        return;
    }
    let words = bitmap.len();
    let (slices, _) = slices.as_chunks::<8>();
    let (blocks, rest) = bitmap.as_chunks_mut::<BLOCK_WORDS>();
    let first_of_rest = blocks.len() * BLOCK_WORDS;
    for (block, marked) in blocks.iter_mut().enumerate() {
        mark_block(slices, (words, block * BLOCK_WORDS), interval, marked);
    }
    for (place, word) in rest.iter_mut().enumerate() {
        mark_block(slices, (words, first_of_rest + place), interval, std::array::from_mut(word));
    }
}

/// Sets the bits of the rows of `N` words from `start` on, whose numbers lie in an interval. The state of the words
/// stays in registers.
#[inline]
fn mark_block<const N: usize>(
    slices: &[[u8; 8]],
    (words, start): (usize, usize),
    interval: &Range<usize>,
    marked: &mut [u64; N],
) {
    let (low, high) = (interval.start, interval.end - 1);
    // Rows known to be above or below an end, by their higher bits.
    let (mut outside, mut equal_low, mut equal_high) = ([0u64; N], [u64::MAX; N], [u64::MAX; N]);
    for bit in (0..slices.len() / words).rev() {
        let Some(slice) = slices[bit * words + start..].first_chunk::<N>() else { return };
        let (low_bit, high_bit) = (mask(low >> bit), mask(high >> bit));
        for at in 0..N {
            let slice = u64::from_le_bytes(slice[at]);
            outside[at] |= (equal_low[at] & low_bit & !slice) | (equal_high[at] & !high_bit & slice);
            equal_low[at] &= !(slice ^ low_bit);
            equal_high[at] &= !(slice ^ high_bit);
        }
    }
    marked.iter_mut().zip(outside).for_each(|(word, outside)| *word |= !outside);
}

/// Returns all bits if the lowest bit of a number is set, and none otherwise.
fn mask(number: usize) -> u64 {
    (number as u64 & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wrong_numbers_are_refused() {
        for (encoding, bytes, what) in [
            (Encoding::Bytes, vec![0, 1, 2, 1], "where 5 were expected"),
            (Encoding::Bytes, vec![0, 1, 2, 3, 1], "bin 3 of 3"),
            (Encoding::Slices, vec![0; 8], "where 16 were expected"),
            (
                Encoding::Slices,
                [[0b10010, 0, 0, 0, 0, 0, 0, 0], [0b01010, 0, 0, 0, 0, 0, 0, 0]].concat(),
                "beyond the last of 3",
            ),
            (Encoding::Runs, vec![0, 2, 1], "no length"),
            (Encoding::Runs, vec![0, 2, 1, 0x80], "no length"),
            (Encoding::Runs, vec![0, 2, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1], "no length"),
            (Encoding::Runs, vec![0, 2, 1, 2], "its runs have 4 rows"),
            (Encoding::Runs, vec![0, 2, 1, 4], "up to row 6"),
            (Encoding::Runs, vec![0, 5, 1, 0], "0 rows"),
            (Encoding::Runs, vec![0, 2, 3, 3], "bin 3"),
        ] {
            let error = BinNumbers::decode(encoding, bytes, 5, 3).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
        assert!(BinNumbers::decode(Encoding::Bytes, vec![0], 1, 1).is_err());
    }

    proptest! {
        #[test]
        fn every_encoding_returns_the_rows_of_every_set(
            bins in 1usize..=256,
            rows in prop::collection::vec((any::<u8>(), 1usize..90), 1..12),
            chosen in prop::collection::vec(any::<u8>(), 0..300),
            (first, length) in (any::<u8>(), 0usize..256),
        ) {
            let numbers: Vec<u8> = rows
                .iter()
                .flat_map(|(bin, rows)| std::iter::repeat_n((usize::from(*bin) % bins) as u8, *rows))
                .collect();
            let interval = usize::from(first)..usize::from(first) + length;
            let sets =
                [BinSet::of(|bin| chosen.contains(&(bin as u8))), BinSet::of(|bin| interval.contains(&bin)), BinSet::of(|_| true)];
            for forced in [None, Some(Encoding::Bytes), Some(Encoding::Slices), Some(Encoding::Runs)] {
                let (encoding, bytes) = encode(&numbers, bins, forced);
                let decoded = BinNumbers::decode(encoding, bytes, numbers.len() as u32, bins).unwrap();
                prop_assert_eq!(&*decoded.bytes(), &*numbers);
                for set in &sets {
                    let bitmap = decoded.rows_in(set);
                    for (row, bin) in numbers.iter().enumerate() {
                        prop_assert_eq!(bitmap[row / 64] >> (row % 64) & 1 == 1, set.0[usize::from(*bin)]);
                    }
                    let ones: u32 = bitmap.iter().map(|word| word.count_ones()).sum();
                    prop_assert_eq!(ones as usize, numbers.iter().filter(|bin| set.0[usize::from(**bin)]).count());
                }
            }
        }
    }
}
