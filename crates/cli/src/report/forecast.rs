//! Draws the plots of a forecast: loads of the receivers, and durations of renegotiation rounds.

use super::axis::Axis;
use super::svg::{Frame, WIDTH, at, element, escape, line, path_data};
use crate::text;

/// The data of the plots.
#[derive(Debug, Clone)]
pub(crate) struct ForecastPlots {
    /// A description of the simulated run.
    pub(crate) title: String,
    /// Number of records per receiver, by partition.
    pub(crate) loads: Vec<u64>,
    /// Start and duration of each renegotiation round, in seconds. `None` if tables are not negotiated.
    pub(crate) rounds: Option<Vec<(f64, f64)>>,
}

/// Maximum number of points in a line. If there are more, neighbours are merged.
const MAX_POINTS: usize = 600;

/// Returns a page with the plots, as HTML that is also well-formed XML.
pub(crate) fn render_forecast(plots: &ForecastPlots) -> String {
    let title = escape(&plots.title);
    let negotiation = plots
        .rounds
        .as_deref()
        .map_or_else(String::new, |found| format!("<section><h2>Renegotiation</h2>{}</section>\n", rounds(found)));
    format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\"/>\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>{title} · Turbidite forecast</title>\n\
<style>\n{}</style></head>\n<body><main>\n<header><div><h1>{title}</h1><p>simulated</p></div></header>\n\
<div class=\"cards\">\n<section><h2>Records of each receiver</h2>{}</section>\n{negotiation}</div>\n</main></body></html>\n",
        include_str!("page.css"),
        loads(&plots.loads),
    )
}

fn loads(loads: &[u64]) -> String {
    let mean = loads.iter().sum::<u64>() as f64 / loads.len().max(1) as f64;
    let share = |rows: u64| 100.0 * rows as f64 / mean.max(1.0);
    let together = loads.len().div_ceil(MAX_POINTS).max(1);
    let middle = |rows: &[u64]| share(rows.iter().sum::<u64>()) / rows.len().max(1) as f64;
    let points: Vec<f64> = loads.chunks(together).map(middle).collect();
    let least = points.iter().copied().fold(98.0, f64::min);
    let most = points.iter().copied().fold(102.0, f64::max);
    let frame = Frame {
        left: 74.0,
        right: WIDTH - 14.0,
        top: 60.0,
        bottom: 290.0,
        x: Axis::linear(0.0, loads.len() as f64),
        y: Axis::linear(least, most),
    };
    let mut content = frame.y_axis("records, % of the mean", 5) + &frame.x_axis("receiver", 6);
    content += &line((frame.left, frame.y(100.0)), (frame.right, frame.y(100.0)), "mean");
    let places = points.iter().enumerate().map(|(at, share)| (frame.x((at * together) as f64), frame.y(*share)));
    content += &element("path", &[("d", &path_data(places)), ("class", &"axis"), ("fill", &"none")], "");
    frame.plot("loads", "Records of each receiver over their mean", &content)
}

fn rounds(rounds: &[(f64, f64)]) -> String {
    let last = rounds.iter().map(|round| round.0).fold(0.0, f64::max);
    let most = rounds.iter().map(|round| round.1 * 1e3).fold(0.0, f64::max);
    let frame = Frame {
        left: 74.0,
        right: WIDTH - 14.0,
        top: 60.0,
        bottom: 290.0,
        x: Axis::linear(0.0, last * 1e3),
        y: Axis::from_zero(most, 5),
    };
    let mut content = frame.y_axis("milliseconds until the last rank had the table", 5);
    content += &frame.x_axis("milliseconds since the epoch began", 6);
    for &(begun, took) in rounds {
        let tip = format!("begun at {} ms, {} ms", text::three_digits(begun * 1e3), text::three_digits(took * 1e3));
        let (x, y) = (at(frame.x(begun * 1e3)), at(frame.y(took * 1e3)));
        content += &element("circle", &[("cx", &x), ("cy", &y), ("r", &4), ("data-tip", &tip)], "");
    }
    frame.plot("rounds", "How long each negotiation took", &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_both_plots_and_nothing_hostile() {
        let plots =
            ForecastPlots { title: "a <b> & c".into(), loads: vec![90, 110, 100], rounds: Some(vec![(0.1, 0.002)]) };
        let page = render_forecast(&plots);
        assert!(page.contains("a &lt;b&gt; &amp; c") && !page.contains("<b> &"));
        assert!(page.contains("data-plot=\"loads\"") && page.contains("data-plot=\"rounds\""));
        assert!(page.contains("begun at 100 ms, 2.00 ms"));
        let empty = ForecastPlots { title: String::new(), loads: Vec::new(), rounds: None };
        let page = render_forecast(&empty);
        assert!(!page.contains("NaN") && !page.contains("Renegotiation"));
    }
}
