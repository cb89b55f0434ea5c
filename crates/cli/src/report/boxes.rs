//! Plots the boxes of the row groups of an epoch that is clustered by space.

use turbidite::Clustering;
use turbidite::query::Dataset;

use super::axis::Axis;
use super::markup;
use super::svg::{Frame, WIDTH, at, element, escape};
use crate::failure::Failure;
use crate::text;

/// Maximum number of boxes that are drawn.
const MAX_BOXES: usize = 4096;

/// Number of colours of the page, which receivers take in turns.
const COLOURS: u32 = 8;

/// The denominator of the share of row groups beyond each end of an axis.
const OUTSIDE_SHARE: usize = 100;

/// The boxes of an epoch's row groups, in the plane of its two longest axes.
#[derive(Debug)]
pub(super) struct Boxes {
    epoch: u64,
    axes: [String; 2],
    ranges: [Axis; 2],
    /// The receiver of each row group, and its interval of each axis.
    each: Vec<(u32, [(f64, f64); 2])>,
    row_groups: usize,
}

impl Boxes {
    /// Reads the boxes from an epoch's manifest. Returns `None` if the dataset is not clustered by space, or has no
    /// finite box.
    pub(super) fn of(dataset: &Dataset, epoch: u64) -> Result<Option<Self>, Failure> {
        let schema = dataset.schema();
        if schema.clustering() != Clustering::Space {
            return Ok(None);
        }
        let manifest = dataset.manifest(epoch)?;
        let mut all: Vec<(u32, Vec<(f64, f64)>)> = Vec::new();
        for entry in &manifest.row_groups {
            let interval = |column: &usize| {
                let (least, most) = entry.columns.get(*column)?.range?;
                Some((least.as_f64(), most.as_f64())).filter(|(least, most)| least.is_finite() && most.is_finite())
            };
            if let Some(intervals) = schema.key_columns().iter().map(interval).collect() {
                all.push((entry.part.rank, intervals));
            }
        }
        let extent = |axis: usize| {
            let sorted = |pick: fn((f64, f64)) -> f64| {
                let mut ends: Vec<f64> = all.iter().map(|(_, intervals)| pick(intervals[axis])).collect();
                ends.sort_unstable_by(f64::total_cmp);
                ends
            };
            let outside = all.len() / OUTSIDE_SHARE;
            let (least, most) = (sorted(|ends| ends.0), sorted(|ends| ends.1));
            Some((*least.get(outside)?, *most.iter().rev().nth(outside)?))
        };
        let columns = schema.key_columns().iter().enumerate();
        let extents = columns.map(|(axis, column)| Some((axis, schema.columns()[*column].name.clone(), extent(axis)?)));
        let Some(mut extents) = extents.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let length = |(least, most): (f64, f64)| most - least;
        extents.sort_by(|(_, _, one), (_, _, other)| length(*other).total_cmp(&length(*one)));
        extents.truncate(2);
        extents.sort_by_key(|(axis, _, _)| *axis);
        let [(first, x, of_x), (second, y, of_y)] = extents.as_slice() else { return Ok(None) };
        let step = all.len().div_ceil(MAX_BOXES).max(1);
        let each = all.iter().step_by(step).map(|(rank, of)| (*rank, [of[*first], of[*second]])).collect();
        Ok(Some(Self {
            epoch,
            axes: [x.clone(), y.clone()],
            ranges: [Axis::linear(of_x.0, of_x.1), Axis::linear(of_y.0, of_y.1)],
            each,
            row_groups: all.len(),
        }))
    }

    fn draw(&self) -> String {
        let [x, y] = self.ranges;
        let frame = Frame { left: 64.0, right: WIDTH - 16.0, top: 36.0, bottom: 420.0, x, y };
        let clamp = |value: f64, (low, high): (f64, f64)| value.clamp(low.min(high), low.max(high));
        let mut out = frame.y_axis(&self.axes[1], 6) + &frame.x_axis(&self.axes[0], 8);
        for (rank, [of_x, of_y]) in &self.each {
            let (left, right) = (frame.left, frame.right);
            let (from, to) = (clamp(frame.x(of_x.0), (left, right)), clamp(frame.x(of_x.1), (left, right)));
            let (low, high) =
                (clamp(frame.y(of_y.0), (frame.top, frame.bottom)), clamp(frame.y(of_y.1), (frame.top, frame.bottom)));
            let class = format!("region region-{}", rank % COLOURS);
            out += &element(
                "rect",
                &[
                    ("x", &at(from)),
                    ("y", &at(high)),
                    ("width", &at(to - from)),
                    ("height", &at(low - high)),
                    ("class", &class),
                ],
                "",
            );
        }
        frame.plot("boxes", &format!("Boxes of the row groups of epoch {}", self.epoch), &out)
    }
}

/// Returns the plot of the boxes, or nothing if records are clustered otherwise.
pub(super) fn card(boxes: Option<&Boxes>) -> String {
    let Some(boxes) = boxes else { return String::new() };
    let drawn = match boxes.each.len() == boxes.row_groups {
        true => text::counted(boxes.row_groups as u64, "row group", "row groups"),
        false => {
            format!("{} of {} row groups", text::count(boxes.each.len() as u64), text::count(boxes.row_groups as u64))
        }
    };
    let words = format!(
        "Each rectangle is the box of a row group of epoch {} in the plane of {} and {}, coloured by receiver ({drawn}). Queries \
for a box read the row groups that it touches, and of these the pages, whose boxes are smaller still.",
        boxes.epoch, boxes.axes[0], boxes.axes[1]
    );
    markup::card("Where the row groups lie", &escape(&words), Some(boxes.draw()))
}
