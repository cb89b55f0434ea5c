//! The table of a dataset's indexes.

use turbidite::IndexSummary;

use super::markup::{self, row};
use crate::text;

/// Returns the table of the indexes. Returns nothing if there are none.
pub(super) fn card(indexes: &[IndexSummary]) -> String {
    if indexes.is_empty() {
        return String::new();
    }
    let words = "Records are found by the values of these columns, too. Queries use an index where it reads less than a scan; \
epochs without entries are scanned.";
    let names = ["index", "epochs", "epochs without entries", "entries", "size", "bytes per entry"];
    let line = |index: &IndexSummary| {
        [
            index.definition.clone(),
            text::count(index.epochs),
            match &index.problem {
                Some(problem) => format!("{}: {problem}", text::count(index.missing.len() as u64)),
                None => text::count(index.missing.len() as u64),
            },
            text::count(index.entries),
            text::bytes(index.bytes),
            format!("{:.1}", text::share(index.bytes, index.entries)),
        ]
    };
    let lines: String = indexes.iter().map(|index| row("td", &line(index))).collect();
    let header = row("th", &names.map(str::to_owned));
    let table = format!(
        "<div class=\"scroll\"><table id=\"indexes\"><thead>{header}</thead><tbody>{lines}</tbody></table></div>"
    );
    markup::card("Indexes", words, Some(table))
}
