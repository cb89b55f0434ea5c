//! Formats counts, sizes, fractions and durations, and parses sizes.

use std::time::Duration;

/// Returns 1234567 as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count and its noun: `1 row`, `2,000 rows`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Returns a size in decimal units, with three digits: `8.26 MB`.
pub(crate) fn bytes(number: u64) -> String {
    if number < 1000 {
        return counted(number, "byte", "bytes");
    }
    let mut value = number as f64;
    let mut unit = "";
    for larger in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        value /= 1000.0;
        unit = larger;
        // 999.5 would be printed as 1000.
        if value < 999.5 {
            break;
        }
    }
    format!("{} {unit}", three_digits(value))
}

/// Returns a number with three significant digits below 1000, and as a whole number above.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        below if below < 9.995 => 2,
        below if below < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Returns a number of any magnitude with about `digits` significant digits: `12,345`, `0.00123`, `1.23e-7`.
pub(crate) fn number(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return value.to_string();
    }
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !(-4..15).contains(&exponent) {
        return format!("{}e{exponent}", without_zeros(mantissa));
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    let plain = without_zeros(&format!("{value:.decimals$}"));
    let (sign, unsigned) = plain.strip_prefix('-').map_or(("", plain.as_str()), |rest| ("-", rest));
    let (whole, fraction) = unsigned.split_once('.').map_or((unsigned, None), |(whole, rest)| (whole, Some(rest)));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    fraction.map_or_else(|| format!("{sign}{whole}"), |fraction| format!("{sign}{whole}.{fraction}"))
}

/// Returns a duration such as `2.31 s`, `14.2 ms`, `3 min 12 s`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        short if short < 0.001 => format!("{} µs", three_digits(seconds * 1e6)),
        short if short < 1.0 => format!("{} ms", three_digits(seconds * 1e3)),
        medium if medium < 120.0 => format!("{} s", three_digits(seconds)),
        _ => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// Returns a fraction as a percentage: `0.0123 %`, `12.3 %`, `100 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        tiny if tiny < 0.0001 => format!("{percent:.1e} %"),
        small if small < 0.01 => format!("{percent:.4} %"),
        small if small < 1.0 => format!("{percent:.3} %"),
        large if large >= 99.95 => format!("{percent:.0} %"),
        _ => format!("{} %", three_digits(percent)),
    }
}

/// Rounds a lower bound down, or an upper bound up, to `digits` digits, so that it remains a bound.
pub(crate) fn rounded_out(bound: f64, digits: usize, is_least: bool) -> f64 {
    let rounded = format!("{bound:.*e}", digits.saturating_sub(1)).parse().unwrap_or(bound);
    // The step is computed from the bound's exponent, not the rounded value's. For example, 0.9996 is rounded to 1.00,
    // and the next lower number is 0.999.
    let text = format!("{bound:e}");
    let exponent = text.split_once('e').map_or("0", |(_, exponent)| exponent);
    let is_inside = if is_least { rounded > bound } else { rounded < bound };
    if !is_inside || !bound.is_finite() {
        return rounded;
    }
    let step = 10f64.powi(exponent.parse::<i32>().unwrap_or(0) + 1 - digits as i32);
    let moved = if is_least { rounded - step } else { rounded + step };
    format!("{moved:.*e}", digits.saturating_sub(1)).parse().unwrap_or(bound)
}

/// Returns a part of a whole as a fraction, or 0 if the whole is 0.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Parses a size given by the user: `8MiB`, `32 KiB`, `1GB`, `65536`.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let factor: usize = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        other => return Err(format!("'{other}' is not a unit; use B, kB, MB, GB, KiB, MiB or GiB")),
    };
    let number: usize = digits.parse().map_err(|_| format!("'{text}' is not a size such as 8MiB"))?;
    number.checked_mul(factor).ok_or_else(|| format!("'{text}' is too large"))
}

/// Returns a word quoted for a shell.
pub(crate) fn shell_quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._/-+=:@%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "row", "rows"), "1 row");
    }

    #[test]
    fn sizes_keep_three_digits() {
        let cases = [
            (999, "999 bytes"),
            (1000, "1.00 kB"),
            (58_723_936, "58.7 MB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (number, text) in cases {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn bounds_are_rounded_outwards() {
        for (bound, least, most) in [
            (0.020_68, 0.0206, 0.0207),
            (-0.020_68, -0.0207, -0.0206),
            (0.999_6, 0.999, 1.0),
            (43.9, 43.9, 43.9),
            (0.0, 0.0, 0.0),
            (1.2349e30, 1.23e30, 1.24e30),
            (f64::INFINITY, f64::INFINITY, f64::INFINITY),
        ] {
            assert_eq!((rounded_out(bound, 3, true), rounded_out(bound, 3, false)), (least, most), "{bound}");
        }
    }

    #[test]
    fn numbers_of_any_size_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1234567.0, "-1,234,567"),
            (0.001234567, "0.001235"),
            (1.5e-30, "1.5e-30"),
            (-6.02214e23, "-6.022e23"),
            (999.96, "1,000"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value, 4), text);
        }
    }

    #[test]
    fn durations_and_shares_are_short() {
        assert_eq!(duration(Duration::from_micros(250)), "250 µs");
        assert_eq!(duration(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(duration(Duration::from_secs(192)), "3 min 12 s");
        for (value, text) in [
            (0.0, "0 %"),
            (1.0, "100 %"),
            (0.9994, "99.9 %"),
            (0.123, "12.3 %"),
            (0.0001, "0.010 %"),
            (1e-8, "1.0e-6 %"),
        ] {
            assert_eq!(percent(value), text);
        }
    }

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in [("32KiB", 32768), ("8 MiB", 8 << 20), ("1MB", 1_000_000), ("77", 77), ("4K", 4096)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "1 parsec", "99999999999GiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
