//! Divides the values of a column in a row group into bins.
//!
//! A sample of the values decides where bins begin, in one of two ways. Few different values have a bin each. Otherwise
//! bins begin at decimals of few digits, so that a condition with such a number needs no look at the values of a bin.
//! Zero, infinities, NaN and values of many rows have bins of their own. Bins of few rows are joined until there are at
//! most 256; edges with fewer digits are kept longer, and those of one digit if there is room. Bins are exact for any
//! sample: they state the smallest and the largest of their values.

use std::collections::BTreeSet;

use crate::format::bitmap::bins::{Bin, Bins, MAX_BINS};
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

/// Number of buckets of the table that finds bins.
const BUCKETS: u64 = 4096;

/// How much more an edge counts for each digit that it has less.
const DIGIT_WEIGHT: u64 = 8;

/// Shares of the sample's median magnitude from which all decimals of one digit are edges, if there is room for them.
const SMALL_SHARES: [f64; 3] = [1e-3, 1e-2, 1e-1];

/// Largest power of ten that is an `f64`.
const MOST_EXACT_POWER: i32 = 22;

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
    coded(order, &ordinals, starts)
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
    let finite = || ordinals.iter().copied().filter(|ordinal| (from..=to).contains(ordinal));
    let value = |ordinal: u64| order.value(ordinal).as_f64();
    finite().min().map(value).zip(finite().max().map(value))
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
        let round = SMALL_SHARES.iter().map(|share| self.round_decimals(*share));
        let fitting = round.map(|round| &required | &round).find(|all| all.len() < most);
        required = fitting.unwrap_or(required);
        let mut all: BTreeSet<Start> = required.iter().map(|ordinal| Start { ordinal: *ordinal, digits: 0 }).collect();
        for start in self.decimals() {
            if !required.contains(&start.ordinal) {
                all.insert(start);
            }
        }
        let all: Vec<Start> = all.into_iter().collect();
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

    /// Returns the starts that are left if neighbouring bins whose rows weigh less than `threshold` are joined.
    fn joined(&self, all: &[Start], threshold: u64) -> Vec<u64> {
        let place = |start: &Start| self.sample.partition_point(|ordinal| *ordinal < start.ordinal);
        let (mut starts, mut begun) = (Vec::new(), 0);
        for (number, start) in all.iter().enumerate() {
            let at = place(start);
            let end = all.get(number + 1).map_or(self.sample.len(), place);
            let weight = (end - begun) as u64 * DIGIT_WEIGHT.pow(self.precision.saturating_sub(start.digits));
            if start.digits == 0 || weight >= threshold {
                starts.push(start.ordinal);
                begun = at;
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

    /// Returns the decimals of one digit between the smallest and the largest value, except for those that are less
    /// than a share of the median in magnitude.
    fn round_decimals(&self, least_share: f64) -> BTreeSet<u64> {
        let mut magnitudes: Vec<f64> =
            self.sample.iter().map(|ordinal| self.order.value(*ordinal).as_f64().abs()).collect();
        magnitudes.retain(|magnitude| magnitude.is_finite() && *magnitude > 0.0);
        let Some((low, high)) = self.ends.filter(|_| !magnitudes.is_empty()) else { return BTreeSet::new() };
        let middle = magnitudes.len() / 2;
        let (_, median, _) = magnitudes.select_nth_unstable_by(middle, f64::total_cmp);
        let small = *median * least_share;
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

/// A decimal of few digits.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Decimal {
    value: f64,
    digits: u32,
}

impl Decimal {
    /// Returns `mantissa` times ten to the power of `exponent`.
    fn new(mantissa: i64, exponent: i32) -> Self {
        let value = if exponent.abs() > MOST_EXACT_POWER {
            format!("{mantissa}e{exponent}").parse().unwrap_or(f64::INFINITY)
        } else if exponent < 0 {
            // A quotient of two exact numbers is the number nearest to the decimal.
            mantissa as f64 / 10f64.powi(-exponent)
        } else {
            mantissa as f64 * 10f64.powi(exponent)
        };
        let (mut digits, mut rest) = (0, mantissa.unsigned_abs());
        while rest > 0 && rest % 10 == 0 {
            rest /= 10;
        }
        while rest > 0 {
            rest /= 10;
            digits += 1;
        }
        Self { value, digits: digits.max(1) }
    }
}

/// Returns the smallest decimal of at most `precision` digits that is greater than a number, which is not zero.
/// Decimals of integers are integers.
fn next_decimal(value: f64, precision: u32, is_integer: bool) -> Decimal {
    let none = Decimal { value: f64::INFINITY, digits: 1 };
    if value == 0.0 {
        return none;
    }
    let magnitude = value.abs().log10().floor() as i32;
    // One exponent less, in case that the logarithm was rounded up, and for numbers just below a power of ten.
    let exponents = (magnitude - precision as i32)..=(magnitude + 2);
    let most = 10i64.pow(precision);
    let mut found: Option<Decimal> = None;
    for exponent in exponents {
        let exponent = if is_integer { exponent.max(0) } else { exponent };
        let near = (value / 10f64.powi(exponent)).floor();
        if near.abs() > (most + 1) as f64 || !near.is_finite() {
            continue;
        }
        for mantissa in [near as i64 - 1, near as i64, near as i64 + 1, near as i64 + 2] {
            let decimal = Decimal::new(mantissa, exponent);
            let is_next = decimal.value > value && found.is_none_or(|found| decimal.value < found.value);
            if mantissa.abs() <= most && is_next {
                found = Some(decimal);
            }
        }
    }
    found.unwrap_or(none)
}

/// Finds the bins of values.
struct Coder {
    starts: Vec<u64>,
    base: u64,
    shift: u32,
    /// For the first value of each bucket, the number of bins that begin at it or before.
    table: Vec<u16>,
}

impl Coder {
    fn new(starts: Vec<u64>) -> Self {
        let base = starts.first().copied().unwrap_or(0);
        let span = starts.last().map_or(0, |last| last - base);
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(BUCKETS.trailing_zeros());
        let bucket = |number: u64| {
            let first = number.checked_mul(1 << shift).and_then(|distance| base.checked_add(distance));
            first.map_or(starts.len(), |first| starts.partition_point(|start| *start <= first)) as u16
        };
        let table = (0..=(span >> shift) + 1).map(bucket).collect();
        Self { starts, base, shift, table }
    }

    /// Returns the number of bins that begin at a value or before.
    #[inline]
    fn code(&self, ordinal: u64) -> u8 {
        if ordinal < self.base {
            return 0;
        }
        let bucket = ((ordinal - self.base) >> self.shift) as usize;
        match self.table.get(bucket..bucket.saturating_add(2)) {
            Some(&[low, high]) => {
                let inside = &self.starts[low as usize..high as usize];
                // At most 255 bins begin somewhere.
                (low as usize + inside.partition_point(|start| *start <= ordinal)) as u8
            }
            _ => self.starts.len() as u8,
        }
    }
}

/// Divides values into the bins that begin at `starts`. Bins without values are left out.
fn coded(order: KeyOrder, ordinals: &[u64], mut starts: Vec<u64>) -> BinnedColumn {
    // 256 different values begin 256 bins, before the first of which is none.
    if starts.len() == MAX_BINS {
        starts.remove(0);
    }
    let coder = Coder::new(starts);
    let mut bins = [Bin { least: u64::MAX, greatest: 0, rows: 0 }; MAX_BINS];
    let mut numbers = Vec::with_capacity(ordinals.len());
    for ordinal in ordinals {
        let code = coder.code(*ordinal);
        let bin = &mut bins[usize::from(code)];
        bin.least = bin.least.min(*ordinal);
        bin.greatest = bin.greatest.max(*ordinal);
        bin.rows += 1;
        numbers.push(code);
    }
    let (mut dense, mut kept) = ([0u8; MAX_BINS], Vec::new());
    for (code, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.rows > 0) {
        dense[code] = kept.len() as u8;
        kept.push(*bin);
    }
    numbers.iter_mut().for_each(|number| *number = dense[usize::from(*number)]);
    BinnedColumn { bins: Bins::new(order, kept), numbers }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
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

    #[test]
    fn the_next_decimal_is_the_next() {
        for (value, precision, expected, digits) in [
            (5.03, 2, 5.1, 2),
            (5.1, 2, 5.2, 2),
            (0.0995, 2, 0.1, 1),
            (9.95, 2, 10.0, 1),
            (10.0, 2, 11.0, 2),
            (-1.0, 2, -0.99, 2),
            (-1.05, 2, -1.0, 1),
            (-0.99, 2, -0.98, 2),
            (123.0, 1, 200.0, 1),
            (1e-300, 2, 1.1e-300, 2),
            (9.99e307, 2, 1e308, 1),
            (0.25, 3, 0.251, 3),
        ] {
            let found = next_decimal(value, precision, false);
            assert_eq!((found.value, found.digits), (expected, digits), "{value}");
        }
        assert_eq!(next_decimal(3.0, 2, true).value, 4.0);
        assert_eq!(next_decimal(-3.0, 2, true).value, -2.0);
        assert_eq!(next_decimal(1234.0, 2, true).value, 1300.0);
        assert_eq!(next_decimal(f64::MAX, 2, false).value, f64::INFINITY);
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
