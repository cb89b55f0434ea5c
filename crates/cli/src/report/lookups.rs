//! Describes what a lookup reads in a dataset that is clustered by hash: the partition of an id and the Bloom filters
//! decide, not ranges of the key.

use super::markup::{self, row};
use super::model::{Epoch, ReportData, sum};
use super::svg::escape;
use crate::text;

/// Returns the mean number of filter bits per row.
pub(super) fn bits_per_row(epochs: &[Epoch]) -> f64 {
    8.0 * text::share(sum(epochs, |epoch| epoch.filter_bytes), sum(epochs, |epoch| epoch.rows))
}

/// Returns the table of what decides lookups, by epoch.
pub(super) fn card(model: &ReportData) -> String {
    let words = format!(
        "The hash of an id gives its partition, and the filters of that partition's row groups exclude nearly all of those \
without it; filters of spilled records are asked too. Epochs that were compacted or salvaged have no partitions.{}",
        escape(&model.selection())
    );
    let names = ["epoch", "partitions", "row groups", "of one partition, mean", "spills", "filters", "bits per row"];
    let line = |epoch: &Epoch| {
        let of_one = match epoch.partitions {
            Some(partitions) => epoch.row_groups as f64 / f64::from(partitions.max(1)),
            None => epoch.row_groups as f64,
        };
        [
            epoch.epoch.to_string(),
            epoch.partitions.map_or_else(|| "none".to_owned(), |partitions| text::count(partitions.into())),
            text::count(epoch.row_groups as u64),
            text::three_digits(of_one),
            text::count(epoch.metrics.spills),
            text::bytes(epoch.filter_bytes),
            format!("{:.1}", bits_per_row(std::slice::from_ref(epoch))),
        ]
    };
    let lines: String = model.drawn.iter().map(|&place| row("td", &line(&model.epochs[place]))).collect();
    let header = row("th", &names.map(str::to_owned));
    let table = format!(
        "<div class=\"scroll\"><table id=\"lookups\"><thead>{header}</thead><tbody>{lines}</tbody></table></div>"
    );
    markup::card("What a lookup of an id reads", &words, Some(table))
}
