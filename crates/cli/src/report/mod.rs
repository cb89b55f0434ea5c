//! The report: one HTML page that shows how a dataset is laid out.
//!
//! Everything on it is told by manifests. The page is self-contained: style, script and plots lie within it, nothing is
//! fetched, and without the script only tooltips and copying are missing. It is well-formed XML too, so that programs
//! can read the figures back from the marks (`data-…` attributes).
//!
//! Invariant: the page's size is bounded. What grows with epochs or receivers is put together ([`model::Buckets`],
//! [`model::Loads`]) or a selection evenly spaced.
//!
//! Map: `model` gathers figures, `axis` scales and ticks, `svg` writes marks and escapes text, `distribution`, `loads`,
//! `selectivity` and `bars` are plots, `page` puts them together; `forecast` has those of `simulate`.

mod axis;
mod bars;
mod distribution;
mod forecast;
mod largest;
mod loads;
mod model;
mod page;
mod selectivity;
mod svg;

pub(crate) use forecast::{ForecastPlots, render_forecast};
pub(crate) use model::Model;
pub(crate) use page::render;
