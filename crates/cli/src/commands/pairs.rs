//! Draws histograms of two columns as pictures of characters.

use turbidite::query::{Histogram, HistogramAxis};

use super::answers::edge_text;
use super::estimates::sum_text;
use crate::text;

/// Maximum width and height of a picture, in characters. Characters are about twice as high as wide.
const WIDTH: usize = 72;
const HEIGHT: usize = 24;

/// The characters of a picture, from no row to the most.
const SHADES: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];

/// Draws the sums if there are any, or the rows: the first column from left to right, and the second from bottom to
/// top.
pub(super) fn picture(histogram: &Histogram, axes: &[HistogramAxis]) -> Vec<String> {
    let [columns, lines] = [0, 1].map(|axis| axes[axis].edges.len().saturating_sub(1));
    let (wide, high) = (columns.div_ceil(WIDTH), lines.div_ceil(HEIGHT));
    let (width, height) = (columns.div_ceil(wide), lines.div_ceil(high));
    let cell_of = |place: usize| place / lines / wide * height + place % lines / high;
    let joined = if wide * high > 1 { format!("; a character is {wide} x {high} bins") } else { String::new() };
    let (cells, scale) = match (&histogram.sums, &histogram.weights) {
        (Some(sums), Some(weights)) => {
            let mut cells = vec![0.0; width * height];
            sums.bins.estimates().iter().enumerate().for_each(|(place, sum)| cells[cell_of(place)] += sum);
            let most = cells.iter().copied().filter(|sum: &f64| sum.is_finite()).fold(0.0, f64::max);
            let shades: Vec<char> = cells.into_iter().map(|sum| shade_of_sum(sum, most)).collect();
            (shades, format!("0 to {}, sums of {weights}{joined}", sum_text(most)))
        }
        _ => {
            let mut cells = vec![0u64; width * height];
            for (place, rows) in histogram.rows.bins.estimates().iter().enumerate() {
                let cell = &mut cells[cell_of(place)];
                *cell = cell.saturating_add(*rows);
            }
            let most = cells.iter().copied().max().unwrap_or(0);
            let shades = cells.into_iter().map(|rows| shade(rows, most)).collect();
            (shades, format!("1 to {} rows, by their logarithm{joined}", text::count(most)))
        }
    };
    let ends = |axis: &HistogramAxis| {
        [axis.edges.first(), axis.edges.last()].map(|end| end.map(|end| edge_text(*end)).unwrap_or_default())
    };
    let ([left, right], [bottom, top]) = (ends(&axes[0]), ends(&axes[1]));
    let margin = [&bottom, &top, &axes[1].column].iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let mut drawn = Vec::with_capacity(height + 4);
    for line in (0..height).rev() {
        let label = match line {
            _ if line + 1 == height => top.as_str(),
            0 => bottom.as_str(),
            _ if line == height / 2 => axes[1].column.as_str(),
            _ => "",
        };
        let shades: String = (0..width).map(|column| cells[column * height + line]).collect();
        drawn.push(format!("{label:>margin$} |{shades}|"));
    }
    drawn.push(format!("{:>margin$} +{}+", "", "-".repeat(width)));
    let room = (width + 2).saturating_sub(left.chars().count() + right.chars().count());
    drawn.push(format!("{:>margin$} {left}{:^room$}{right}", "", axes[0].column).trim_end().to_owned());
    drawn.push(String::new());
    let shades: String = SHADES[1..].iter().collect();
    drawn.push(format!("{shades}  {scale}"));
    drawn
}

/// Returns the character of a sum, in proportion. Sums that are not positive or not finite are blank.
fn shade_of_sum(sum: f64, most: f64) -> char {
    if !sum.is_finite() || sum <= 0.0 {
        return SHADES[0];
    }
    SHADES[1 + (sum / most * (SHADES.len() - 2) as f64).round() as usize]
}

/// Returns the character of a number of rows, by its logarithm.
fn shade(rows: u64, most: u64) -> char {
    if rows == 0 {
        return SHADES[0];
    }
    let steps = (SHADES.len() - 2) as f64;
    let share = if most > 1 { (rows as f64).ln() / (most as f64).ln() } else { 1.0 };
    SHADES[1 + (share.clamp(0.0, 1.0) * steps).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_go_from_no_row_to_the_most() {
        assert_eq!([0, 1, 1000].map(|rows| shade(rows, 1000)), [' ', '.', '@']);
        assert_eq!((shade(1, 1), shade(0, 0)), ('@', ' '));
        let shades: Vec<usize> =
            (0..64).map(|bit| SHADES.iter().position(|drawn| *drawn == shade(1 << bit, u64::MAX)).unwrap()).collect();
        assert!(shades.is_sorted() && shades.last() == Some(&9));
    }
}
