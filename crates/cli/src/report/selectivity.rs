//! Draws the cost of queries over the key space: the share of an epoch that a query for one key must read.

use turbidite::query::ProfilePoint;

use super::axis::{Axis, about};
use super::bars::epoch_ticks;
use super::model::{Buckets, Epoch, ReportData, epochs_label};
use super::svg::{Frame, WIDTH, at, element, line, path_data};
use crate::text;

/// A plot of one statistic of queries over the percentiles of the key.
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) value: fn(&ProfilePoint) -> f64,
    /// Minimum end of the axis, since counts need whole ticks.
    pub(super) least_end: f64,
    pub(super) in_words: fn(f64) -> String,
}

/// The share of an epoch's rows that a query reads, in percent.
pub(super) const SHARE: Curve = Curve {
    name: "share",
    title: "rows to touch, % of the epoch",
    description: "Share of an epoch's rows in row groups that may hold a key, by the key's percentile",
    value: |point| 100.0 * point.share,
    least_end: 0.0,
    in_words: |percent| text::percent(percent / 100.0),
};

/// The number of row groups that a query reads.
pub(super) const ROW_GROUPS: Curve = Curve {
    name: "row-groups",
    title: "row groups to touch",
    description: "Row groups that may hold a key, by the key's percentile",
    value: |point| point.runs as f64,
    least_end: 4.0,
    in_words: |count| text::number(count, 3),
};

impl Curve {
    /// Returns the plot, or `None` without rows.
    pub(super) fn draw(&self, model: &ReportData) -> Option<String> {
        let epochs: Vec<&Epoch> =
            model.drawn.iter().map(|&place| &model.epochs[place]).filter(|e| !e.points.is_empty()).collect();
        epochs.first()?;
        let highest =
            epochs.iter().flat_map(|epoch| epoch.points.iter().map(self.value)).fold(self.least_end, f64::max);
        let x = Axis::linear(0.0, 100.0);
        let y = Axis::from_zero(highest, 5);
        let frame = Frame { left: 74.0, right: WIDTH - 14.0, top: 42.0, bottom: 242.0, x, y };
        let mut content = frame.y_axis(self.title, 5);
        let count = epochs.len();
        for (number, epoch) in epochs.iter().enumerate() {
            let age = if count > 1 { number as f64 / (count - 1) as f64 } else { 0.6 };
            let values: Vec<f64> = epoch.points.iter().map(self.value).collect();
            content += &element(
                "path",
                &[
                    ("d", &steps(&frame, &epoch.points, &values)),
                    ("class", &if count > 1 { "curve one" } else { "curve" }),
                    ("style", &format_args!("--age:{:.0}%", age * 100.0)),
                    ("data-epoch", &epoch.epoch),
                ],
                "",
            );
        }
        if count > 1 {
            let middles: Vec<f64> = (0..epochs[0].points.len()).map(|number| self.spread(&epochs, number).1).collect();
            content += &element(
                "path",
                &[
                    ("d", &steps(&frame, &epochs[0].points, &middles)),
                    ("class", &"curve middle"),
                    ("data-epoch", &"median"),
                ],
                "",
            );
        }
        content += &self.targets(model, &frame, &epochs);
        content += &frame.x_axis(&format!("percentile of {}", model.key.name), 5);
        Some(frame.plot(self.name, self.description, &content))
    }

    /// Returns the minimum, median and maximum over epochs at one percentile.
    fn spread(&self, epochs: &[&Epoch], number: usize) -> (f64, f64, f64) {
        let points = epochs.iter().filter_map(|epoch| epoch.points.get(number));
        let mut values: Vec<f64> = points.map(self.value).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
        (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)))
    }

    /// Returns invisible columns, whose tooltips show the values.
    fn targets(&self, model: &ReportData, frame: &Frame, epochs: &[&Epoch]) -> String {
        let percentiles = epochs.first().map_or(0, |epoch| epoch.points.len());
        let width = (frame.right - frame.left) / percentiles.max(1) as f64;
        let mut out = String::new();
        for number in 0..percentiles {
            let Some(first) = epochs.first().and_then(|epoch| epoch.points.get(number)) else { continue };
            let (least, middle, most) = self.spread(epochs, number);
            let mut tip = format!("about {} % of keys are smaller", first.percentile);
            if epochs.len() == 1 {
                let stated = about((first.key_least, first.key, first.key_most));
                tip += &format!("\n{} {stated}", model.key.name);
            }
            tip += &match least == most {
                true => format!("\n{}", (self.in_words)(least)),
                false => format!(
                    "\nmedian of epochs {}, {} to {}",
                    (self.in_words)(middle),
                    (self.in_words)(least),
                    (self.in_words)(most)
                ),
            };
            out += &element(
                "rect",
                &[
                    ("x", &at(frame.x(first.percentile) - width / 2.0)),
                    ("y", &at(frame.top)),
                    ("width", &at(width)),
                    ("height", &at(frame.bottom - frame.top)),
                    ("class", &"target"),
                    ("data-tip", &tip),
                ],
                "",
            );
        }
        out
    }
}

/// Returns a step line that is level around each percentile, since the value at a percentile holds for a range of keys.
fn steps(frame: &Frame, points: &[ProfilePoint], values: &[f64]) -> String {
    let level = |(point, value): (&ProfilePoint, &f64)| {
        let room = (100.0 - point.percentile).min(0.5);
        [-room, room].map(|aside| (frame.x(point.percentile + aside), frame.y(*value)))
    };
    path_data(points.iter().zip(values).flat_map(level))
}

/// Returns the read amplification by epoch, from the median over the key space to the 99th percentile.
pub(super) fn amplification(model: &ReportData) -> Option<String> {
    let highest = model.epochs.iter().map(|epoch| epoch.amplification_p99).fold(0.0, f64::max);
    if highest <= 0.0 {
        return None;
    }
    let buckets = Buckets::of(&model.epochs);
    let x = Axis::linear(0.0, buckets.len() as f64);
    let y = Axis::from_zero(highest.max(1.0), 5);
    let frame = Frame { left: 74.0, right: WIDTH - 14.0, top: 42.0, bottom: 242.0, x, y };
    let mut content = frame.y_axis("rows to touch / rows of one receiver", 5);
    content += &line((frame.left, frame.y(1.0)), (frame.right, frame.y(1.0)), "mean");
    let width = (frame.right - frame.left) / buckets.len() as f64;
    for (number, epochs) in buckets.iter().enumerate() {
        let middle = frame.left + width * (number as f64 + 0.5);
        let most = |pick: fn(&Epoch) -> f64| epochs.iter().map(pick).fold(0.0, f64::max);
        let (median, tail) = (most(|epoch| epoch.amplification_p50), most(|epoch| epoch.amplification_p99));
        if tail <= 0.0 {
            continue;
        }
        content += &line((middle, frame.y(median)), (middle, frame.y(tail)), "whisker wide");
        let half = (width * 0.3).clamp(1.5, 5.0);
        for (value, class) in [(tail, "tail"), (median, "middle")] {
            let (x, y) = (at(middle), format!("{:.2}", frame.y(value)));
            content += &element(
                "circle",
                &[("cx", &x), ("cy", &y), ("r", &at(half)), ("class", &class), ("data-epoch", &epochs_label(epochs))],
                "",
            );
        }
        let tip = format!(
            "epoch {}\nmedian key: {}\n99th percentile: {}",
            epochs_label(epochs),
            text::number(median, 3),
            text::number(tail, 3)
        );
        content += &element(
            "rect",
            &[
                ("x", &at(middle - width / 2.0)),
                ("y", &at(frame.top)),
                ("width", &at(width)),
                ("height", &at(frame.bottom - frame.top)),
                ("class", &"target"),
                ("data-tip", &tip),
            ],
            "",
        );
    }
    content += &line((frame.left, frame.bottom), (frame.right, frame.bottom), "axis");
    content += &epoch_ticks(&frame, &buckets);
    Some(frame.plot(
        "amplification",
        "Read amplification by epoch: median and 99th percentile over the key space",
        &content,
    ))
}
