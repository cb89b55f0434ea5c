//! Creates the report: one HTML page that shows the layout of a dataset.
//!
//! The content is computed from manifests only. The page is self-contained: style, script and plots are embedded.
//! Without the script, only tooltips and copying are missing. The page is also well-formed XML, so that programs can
//! read the values back from the marks (`data-…` attributes).
//!
//! Invariant: the page's size is bounded. Items whose number grows with the number of epochs or receivers are merged
//! ([`model::Buckets`], [`model::Loads`]) or sampled evenly.
//!
//! Map: `model` collects the data, `axis` provides scales and ticks, and `svg` writes marks and escapes text.
//! `distribution`, `loads`, `selectivity` and `bars` draw plots, `lookups` is the table of a dataset that is clustered
//! by hash, `boxes` the plot of one that is clustered by space, `indexes` the table of indexes, `markup` writes cards,
//! and `page` assembles them. `forecast` draws the plots of `simulate`.

mod axis;
mod bars;
mod boxes;
mod distribution;
mod forecast;
mod indexes;
mod largest;
mod loads;
mod lookups;
mod markup;
mod model;
mod page;
mod selectivity;
mod svg;

pub(crate) use forecast::{ForecastPlots, render_forecast};
pub(crate) use model::ReportData;
pub(crate) use page::render;
