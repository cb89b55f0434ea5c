//! Functions of floats. Their results have the same bits on every machine, at any time.
//!
//! The C library's `exp`, `log`, `pow` and so on differ in the last bit from one version, and one processor, to the
//! next. A row would then match a predicate on one machine and not on another, and a derived column would depend on
//! where it was written. These functions are those of FreeBSD's msun, which use IEEE 754's operations only and are
//! wrong by less than one unit in the last place: `libm` has them in Rust. `exp`, `log` and `log10` are written here
//! without branches, so that compilers vectorise loops over them on any target.

/// Number of floats by which results of a monotone function may be out of order.
///
/// Each result is wrong by less than one unit in the last place, two by less than two. The floats below a power of two
/// are half a unit apart.
pub(super) const DISORDER: usize = 4;

const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// Floats of this magnitude are integers, whose low bits are those of the mantissa. Adding it to a small number rounds
/// the number to an integer.
const WHOLE: f64 = (3u64 << 51) as f64;

/// Returns 2^n of an integer n from -1022 to 1023, to which [`WHOLE`] was added.
#[inline(always)]
fn power_of_two(shifted: f64) -> f64 {
    f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

/// Returns e to the power `x`.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    const P1: f64 = f64::from_bits(0x3fc5_5555_5555_553e);
    const P2: f64 = f64::from_bits(0xbf66_c16c_16be_bd93);
    const P3: f64 = f64::from_bits(0x3f11_566a_af25_de2c);
    const P4: f64 = f64::from_bits(0xbebb_bd41_c5d2_6bf1);
    const P5: f64 = f64::from_bits(0x3e66_3769_72be_a4d0);
    // Beyond these ends, the result is infinite or zero. NaN stays.
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let n = (x * std::f64::consts::LOG2_E + WHOLE) - WHOLE;
    let high = x - n * LN2_HIGH;
    let low = n * LN2_LOW;
    let r = high - low;
    let square = r * r;
    let c = r - square * (P1 + square * (P2 + square * (P3 + square * (P4 + square * P5))));
    let result = 1.0 + (r * c / (2.0 - c) - low + high);
    // 2^n in two factors, since n may exceed the exponents of floats. Only the second product may round.
    let half = n * 0.5 + WHOLE;
    let rest = (n - (half - WHOLE)) + WHOLE;
    result * power_of_two(half) * power_of_two(rest)
}

/// A positive number as (1 + fraction) · 2^exponent, where 1 + fraction lies between √½ and √2, and the approximation
/// of the logarithm of 1 + fraction: fraction - half_square + correction.
struct Logarithm {
    exponent: f64,
    fraction: f64,
    half_square: f64,
    correction: f64,
}

impl Logarithm {
    #[inline(always)]
    fn of(x: f64) -> Self {
        const L1: f64 = f64::from_bits(0x3fe5_5555_5555_5593);
        const L2: f64 = f64::from_bits(0x3fd9_9999_9997_fa04);
        const L3: f64 = f64::from_bits(0x3fd2_4924_9422_9359);
        const L4: f64 = f64::from_bits(0x3fcc_71c5_1d8e_78af);
        const L5: f64 = f64::from_bits(0x3fc7_4664_96cb_03de);
        const L6: f64 = f64::from_bits(0x3fc3_9a09_d078_c69f);
        const L7: f64 = f64::from_bits(0x3fc2_f112_df3e_5244);
        const ROOT_HALF: u64 = 0x3fe6_a09e << 32;
        const ONE: u64 = 0x3ff << 52;
        const EXPONENT: u64 = 1 << 52;
        let is_subnormal = x < f64::MIN_POSITIVE;
        let scaled = if is_subnormal { x * (1u64 << 54) as f64 } else { x };
        let bias = if is_subnormal { 1023.0 + 54.0 } else { 1023.0 };
        let bits = scaled.to_bits().wrapping_add(ONE - ROOT_HALF);
        // The conversion of a small integer to a float, by its bits.
        let exponent = f64::from_bits((bits >> 52) | ((1023 + 52) << 52)) - EXPONENT as f64 - bias;
        let fraction = f64::from_bits((bits & (EXPONENT - 1)).wrapping_add(ROOT_HALF)) - 1.0;
        let half_square = 0.5 * fraction * fraction;
        let s = fraction / (2.0 + fraction);
        let z = s * s;
        let w = z * z;
        let even = w * (L2 + w * (L4 + w * L6));
        let odd = z * (L1 + w * (L3 + w * (L5 + w * L7)));
        Self { exponent, fraction, half_square, correction: s * (half_square + (odd + even)) }
    }
}

/// Returns the logarithm of a number, from the result for positive numbers that are finite.
#[inline(always)]
fn logarithm(x: f64, result: f64) -> f64 {
    let other = if x > 0.0 { f64::INFINITY } else { f64::NAN };
    let other = if x == 0.0 { f64::NEG_INFINITY } else { other };
    if x > 0.0 && x < f64::INFINITY { result } else { other }
}

/// Returns the natural logarithm.
#[inline(always)]
pub(super) fn log(x: f64) -> f64 {
    let Logarithm { exponent, fraction, half_square, correction } = Logarithm::of(x);
    logarithm(x, correction + exponent * LN2_LOW - half_square + fraction + exponent * LN2_HIGH)
}

/// Returns the logarithm to the base 10.
#[inline(always)]
pub(super) fn log10(x: f64) -> f64 {
    const LOG10_E_HIGH: f64 = f64::from_bits(0x3fdb_cb7b_1520_0000);
    const LOG10_E_LOW: f64 = f64::from_bits(0x3dbb_9438_ca9a_add5);
    const LOG10_2_HIGH: f64 = f64::from_bits(0x3fd3_4413_509f_6000);
    const LOG10_2_LOW: f64 = f64::from_bits(0x3d59_fef3_11f1_2b36);
    let Logarithm { exponent, fraction, half_square, correction } = Logarithm::of(x);
    // The logarithm of 1 + fraction in two parts, the first of which has few bits.
    let high = f64::from_bits((fraction - half_square).to_bits() & !0xffff_ffff);
    let low = fraction - high - half_square + correction;
    let product = high * LOG10_E_HIGH;
    let power = exponent * LOG10_2_HIGH;
    let rest = exponent * LOG10_2_LOW + (low + high) * LOG10_E_LOW + low * LOG10_E_HIGH;
    let sum = power + product;
    logarithm(x, rest + ((power - sum) + product) + sum)
}

/// An angle as a number of quarter turns and an angle in two parts, of at most an eighth turn.
struct Angle {
    quarters: f64,
    high: f64,
    low: f64,
}

impl Angle {
    #[inline(always)]
    fn of(x: f64) -> Self {
        // The first 33 bits of π/2, and the rest.
        const QUARTER_HIGH: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
        const QUARTER_LOW: f64 = f64::from_bits(0x3dd0_b461_1a62_6331);
        let quarters = (x * std::f64::consts::FRAC_2_PI + WHOLE) - WHOLE;
        let rest = x - quarters * QUARTER_HIGH;
        let correction = quarters * QUARTER_LOW;
        let high = rest - correction;
        Self { quarters, high, low: (rest - high) - correction }
    }

    /// Returns whether the parts have enough bits. They do not if the angle has many turns, or is close to a multiple
    /// of a quarter turn.
    #[inline(always)]
    fn is_exact(&self, x: f64) -> bool {
        const MAX: f64 = (1u32 << 20) as f64;
        const CANCELLED: f64 = 1.0 / (1u32 << 16) as f64;
        (x.abs() < MAX) & (self.high.abs() >= x.abs() * CANCELLED)
    }

    /// Returns the sine of the angle and some quarter turns more.
    #[inline(always)]
    fn sine(&self, more: f64) -> f64 {
        const S1: f64 = f64::from_bits(0xbfc5_5555_5555_5549);
        const S2: f64 = f64::from_bits(0x3f81_1111_1110_f8a6);
        const S3: f64 = f64::from_bits(0xbf2a_01a0_19c1_61d5);
        const S4: f64 = f64::from_bits(0x3ec7_1de3_57b1_fe7d);
        const S5: f64 = f64::from_bits(0xbe5a_e5e6_8a2b_9ceb);
        const S6: f64 = f64::from_bits(0x3de5_d93a_5acf_d57c);
        const C1: f64 = f64::from_bits(0x3fa5_5555_5555_554c);
        const C2: f64 = f64::from_bits(0xbf56_c16c_16c1_5177);
        const C3: f64 = f64::from_bits(0x3efa_01a0_19cb_1590);
        const C4: f64 = f64::from_bits(0xbe92_7e4f_809c_52ad);
        const C5: f64 = f64::from_bits(0x3e21_ee9e_bdb4_b1c4);
        const C6: f64 = f64::from_bits(0xbda8_fae9_be88_38d4);
        let Self { quarters, high, low } = *self;
        let z = high * high;
        let w = z * z;
        let series = S2 + z * (S3 + z * S4) + z * w * (S5 + z * S6);
        let cube = z * high;
        let sine = high - ((z * (0.5 * low - cube * series) - low) - cube * S1);
        let series = z * (C1 + z * (C2 + z * C3)) + w * w * (C4 + z * (C5 + z * C6));
        let half = 0.5 * z;
        let begin = 1.0 - half;
        let cosine = begin + (((1.0 - begin) - half) + (z * series - high * low));
        // The number of quarter turns in the low bits: the first chooses the function, the second the sign.
        let quarters = (quarters + more + WHOLE).to_bits();
        let is_odd = 0u64.wrapping_sub(quarters & 1);
        let chosen = (cosine.to_bits() & is_odd) | (sine.to_bits() & !is_odd);
        f64::from_bits(chosen ^ (quarters & 2) << 62)
    }
}

/// Replaces angles by their sines, or those of the angles and a quarter turn: the cosines.
fn replace_by_sines(values: &mut [f64], more: f64) {
    let mut angles = [0.0; BLOCK];
    for block in values.chunks_mut(BLOCK) {
        angles[..block.len()].copy_from_slice(block);
        let mut are_exact = true;
        for value in &mut *block {
            let (angle, x) = (Angle::of(*value), *value);
            are_exact &= angle.is_exact(x);
            *value = angle.sine(more);
        }
        if !are_exact {
            let hard = angles.iter().zip(block).filter(|(x, _)| !Angle::of(**x).is_exact(**x));
            // Bounds of sines rely on their magnitude.
            hard.for_each(|(x, value)| {
                *value = (if more == 0.0 { libm::sin(*x) } else { libm::cos(*x) }).clamp(-1.0, 1.0)
            });
        }
    }
}

/// Replaces angles in radians by their sines.
pub(super) fn sines(values: &mut [f64]) {
    replace_by_sines(values, 0.0);
}

/// Replaces angles in radians by their cosines.
pub(super) fn cosines(values: &mut [f64]) {
    replace_by_sines(values, 1.0);
}

/// Returns the angle of the point (x, y), from -π to π.
pub(super) fn atan2(y: f64, x: f64) -> f64 {
    libm::atan2(y, x)
}

/// Clears the low half of a float's bits, so that products of two such floats are exact.
#[inline(always)]
fn high_bits(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !0xffff_ffff)
}

/// Returns the logarithm to the base 2 of a positive number that is normal and finite, in two parts.
#[inline(always)]
fn log2_in_parts(x: f64) -> (f64, f64) {
    const L1: f64 = f64::from_bits(0x3fe3_3333_3333_3303);
    const L2: f64 = f64::from_bits(0x3fdb_6db6_db6f_abff);
    const L3: f64 = f64::from_bits(0x3fd5_5555_518f_264d);
    const L4: f64 = f64::from_bits(0x3fd1_7460_a91d_4101);
    const L5: f64 = f64::from_bits(0x3fcd_864a_93c9_db65);
    const L6: f64 = f64::from_bits(0x3fca_7e28_4a45_4eef);
    // 2/(3 ln 2), its high bits, and the rest.
    const FACTOR: f64 = f64::from_bits(0x3fee_c709_dc3a_03fd);
    const FACTOR_HIGH: f64 = f64::from_bits(0x3fee_c709_e000_0000);
    const FACTOR_LOW: f64 = f64::from_bits(0xbe3e_2fe0_145b_01f5);
    // The logarithm of 1.5.
    const LOG_HIGH: f64 = f64::from_bits(0x3fe2_b803_4000_0000);
    const LOG_LOW: f64 = f64::from_bits(0x3e4c_fdeb_43cf_d006);
    const ROOT_3_2: f64 = f64::from_bits(0x3ff3_988f_0000_0000);
    const ROOT_3: f64 = f64::from_bits(0x3ffb_b67a_0000_0000);
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let mantissa = f64::from_bits((bits & MANTISSA) | (1023 << 52));
    let exponent = f64::from_bits((bits >> 52) | ((1023 + 52) << 52)) - (MANTISSA + 1) as f64 - 1023.0;
    // The mantissa is close to 1, to 1.5, or to 2.
    let (one, half) = if mantissa < ROOT_3 { (0.0, 1.0) } else { (1.0, 0.5) };
    let (exponent, mantissa) = (exponent + one, mantissa * half);
    let is_middle = (ROOT_3_2..ROOT_3).contains(&mantissa);
    let (centre, log_high, log_low) = if is_middle { (1.5, LOG_HIGH, LOG_LOW) } else { (1.0, 0.0, 0.0) };
    // (mantissa - centre) / (mantissa + centre) in two parts.
    let u = mantissa - centre;
    let v = 1.0 / (mantissa + centre);
    let s = u * v;
    let s_high = high_bits(s);
    let sum_high = high_bits(mantissa + centre);
    let sum_low = mantissa - (sum_high - centre);
    let s_low = v * ((u - s_high * sum_high) - s_high * sum_low);
    let z = s * s;
    let series = z * z * (L1 + z * (L2 + z * (L3 + z * (L4 + z * (L5 + z * L6))))) + s_low * (s_high + s);
    let square = s_high * s_high;
    let t_high = high_bits(3.0 + square + series);
    let t_low = series - ((t_high - 3.0) - square);
    let u = s_high * t_high;
    let v = s_low * t_high + t_low * s;
    let p_high = high_bits(u + v);
    let p_low = v - (p_high - u);
    let z_high = FACTOR_HIGH * p_high;
    let z_low = FACTOR_LOW * p_high + p_low * FACTOR + log_low;
    let high = high_bits(((z_high + z_low) + log_high) + exponent);
    (high, z_low - (((high - exponent) - log_high) - z_high))
}

/// Returns 2 to the power of a sum, of which the second part is small.
#[inline(always)]
fn exp2_of_parts(high: f64, low: f64) -> f64 {
    const P1: f64 = f64::from_bits(0x3fc5_5555_5555_553e);
    const P2: f64 = f64::from_bits(0xbf66_c16c_16be_bd93);
    const P3: f64 = f64::from_bits(0x3f11_566a_af25_de2c);
    const P4: f64 = f64::from_bits(0xbebb_bd41_c5d2_6bf1);
    const P5: f64 = f64::from_bits(0x3e66_3769_72be_a4d0);
    const LN2: f64 = f64::from_bits(0x3fe6_2e42_fefa_39ef);
    const LN2_FEW_BITS: f64 = f64::from_bits(0x3fe6_2e43_0000_0000);
    const LN2_REST: f64 = f64::from_bits(0xbe20_5c61_0ca8_6c39);
    let shifted = (low + high) + WHOLE;
    let high = high - (shifted - WHOLE);
    let t = high_bits(low + high);
    let u = t * LN2_FEW_BITS;
    let v = (low - (t - high)) * LN2 + t * LN2_REST;
    let z = u + v;
    let w = v - (z - u);
    let square = z * z;
    let c = z - square * (P1 + square * (P2 + square * (P3 + square * (P4 + square * P5))));
    let r = (z * c) / (c - 2.0) - (w + z * w);
    (1.0 - (r - z)) * power_of_two(shifted)
}

/// Returns a power, and whether it is right: for a positive base, a usual exponent, and a result in the usual range.
#[inline(always)]
fn usual_power(base: f64, exponent: f64) -> (f64, bool) {
    const MAX: f64 = (1u32 << 31) as f64;
    let (log_high, log_low) = log2_in_parts(base);
    let exponent_high = high_bits(exponent);
    let low = (exponent - exponent_high) * log_high + exponent * log_low;
    let high = exponent_high * log_high;
    let is_usual = (f64::MIN_POSITIVE..f64::INFINITY).contains(&base) & (exponent.abs() < MAX);
    // Powers of these are exact, or rounded once.
    let is_simple = (exponent.abs() == 1.0) | (exponent == 2.0) | (exponent == 0.5);
    (exp2_of_parts(high, low), is_usual & !is_simple & ((low + high).abs() < 1020.0))
}

/// Number of values that are computed together. Values that need care are then computed again.
const BLOCK: usize = 64;

/// Raises at most [`BLOCK`] values to powers.
fn raise_block(values: &mut [f64], exponents: &[f64]) {
    let mut bases = [0.0; BLOCK];
    bases[..values.len()].copy_from_slice(values);
    let mut are_usual = true;
    for (value, exponent) in values.iter_mut().zip(exponents) {
        let (result, is_usual) = usual_power(*value, *exponent);
        are_usual &= is_usual;
        *value = result;
    }
    if !are_usual {
        for ((value, base), exponent) in values.iter_mut().zip(bases).zip(exponents) {
            if !usual_power(base, *exponent).1 {
                *value = libm::pow(base, *exponent);
            }
        }
    }
}

/// Returns a power, like C's `pow`.
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    let mut values = [base];
    raise_block(&mut values, &[exponent]);
    values[0]
}

/// Raises each value to its own power. Results are those of [`power`].
pub(super) fn raise_each(values: &mut [f64], exponents: &[f64]) {
    values
        .chunks_mut(BLOCK)
        .zip(exponents.chunks(BLOCK))
        .for_each(|(values, exponents)| raise_block(values, exponents));
}

/// Raises values to a power. Results are those of [`power`].
pub(super) fn raise(values: &mut [f64], exponent: f64) {
    match exponent {
        -1.0 => values.iter_mut().for_each(|value| *value = 1.0 / *value),
        0.5 => values.iter_mut().for_each(|value| {
            // Unlike the square root, the power is 0 of -0, and infinite of both infinities.
            let root = (*value + 0.0).sqrt();
            *value = if *value == f64::NEG_INFINITY { f64::INFINITY } else { root };
        }),
        1.0 => {}
        _ => values.chunks_mut(BLOCK).for_each(|values| raise_block(values, &[exponent; BLOCK])),
    }
}

/// Returns the smaller number, or NaN if one of them is NaN.
#[inline(always)]
pub(super) fn least(a: f64, b: f64) -> f64 {
    let least = if b < a { b } else { a };
    if b.is_nan() { b } else { least }
}

/// Returns the larger number, or NaN if one of them is NaN.
#[inline(always)]
pub(super) fn greatest(a: f64, b: f64) -> f64 {
    let greatest = if b > a { b } else { a };
    if b.is_nan() { b } else { greatest }
}

/// Returns -1, 0, 1 or NaN.
#[inline(always)]
pub(super) fn sign(x: f64) -> f64 {
    let sign = if x > 0.0 { 1.0 } else { x };
    let sign = if x < 0.0 { -1.0 } else { sign };
    // Zero of either sign becomes zero.
    sign + 0.0
}

/// Rounds to the nearest integer, ties to even.
///
/// `f64::round_ties_even` calls the C library on targets without a rounding instruction.
#[inline(always)]
pub(super) fn round(x: f64) -> f64 {
    // Floats of at least this magnitude are integers. Adding it to a smaller float rounds off the fraction, by IEEE
    // 754's default rounding.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let pushed = WHOLE.copysign(x);
    if x.abs() < WHOLE { ((x + pushed) - pushed).copysign(x) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns floats of all magnitudes and signs, among them the special ones.
    fn values() -> Vec<f64> {
        let ends = [0.0, 5e-324, f64::MIN_POSITIVE, 0.5, 1.0, 709.782_712_893_384, 745.133_219_101_941, f64::MAX];
        let near = ends.into_iter().flat_map(|end: f64| [end, end.next_up(), end.next_down()]);
        let steps = (0..200_000u64).map(|step| f64::from_bits(step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1));
        let usual = (0..200_000).map(|step| f64::from(step) / 200.0 + 1e-9);
        let values = near.chain(steps).chain(usual).chain([f64::INFINITY, f64::NAN]);
        values.flat_map(|value| [value, -value]).collect()
    }

    /// Returns the number of floats between two, of which one may be NaN if both are.
    fn distance(a: f64, b: f64) -> u64 {
        let ordinal = |value: f64| {
            let bits = value.to_bits() as i64;
            if bits < 0 { i64::MIN - bits } else { bits }
        };
        match (a.is_nan(), b.is_nan()) {
            (true, true) => 0,
            (false, false) => ordinal(a).abs_diff(ordinal(b)),
            _ => u64::MAX,
        }
    }

    #[test]
    fn logarithms_are_those_of_msun_and_powers_of_e_differ_by_one_float() {
        for value in values() {
            assert_eq!(distance(log(value), libm::log(value)), 0, "log {value:e}");
            assert_eq!(distance(log10(value), libm::log10(value)), 0, "log10 {value:e}");
            let (found, wanted) = (exp(value), libm::exp(value));
            assert!(distance(found, wanted) <= 1, "exp {value:e} is {found:e}, not {wanted:e}");
        }
    }

    #[test]
    fn sines_differ_by_one_float_from_those_of_msun() {
        // Angles of many turns, and multiples of a quarter turn, whose sines are small.
        let quarters = (0..200_000).map(|quarters| f64::from(quarters) * std::f64::consts::FRAC_PI_2);
        let turns = (0..400_000).map(|step| f64::from(step) * 7.3);
        let angles: Vec<f64> = values().into_iter().chain(quarters).chain(turns).collect();
        let (mut found_sines, mut found_cosines) = (angles.clone(), angles.clone());
        sines(&mut found_sines);
        cosines(&mut found_cosines);
        for (angle, (sine, cosine)) in angles.into_iter().zip(found_sines.into_iter().zip(found_cosines)) {
            assert!(distance(sine, libm::sin(angle)) <= 1, "sin {angle:e} is {sine:e}, not {:e}", libm::sin(angle));
            assert!(distance(cosine, libm::cos(angle)) <= 1, "cos {angle:e} is {cosine:e}, not {:e}", libm::cos(angle));
            assert!(!(sine.abs() > 1.0 || cosine.abs() > 1.0), "{angle:e}");
        }
    }

    #[test]
    fn powers_differ_by_one_float_from_those_of_msun() {
        let values = values();
        let near_one = (0..50_000).map(|step| 1.0 + f64::from(step - 25_000) * 1e-9);
        let bases: Vec<f64> = values.iter().copied().step_by(3).chain(near_one).collect();
        for exponent in [-1.0, 0.5, 1.0, 2.0, 3.0, -2.5, 1e-3, 100.5, -1e9, 0.0, f64::INFINITY, f64::NAN] {
            let mut found = bases.clone();
            raise(&mut found, exponent);
            let mut same = bases.clone();
            raise_each(&mut same, &vec![exponent; bases.len()]);
            for ((base, found), same) in bases.iter().zip(found).zip(same) {
                let wanted = libm::pow(*base, exponent);
                assert!(distance(found, wanted) <= 1, "{base:e} ** {exponent:e} is {found:e}, not {wanted:e}");
                let is_one = found.to_bits() == same.to_bits() || found.is_nan() && same.is_nan();
                assert!(is_one, "{base:e} ** {exponent:e} is {found:e} or {same:e}");
            }
        }
        let exponents: Vec<f64> = values.iter().rev().map(|value| value % 40.0).collect();
        let mut found = values.clone();
        raise_each(&mut found, &exponents);
        for ((base, exponent), found) in values.into_iter().zip(exponents).zip(found) {
            let wanted = libm::pow(base, exponent);
            assert!(distance(found, wanted) <= 1, "{base:e} ** {exponent:e} is {found:e}, not {wanted:e}");
        }
    }

    #[test]
    fn rounding_is_that_of_the_standard_library() {
        let mut values =
            vec![0.0, 0.5, 1.5, 2.5, 0.499_999_999_999_999_94, 4_503_599_627_370_495.5, 4_503_599_627_370_497.0];
        values.extend([9_007_199_254_740_993.0, 1e300, f64::INFINITY, f64::MIN_POSITIVE]);
        values.extend((0..2_000).map(|step| f64::from(step) * 0.125));
        for value in values.iter().flat_map(|value| [*value, -value]) {
            assert_eq!(round(value).to_bits(), value.round_ties_even().to_bits(), "{value}");
        }
        assert!(round(f64::NAN).is_nan());
    }

    #[test]
    fn extremes_and_signs_of_nan_are_nan() {
        for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::INFINITY)] {
            assert!(least(a, b).is_nan() && greatest(a, b).is_nan());
        }
        assert_eq!(
            (least(2.0, -1.0), least(-1.0, 2.0), greatest(2.0, -1.0), greatest(-1.0, 2.0)),
            (-1.0, -1.0, 2.0, 2.0)
        );
        assert!(sign(f64::NAN).is_nan());
        assert_eq!([-7.5, -0.0, 0.0, 5e-324, f64::NEG_INFINITY].map(sign), [-1.0, 0.0, 0.0, 1.0, -1.0]);
        assert!(sign(-0.0).is_sign_positive());
    }
}
