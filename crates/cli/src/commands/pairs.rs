//! Prints histograms of two columns: as JSON, or as a picture of characters.

use serde_json::json;
use turbidite::Value;
use turbidite::query::{Bounded, Dataset, Histogram2d, Histogram2dBounds, QueryMetrics};

use super::answers::{bounded, edge_text, json_number, rows_in_words, source_in_words, without_bins};
use crate::text;

/// Maximum width and height of a picture, in characters. Characters are about twice as high as wide.
const WIDTH: usize = 72;
const HEIGHT: usize = 24;

/// The characters of a picture, from no row to the most.
const SHADES: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];

/// The rows of pairs of values.
pub(super) struct Pairs {
    columns: [String; 2],
    pub(super) epochs: usize,
    is_exact: bool,
    rows: Bounded,
    nan: Bounded,
    infinite: Bounded,
    outside: Bounded,
    edges: [Vec<Value>; 2],
    /// All bins of the second column for the first bin of the first column, then for the next.
    bins: Vec<Bounded>,
    pub(super) metrics: QueryMetrics,
}

impl Pairs {
    pub(super) fn of_counts(found: Histogram2d) -> Self {
        Self {
            columns: found.columns,
            epochs: found.epochs,
            is_exact: true,
            rows: Bounded::exactly(found.rows),
            nan: Bounded::exactly(found.nan),
            infinite: Bounded::exactly(found.infinite),
            outside: Bounded::exactly(found.outside),
            edges: found.edges,
            bins: found.bins.into_iter().map(Bounded::exactly).collect(),
            metrics: found.metrics,
        }
    }

    pub(super) fn of_bounds(found: Histogram2dBounds) -> Self {
        Self {
            columns: found.columns,
            epochs: found.epochs,
            is_exact: false,
            rows: found.rows,
            nan: found.nan,
            infinite: found.infinite,
            outside: found.outside,
            edges: found.edges,
            bins: found.bins,
            metrics: found.metrics,
        }
    }

    /// Returns the numbers of bins of both columns.
    fn shape(&self) -> [usize; 2] {
        self.edges.each_ref().map(|edges| edges.len().saturating_sub(1))
    }

    pub(super) fn document(&self) -> serde_json::Value {
        let lines = |of: fn(&Bounded) -> u64| -> Vec<Vec<u64>> {
            let each = self.bins.chunks(self.shape()[1].max(1));
            each.map(|bins| bins.iter().map(of).collect()).collect()
        };
        let edges = self.edges.each_ref().map(|edges| edges.iter().map(|edge| json_number(*edge)).collect::<Vec<_>>());
        json!({
            "columns": self.columns,
            "epochs": self.epochs,
            "exact": self.is_exact,
            "rows": self.rows,
            "nan": self.nan,
            "infinite": self.infinite,
            "outside": self.outside,
            "edges": edges,
            "least": lines(|rows| rows.least),
            "estimate": lines(|rows| rows.estimate),
            "most": lines(|rows| rows.most),
            "cost": self.metrics,
        })
    }

    pub(super) fn in_words(&self, dataset: &Dataset, of_epochs: &str) -> String {
        let named = self.columns.each_ref().map(|name| {
            let stated = dataset.schema().columns().iter().find(|column| column.name == *name);
            let unit = stated.and_then(|column| column.unit.as_ref());
            unit.map_or_else(|| name.clone(), |unit| format!("{name} ({unit})"))
        });
        let source = source_in_words(self.is_exact);
        let mut lines =
            vec![format!("{} by {} {of_epochs}: {}, {source}", named[0], named[1], rows_in_words(self.rows))];
        lines.push(String::new());
        if self.bins.is_empty() {
            lines.push(without_bins(self.outside.most).to_owned());
        } else {
            lines.extend(self.picture());
        }
        let apart = [("NaN", self.nan), ("infinite", self.infinite), ("outside", self.outside)];
        let apart = apart.into_iter().filter(|(_, rows)| rows.most > 0);
        let mut stated: Vec<String> = apart.map(|(name, rows)| format!("{name}: {}", bounded(rows))).collect();
        let doubtful = self.bins.iter().filter(|rows| !rows.is_exact()).count();
        if !self.is_exact {
            let all = text::counted(self.bins.len() as u64, "bin", "bins");
            stated.push(format!("{} of {all} in doubt", text::count(doubtful as u64)));
        }
        if !stated.is_empty() {
            lines.extend([String::new(), stated.join("; ")]);
        }
        lines.join("\n")
    }

    /// Draws the estimates: the first column from left to right, and the second from bottom to top.
    fn picture(&self) -> Vec<String> {
        let [columns, lines] = self.shape();
        let (wide, high) = (columns.div_ceil(WIDTH), lines.div_ceil(HEIGHT));
        let (width, height) = (columns.div_ceil(wide), lines.div_ceil(high));
        let mut cells = vec![0u64; width * height];
        for (place, rows) in self.bins.iter().enumerate() {
            let cell = place / lines / wide * height + place % lines / high;
            cells[cell] = cells[cell].saturating_add(rows.estimate);
        }
        let most = cells.iter().copied().max().unwrap_or(0);
        let ends = |axis: usize| {
            [self.edges[axis].first(), self.edges[axis].last()]
                .map(|end| end.map(|end| edge_text(*end)).unwrap_or_default())
        };
        let ([left, right], [bottom, top]) = (ends(0), ends(1));
        let margin = bottom.chars().count().max(top.chars().count()).max(self.columns[1].chars().count());
        let mut drawn = Vec::with_capacity(height + 4);
        for line in (0..height).rev() {
            let label = match line {
                _ if line + 1 == height => top.as_str(),
                0 => bottom.as_str(),
                _ if line == height / 2 => self.columns[1].as_str(),
                _ => "",
            };
            let shades: String = (0..width).map(|column| shade(cells[column * height + line], most)).collect();
            drawn.push(format!("{label:>margin$} |{shades}|"));
        }
        drawn.push(format!("{:>margin$} +{}+", "", "-".repeat(width)));
        let room = (width + 2).saturating_sub(left.chars().count() + right.chars().count());
        drawn.push(format!("{:>margin$} {left}{:^room$}{right}", "", self.columns[0]).trim_end().to_owned());
        drawn.push(String::new());
        let scale: String = SHADES[1..].iter().collect();
        let joined = if wide * high > 1 { format!("; a character is {wide} x {high} bins") } else { String::new() };
        drawn.push(format!("{scale}  1 to {} rows, by their logarithm{joined}", text::count(most)));
        drawn
    }
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
