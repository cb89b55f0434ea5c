//! Draws the load balance of receivers by epoch.

use super::axis::Axis;
use super::bars::epoch_ticks;
use super::model::{Buckets, Epoch, ReportData, epochs_label};
use super::svg::{Frame, WIDTH, at, element, label, line};
use crate::text;

/// Minimum half-width of the axis around the mean, since smaller differences are noise.
const MIN_ROOM: f64 = 0.02;

/// Fraction of a column's width that its receivers take.
const SPREAD: f64 = 0.8;

/// Minimum number of pixels per receiver at which receivers are drawn individually.
const MIN_PITCH: f64 = 2.4;

/// Returns the plot, or `None` if no receiver stored rows.
pub(super) fn loads(model: &ReportData) -> Option<String> {
    let loaded = || model.epochs.iter().filter(|epoch| epoch.loads.most > 0.0);
    loaded().next()?;
    let least = loaded().map(|epoch| epoch.loads.least).fold(1.0 - MIN_ROOM, f64::min);
    let most = loaded().map(|epoch| epoch.loads.most).fold(1.0 + MIN_ROOM, f64::max);
    let room = (most - least) * 0.06;
    let y = Axis::linear(100.0 * (least - room).max(0.0), 100.0 * (most + room));
    let buckets = Buckets::of(&model.epochs);
    let x = Axis::linear(0.0, buckets.len() as f64);
    let frame = Frame { left: 74.0, right: WIDTH - 14.0, top: 60.0, bottom: 290.0, x, y };
    let mut content = frame.y_axis("rows of a receiver, % of the mean", 5);
    content += &line((frame.left, frame.y(100.0)), (frame.right, frame.y(100.0)), "mean");
    let width = (frame.right - frame.left) / buckets.len() as f64;
    for (number, epochs) in buckets.iter().enumerate() {
        let middle = frame.left + width * (number as f64 + 0.5);
        content += &column(&frame, epochs, middle, width);
    }
    content += &epoch_ticks(&frame, &buckets);
    Some(frame.plot("loads", "Rows of each receiver over their mean, by epoch", &content))
}

fn column(frame: &Frame, epochs: &[Epoch], middle: f64, width: f64) -> String {
    let loaded: Vec<&Epoch> = epochs.iter().filter(|epoch| epoch.loads.most > 0.0).collect();
    let count = loaded.len() as f64;
    if loaded.is_empty() {
        return String::new();
    }
    let mean = |pick: fn(&Epoch) -> f64| loaded.iter().map(|epoch| pick(epoch)).sum::<f64>() / count;
    let least = loaded.iter().map(|epoch| epoch.loads.least).fold(f64::INFINITY, f64::min);
    let most = loaded.iter().map(|epoch| epoch.loads.most).fold(0.0, f64::max);
    let (low, high) = (mean(|epoch| epoch.loads.low), mean(|epoch| epoch.loads.high));
    let worst = loaded.iter().map(|epoch| epoch.imbalance).fold(0.0, f64::max);
    let tip = format!(
        "epoch {}: imbalance {}\nleast {} of the mean, most {}",
        epochs_label(epochs),
        text::percent(worst),
        text::percent(least),
        text::percent(most),
    );
    let marks = match epochs {
        [only] if width * SPREAD >= MIN_PITCH * only.loads.each.len() as f64 && !only.loads.each.is_empty() => {
            receivers(frame, &only.loads.each, middle, width)
        }
        _ => {
            let y = |load: f64| frame.y(100.0 * load);
            let half = (width * 0.32).clamp(1.0, 11.0);
            let band = element(
                "rect",
                &[
                    ("x", &at(middle - half)),
                    ("y", &at(y(high))),
                    ("width", &at(2.0 * half)),
                    ("height", &at((y(low) - y(high)).max(1.0))),
                    ("rx", &"2"),
                    ("class", &"band"),
                ],
                "",
            );
            line((middle, y(least)), (middle, y(most)), "whisker") + &band
        }
    };
    let named = if width >= 48.0 {
        label(middle, frame.top - 6.0, "note middle", &text::percent(worst))
    } else {
        String::new()
    };
    let target = element(
        "rect",
        &[
            ("x", &at(middle - width / 2.0)),
            ("y", &at(frame.top)),
            ("width", &at(width)),
            ("height", &at(frame.bottom - frame.top)),
            ("class", &"target"),
            ("data-epoch", &epochs_label(epochs)),
            ("data-imbalance", &format_args!("{worst:e}")),
            ("data-most", &format_args!("{most:e}")),
            ("data-tip", &tip),
        ],
        "",
    );
    marks + &named + &target
}

/// Returns a dot for each receiver, in the order of the receivers, on a stem from the mean.
fn receivers(frame: &Frame, each: &[f64], middle: f64, width: f64) -> String {
    let pitch = width * SPREAD / each.len() as f64;
    let (mut stems, mut dots) = (String::new(), String::new());
    for (number, load) in each.iter().enumerate() {
        let x = at(middle + pitch * (number as f64 + 0.5 - each.len() as f64 / 2.0));
        let y = frame.y(100.0 * load);
        stems += &format!("M{x} {}V{}", at(frame.y(100.0)), at(y));
        // The round caps of a line of length zero form a dot.
        dots += &format!("M{x} {y:.2}h0");
    }
    element("path", &[("d", &stems), ("class", &"stems")], "")
        + &element("path", &[("d", &dots), ("class", &"dots")], "")
}
