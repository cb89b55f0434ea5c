//! Draws bars of numbers, for terminals.

use crate::text;

/// Width of the longest bar, in terminal columns.
const BAR_WIDTH: usize = 40;

/// Returns a bar of the estimate, in eighths of a block. A light bar continues it to `most`, the upper bound or that of
/// the standard error, but not beyond the margin.
pub(super) fn bar(estimate: u64, most: u64, longest: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = |number: u64| text::share(number, longest) * (8 * BAR_WIDTH) as f64;
    let solid = eighths(estimate).round() as usize;
    // A positive estimate is drawn with at least one eighth.
    let solid = if estimate > 0 { solid.max(1) } else { 0 };
    let mut drawn = "█".repeat(solid / 8);
    drawn.push_str(EIGHTHS[solid % 8]);
    if most > estimate {
        let reach = (eighths(most) / 8.0).ceil().min((BAR_WIDTH + BAR_WIDTH / 4) as f64) as usize;
        drawn.push_str(&"░".repeat(reach.saturating_sub(solid.div_ceil(8))));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_estimate_and_bound() {
        let bar = |estimate, most| bar(estimate, most, 1000);
        assert_eq!(bar(0, 0), "");
        assert_eq!(bar(1, 1), "▏");
        assert_eq!(bar(1000, 1000), "█".repeat(40));
        assert_eq!(bar(100, 200), "████░░░░");
        assert_eq!(bar(1000, u64::MAX).chars().count(), 50);
        assert_eq!(super::bar(0, 9, 0), "");
    }
}
