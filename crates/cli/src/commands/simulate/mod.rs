//! `turbidite simulate`: forecasts a run with the real engines on a modelled machine.
//!
//! The forecast is the crate `turbidite-forecast`. `command` parses the options to a plan and reads the trace, and
//! `words` formats the forecast as text.

mod command;
mod words;

pub(crate) use command::Simulate;
