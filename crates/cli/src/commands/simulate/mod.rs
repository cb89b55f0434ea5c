//! `turbidite simulate`: forecasts a run with the real engines on a modelled machine.
//!
//! Map: `command` has the options, `program` generates the records, `forecast` runs the model and sums up its results,
//! `advice` runs it a few more times and recommends settings, `words` prints the forecast.

mod advice;
mod command;
mod forecast;
mod program;
mod words;

pub(crate) use command::Simulate;
