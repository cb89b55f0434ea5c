//! Draws stacked bars by epoch, and the epoch labels below a plot.

use super::axis::Axis;
use super::model::{Buckets, Epoch, ReportData, epochs_label};
use super::svg::{Frame, WIDTH, at, element, escape, label, line};

/// One segment of every bar.
pub(super) struct Series {
    pub(super) name: &'static str,
    /// Colour of the segment, as a class of the style sheet.
    pub(super) class: &'static str,
    /// Returns the value for an epoch and its row size in bytes.
    pub(super) value: fn(&Epoch, usize) -> f64,
}

/// A plot of stacked bars.
pub(super) struct Stack {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) series: &'static [Series],
    /// Returns a value with its unit as text.
    pub(super) in_words: fn(f64) -> String,
    /// Returns the axis's factor and title for the largest value.
    pub(super) unit: fn(f64) -> (f64, &'static str),
}

impl Stack {
    /// Returns the plot and its legend, or `None` if all values are 0.
    pub(super) fn draw(&self, model: &ReportData) -> Option<String> {
        let buckets = Buckets::of(&model.epochs);
        let columns: Vec<(&[Epoch], Vec<f64>)> = buckets
            .iter()
            .map(|epochs| {
                let mean = |series: &Series| {
                    epochs.iter().map(|epoch| (series.value)(epoch, model.row_bytes)).sum::<f64>() / epochs.len() as f64
                };
                (epochs, self.series.iter().map(mean).collect())
            })
            .collect();
        let highest = columns.iter().map(|(_, values)| values.iter().sum::<f64>()).fold(0.0, f64::max);
        if highest <= 0.0 {
            return None;
        }
        let (factor, title) = (self.unit)(highest);
        let x = Axis::linear(0.0, columns.len() as f64);
        let y = Axis::from_zero(highest * factor, 5);
        let frame = Frame { left: 74.0, right: WIDTH - 14.0, top: 42.0, bottom: 272.0, x, y };
        let mut content = frame.y_axis(title, 5);
        let width = (frame.right - frame.left) / columns.len() as f64;
        for (number, (epochs, values)) in columns.iter().enumerate() {
            let place = frame.left + width * number as f64;
            content += &self.column(&frame, epochs, values, factor, (place, width));
        }
        content += &line((frame.left, frame.bottom), (frame.right, frame.bottom), "axis");
        content += &epoch_ticks(&frame, &buckets);
        Some(self.legend() + &frame.plot(self.name, self.description, &content))
    }

    fn column(
        &self,
        frame: &Frame,
        epochs: &[Epoch],
        values: &[f64],
        factor: f64,
        (place, width): (f64, f64),
    ) -> String {
        let named = epochs_label(epochs);
        let mut tip = format!("epoch {named}");
        let mut marks = String::new();
        let gap = (width * 0.15).clamp(0.5, 16.0).max(width / 2.0 - 28.0);
        let mut below = 0.0;
        for (series, value) in self.series.iter().zip(values) {
            let (low, high) = (frame.y(below * factor), frame.y((below + value) * factor));
            below += value;
            tip += &format!("\n{}: {}", series.name, (self.in_words)(*value));
            marks += &element(
                "rect",
                &[
                    ("x", &at(place + gap)),
                    ("y", &format_args!("{high:.2}")),
                    ("width", &at(width - 2.0 * gap)),
                    ("height", &format_args!("{:.2}", low - high)),
                    ("class", &series.class),
                    ("data-epoch", &named),
                    ("data-series", &series.name),
                ],
                "",
            );
        }
        let target = [
            ("x", &at(place) as &dyn std::fmt::Display),
            ("y", &at(frame.top)),
            ("width", &at(width)),
            ("height", &at(frame.bottom - frame.top)),
            ("class", &"target"),
            ("data-tip", &tip),
        ];
        marks + &element("rect", &target, "")
    }

    fn legend(&self) -> String {
        let entry = |series: &Series| {
            format!(
                "<li><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect width=\"10\" height=\"10\" rx=\"2\" class=\"{}\"/></svg>{}</li>",
                series.class,
                escape(series.name)
            )
        };
        format!("<ul class=\"legend\">{}</ul>", self.series.iter().map(entry).collect::<String>())
    }
}

/// Returns the labels of as many epochs as fit below the columns of a plot.
pub(super) fn epoch_ticks(frame: &Frame, buckets: &Buckets<'_>) -> String {
    let count = buckets.len();
    let longest =
        buckets.iter().filter_map(<[Epoch]>::first).map(|epoch| epoch.epoch.to_string().len()).max().unwrap_or(1);
    let room = ((frame.right - frame.left) / (longest as f64 * 12.0 + 16.0)).floor().max(1.0) as usize;
    let step = count.div_ceil(room).max(1);
    let width = (frame.right - frame.left) / count.max(1) as f64;
    let mut out = String::new();
    for (number, epochs) in buckets.iter().enumerate().step_by(step) {
        let middle = frame.left + width * (number as f64 + 0.5);
        let text = epochs.first().map(|epoch| epoch.epoch.to_string()).unwrap_or_default();
        out += &line((middle, frame.bottom), (middle, frame.bottom + 5.0), "axis");
        out += &label(middle, frame.bottom + 20.0, "tick middle", &text);
    }
    out + &frame.x_title("epoch")
}
