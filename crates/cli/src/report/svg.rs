//! Writes marks as SVG text. This is the only module that escapes text from a dataset.

use std::fmt::{Display, Write};

use super::axis::Axis;

/// Width of all plots in coordinate units, which are about the pixels of a page column in a wide window.
pub(super) const WIDTH: f64 = 600.0;

/// Escapes text for an element's content or a quoted attribute. Characters that are invalid in XML become `U+FFFD`.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(character),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns an element with attributes, which are escaped. `content` is markup.
pub(super) fn element(name: &str, attributes: &[(&str, &dyn Display)], content: &str) -> String {
    let mut out = format!("<{name}");
    for (name, value) in attributes {
        let _ = write!(out, " {name}=\"{}\"", escape(&value.to_string()));
    }
    match content {
        "" => out.push_str("/>"),
        content => {
            let _ = write!(out, ">{content}</{name}>");
        }
    }
    out
}

/// Formats a coordinate with one digit, since differences below a tenth of a pixel are invisible.
pub(super) fn at(coordinate: f64) -> String {
    let text = format!("{coordinate:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Returns a text at a position. `class` determines its style.
pub(super) fn label(x: f64, y: f64, class: &str, text: &str) -> String {
    element("text", &[("x", &at(x)), ("y", &at(y)), ("class", &class)], &escape(text))
}

/// Returns a straight line.
pub(super) fn line(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    element(
        "line",
        &[("x1", &at(from.0)), ("y1", &at(from.1)), ("x2", &at(to.0)), ("y2", &at(to.1)), ("class", &class)],
        "",
    )
}

/// Returns the data of a path through points.
pub(super) fn path_data(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut data = String::new();
    for (x, y) in points {
        let _ = write!(data, "{}{} {}", if data.is_empty() { 'M' } else { 'L' }, at(x), at(y));
    }
    data
}

/// The plotting area with its axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    pub(super) x: Axis,
    pub(super) y: Axis,
}

impl Frame {
    pub(super) fn x(&self, value: f64) -> f64 {
        self.left + self.x.share(value) * (self.right - self.left)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value) * (self.bottom - self.top)
    }

    /// Returns horizontal lines at the ticks of y, with labels and a title above.
    pub(super) fn y_axis(&self, title: &str, ticks: usize) -> String {
        let mut out = String::new();
        for tick in self.y.ticks(ticks) {
            let y = self.bottom - tick.share * (self.bottom - self.top);
            out += &line((self.left, y), (self.right, y), "grid");
            out += &label(self.left - 8.0, y + 4.0, "tick end", &tick.label);
        }
        out + &label(0.0, (self.top - 20.0).min(22.0), "title", title)
    }

    /// Returns the x axis, with ticks, labels and a title.
    pub(super) fn x_axis(&self, title: &str, ticks: usize) -> String {
        let mut out = line((self.left, self.bottom), (self.right, self.bottom), "axis");
        for tick in self.x.ticks(ticks) {
            let x = self.left + tick.share * (self.right - self.left);
            out += &line((x, self.bottom), (x, self.bottom + 5.0), "axis");
            out += &label(x, self.bottom + 20.0, "tick middle", &tick.label);
        }
        out + &self.x_title(title)
    }

    pub(super) fn x_title(&self, title: &str) -> String {
        label((self.left + self.right) / 2.0, self.bottom + 42.0, "title middle", title)
    }

    /// Returns a plot that contains `content`. Programs can convert coordinates back to values with the plot's
    /// attributes.
    pub(super) fn plot(&self, name: &str, description: &str, content: &str) -> String {
        let height = self.bottom + 52.0;
        let kind = |axis: Axis| if axis.is_log { "log" } else { "linear" };
        let view = format!("0 0 {} {}", at(WIDTH), at(height));
        element(
            "svg",
            &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("viewBox", &view),
                ("role", &"img"),
                ("aria-label", &description),
                ("data-plot", &name),
                ("data-left", &self.left),
                ("data-right", &self.right),
                ("data-top", &self.top),
                ("data-bottom", &self.bottom),
                ("data-x", &format_args!("{} {:e} {:e}", kind(self.x), self.x.from, self.x.to)),
                ("data-y", &format_args!("{} {:e} {:e}", kind(self.y), self.y.from, self.y.to)),
            ],
            content,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        let hostile = "</script><b a='\"&\u{0}\u{1b}";
        let escaped = escape(hostile);
        assert_eq!(escaped, "&lt;/script&gt;&lt;b a=&#39;&quot;&amp;\u{fffd}\u{fffd}");
        let text = element("text", &[("data-tip", &hostile)], &escape(hostile));
        assert_eq!(text, format!("<text data-tip=\"{escaped}\">{escaped}</text>"));
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!((at(3.0), at(2.0 / 3.0), at(-0.04)), ("3".to_owned(), "0.7".to_owned(), "-0".to_owned()));
        assert_eq!(path_data([(0.0, 1.0), (2.5, 3.25)]), "M0 1L2.5 3.2");
    }
}
