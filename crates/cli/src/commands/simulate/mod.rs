//! `turbidite simulate`: forecasts a run with the real engines on a modelled machine.
//!
//! Map: `command` parses the options, and `program` generates the records. `forecast` runs the model and computes the
//! forecast. `advice` runs the model with other settings and recommends settings. `words` formats the forecast as text.

mod advice;
mod command;
mod forecast;
mod program;
mod words;

pub(crate) use command::Simulate;
