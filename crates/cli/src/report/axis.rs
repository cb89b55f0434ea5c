//! Maps values to positions on an axis, with ticks at round numbers.

use crate::text;

/// A tick on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Position, from 0 to 1.
    pub(super) share: f64,
    pub(super) label: String,
}

/// A linear or logarithmic axis between two values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) is_log: bool,
}

impl Axis {
    /// Creates a linear axis from one value to a larger one. If the values are equal, the axis extends beyond both.
    pub(super) fn linear(from: f64, to: f64) -> Self {
        if to > from {
            return Self { from, to, is_log: false };
        }
        let room = from.abs().max(1.0) / 2.0;
        Self { from: from - room, to: from + room, is_log: false }
    }

    /// Creates a logarithmic axis from a positive value to a larger one.
    pub(super) fn log(from: f64, to: f64) -> Self {
        if from > 0.0 && to > from { Self { from, to, is_log: true } } else { Self::linear(from, to) }
    }

    /// Creates an axis from 0 to a round number of at least `most`.
    pub(super) fn from_zero(most: f64, ticks: usize) -> Self {
        let most = if most > 0.0 && most.is_finite() { most } else { 1.0 };
        let step = round_step(most / ticks as f64);
        Self { from: 0.0, to: (most / step).ceil() * step, is_log: false }
    }

    /// Returns the position of a value, from 0 to 1, clamped to the ends.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => (value.max(f64::MIN_POSITIVE).ln() - self.from.ln()) / (self.to.ln() - self.from.ln()),
            // The values are halved, since their difference may overflow.
            false => (value / 2.0 - self.from / 2.0) / (self.to / 2.0 - self.from / 2.0),
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns about `wanted` ticks.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<Tick> {
        let tick = |(value, label): (f64, String)| Tick { share: self.share(value), label };
        if self.is_log { self.log_ticks(wanted) } else { self.linear_ticks(wanted) }.into_iter().map(tick).collect()
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let step = round_step((self.to / 2.0 - self.from / 2.0) / wanted as f64 * 2.0);
        let (first, last) = ((self.from / step - 1e-6).ceil(), (self.to / step + 1e-6).floor());
        let count = if (last - first).is_finite() { (last - first).clamp(0.0, 40.0) as u32 } else { 0 };
        let values = (0..=count).map(|number| (first + f64::from(number)) * step);
        let largest = self.from.abs().max(self.to.abs());
        let decimals = usize::try_from(-(step.log10() + 1e-9).floor() as i64).unwrap_or(0);
        let label = |value: f64| match value {
            _ if largest >= 1e7 || decimals > 5 => power(value, 4),
            _ => {
                let plain = format!("{:.decimals$}", value.abs());
                let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
                let whole = whole.parse().map_or_else(|_| whole.to_owned(), text::count);
                let sign = if value < 0.0 { "−" } else { "" };
                if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
            }
        };
        values
            .map(|value| if value.abs() < step / 2.0 { 0.0 } else { value })
            .map(|value| (value, label(value)))
            .collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let (low, high) = (self.from.log10(), self.to.log10());
        let decades = (high - low).max(f64::MIN_POSITIVE);
        let within = |value: &f64| *value >= self.from * (1.0 - 1e-9) && *value <= self.to * (1.0 + 1e-9);
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let values: Vec<f64> = if decades < 2.5 {
            let factors: &[f64] = if decades < 1.5 { &[1.0, 2.0, 3.0, 5.0] } else { &[1.0, 3.0] };
            let all = (first..=last).flat_map(|exponent| factors.iter().map(move |f| f * 10f64.powi(exponent)));
            all.filter(within).collect()
        } else {
            let step = (decades / wanted as f64).ceil().max(1.0) as i32;
            let all = (first..=last).filter(|exponent| exponent.rem_euclid(step) == 0);
            all.map(|exponent| 10f64.powi(exponent)).filter(within).collect()
        };
        if values.len() < 2 {
            return Self::linear(self.from, self.to).linear_ticks(wanted);
        }
        values.into_iter().map(|value| (value, power(value, 2))).collect()
    }
}

/// Returns the smallest round number (1, 2 or 5 times a power of ten) that is not less than a step.
fn round_step(step: f64) -> f64 {
    if step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let unit = 10f64.powf(step.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().map(|factor| factor * unit).find(|round| *round >= step * (1.0 - 1e-9)).unwrap_or(10.0 * unit)
}

/// Returns a number in readable notation: `0.01`, `12,000`, `3×10⁻⁷`.
pub(super) fn power(value: f64, digits: usize) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() || (1e-3 * 0.999..1e6).contains(&magnitude) {
        return text::number(value, digits.max(4)).replace('-', "−");
    }
    let scientific = format!("{magnitude:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let mantissa = if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    let raised: String = exponent
        .chars()
        .map(|digit| match digit {
            '-' => '⁻',
            digit => digit.to_digit(10).and_then(|digit| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize)).unwrap_or(digit),
        })
        .collect();
    let sign = if value < 0.0 { "−" } else { "" };
    if mantissa == "1" { format!("{sign}10{raised}") } else { format!("{sign}{mantissa}×10{raised}") }
}

/// Returns an estimate with its bounds: `about 0.452 (0.4475 to 0.4571)`. If the bounds are equal, returns only the
/// value.
pub(super) fn about((least, estimate, most): (f64, f64, f64)) -> String {
    if least == most {
        return power(estimate, 4);
    }
    let (least, most) = (text::rounded_out(least, 4, true), text::rounded_out(most, 4, false));
    format!("about {} (between {} and {})", power(estimate, 4), power(least, 4), power(most, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: Axis, wanted: usize) -> Vec<String> {
        axis.ticks(wanted).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_stand_at_round_numbers() {
        assert_eq!(labels(Axis::linear(-0.3, 1.1), 4), ["0.0", "0.5", "1.0"]);
        assert_eq!(labels(Axis::linear(-12_000.0, 9_000.0), 5), ["−10,000", "−5,000", "0", "5,000"]);
        assert_eq!(labels(Axis::log(0.002, 300.0), 8), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(labels(Axis::log(1e-30, 1e-10), 5), ["10⁻²⁸", "10⁻²⁴", "10⁻²⁰", "10⁻¹⁶", "10⁻¹²"]);
        assert_eq!(labels(Axis::log(1.0, 9.0), 5), ["1", "2", "3", "5"]);
        assert_eq!(labels(Axis::from_zero(0.0, 4), 4), ["0.0", "0.5", "1.0"]);
        assert_eq!(Axis::from_zero(87.0, 4).to, 100.0);
    }

    #[test]
    fn extreme_ranges_have_ticks_too() {
        for axis in [
            Axis::linear(-f64::MAX, f64::MAX),
            Axis::linear(5.0, 5.0),
            Axis::linear(0.0, 1e-300),
            Axis::linear(1e18, 1e18 + 1024.0),
            Axis::log(f64::MIN_POSITIVE, f64::MAX),
            Axis::log(2.0, 2.1),
        ] {
            let ticks = axis.ticks(5);
            assert!(!ticks.is_empty() && ticks.len() < 45, "{axis:?}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.share)), "{axis:?}: {ticks:?}");
        }
    }

    #[test]
    fn values_lie_between_the_ends() {
        assert_eq!(Axis::linear(0.0, 4.0).share(1.0), 0.25);
        assert!((Axis::log(0.01, 100.0).share(1.0) - 0.5).abs() < 1e-12);
        assert_eq!((Axis::log(1.0, 10.0).share(-3.0), Axis::linear(0.0, 1.0).share(7.0)), (0.0, 1.0));
        assert_eq!(Axis::linear(-f64::MAX, f64::MAX).share(0.0), 0.5);
    }
}
