//! `turbidite simulate`: what one's own run would be like, foretold by the real engines on a modelled machine.
//!
//! Map: `command` has the options, `program` makes the records, `forecast` runs the model and adds up what came of it, `advice` runs it some times
//! more and says what to choose, `words` says it.

mod advice;
mod command;
mod forecast;
mod program;
mod words;

pub(crate) use command::Simulate;
