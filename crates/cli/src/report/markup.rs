//! Pieces of the page's markup: cards and lines of tables.

use super::svg::escape;

/// Returns a card. `content` is markup, or `None` if the card is empty.
pub(super) fn card(heading: &str, words: &str, content: Option<String>) -> String {
    let content = content.unwrap_or_else(|| "<p>None.</p>".to_owned());
    format!("<section><h2>{}</h2><p>{words}</p>{content}</section>\n", escape(heading))
}

/// Returns a line of a table, whose cells have the tag `tag`.
pub(super) fn row(tag: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
    format!("<tr>{cells}</tr>")
}
