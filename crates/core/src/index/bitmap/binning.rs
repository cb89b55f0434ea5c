//! Divides the values of a column in a row group into bins.
//!
//! A sample of the values decides where bins begin, in one of two ways. Few different values have a bin each. Otherwise
//! bins begin at decimals of few digits, so that a condition with such a number needs no look at the values of a bin.
//! Zero, infinities, NaN and values of many rows have bins of their own. Bins of few rows are joined until there are at
//! most 256; edges with fewer digits are kept longer, and those of one digit if there is room. Bins are exact for any
//! sample: they state the smallest and the largest of their values.

use std::collections::BTreeSet;

use super::decimals::next_decimal;
use super::division::divided;
use crate::format::bitmap::bins::{Bins, MAX_BINS};
use crate::schema::{KeyOrder, Value};

/// Maximum number of sampled values.
const SAMPLED: usize = 4096;

/// Minimum number of rows for each bin, on average. A bin takes up to 20 bytes.
const ROWS_PER_BIN: usize = 96;

/// Minimum number of rows for each different value, if each has a bin.
const ROWS_PER_VALUE: usize = 16;

/// Minimum number of bins that are allowed.
const FEW_BINS: usize = 4;

/// A value with more than this share of the rows has a bin of its own.
const FREQUENT_SHARE: usize = 64;

/// How much more an edge counts for each digit that it has less.
const DIGIT_WEIGHT: u64 = 8;

/// Shares of the sample's median magnitude from which all decimals of one digit are edges, if there is room for them.
const SMALL_SHARES: [f64; 3] = [1e-3, 1e-2, 1e-1];

/// The values of a column in a row group, in bins.
#[derive(Debug)]
pub(crate) struct BinnedColumn {
    pub(crate) bins: Bins,
    /// The bin of each row.
    pub(crate) numbers: Vec<u8>,
}

/// Divides packed stored values into bins, whose edges are decimals of at most `precision` digits.
pub(crate) fn bin_column(order: KeyOrder, values: &[u8], precision: u32) -> BinnedColumn {
    let rows = values.len() / order.data_type().width();
    let mut ordinals = Vec::with_capacity(rows);
    order.ordinals(values, order.data_type().width(), rows, &mut ordinals);
    let mut sample = sampled(&ordinals);
    sample.sort_unstable();
    let most_values = (rows / ROWS_PER_VALUE).clamp(FEW_BINS, MAX_BINS);
    let starts = match values_of(&sample, &ordinals, most_values) {
        Some(values) => values,
        None => {
            let most = (rows / ROWS_PER_BIN).clamp(FEW_BINS, MAX_BINS);
            Edges { order, sample: &sample, ends: ends(order, &ordinals), precision }.starts(most)
        }
    };
    let (bins, numbers) = divided(&ordinals, starts);
    BinnedColumn { bins: Bins::new(order, bins), numbers }
}

/// Returns one of each few consecutive values, at most [`SAMPLED`] of them.
fn sampled(ordinals: &[u64]) -> Vec<u64> {
    let stride = ordinals.len().div_ceil(SAMPLED).max(1);
    let place = |(number, values): (usize, &[u64])| {
        // Places at regular distances would miss values in data with a period.
        let scattered = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        values[scattered as usize % values.len()]
    };
    ordinals.chunks(stride).enumerate().map(place).collect()
}

/// Returns all different values, if there are at most `most`.
fn values_of(sample: &[u64], ordinals: &[u64], most: usize) -> Option<Vec<u64>> {
    if sample.chunk_by(|one, next| one == next).count() > most {
        return None;
    }
    let mut values: Vec<u64> = sample.chunk_by(|one, next| one == next).map(|same| same[0]).collect();
    for ordinal in ordinals {
        if let Err(place) = values.binary_search(ordinal) {
            if values.len() == most {
                return None;
            }
            values.insert(place, *ordinal);
        }
    }
    Some(values)
}

/// Returns the smallest and the largest finite value, as `f64`.
fn ends(order: KeyOrder, ordinals: &[u64]) -> Option<(f64, f64)> {
    let (least, greatest) = order.extremes();
    let (from, to) = (order.ordinal_of(least), order.ordinal_of(greatest));
    let (from, to) = if order.data_type().is_float() { (from + 1, to - 1) } else { (from, to) };
    let finite = ordinals.iter().copied().filter(|ordinal| (from..=to).contains(ordinal));
    let (least, greatest) = finite.fold((u64::MAX, 0), |(least, greatest), one| (least.min(one), greatest.max(one)));
    let value = |ordinal: u64| order.value(ordinal).as_f64();
    (least <= greatest).then(|| (value(least), value(greatest)))
}

/// Where a bin begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    ordinal: u64,
    /// Number of digits of the edge. 0 if the bin must begin here.
    digits: u32,
}

/// The choice of edges from a sorted sample.
struct Edges<'a> {
    order: KeyOrder,
    sample: &'a [u64],
    /// The smallest and the largest finite value of all.
    ends: Option<(f64, f64)>,
    precision: u32,
}

impl Edges<'_> {
    /// Returns where at most `most` bins begin, in ascending order.
    fn starts(&self, most: usize) -> Vec<u64> {
        let mut required = self.required();
        let median = self.median_magnitude();
        let round = SMALL_SHARES.iter().map(|share| self.round_decimals(median * share));
        let fitting = round.map(|round| &required | &round).find(|all| all.len() < most);
        required = fitting.unwrap_or(required);
        let mut all: BTreeSet<Start> = required.iter().map(|ordinal| Start { ordinal: *ordinal, digits: 0 }).collect();
        for start in self.decimals() {
            if !required.contains(&start.ordinal) {
                all.insert(start);
            }
        }
        let place = |start: &Start| self.sample.partition_point(|ordinal| *ordinal < start.ordinal);
        let all: Vec<(Start, usize)> = all.iter().map(|start| (*start, place(start))).collect();
        // All bins that must begin somewhere do, unless there are more of them than numbers.
        let most = most.max(required.len() + 1).min(MAX_BINS);
        // A first bin begins before all starts.
        let (mut low, mut high) = (0, (self.sample.len() as u64 + 1) * DIGIT_WEIGHT.pow(self.precision) + 1);
        while low < high {
            let threshold = low.midpoint(high);
            if self.joined(&all, threshold).len() < most {
                high = threshold;
            } else {
                low = threshold + 1;
            }
        }
        let mut starts = self.joined(&all, low);
        starts.truncate(MAX_BINS - 1);
        starts
    }

    /// Returns the starts that are left if neighbouring bins whose rows weigh less than `threshold` are joined. `all`
    /// are starts with their places in the sample.
    fn joined(&self, all: &[(Start, usize)], threshold: u64) -> Vec<u64> {
        let (mut starts, mut begun) = (Vec::new(), 0);
        for (number, (start, at)) in all.iter().enumerate() {
            let end = all.get(number + 1).map_or(self.sample.len(), |(_, end)| *end);
            let weight = (end - begun) as u64 * DIGIT_WEIGHT.pow(self.precision.saturating_sub(start.digits));
            if start.digits == 0 || weight >= threshold {
                starts.push(start.ordinal);
                begun = *at;
            }
        }
        starts
    }

    /// Returns where bins must begin: zero, infinities, NaN, frequent values, and the values after them.
    fn required(&self) -> BTreeSet<u64> {
        let order = self.order;
        let mut single = vec![order.ordinal_of(Value::Int(0))];
        if order.data_type().is_float() {
            let (least, greatest) = order.extremes();
            single.extend([order.ordinal_of(least), order.ordinal_of(greatest)]);
        }
        let frequent = self.sample.chunk_by(|one, next| one == next);
        let frequent = frequent.filter(|same| same.len() * FREQUENT_SHARE > self.sample.len());
        single.extend(frequent.map(|same| same[0]));
        // The ordinal after infinity is before NaN's, which has no successor.
        single.into_iter().flat_map(|ordinal| [Some(ordinal), ordinal.checked_add(1)]).flatten().collect()
    }

    /// Returns the median magnitude of the sample's finite values. Zero does not count. 0 if there are none.
    fn median_magnitude(&self) -> f64 {
        let magnitudes = self.sample.iter().map(|ordinal| self.order.value(*ordinal).as_f64().abs());
        let mut magnitudes: Vec<f64> = magnitudes.filter(|one| one.is_finite() && *one > 0.0).collect();
        let middle = magnitudes.len() / 2;
        if magnitudes.is_empty() { 0.0 } else { *magnitudes.select_nth_unstable_by(middle, f64::total_cmp).1 }
    }

    /// Returns the decimals of one digit between the smallest and the largest value, except for those that are less
    /// than `small` in magnitude.
    fn round_decimals(&self, small: f64) -> BTreeSet<u64> {
        let Some((low, high)) = self.ends.filter(|_| small > 0.0) else { return BTreeSet::new() };
        let (mut found, mut value) = (BTreeSet::new(), low);
        while value <= high && found.len() < MAX_BINS {
            value = if value.abs() < small { small } else { value };
            let decimal = next_decimal(value, 1, self.order.data_type().is_integer()).value;
            if decimal <= value || decimal.is_infinite() {
                break;
            }
            value = decimal;
            if value <= high {
                found.insert(self.ordinal(value));
            }
        }
        found
    }

    /// Returns the decimals that divide the sample.
    fn decimals(&self) -> Vec<Start> {
        let (mut starts, mut at) = (Vec::new(), 0);
        while let Some(ordinal) = self.sample.get(at) {
            let value = self.order.value(*ordinal).as_f64();
            // Zero and infinities have bins of their own, which end before the next value.
            let next = (value.is_finite() && value != 0.0 && !self.order.is_nan(*ordinal))
                .then(|| next_decimal(value, self.precision, self.order.data_type().is_integer()));
            let Some(after) = ordinal.checked_add(1) else { break };
            let start = match next {
                // No decimal is found near subnormal numbers, and beyond the greatest.
                Some(decimal) if decimal.value.is_finite() => {
                    let ordinal = self.ordinal(decimal.value).max(after);
                    starts.push(Start { ordinal, digits: decimal.digits });
                    ordinal
                }
                _ => after,
            };
            at += self.sample[at..].partition_point(|ordinal| *ordinal < start);
        }
        starts
    }

    /// Returns the ordinal of a decimal, which is rounded to the type of the column as literals are.
    fn ordinal(&self, decimal: f64) -> u64 {
        let value =
            if self.order.data_type().is_integer() { Value::Int(decimal as i128) } else { Value::Float(decimal) };
        let (least, greatest) = self.order.extremes();
        let is_beyond = value.compare(greatest).is_none_or(std::cmp::Ordering::is_gt);
        let is_below = value.compare(least).is_some_and(std::cmp::Ordering::is_lt);
        self.order.ordinal_of(if is_beyond {
            greatest
        } else if is_below {
            least
        } else {
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::bitmap::bins::Bin;
    use crate::random::Random;
    use crate::schema::{DataType, KEY_TYPES};

    fn binned(data_type: DataType, values: &[u8], precision: u32) -> BinnedColumn {
        let order = KeyOrder::new(data_type).unwrap();
        let binned = bin_column(order, values, precision);
        let width = data_type.width();
        let bins = binned.bins.get();
        assert!(bins.len() <= MAX_BINS);
        let mut found = vec![Bin { least: u64::MAX, greatest: 0, rows: 0 }; bins.len()];
        for (value, number) in values.chunks(width).zip(&binned.numbers) {
            let (bin, ordinal) = (&mut found[usize::from(*number)], order.ordinal(value));
            *bin = Bin { least: bin.least.min(ordinal), greatest: bin.greatest.max(ordinal), rows: bin.rows + 1 };
        }
        assert_eq!(found, bins);
        assert_eq!(binned.numbers.len() * width, values.len());
        assert_eq!(Bins::decode(&binned.bins.encode(), order, binned.numbers.len() as u32), Ok(binned.bins.clone()));
        binned
    }

    /// Checks that conditions with numbers of one digit need no look at the values of a bin, in data as that of a
    /// plasma.
    #[test]
    fn numbers_of_one_digit_are_edges() {
        let mut random = Random::new(3);
        let mut normal = || (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
        let values: Vec<f32> = (0..60_000).map(|_| (normal() * normal()) as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = binned(DataType::F32, &bytes, 2);
        let order = KeyOrder::new(DataType::F32).unwrap();
        assert!(found.bins.get().len() > 200, "{}", found.bins.get().len());
        for edge in [-5.0, -2.0, -1.0, -0.5, -0.1, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0] {
            let ordinal = order.ordinal_of(Value::Float(edge));
            let is_edge = found.bins.get().iter().all(|bin| bin.greatest < ordinal || bin.least >= ordinal);
            assert!(is_edge, "{edge}");
        }
    }

    #[test]
    fn special_and_frequent_values_have_bins_of_their_own() {
        let mut values: Vec<f64> = (0..30_000).map(|number| f64::from(number) / 7.0 - 2000.0).collect();
        for (number, value) in values.iter_mut().enumerate() {
            match number % 40 {
                0 => *value = 0.0,
                1 => *value = -0.0,
                2 => *value = f64::NAN,
                3 => *value = f64::INFINITY,
                4 => *value = f64::NEG_INFINITY,
                5 | 6 => *value = 12.345,
                _ => {}
            }
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = binned(DataType::F64, &bytes, 2);
        let order = KeyOrder::new(DataType::F64).unwrap();
        for value in [0.0, f64::INFINITY, f64::NEG_INFINITY, 12.345, f64::NAN] {
            let ordinal = order.ordinal_of(Value::Float(value));
            let bin = found.bins.get().iter().find(|bin| (bin.least..=bin.greatest).contains(&ordinal)).unwrap();
            assert_eq!((bin.least, bin.greatest), (ordinal, ordinal), "{value}");
        }
    }

    #[test]
    fn few_values_are_not_binned() {
        let values: Vec<u8> =
            (0..20_000i64).flat_map(|number| (number * number % 200 * 1_000_003).to_le_bytes()).collect();
        let found = binned(DataType::I64, &values, 2);
        assert!(found.bins.get().iter().all(|bin| bin.least == bin.greatest));
        let nan = binned(DataType::F32, &f32::NAN.to_le_bytes().repeat(1000), 2);
        assert_eq!(nan.bins.get(), [Bin::nan(1000)]);
        let one = binned(DataType::F32, &1.5f32.to_le_bytes().repeat(1000), 2);
        assert_eq!(one.bins.get().len(), 1);
        assert_eq!(binned(DataType::U8, &[], 2).bins.get(), []);
        let all: Vec<u8> = (0..=255u8).cycle().take(8192).collect();
        assert_eq!(binned(DataType::U8, &all, 2).bins.get().len(), 256);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_values_of_any_type_are_binned(
            data_type in prop::sample::select(KEY_TYPES.to_vec()),
            precision in 1u32..=4,
            repeated in 1usize..40,
            raw in prop::collection::vec(prop_oneof![
                any::<u64>(),
                any::<f64>().prop_map(f64::to_bits),
                any::<f32>().prop_map(|value| u64::from(value.to_bits())),
                0u64..100,
            ], 0..600),
        ) {
            let width = data_type.width();
            let values: Vec<u8> = raw.iter().flat_map(|raw| raw.to_le_bytes()[..width].to_vec()).collect();
            binned(data_type, &values.repeat(repeated), precision);
        }
    }
}
