//! Split-block Bloom filters, as Parquet specifies them.
//!
//! A filter has blocks of 256 bits. A key's hash chooses a block by its upper 32 bits, and one bit in each of the
//! block's eight words by its lower 32 bits. A lookup therefore touches one cache line. The filter of a chunk is a
//! Thrift header followed by the blocks.

use crate::format::parquet::thrift::{Malformed, Reader, Writer};
use crate::schema::hash_of;

/// Size of a block in bytes.
pub(in crate::format) const BLOCK_BYTES: usize = 32;

/// Number of words in a block.
const WORDS: usize = 8;

/// The multipliers that spread a hash over the words of a block (Parquet's specification of Bloom filters).
const SALT: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// Number of bits per key for which filters are made. A filter has the power of two that is nearest.
const BITS_PER_KEY: usize = 10;

/// Maximum size of a filter's blocks that a reader accepts, in bytes: Parquet's own limit.
pub(in crate::format) const MAX_FILTER_BYTES: usize = 128 << 20;

/// Returns the size of the blocks of a filter of `keys` keys, in bytes: a power of two, since other sizes are refused
/// by Arrow C++ and ClickHouse.
pub(in crate::format) fn filter_bytes(keys: usize) -> usize {
    let wanted = keys.saturating_mul(BITS_PER_KEY) / 8;
    let below = (wanted.max(1).ilog2()).min(MAX_FILTER_BYTES.ilog2());
    // The nearest power of two by ratio: 10 bits a key become 7.1 to 14.1.
    let is_nearer_above = wanted as f64 > f64::from(2f32.powi(below as i32)) * std::f64::consts::SQRT_2;
    (1usize << (below + u32::from(is_nearer_above))).clamp(BLOCK_BYTES, MAX_FILTER_BYTES)
}

/// Returns the number of keys near `wanted` whose filter has 9 to 11 bits a key, so that one lookup in about a hundred
/// finds an absent key, and no filter is larger than that needs.
pub(in crate::format) fn well_filtered_rows(wanted: usize) -> usize {
    let wanted = wanted.clamp(1, MAX_FILTER_BYTES * 8 / BITS_PER_KEY);
    let bits = filter_bytes(wanted) * 8;
    wanted.clamp(bits.div_ceil(BITS_PER_KEY + 1), (bits / (BITS_PER_KEY - 1)).max(1))
}

/// The block and the bits of a hash.
#[derive(Debug, Clone, Copy)]
struct Place {
    block: usize,
    masks: [u32; WORDS],
}

impl Place {
    #[inline]
    fn new(hash: u64, blocks: usize) -> Self {
        let block = ((hash >> 32) * blocks as u64) >> 32;
        let masks = SALT.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27));
        Self { block: block as usize, masks }
    }
}

/// The blocks of a filter that is being built.
#[derive(Debug)]
pub(in crate::format) struct BloomFilterBuilder {
    blocks: Vec<[u32; WORDS]>,
}

impl BloomFilterBuilder {
    /// Creates an empty filter for `keys` keys.
    pub(in crate::format) fn new(keys: usize) -> Self {
        Self { blocks: vec![[0; WORDS]; filter_bytes(keys) / BLOCK_BYTES] }
    }

    /// Adds values of `width` bytes in Parquet's PLAIN encoding.
    pub(in crate::format) fn add_values(&mut self, values: &[u8], width: usize) {
        // Hashes of a known length have no branches.
        match width {
            4 => values.as_chunks::<4>().0.iter().for_each(|value| self.add(hash_of(value))),
            8 => values.as_chunks::<8>().0.iter().for_each(|value| self.add(hash_of(value))),
            12 => values.as_chunks::<12>().0.iter().for_each(|value| self.add(hash_of(value))),
            16 => values.as_chunks::<16>().0.iter().for_each(|value| self.add(hash_of(value))),
            _ => values.chunks_exact(width).for_each(|value| self.add(hash_of(value))),
        }
    }

    /// Adds the key with this hash.
    pub(in crate::format) fn add(&mut self, hash: u64) {
        let Place { block, masks } = Place::new(hash, self.blocks.len());
        self.blocks[block].iter_mut().zip(masks).for_each(|(word, mask)| *word |= mask);
    }

    /// Appends the header and the blocks.
    pub(in crate::format) fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        // At most MAX_FILTER_BYTES.
        writer.i32(1, (self.blocks.len() * BLOCK_BYTES) as i32);
        for id in [2, 3, 4] {
            // Each is a union whose only member is an empty struct: BLOCK, XXHASH, UNCOMPRESSED.
            writer.structure(id, |writer| writer.structure(1, |_| ()));
        }
        writer.end();
        out.extend(self.blocks.iter().flatten().flat_map(|word| word.to_le_bytes()));
    }
}

/// A filter in encoded form.
#[derive(Debug, Clone, Copy)]
pub(in crate::format) struct BloomFilter<'a> {
    blocks: &'a [[u8; BLOCK_BYTES]],
}

impl<'a> BloomFilter<'a> {
    /// Decodes the filter at the start of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] if the header is not one of a filter with at least one whole block, of the only algorithm, hash
    /// and compression that Parquet has, or if blocks are missing.
    pub(in crate::format) fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut size = None;
        let mut members = [false; 3];
        let mut reader = Reader::new(bytes);
        reader.structure(|reader, field| {
            match field.id {
                1 => size = Some(reader.integer(field)?),
                2..=4 => reader.structure_field(field, |_, member| {
                    members[usize::from(field.id.unsigned_abs()) - 2] |= member.id == 1;
                    Ok(false)
                })?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if members != [true; 3] {
            return Err(Malformed("a filter has an unknown algorithm, hash or compression"));
        }
        let size = size
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| (BLOCK_BYTES..=MAX_FILTER_BYTES).contains(size) && size.is_multiple_of(BLOCK_BYTES));
        let size = size.ok_or(Malformed("a filter has an invalid size"))?;
        let body = &bytes[reader.position()..];
        if body.len() != size {
            return Err(Malformed("a filter has another length than it states"));
        }
        Ok(Self::of_blocks(body))
    }

    /// Returns the filter with these blocks, at least one.
    pub(in crate::format) fn of_blocks(blocks: &'a [u8]) -> Self {
        Self { blocks: blocks.as_chunks().0 }
    }

    /// Returns the size of the blocks in bytes.
    pub(in crate::format) fn bytes(&self) -> usize {
        size_of_val(self.blocks)
    }

    /// Returns whether a key with this hash may have been added. A false result is certain.
    #[inline]
    pub(in crate::format) fn may_contain(&self, hash: u64) -> bool {
        let Place { block, masks } = Place::new(hash, self.blocks.len());
        let (words, _) = self.blocks[block].as_chunks::<4>();
        // Without a branch that depends on the filter, the memory of several filters is awaited at once.
        let missing = words.iter().zip(masks).map(|(word, mask)| !u32::from_le_bytes(*word) & mask);
        missing.fold(0, |all, missing| all | missing) == 0
    }
}

#[cfg(test)]
mod tests {
    use parquet::bloom_filter::Sbbf;
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    fn filter_of(hashes: &[u64]) -> Vec<u8> {
        let mut builder = BloomFilterBuilder::new(hashes.len());
        hashes.iter().for_each(|hash| builder.add(*hash));
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        bytes
    }

    /// The `parquet` crate finds the same keys in our filters as we do, also among keys that were not added.
    #[test]
    fn filters_are_those_of_the_parquet_crate() {
        let ids: Vec<u64> = (0..20_000).map(|id: u64| id.wrapping_mul(0x9E37_79B9)).collect();
        let hashes: Vec<u64> = ids.iter().map(|id| hash_of(&id.to_le_bytes())).collect();
        let bytes = filter_of(&hashes[..10_000]);
        let ours = BloomFilter::decode(&bytes).unwrap();
        let theirs = Sbbf::new(&bytes[bytes.len() - ours.blocks.len() * BLOCK_BYTES..]);
        for (id, hash) in ids.iter().zip(&hashes) {
            assert_eq!(ours.may_contain(*hash), theirs.check(id), "{id}");
        }
        assert!(hashes[..10_000].iter().all(|hash| ours.may_contain(*hash)));
        let mut again = Vec::new();
        theirs.write(&mut again).unwrap();
        assert_eq!(again, bytes, "the header and the blocks are the same");
    }

    /// The rate of false positives of a split-block filter: the blocks' loads have a Poisson distribution, and a key of
    /// a block with n others is found if its bit is set in all eight words.
    fn expected_rate(keys: usize, bytes: usize) -> f64 {
        let mean = keys as f64 / (bytes / BLOCK_BYTES) as f64;
        let mut probability = (-mean).exp();
        let mut rate = 0.0;
        for load in 1..200 {
            probability *= mean / f64::from(load);
            rate += probability * (1.0 - (1.0f64 - 1.0 / 32.0).powi(load)).powi(8);
        }
        rate
    }

    #[test]
    fn false_positives_are_as_rare_as_theory_says() {
        let mut random = Random::new(1);
        for keys in [6_000, 6_553, 7_200, 26_000, 52_429] {
            let hashes: Vec<u64> = (0..keys).map(|_| random.next_u64()).collect();
            let bytes = filter_of(&hashes);
            let filter = BloomFilter::decode(&bytes).unwrap();
            let expected = expected_rate(keys, filter.blocks.len() * BLOCK_BYTES);
            let found = (0..1_000_000).filter(|_| filter.may_contain(random.next_u64())).count() as f64 / 1e6;
            assert!((found / expected - 1.0).abs() < 0.2, "{keys}: {found} instead of {expected}");
        }
    }

    #[test]
    fn sizes_are_the_nearest_powers_of_two() {
        for (keys, bytes) in
            [(0, 32), (1, 32), (25, 32), (40, 64), (52_429, 65_536), (80_000, 131_072), (usize::MAX, MAX_FILTER_BYTES)]
        {
            assert_eq!(filter_bytes(keys), bytes, "{keys}");
        }
        for keys in (1 << 10)..(1 << 14) {
            let bits = (filter_bytes(keys) * 8) as f64 / keys as f64;
            assert!((7.0..14.2).contains(&bits), "{keys}: {bits}");
        }
    }

    #[test]
    fn well_filtered_rows_are_near_and_have_9_to_11_bits() {
        for wanted in (26..100_000).chain([5 << 20, usize::MAX]) {
            let rows = well_filtered_rows(wanted);
            let bits = (filter_bytes(rows) * 8) as f64 / rows as f64;
            assert!((9.0..=11.0).contains(&bits), "{wanted}: {rows} rows of {bits} bits");
            assert!(wanted > 100_000 || (0.7..1.45).contains(&(rows as f64 / wanted as f64)), "{wanted}: {rows}");
        }
    }

    proptest! {
        /// Any bytes are refused, or are a filter that can be asked.
        #[test]
        fn any_bytes_are_safe(
            mut bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..100),
                prop::collection::vec(any::<u64>(), 0..30).prop_map(|hashes| filter_of(&hashes)),
            ],
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            hash in any::<u64>(),
        ) {
            for (place, byte) in flips {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                }
            }
            if let Ok(filter) = BloomFilter::decode(&bytes) {
                prop_assert!(filter.blocks.len() * BLOCK_BYTES <= bytes.len());
                filter.may_contain(hash);
            }
        }
    }
}
