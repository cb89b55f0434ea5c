//! Draws the key distributions by epoch, one ridge below the other.

use super::axis::about;
use super::model::{KeyDistribution, ReportData};
use super::svg::{Frame, WIDTH, element, label, line, path_data};
use crate::text;

/// Maximum height of a ridge, in distances between ridges.
const OVERLAP: f64 = 2.4;

/// Returns the plot, or `None` without finite keys.
pub(super) fn ridges(model: &ReportData) -> Option<String> {
    let axis = model.key_axis?;
    let count = model.shapes.len();
    let (pitch, peak) = match count {
        0 => return None,
        1 => (0.0, 230.0),
        2..=3 => (80.0, 110.0),
        4..=10 => (34.0, 34.0 * OVERLAP),
        _ => (22.0, 22.0 * OVERLAP),
    };
    let top = peak + 14.0;
    let bottom = top + pitch * (count - 1) as f64 + 8.0;
    let left = if count == 1 { 12.0 } else { 74.0 };
    let frame = Frame { left, right: WIDTH - 14.0, top: 14.0, bottom, x: axis, y: axis };
    let highest = highest(&model.shapes);
    let mut content = String::new();
    for tick in axis.ticks(8) {
        let x = frame.left + tick.share * (frame.right - frame.left);
        content += &line((x, frame.top), (x, frame.bottom), "grid");
    }
    let mut medians = Vec::new();
    for (number, (shape, &place)) in model.shapes.iter().zip(&model.drawn).enumerate() {
        let epoch = &model.epochs[place];
        let base = top + pitch * number as f64;
        let hue = if count > 1 { number as f64 / (count - 1) as f64 } else { 0.6 };
        let ridge = Ridge { shape, frame, base, scale: if highest > 0.0 { peak / highest } else { 0.0 }, peak };
        content += &line((frame.left, base), (frame.right, base), "grid");
        let tip = describe(model, shape, epoch.epoch, epoch.rows);
        content += &element(
            "path",
            &[
                ("d", &ridge.outline()),
                ("class", &"ridge"),
                ("style", &format_args!("--age:{:.0}%", hue * 100.0)),
                ("data-epoch", &epoch.epoch),
                ("data-tip", &tip),
            ],
            "",
        );
        if count > 1 {
            content += &label(left - 10.0, base + 1.0, "tick end", &epoch.epoch.to_string());
        }
        if epoch.rows == 0 {
            content += &label(frame.left + 4.0, base - 4.0, "note", "no rows");
        }
        if let Some(median) = shape.median.map(|(_, median, _)| median).filter(|median| median.is_finite()) {
            let x = frame.x(median);
            medians.push((x, base));
            content += &line((x, base), (x, base - if count == 1 { peak } else { pitch * 0.45 }), "median");
        }
    }
    if count > 1 {
        content += &label(0.0, (top - 22.0).max(12.0), "title", "epoch");
    }
    content += &element("path", &[("d", &path_data(medians)), ("class", &"median thin")], "");
    content += &frame.x_axis(&model.key_title(), 8);
    Some(frame.plot("distribution", "Distribution of keys by epoch", &content))
}

/// Returns the density at a ridge's full height. The peaks of point masses are cut off there, since all other densities
/// would otherwise be drawn flat.
fn highest(shapes: &[KeyDistribution]) -> f64 {
    let peak = |shape: &KeyDistribution| shape.bins.iter().map(density).fold(0.0, f64::max);
    let mut peaks: Vec<f64> = shapes.iter().map(peak).filter(|peak| *peak > 0.0).collect();
    peaks.sort_unstable_by(f64::total_cmp);
    let middle = peaks.get(peaks.len() / 2).copied().unwrap_or(0.0);
    peaks.last().copied().unwrap_or(0.0).min(2.0 * middle)
}

/// Returns the density of a bin: its share of the rows, divided by its width on the axis.
fn density((from, to, share): &(f64, f64, f64)) -> f64 {
    if to > from { share / (to - from) } else { 0.0 }
}

struct Ridge<'a> {
    shape: &'a KeyDistribution,
    frame: Frame,
    base: f64,
    scale: f64,
    peak: f64,
}

impl Ridge<'_> {
    fn outline(&self) -> String {
        let x = |share: f64| self.frame.left + share * (self.frame.right - self.frame.left);
        let mut points = Vec::with_capacity(2 * self.shape.bins.len() + 2);
        for bin in &self.shape.bins {
            let y = self.base - (density(bin) * self.scale).min(self.peak);
            points.extend([(x(bin.0), y), (x(bin.1), y)]);
        }
        let (first, last) =
            (points.first().map_or(self.frame.left, |p| p.0), points.last().map_or(self.frame.right, |p| p.0));
        points.insert(0, (first, self.base));
        points.push((last, self.base));
        path_data(points)
    }
}

fn describe(model: &ReportData, shape: &KeyDistribution, epoch: u64, rows: u64) -> String {
    let mut stated = format!("epoch {epoch}: {}", text::counted(rows, "row", "rows"));
    if let Some(median) = shape.median {
        stated += &format!("\nmedian {} {}", model.key.name, about(median));
    }
    for (share, what) in shape.beyond.iter().zip(["below the axis", "above the axis", "NaN"]) {
        if *share > 0.0 {
            stated += &format!("\nabout {} {what}", text::percent(*share));
        }
    }
    stated
}

/// Returns a note on the rows that lie outside the axis in any of the drawn epochs.
pub(super) fn beyond(model: &ReportData) -> String {
    let most = |which: usize| model.shapes.iter().map(|shape| shape.beyond[which]).fold(0.0, f64::max);
    let stated: Vec<String> = ["below it", "above it", "NaN"]
        .into_iter()
        .enumerate()
        .filter(|(which, _)| most(*which) > 0.0)
        .map(|(which, what)| format!("about {} {what}", text::percent(most(which))))
        .collect();
    if stated.is_empty() { String::new() } else { format!(" Not on the axis, at most: {}.", stated.join(", ")) }
}
