//! `turbidite simulate`: forecasts a run with the real engines on a modelled machine.
//!
//! Map: `command` parses the options to a `plan`, and `program` generates the records. `forecast` runs the model and
//! computes the forecast, and `indexes` those of the indexes. `measure` measures this machine for the model. `advice`
//! runs the model with other settings and recommends settings. `words` formats the forecast as text.

mod advice;
mod command;
mod forecast;
mod indexes;
mod measure;
mod plan;
mod program;
mod words;

pub(crate) use command::Simulate;
