//! Forecasts of runs, for `turbidite simulate`: the real engines of all ranks on a modelled machine.
//!
//! [`machine`] is the driver of the engines: a discrete-event simulation with models of processors, network and
//! storage. [`Plan`] is the run to forecast, and [`Records`] generates what its ranks append. [`RunForecast`] simulates
//! a job's first epoch and a later one, and scales them to the planned run; [`PlannedIndexes`] adds the indexes that
//! are built during ingest. [`Measurement`] fits the model to this machine by a short job. [`advise`] recommends
//! settings from smaller trial runs.
//!
//! The crate uses the hidden modules of the core and adds none. It prints nothing: the command formats its results.

mod advice;
mod error;
mod forecast;
mod indexes;
pub mod machine;
mod measure;
mod plan;
mod program;

pub use advice::{Advice, advise};
pub use error::{ForecastError, Result};
pub use forecast::{Forecast, RunForecast};
pub use indexes::{IndexForecast, PlannedIndexes};
pub use measure::Measurement;
pub use plan::Plan;
pub use program::{Distribution, Keys, MAX_TRACED, Records, TracedColumn};
