//! The report: one HTML page that shows the layout of a dataset.
//!
//! All of its content comes from manifests. The page is self-contained: style, script and plots are embedded, nothing
//! is fetched, and without the script only tooltips and copying are missing. It is well-formed XML too, so that
//! programs can read the values back from the marks (`data-…` attributes).
//!
//! Invariant: the page's size is bounded. Items whose number grows with epochs or receivers are merged
//! ([`model::Buckets`], [`model::Loads`]) or sampled evenly.
//!
//! Map: `model` collects the data, `axis` provides scales and ticks, `svg` writes marks and escapes text,
//! `distribution`, `loads`, `selectivity` and `bars` are plots, `page` assembles them; `forecast` has those of
//! `simulate`.

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
pub(crate) use model::ReportData;
pub(crate) use page::render;
